package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"unicode"
)

// irregular are the participles that do not end in -ed and are not also verbs in the imperative.
var irregular = set(`told begun taken done gone given written heard seen known held kept sent made found met said
	shown spoken stood struck taught thought understood won worn brought built bought caught chosen drawn driven fallen
	felt fought flown forgotten frozen grown hidden laid led lent lit meant paid ridden risen sold slept spent stolen
	stuck swept sworn torn thrown woken wound bound dealt fed hung left lost overridden broken withdrawn`)

// verbsInEd end as participles do and are none.
var verbsInEd = set("bleed embed exceed feed heed need proceed red seed shed shred speed succeed")

// thirdPerson are verbs that cannot be a noun in the plural as well. Of others a function that returns a bool is named
// by a verb, too.
var thirdPerson = set(`accepts admits allows appends applies awaits becomes begins belongs brings carries closes
	completes concludes consists contains decides describes differs emits exists expects fails finishes fits gives goes
	hears hides ignores keeps knows lacks makes opens owns puts reaches refuses reopens says sends serves sets shows
	spares speaks stands starts takes tells wants writes`)

// questions begin the names of functions that return a bool.
var questions = set("is has was does")

// overworked are verbs that say too little: take what, begin what? A few may stay where it is clear.
var overworked = set("take begin end told tells place")

const (
	mostOverworked = 8
	mostTypeRooms  = 4
)

// everywhere are the types that each package may have: the package says of what.
var everywhere = set("Config Dialect Hooks Options Protocol")

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// named is a function, or a method of an interface, with the type that it has.
type named struct {
	id *ast.Ident
	of *ast.FuncType
}

// functions returns those that a file declares.
func functions(s source) (all []named) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			all = append(all, named{n.Name, n.Type})
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				if f, ok := m.Type.(*ast.FuncType); ok && len(m.Names) == 1 {
					all = append(all, named{m.Names[0], f})
				}
			}
		}
		return true
	})
	return all
}

// checkVerbForms looks at the first word of each function's name.
func checkVerbForms(tr tree) (out []violation) {
	for _, s := range tr.sources {
		if s.test || s.made {
			continue
		}
		for _, f := range functions(s) {
			if form := verbForm(f); form != "" {
				what := fmt.Sprintf("%s is named by a %s: a verb in the imperative, a noun, or is… and has…", f.id.Name, form)
				out = append(out, violation{at(s, f.id), what, "forms:" + s.path})
			}
		}
	}
	return out
}

// verbForm returns in which form of a verb a function is named that it must not be named in, "" if in none.
func verbForm(f named) string {
	word := firstWord(f.id.Name)
	switch {
	case f.id.Name == "Done" && returnsChannel(f.of): // as that of a context
		return ""
	case irregular[word], len(word) > 3 && strings.HasSuffix(word, "ed") && !verbsInEd[word]:
		return "participle"
	case thirdPerson[word], returnsBool(f.of) && isThirdPerson(word):
		return "verb in the third person"
	}
	return ""
}

func isThirdPerson(word string) bool {
	if questions[word] || len(word) < 4 || !strings.HasSuffix(word, "s") {
		return false
	}
	return !strings.HasSuffix(word, "ss") && !strings.HasSuffix(word, "us") && !strings.HasSuffix(word, "is")
}

func returnsBool(f *ast.FuncType) bool {
	if f.Results == nil || f.Results.NumFields() != 1 {
		return false
	}
	id, ok := f.Results.List[0].Type.(*ast.Ident)
	return ok && id.Name == "bool"
}

func returnsChannel(f *ast.FuncType) bool {
	if f.Results == nil || f.Results.NumFields() != 1 {
		return false
	}
	_, ok := f.Results.List[0].Type.(*ast.ChanType)
	return ok
}

// firstWord returns the first word of a name in camel case, in lower case.
func firstWord(name string) string {
	for i, r := range name {
		if i > 0 && unicode.IsUpper(r) {
			return strings.ToLower(name[:i])
		}
	}
	return strings.ToLower(name)
}

// checkOverworked counts the functions of one name that says too little.
func checkOverworked(tr tree) (out []violation) {
	places := map[string][]string{}
	for _, s := range tr.sources {
		if s.test || s.made {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && overworked[strings.ToLower(f.Name.Name)] {
				name := strings.ToLower(f.Name.Name)
				places[name] = append(places[name], at(s, f.Name))
			}
		}
	}
	for name, list := range places {
		if len(list) > mostOverworked {
			what := fmt.Sprintf("%d functions are named %s, at most %d may be: say which", len(list), name, mostOverworked)
			out = append(out, violation{list[0], what, "overworked:" + name})
		}
	}
	return out
}

// checkTypeNames counts the packages that have a type of the same name.
func checkTypeNames(tr tree) (out []violation) {
	rooms := map[string][]string{}
	for _, s := range tr.sources {
		if s.test || s.made {
			continue
		}
		for _, d := range s.file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if ok && !everywhere[t.Name.Name] && !slices.Contains(rooms[t.Name.Name], s.dir) {
					rooms[t.Name.Name] = append(rooms[t.Name.Name], s.dir)
				}
			}
		}
	}
	for name, dirs := range rooms {
		if len(dirs) > mostTypeRooms {
			what := fmt.Sprintf("%s is a type in %d packages, at most %d may have it: say which", name, len(dirs), mostTypeRooms)
			out = append(out, violation{strings.Join(dirs, ", "), what, "types:" + name})
		}
	}
	return out
}
