package arch

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"
)

// retired are words that only the authors knew, and the field's words for the same.
var retired = map[string]string{
	"desk": "worker", "turnstile": "lock", "outlet": "broadcast group", "shelf": "cache", "sift": "decode",
	"bury": "put", "buried": "dead letter", "twin": "duplicate",
	"liar": "faulty proxy", "board": "cache", "fly": "fetch",
}

// camel matches the words of a Go name.
var camel = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

// verbs are not what a doc comment of Go begins with: something returns, reports, writes, sets or means.
var verbs = regexp.MustCompile(`^// [A-Za-z0-9_]+ (gives|tells|says|hears)\b`)

// checkComments looks at the first words of doc comments outside tests.
func checkComments(tr tree) (out []violation) {
	for _, s := range tr.sources {
		if strings.HasSuffix(s.path, "_test.go") || ast.IsGenerated(s.file) {
			continue
		}
		for _, group := range s.file.Comments {
			if m := verbs.FindStringSubmatch(group.List[0].Text); m != nil {
				out = append(out, violation{at(s, group),
					fmt.Sprintf("comment: %q is not a verb of doc comments", m[1]), "verbs:" + s.path})
			}
		}
	}
	return out
}

// checkWords looks at the names of the code, where a word begins its life.
func checkWords(tr tree) (out []violation) {
	for _, s := range tr.sources {
		seen := map[string]bool{}
		ast.Inspect(s.file, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			for _, w := range camel.FindAllString(id.Name, -1) {
				w = strings.TrimSuffix(strings.ToLower(w), "s")
				if now, ok := retired[w]; ok && !seen[w] {
					seen[w] = true
					out = append(out, violation{at(s, id), fmt.Sprintf("%s: the word is %q", id.Name, now), "words:" + s.path})
				}
			}
			return true
		})
	}
	return out
}
