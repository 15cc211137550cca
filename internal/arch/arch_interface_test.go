package arch

import (
	"fmt"
	"go/ast"
)

const maxMethods = 4

func checkInterfaces(tr tree) (out []violation) {
	methods := map[string]*ast.InterfaceType{} // dir.Name, for embedded ones
	for _, s := range tr.sources {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if ts, ok := n.(*ast.TypeSpec); ok {
				if it, ok := ts.Type.(*ast.InterfaceType); ok {
					methods[s.dir+"."+ts.Name.Name] = it
				}
			}
			return true
		})
	}
	var count func(dir string, it *ast.InterfaceType) int
	count = func(dir string, it *ast.InterfaceType) (n int) {
		for _, m := range it.Methods.List {
			if _, ok := m.Type.(*ast.FuncType); ok {
				n += len(m.Names)
			} else if id, ok := m.Type.(*ast.Ident); ok && methods[dir+"."+id.Name] != nil {
				n += count(dir, methods[dir+"."+id.Name])
			} else if _, ok := m.Type.(*ast.SelectorExpr); ok {
				n++ // an interface of elsewhere has at least one
			}
		}
		return n
	}
	for _, s := range tr.sources {
		ast.Inspect(s.file, func(node ast.Node) bool {
			if it, ok := node.(*ast.InterfaceType); ok {
				if n := count(s.dir, it); n > maxMethods {
					out = append(out, violation{at(s, it), fmt.Sprintf("an interface of %d methods", n), "interface:" + s.path})
				}
			}
			return true
		})
	}
	return out
}
