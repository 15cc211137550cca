package e2e_test

import (
	"strings"
	"testing"
)

// TestKeptPages: in Chromium, a page with our client that is frozen, and one that was left and is come back to, go on
// by themselves behind what they have, over every transport, though nobody tells that their connections are dead: each
// event comes once.
func TestKeptPages(t *testing.T) {
	beside(t)
	node, chromium := needNode(t)
	page := servePage(t)
	w := edgesFor(t, page)
	for _, transport := range []string{"fetch", "eventsource", "websocket"} {
		t.Run(transport, func(t *testing.T) {
			out, err := runNode(t, node, chromium, "kept.mjs", "PAGE="+page, "TRANSPORT="+transport, "TOKEN="+edgeToken,
				"STREAM="+w.edges[0].url("/v1/agent/runs/kept-"+transport+"/stream"))
			if err != nil || !strings.Contains(out, `"over":true`) {
				t.Errorf("%v", err)
			}
		})
	}
}
