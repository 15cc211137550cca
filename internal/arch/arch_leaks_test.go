package arch

import (
	"fmt"
	"regexp"
	"strings"
)

// leak is a word of a protocol, and where it may stand besides the protocol's own folder. What stands below the
// protocols serves all of them: where it must ask one, it has a hook.
type leak struct {
	word *regexp.Regexp
	may  []string // folders, with all below them
}

// ground are the folders below the protocols.
var ground = []string{"schema", "producers", "adapters", "fanout", "persister", "edge", "clients/go", "internal"}

// leaks are the words. Names that a protocol shares with the ground (session, once, feed) are none.
var leaks = []leak{
	{regexp.MustCompile(`(?i)\bnimi\b|\bruntimev1\b|custom\.runtime\b|\bruntime-(account|memory|transfer|provider|message)\b`), nil},
	{regexp.MustCompile(`\bAI_[A-Z]+|\bWF_[A-Z]+|\bWORKFLOW_NODE_|\bai_(generate|stream)_config\b`), nil},
	{regexp.MustCompile(`(?i)\bqoder\b|\bdefine_outcome\b`), nil},
	{regexp.MustCompile(`(?i)\bmetis\b`), nil},
	{regexp.MustCompile(`\bmultitask_strategy\b`), nil},
	// LangGraph is where events come from as well.
	{regexp.MustCompile(`(?i)langgraph|langchain|\b__interrupt__\b|\bassistant_id\b`), []string{"adapters"}},
}

// checkLeaks looks at code and comments outside tests and what only tests import.
func checkLeaks(tr tree) (out []violation) {
	for _, s := range tr.sources {
		if s.test || isTestKit(s.dir) || !under(s.dir, ground) || s.dir == "internal/arch" || s.dir == "internal/e2e" {
			continue
		}
		line := 0
		for l := range strings.Lines(tr.texts[s.path]) {
			line++
			for _, k := range leaks {
				if word := k.word.FindString(l); word != "" && !under(s.dir, k.may) {
					out = append(out, violation{fmt.Sprintf("%s:%d", s.path, line), fmt.Sprintf("names %q", word), "leaks:" + s.path})
				}
			}
		}
	}
	return out
}

// under reports whether a folder is one of those, or below one.
func under(dir string, folders []string) bool {
	for _, f := range folders {
		if dir == f || strings.HasPrefix(dir, f+"/") {
			return true
		}
	}
	return false
}
