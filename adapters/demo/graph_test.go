package demo

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"agentstream/schema"
)

// TestReplyAsGraph: a message that came by run.start is answered with all that a graph emits; an interrupt ends its
// turn, and the answer begins the next one; a message that comes meanwhile is worked in and not answered.
func TestReplyAsGraph(t *testing.T) {
	s := newTalk(t, Replies{})
	s.put("", schema.TypeCommandMessage, `{"content":"use a tool, then interrupt","message_id":"h1","assistant_id":"agent","input":{"x":1}}`)
	all := s.ended(1)
	types := map[string]bool{}
	for _, e := range all {
		types[e.Type] = true
	}
	for _, typ := range []string{"checkpoint.created", "state.values", "state.update", "task.start", "task.end",
		"custom.status", "tool.start", "tool.end", "message.end", "input.requested"} {
		if !types[typ] {
			t.Errorf("no %s in %s", typ, told(all))
		}
	}
	var state struct {
		Values struct {
			Messages []said `json:"messages"`
		} `json:"values"`
	}
	newest := func(all []schema.Event, typ string) json.RawMessage {
		for _, e := range slices.Backward(all) {
			if e.Type == typ {
				return e.Payload
			}
		}
		return nil
	}
	if err := json.Unmarshal(newest(all, "state.values"), &state); err != nil {
		t.Fatal(err)
	}
	got := state.Values.Messages
	if len(got) != 3 || got[0].ID != "h1" || got[0].Type != "human" || len(got[1].Calls) != 1 || got[2].Content == "" {
		t.Errorf("messages of the state: %+v", got)
	}
	var asked struct {
		ID string `json:"request_id"`
	}
	if err := json.Unmarshal(newest(all, "input.requested"), &asked); err != nil {
		t.Fatal(err)
	}
	s.put("", "command.answer", `{"request_id":"`+asked.ID+`","answer":"yes"}`)
	all = s.ended(2)
	var text strings.Builder
	for _, e := range all {
		if e.Type == schema.TypeTextDelta {
			var f struct{ Text string }
			_ = json.Unmarshal(e.Payload, &f)
			text.WriteString(f.Text)
		}
	}
	if !strings.Contains(text.String(), `You have answered "yes". I go on.`) {
		t.Errorf("said %q", text.String())
	}
}
