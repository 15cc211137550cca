package serve_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"agentstream/protocols/langgraph/serve"
)

// TestParametersRefused: what a client would wait for in vain is refused, on every route that takes it.
func TestParametersRefused(t *testing.T) {
	n := start(t, serve.Config{})
	n.busy("t")
	ofRuns := []string{
		`"webhook":"http://x/"`, `"after_seconds":5`, `"feedback_keys":["a"]`, `"if_not_exists":"maybe"`,
		`"on_disconnect":"stop"`,
		`"on_disconnect":1`, `"durability":"never"`,
	}
	before := len(n.Types("t"))
	for _, path := range []string{"/threads/t/runs", "/threads/t/runs/stream", "/threads/t/runs/wait"} {
		for _, member := range ofRuns {
			body := fmt.Sprintf(`{"assistant_id":"a","input":{"messages":[]},%s}`, member)
			n.do("POST", path, body, "Content-Type", "application/json").refused(422, "invalid_argument")
		}
	}
	for path, bodies := range map[string][]string{
		"/threads":           {`{"ttl":{"ttl":5}}`, `{"ttl":5}`, `{"supersteps":[{}]}`},
		"/threads/search":    {`{"values":{"a":1}}`, `{"sort_order":"up"}`},
		"/threads/count":     {`{"values":{"a":1}}`},
		"/threads/t/history": {`{"metadata":{"source":"loop"}}`},
	} {
		for _, body := range bodies {
			n.do("POST", path, body, "Content-Type", "application/json").refused(422, "invalid_argument")
		}
	}
	n.do("PATCH", "/threads/t", `{"ttl":5}`, "Content-Type", "application/json").refused(422, "invalid_argument")
	n.do("GET", "/threads/t/stream?namespace=a", "").refused(422, "invalid_argument")
	if now := len(n.Types("t")); now != before {
		t.Errorf("refused requests stored %d events", now-before)
	}
}

// TestParametersHanded: what asks something of the graph is in what its agent is sent, with a message and with an
// answer.
func TestParametersHanded(t *testing.T) {
	n := start(t, serve.Config{})
	members := `"context":{"user":"u"},"interrupt_before":["a"],"interrupt_after":"*","durability":"exit","checkpoint_during":false`
	holds := func(what string, payload object) {
		t.Helper()
		got, want := map[string]any{}, map[string]any{}
		if err := json.Unmarshal([]byte("{"+members+"}"), &want); err != nil {
			t.Fatal(err)
		}
		for name := range want {
			got[name] = payload[name]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	body := `{"assistant_id":"a","input":{"messages":[{"role":"user","content":"hi"}]},"if_not_exists":"create",` +
		members + `,"command":{"goto":"n"}}`
	n.do("POST", "/threads/t/runs", body, "Content-Type", "application/json").OK(200)
	said := n.payloads("t", "command.message")[0]
	if holds("message", said); said["goto"] != "n" {
		t.Errorf("goto: %v", said)
	}
	n.Say("t", log(`run.lifecycle {"state":"running"}
		turn.start {"turn_id":"t"}
		input.requested {"request_id":"q","question":"?"}
		turn.end {"turn_id":"t","stop_reason":"end_turn"}
		commands.taken {"through":2}`)...)
	body = `{"assistant_id":"a","command":{"resume":"yes"},` + members + `}`
	n.do("POST", "/threads/t/runs", body, "Content-Type", "application/json").OK(200)
	holds("answer", n.payloads("t", "command.answer")[0])
}
