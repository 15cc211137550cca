package e2e_test

import (
	"strings"
	"testing"
)

// aguiRuns are stored logs, of which each client reads the newest response; aguiLive those that are stored once more,
// half of each before the client is cut. A log that asks a person something ends the body of a live run.
var (
	aguiRuns = []string{"session", "plain", "tool", "parallel-tools", "unicode", "children", "hostile", "follow-up",
		"native", "dispatch",
		"cancel-in-text", "cancel-in-tool", "failure", "late"}
	aguiLive = []string{"plain", "tool", "parallel-tools", "children", "hostile", "follow-up", "native", "cancel-in-tool"}
)

// TestAGUI: HttpAgent and TanStack's client, unmodified: one client object that is cut after every event and in the
// middle of each has in the end what one has that was never cut, at runs that are over and while they go on.
func TestAGUI(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	store := func(names []string, prefix string) string {
		var runs []string
		for _, name := range names {
			run := prefix + strings.ReplaceAll(name, "-", "_")
			storeScenario(t, w.edges[0].url(""), run, name)
			runs = append(runs, run)
		}
		return strings.Join(runs, ";")
	}
	runs, live := store(aguiRuns, "agui_"), store(aguiLive, "aguil_")
	every := "7"
	if proofs() {
		every = "1"
	}
	for _, client := range []string{"agent", "live", "tanstack"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			script(t, node, "agui.mjs", "BASE="+w.edges[0].url(""), "OTHER="+w.edges[1].url(""), "TOKEN="+edgeToken,
				"CLIENT="+client, "RUNS="+runs, "LIVE="+live,
				"EVERY="+every)
		})
	}
}

// TestCopilotKit: a chat of CopilotKit's client, without its runtime, with an agent that answers: a reload, a second
// page at another node, a stop from it.
func TestCopilotKit(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	serveRuns(t, w.nats, "chat_", serveSession)
	script(t, node, "copilotkit.mjs", "BASE="+w.edges[0].url(""), "OTHER="+w.edges[1].url(""), "TOKEN="+edgeToken)
}

// TestTanStackLive: a chat of TanStack's ChatClient with an agent that answers: cuts, reloads, a second page at another
// node, a stop from it, questions.
func TestTanStackLive(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	w := edgesFor(t, "http://127.0.0.1:1")
	serveRuns(t, w.nats, "chat_", serveSession)
	script(t, node, "agui-live.mjs", "BASE="+w.edges[0].url(""), "OTHER="+w.edges[1].url(""), "TOKEN="+edgeToken)
}
