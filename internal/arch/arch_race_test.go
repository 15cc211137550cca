package arch

import (
	"go/ast"
	"slices"
	"strings"
)

// unraced are the packages that are tested without the race detector, which makes them ten times as slow: this one,
// and those that only turn bytes into events. Their tests take the same input apart very often. That decoders share
// nothing when many work at the same time is shown with the detector, by TestDecodersShareNothing of
// producers. The targets of tests have the list a second time.
var unraced = []string{"adapters/anthropic", "adapters/gemini", "adapters/openai", "adapters/provider",
	"adapters/provider/brokentest",
	"adapters/transcript", "internal/arch", "schema/jsonscan"}

// norace begins a file of tests that are built only without the race detector: one goroutine that computes
// much, so that the detector has nothing to find. tools/norace lists them for make. The other tests of
// the package run with the detector.
const norace = "//go:build !race\n"

// concurrent is what packages need that have something for the race detector to find.
var concurrent = []string{"sync", "sync/atomic", "testing/synctest", "unsafe", "C"}

// testTargets are the recipes of make that run tests.
const testTargets = "tools/make/test.mk"

func checkRace(tr tree) (out []violation) {
	if text, ok := tr.texts[testTargets]; ok && !strings.Contains(text, "\nUNRACED := "+strings.Join(unraced, " ")+"\n") {
		out = append(out, violation{testTargets, "UNRACED is not " + strings.Join(unraced, " "), "race:" + testTargets})
	}
	for _, s := range tr.sources {
		if strings.HasPrefix(tr.texts[s.path], norace) && !s.test {
			out = append(out, violation{s.path, "is no test and not seen by the race detector", "race:" + s.path})
		}
		if !slices.Contains(unraced, s.dir) && !strings.HasPrefix(tr.texts[s.path], norace) {
			continue
		}
		for _, imp := range imports(s) {
			if slices.Contains(concurrent, imp) {
				out = append(out, violation{s.path, "imports " + imp, "race:" + s.path})
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				out = append(out, violation{at(s, g), "starts a goroutine", "race:" + s.path})
			}
			return true
		})
	}
	return out
}
