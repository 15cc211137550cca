package e2e_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// The npm library of the sessions protocol, unmodified: it is told another address and a token, and everything
// that it can do with sessions works, over either address that its users come from. Requests go to two edges in
// turns, and the agents know nothing of the protocol.
func TestSessionsLibraryForNode(t *testing.T) {
	beside(t)
	node := needSDKs(t)
	w := sessionsFor(t)
	for _, c := range []struct {
		script string
		base   string // behind the host
	}{
		{"qoder-sessions", ""}, {"qoder-sessions", "/api/v1/cloud"},
		{"qoder-events", ""}, {"qoder-events", "/api/v1/cloud"},
		{"qoder-actions", "/api/v1/cloud"}, {"qoder-previews", ""},
	} {
		t.Run(c.script+c.base, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), node, c.script+".mjs")
			cmd.Dir = jsDir
			cmd.Env = append(os.Environ(), "BASE="+w.edges[0].url(c.base), "OTHER="+w.edges[1].url(c.base), "TOKEN="+edgeToken)
			cmd.WaitDelay = time.Second
			kill := time.AfterFunc(60*time.Second, func() { _ = cmd.Process.Kill() })
			defer kill.Stop()
			if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != "ok" {
				t.Fatalf("%v\n%s", err, tail(string(out), 4000))
			}
		})
	}
}

// sessionsFor are two edges, a persister, and agents for every session that is created.
func sessionsFor(t *testing.T) world {
	t.Helper()
	w := edgesFor(t, "http://127.0.0.1:1")
	startAgents(t, w.nats)
	return w
}
