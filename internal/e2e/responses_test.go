package e2e_test

import (
	"strings"
	"testing"
)

// responsesRuns are stored logs whose first response has ended.
var responsesRuns = []string{"plain", "parallel-tools", "unicode", "tool", "failure", "cancel-in-text", "hostile"}

// TestResponsesSDK: the openai library, unmodified, in versions 6 and 7, takes a response up after each of its
// events, and in the middle of each, on the other of two edges.
func TestResponsesSDK(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	var runs []string
	for _, name := range responsesRuns {
		run := "run_" + strings.ReplaceAll(name, "-", "_")
		storeScenario(t, w.edges[0].url(""), run, name)
		runs = append(runs, run)
	}
	for _, sdk := range []string{"6", "7"} {
		t.Run(sdk, func(t *testing.T) {
			script(t, node, "responses.mjs", "BASE="+w.edges[0].url(""), "OTHER="+w.edges[len(w.edges)-1].url(""), "TOKEN="+edgeToken,
				"RUNS="+strings.Join(runs, " "), "SDK="+sdk)
		})
	}
}
