package producers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"agentstream/producers"
	"agentstream/schema"
)

// told is a sink that keeps what it was told.
type told struct {
	mu     sync.Mutex
	events []schema.Event
}

func (s *told) Send(_ context.Context, events ...schema.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		if err := e.Prepare("run_1"); err != nil {
			return err
		}
		e.Payload = bytes.Clone(e.Payload)
		s.events = append(s.events, e)
	}
	return nil
}

func (s *told) Flush(context.Context) error { return nil }

// story is what was told, one event per line.
func (s *told) story() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, e := range s.events {
		if e.ChildID != "" {
			b.WriteString(e.ChildID + " ")
		}
		b.WriteString(e.Type + " " + string(e.Payload) + "\n")
	}
	return b.String()
}

func newRun(t testing.TB, sink producers.Sink) *producers.Run {
	t.Helper()
	n := map[string]int{}
	r, err := producers.NewRun(producers.RunConfig{Sink: sink, RunID: "run_1", NewID: func(w string) string {
		n[w]++
		return w + "_" + string(rune('0'+n[w]))
	}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// TestRunTellsATurn runs in a bubble, where no time passes: durations are told too.
func TestRunTellsATurn(t *testing.T) { synctest.Test(t, tellsATurn) }

func tellsATurn(t *testing.T) {
	var s told
	ctx := t.Context()
	r := newRun(t, &s)
	must(t, r.State(ctx, schema.StateRunning, ""))
	turn, err := r.Turn(ctx)
	must(t, err)
	must(t, turn.User(`a "b"`))
	m, err := turn.Message(producers.MessageInfo{Model: "m1"})
	must(t, err)
	must(t, m.Reasoning("hm\n"), m.Reasoning("…"), m.Text("Hel"), m.Text("lo"))
	c, err := m.Call("c1", "read")
	must(t, err)
	must(t, c.Input(`{"p":`), c.Input(`"x"}`), c.Ready(nil))
	d, err := m.Call("", "list")
	must(t, err)
	must(t, d.Ready(map[string]int{"n": 1}), m.End("tool_use", map[string]int{"output_tokens": 3}))
	must(t, c.Output("1\n"), c.Finish("one"), d.Fail(errors.New("no")), turn.End("end_turn"), r.Finish(ctx))
	const want = `run.lifecycle {"state":"running","reason":null}
turn.start {"turn_id":"turn_1"}
message.start {"message_id":"msg_1","role":"user"}
block.start {"index":0,"kind":"text","message_id":"msg_1"}
text.delta {"text":"a \"b\"","index":0}
block.end {"index":0,"message_id":"msg_1","complete":true}
message.end {"message_id":"msg_1","content":[{"type":"text","text":"a \"b\""}],"stop_reason":null,"stop_sequence":null}
message.start {"message_id":"msg_2","role":"assistant","model":"m1"}
block.start {"index":0,"kind":"reasoning","message_id":"msg_2"}
reasoning.delta {"text":"hm\n","index":0}
reasoning.delta {"text":"…","index":0}
block.end {"index":0,"message_id":"msg_2","complete":true}
block.start {"index":1,"kind":"text","message_id":"msg_2"}
text.delta {"text":"Hel","index":1}
text.delta {"text":"lo","index":1}
block.end {"index":1,"message_id":"msg_2","complete":true}
block.start {"index":2,"kind":"tool_use","message_id":"msg_2","call_id":"c1","tool":"read"}
tool.input.delta {"call_id":"c1","text":"{\"p\":","index":2}
tool.input.delta {"call_id":"c1","text":"\"x\"}","index":2}
block.end {"index":2,"message_id":"msg_2","complete":true,"call_id":"c1","input":{"p":"x"}}
tool.start {"call_id":"c1","tool":"read","input":{"p":"x"},"index":2}
block.start {"index":3,"kind":"tool_use","message_id":"msg_2","call_id":"call_1","tool":"list"}
block.end {"index":3,"message_id":"msg_2","complete":true,"call_id":"call_1","input":{"n":1}}
tool.start {"call_id":"call_1","tool":"list","input":{"n":1},"index":3}
message.end {"message_id":"msg_2","content":[{"type":"thinking","thinking":"hm\n…"},{"type":"text","text":"Hello"},{"type":"tool_use","id":"c1","name":"read","input":{"p":"x"}},{"type":"tool_use","id":"call_1","name":"list","input":{"n":1}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"output_tokens":3}}
tool.output.delta {"call_id":"c1","text":"1\n"}
tool.end {"call_id":"c1","ok":true,"output":"one","duration_ms":0}
tool.end {"call_id":"call_1","ok":false,"error":"KAI-TOOL-FAIL-0001","error_detail":{"type":"error","message":"no"},"duration_ms":0}
turn.end {"turn_id":"turn_1","stop_reason":"end_turn"}
run.lifecycle {"state":"done","reason":null}
`
	if got := s.story(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, e := range s.events {
		if inside := e.Type != schema.TypeRunLifecycle; inside != (e.TurnID == "turn_1") || !json.Valid(e.Payload) {
			t.Errorf("%s: turn %q, payload %s", e.Type, e.TurnID, e.Payload)
		}
	}
}

func TestCancelInTheMiddle(t *testing.T) {
	var s told
	ctx := t.Context()
	r := newRun(t, &s)
	must(t, r.State(ctx, schema.StateRunning, ""))
	turn, err := r.Turn(ctx)
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	c, err := m.Call("c1", "delegate")
	must(t, err)
	must(t, c.Ready(nil), m.End("tool_use", nil))
	child, err := r.Spawn(ctx, "run_c", "do it", "c1")
	must(t, err)
	ct, err := child.Turn(ctx)
	must(t, err)
	cm, err := ct.Message(producers.MessageInfo{})
	must(t, err)
	must(t, cm.Text("half a"))
	before := len(s.story())
	must(t, r.Cancel(ctx, "stop"), r.Cancel(ctx, "again"), turn.Cancel("and again"), turn.Close(), ct.Close())
	const want = `run_c block.end {"index":0,"message_id":"msg_2","complete":false,"problem":"cut short"}
run_c message.end {"message_id":"msg_2","content":[{"type":"text","text":"half a"}],"stop_reason":"cancelled","stop_sequence":null,"incomplete":true}
run_c turn.end {"turn_id":"turn_2","stop_reason":"cancelled","reason":"stop"}
run_c run.lifecycle {"state":"aborted","reason":"stop"}
tool.end {"call_id":"c1","ok":false,"error":"KAI-TOOL-CANCEL-0001","error_detail":{"type":"cancelled","message":"stop"}}
turn.end {"turn_id":"turn_1","stop_reason":"cancelled","reason":"stop"}
run.lifecycle {"state":"aborted","reason":"stop"}
`
	if got := s.story()[before:]; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if turn.Context().Err() == nil || ct.Context().Err() == nil {
		t.Error("a context goes on")
	}
	for what, err := range map[string]error{"text": cm.Text("x"), "finish": c.Finish(nil),
		"end": cm.End("end_turn", nil), "turn": turn.End(""), "state": child.State(ctx, schema.StateRunning, ""),
		"say": child.Emit(ctx, "progress", nil)} {
		if !errors.Is(err, producers.ErrOver) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
