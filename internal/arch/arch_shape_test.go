package arch

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

const (
	maxFileLines = 600
	maxFuncLines = 80
)

func checkLength(tr tree) (out []violation) {
	for _, s := range tr.sources {
		if s.made {
			continue
		}
		if n := strings.Count(tr.texts[s.path], "\n"); n > maxFileLines {
			out = append(out, violation{s.path, fmt.Sprintf("has %d lines", n), "length:" + s.path})
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1
			if n > maxFuncLines && !s.test { // a test may be a long table
				out = append(out, violation{at(s, f), fmt.Sprintf("%s has %d lines", f.Name.Name, n),
					"length:" + s.path + ":" + f.Name.Name})
			}
		}
	}
	return out
}

func checkSleep(tr tree) (out []violation) {
	for _, s := range tr.sources {
		if s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == "time" {
					out = append(out, violation{at(s, n), "time.Sleep", "sleep:" + s.path})
				}
			}
			return true
		})
	}
	return out
}

// machinePaths and registries are put together here so that this file does not break its own rule.
var (
	machinePaths = regexp.MustCompile(`(^|[\s"'` + "`" + `(=:,])/(` +
		strings.Join([]string{"wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers"}, "|") + `)(/|\b)`)
	registries = regexp.MustCompile(`(?i)\b(proxy\.gol` + `ang\.org|registry\.npm` + `js\.org|deb\.deb` +
		`ian\.org|do` + `cker\.io|gh` + `cr\.io|gc` + `r\.io|qu` + `ay\.io|py` + `pi\.org)\b`)
)

func checkPaths(tr tree) (out []violation) {
	for p, text := range tr.texts {
		line := 0
		for l := range strings.Lines(text) {
			line++
			for _, re := range []*regexp.Regexp{machinePaths, registries} {
				if m := re.FindString(l); m != "" {
					out = append(out, violation{fmt.Sprintf("%s:%d", p, line),
						fmt.Sprintf("names %q", strings.TrimSpace(m)), "paths:" + p})
				}
			}
		}
	}
	return out
}
