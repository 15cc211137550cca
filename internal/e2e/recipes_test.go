package e2e_test

import (
	"strings"
	"testing"
)

// TestWatchRecipes: what the console gives people to copy does what it says, with a credential and without one: the
// command that begins a first run, the one that fetches events, and under "Watch with …" curl, and the programs for
// Node and browsers. The one in Python is run where httpx is installed.
func TestWatchRecipes(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	for name, token := range map[string]string{"open": "", "signed": edgeToken} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--data", t.TempDir(), "--no-demo"}
			if token != "" {
				args = append(args, "--auth-token", token)
			}
			p := newProc(t, "dev", args...)
			p.start()
			out, err := runNode(t, node, chromium, "recipes.mjs", "BASE="+p.url(""), "AGENTSTREAM_TOKEN="+token)
			if err != nil || strings.Count(out, "\nok ")+1 < 7 {
				t.Errorf("the recipes: %v", err)
			}
		})
	}
}
