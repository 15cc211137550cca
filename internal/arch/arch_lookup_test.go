package arch

import (
	"fmt"
	"go/ast"
	"go/token"
)

// checkLookups finds schema.Field, and functions that only call it, where a loop asks one object for several fields:
// each call passes through the whole object, which a client may have made, once for each name, which another may have.
func checkLookups(tr tree) (out []violation) {
	wrappers := map[string]bool{} // dir.name
	for _, s := range tr.sources {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && wraps(s, f) {
				wrappers[s.dir+"."+f.Name.Name] = true
			}
		}
	}
	for _, s := range tr.sources {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			for _, body := range loops(n) {
				inside := declared(n)
				ast.Inspect(body, func(m ast.Node) bool {
					if len(loops(m)) > 0 && m != n { // it is looked at by itself
						return false
					}
					call, ok := m.(*ast.CallExpr)
					if ok && looksUp(s, call, wrappers) && !inside[rootOf(call.Args[0])] {
						out = append(out, violation{at(s, call),
							fmt.Sprintf("%s in a loop: jsonscan.Values finds all fields in one pass", nameOf(call)), "lookups:" + s.path})
					}
					return true
				})
			}
			return true
		})
	}
	return out
}

// wraps reports whether a function does nothing but to look up a field of its first parameter.
func wraps(s source, f *ast.FuncDecl) bool {
	if f.Body == nil || f.Recv != nil || len(f.Body.List) == 0 || len(f.Body.List) > 2 ||
		len(f.Type.Params.List) == 0 || len(f.Type.Params.List[0].Names) == 0 {
		return false
	}
	found := false
	ast.Inspect(f.Body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && looksUp(s, call, nil) &&
			rootOf(call.Args[0]) == f.Type.Params.List[0].Names[0].Name {
			found = true
		}
		return !found
	})
	return found
}

// looksUp reports whether a call is schema.Field, or one of the functions of the package that stand for it.
func looksUp(s source, call *ast.CallExpr, wrappers map[string]bool) bool {
	if len(call.Args) == 0 {
		return false
	}
	switch f := call.Fun.(type) {
	case *ast.SelectorExpr:
		id, ok := f.X.(*ast.Ident)
		return ok && id.Name == "schema" && f.Sel.Name == "Field"
	case *ast.Ident:
		return s.dir == "schema" && f.Name == "Field" || wrappers[s.dir+"."+f.Name]
	}
	return false
}

func nameOf(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		return rootOf(f.X) + "." + f.Sel.Name
	}
	return rootOf(call.Fun)
}

// loops returns what of a node is carried out many times: the body of a loop, and a function that slices or maps call.
func loops(n ast.Node) (bodies []ast.Node) {
	switch n := n.(type) {
	case *ast.ForStmt:
		return []ast.Node{n.Body}
	case *ast.RangeStmt:
		return []ast.Node{n.Body}
	case *ast.CallExpr:
		f, ok := n.Fun.(*ast.SelectorExpr)
		if !ok || rootOf(f.X) != "slices" && rootOf(f.X) != "maps" {
			return nil
		}
		for _, arg := range n.Args {
			if fn, ok := arg.(*ast.FuncLit); ok {
				bodies = append(bodies, fn.Body)
			}
		}
	}
	return bodies
}

// declared returns the names that a loop sets anew: another object each time.
func declared(loop ast.Node) map[string]bool {
	names := map[string]bool{}
	ast.Inspect(loop, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			for _, e := range []ast.Expr{n.Key, n.Value} {
				if id, ok := e.(*ast.Ident); ok {
					names[id.Name] = true
				}
			}
		case *ast.AssignStmt:
			for _, e := range n.Lhs {
				if id, ok := e.(*ast.Ident); ok && (n.Tok == token.DEFINE || n.Tok == token.ASSIGN) {
					names[id.Name] = true
				}
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				names[id.Name] = true
			}
		case *ast.FuncLit:
			for _, p := range n.Type.Params.List {
				for _, id := range p.Names {
					names[id.Name] = true
				}
			}
		}
		return true
	})
	return names
}

// rootOf returns the variable that an expression begins with; "" when there is none.
func rootOf(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			if i := rootOf(x.Index); i != "" { // another element each time
				return i
			}
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.CallExpr:
			if len(x.Args) > 0 {
				if of := rootOf(x.Args[0]); of != "" {
					return of
				}
			}
			e = x.Fun
		default:
			return ""
		}
	}
}
