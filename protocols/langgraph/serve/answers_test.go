package serve_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
	"agentstream/protocols/langgraph/serve"
	"agentstream/schema"
)

// answersOf returns the answers that a thread has: REQUEST=ANSWER.
func answersOf(t *testing.T, n *node, thread string) string {
	t.Helper()
	var list []string
	for pack, err := range n.Nodes.Log.Packs(context.Background(), edgetest.Key(thread), 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		for r := range pack.Records(0) {
			if string(r.Type) != "command.answer" {
				continue
			}
			var p struct {
				Request string          `json:"request_id"`
				Answer  json.RawMessage `json:"answer"`
			}
			if err := json.Unmarshal(r.Payload(), &p); err != nil {
				t.Fatal(err)
			}
			list = append(list, p.Request+"="+string(p.Answer))
		}
	}
	return strings.Join(list, " ")
}

// TestAnswersNameWhatWaits: a resume answers what it names. What names a request that has its answer, or has ended, or
// that the thread never made, is a conflict that names what waits, over the older API and as a command.
func TestAnswersNameWhatWaits(t *testing.T) {
	const turn, hex, uuid = `turn.start {"turn_id":"t"}`, "fedcba9876543210fedcba9876543210", "0b2c6f0e-1111-4222-8333-444455556666"
	asks := func(ids ...string) (lines []string) {
		lines = []string{`session.created {"agent":"a"}`, `command.message {"content":"go"}`, turn}
		for _, id := range ids {
			lines = append(lines, fmt.Sprintf(`input.requested {"request_id":%q,"payload":1}`, id))
		}
		return append(lines, `commands.taken {"through":2}`, `turn.end {"turn_id":"t","stop_reason":"interrupted"}`)
	}
	answered := append(asks("q1", "q2"), `command.answer {"request_id":"q1","answer":1}`, turn,
		`input.answered {"request_id":"q1"}`, `commands.taken {"through":8}`,
		`turn.end {"turn_id":"t","stop_reason":"interrupted"}`)
	cancelled := append(asks("q1"), `command.cancel {}`)
	for name, c := range map[string]struct {
		log    []string
		resume string
		status int // of the older API
		want   string
	}{
		"by its id":    {asks("q1"), `{"q1":"yes"}`, 200, `q1="yes"`},
		"the only one": {asks("q1"), `"yes"`, 200, `q1="yes"`},
		"the only one, an object": {asks("q1"), `{"decisions":[{"type":"approve"}],"id":7}`, 200,
			`q1={"decisions":[{"type":"approve"}],"id":7}`},
		"the only one, empty":         {asks("q1"), `{}`, 200, `q1={}`},
		"one of two":                  {asks("q1", "q2"), `{"q2":2}`, 200, `q2=2`},
		"both":                        {asks("q1", "q2"), `{"q1":1,"q2":2}`, 200, `q1=1 q2=2`},
		"two without ids":             {asks("q1", "q2"), `"yes"`, 422, ``},
		"one that has its answer":     {answered, `{"q1":"yes"}`, 409, `q1=1`},
		"that one and another":        {answered, `{"q1":"yes","q2":"yes"}`, 409, `q1=1`},
		"one that was cancelled":      {cancelled, `{"q1":"yes"}`, 409, ``},
		"one never asked":             {asks("q1"), `{"q7":"yes"}`, 409, ``},
		"one of LangGraph's form":     {asks("q1"), `{"` + hex + `":"yes"}`, 409, ``},
		"one of the form of a UUID":   {asks("q1"), `{"` + uuid + `":"yes"}`, 409, ``},
		"one of the form of the open": {asks("req_7f3a"), `{"req_91b2":"yes"}`, 409, ``},
		"an id and another field":     {asks("q1"), `{"q1":"yes","note":1}`, 422, ``},
		"nothing waits":               {asks(), `"yes"`, 422, ``},
	} {
		t.Run(name, func(t *testing.T) {
			n := join(t, edgetest.Share(), serve.Config{})
			for i, thread := range []string{"old", "new"} {
				n.Say(thread, log(strings.Join(c.log, "\n"))...)
				before := len(n.Types(thread))
				var a answer
				if i == 0 {
					a = n.do("POST", "/threads/old/runs", `{"assistant_id":"a","command":{"resume":`+c.resume+`}}`)
					if a.Status != c.status {
						t.Errorf("%d, want %d: %s", a.Status, c.status, a.Body)
					}
				} else if a = n.do("POST", "/threads/new/commands",
					`{"id":1,"method":"run.start","params":{"assistant_id":"a","input":`+c.resume+
						`}}`); name == "one of two" || name == "nothing waits" || name == "one that was cancelled" {
					continue // run.start answers all that wait, and begins a run where nothing does
				}
				if got := answersOf(t, n, thread); got != c.want {
					t.Errorf("%s: %q, want %q: %d %s", thread, got, c.want, a.Status, a.Body)
				}
				if c.status == 200 {
					continue
				}
				if len(n.Types(thread)) != before {
					t.Errorf("%s: a refusal has stored something", thread)
				}
				if !strings.Contains(a.Body, "wait") || c.status == 409 && !strings.Contains(a.Body, "no_such_interrupt") {
					t.Errorf("%s: a refusal does not say what waits: %s", thread, a.Body)
				}
			}
		})
	}
}
