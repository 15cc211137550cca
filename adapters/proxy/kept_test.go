package proxy_test

import (
	"strings"
	"testing"

	"agentstream/adapters/proxy"
)

// TestUnknownEventsAreCounted: what the catalogue has no place for passes, is kept, and is counted.
func TestUnknownEventsAreCounted(t *testing.T) {
	body := strings.Replace(answer("msg_1", "hello"), `data: {"type":"content_block_stop"`,
		"data: {\"type\":\"dream\",\"of\":\"sheep\"}\n\n"+`data: {"type":"content_block_stop"`, 1)
	r := start(t, replay([]byte(body), sse))
	resp, got := r.post("/v1/messages", `{"model":"claude","messages":[]}`)
	if string(got) != body {
		t.Errorf("the client received %q", got)
	}
	kept := 0
	for _, e := range r.ended(resp.Header.Get(proxy.HeaderRun)) {
		if e.Type == "custom.anthropic.dream" && string(e.Payload) == `{"type":"dream","of":"sheep"}` {
			kept++
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if kept != 1 || r.kept != 1 {
		t.Errorf("%d kept, %d counted", kept, r.kept)
	}
}
