package console

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Modules are written so that each import and export is a statement at the beginning of a line. An import of a relative
// path is one of the page's own; any other stands in a text that people copy.
var (
	importing   = regexp.MustCompile(`(?m)^import (?:\{([^}]*)\} from )?"(\.[^"]+)";\n`)
	reexporting = regexp.MustCompile(`(?m)^export (\*|\{[^}]*\}) from "(\.[^"]+)";\n`)
	listing     = regexp.MustCompile(`(?m)^export \{([^}]*)\};\n`)
	exporting   = regexp.MustCompile(`(?m)^export ((?:async )?(?:function\*?|class|const) (\w+))`)
	leftOver    = regexp.MustCompile(`(?m)^(?:export\b.*|import .*"\..*)`)
)

// linker makes one script of modules: a function for each, whose result has what the module exports. A browser that has
// one file to fetch shows the page after one round trip, and not after one for each step from module to module.
type linker struct {
	files map[string]file
	names map[string]string // of the functions' results, by the modules' paths; "" while a module's imports are read
	count int
	out   bytes.Buffer
}

// link returns the module at a path and all that it imports as one script. It panics when a module has a form that it
// does not know, or imports itself: the modules are part of the program, and TestBundle reads them.
func link(files map[string]file, entry string) []byte {
	l := &linker{files: files, names: map[string]string{}}
	l.out.WriteString("\"use strict\";\n")
	l.add(entry)
	return l.out.Bytes()
}

// add writes a module after what it imports, and returns the name of its exports.
func (l *linker) add(module string) string {
	if name, ok := l.names[module]; ok {
		if name == "" {
			panic("console: " + module + " imports itself")
		}
		return name
	}
	source, ok := l.files[module]
	if !ok {
		panic("console: there is no module " + module)
	}
	l.names[module] = ""
	text := string(source.content)
	var exports []string
	text = importing.ReplaceAllStringFunc(text, func(s string) string {
		m := importing.FindStringSubmatch(s)
		from := l.add(path.Join(path.Dir(module), m[2]))
		return fmt.Sprintf("const {%s} = %s;\n", strings.ReplaceAll(m[1], " as ", ": "), from)
	})
	text = reexporting.ReplaceAllStringFunc(text, func(s string) string {
		m := reexporting.FindStringSubmatch(s)
		from := l.add(path.Join(path.Dir(module), m[2]))
		if m[1] == "*" {
			exports = append(exports, "..."+from)
			return ""
		}
		for name := range strings.FieldsFuncSeq(strings.Trim(m[1], "{}"), func(r rune) bool { return r == ',' || r == ' ' }) {
			exports = append(exports, name+": "+from+"."+name)
		}
		return ""
	})
	text = listing.ReplaceAllStringFunc(text, func(s string) string {
		exports = append(exports, strings.TrimSpace(listing.FindStringSubmatch(s)[1]))
		return ""
	})
	text = exporting.ReplaceAllStringFunc(text, func(s string) string {
		m := exporting.FindStringSubmatch(s)
		exports = append(exports, m[2])
		return m[1]
	})
	if rest := leftOver.FindString(text); rest != "" {
		panic("console: " + module + " has a statement that is not read: " + rest)
	}
	l.count++
	name := fmt.Sprintf("module%d", l.count)
	fmt.Fprintf(&l.out, "// %s\nconst %s = (() => {\n%sreturn { %s };\n})();\n", module, name, text,
		strings.Join(exports, ", "))
	l.names[module] = name
	return name
}
