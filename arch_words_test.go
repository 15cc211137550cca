package agentstream_test

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
