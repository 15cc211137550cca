package producers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// TestMessageFails: a model that fails in mid-message is told, and the turn goes on with another try.
func TestMessageFails(t *testing.T) {
	synctest.Test(t, messageFails) // a call that takes a millisecond says so
}

func messageFails(t *testing.T) {
	var s told
	r := newRun(t, &s)
	turn, err := r.Turn(t.Context())
	must(t, err)
	call, err := turn.BeginModel("p", "m1")
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	must(t, m.Text("half"))
	before := len(s.story())
	overloaded := errors.New("overloaded")
	must(t, m.Fail(overloaded), call.Fail(overloaded))
	const want = `block.end {"index":0,"message_id":"msg_1","complete":false,"problem":"cut short"}
message.end {"message_id":"msg_1","content":[{"type":"text","text":"half"}],"stop_reason":"error","stop_sequence":null,"incomplete":true,"error":{"type":"error","message":"overloaded"}}
model.end {"call_id":"model_1","ok":false,"duration_ms":0,"error":{"type":"error","message":"overloaded"}}
`
	if got := s.story()[before:]; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if err := m.Text("x"); !errors.Is(err, producers.ErrOver) {
		t.Error(err)
	}
	again, err := turn.BeginModel("p", "m1")
	must(t, err)
	m, err = turn.Message(producers.MessageInfo{})
	must(t, err)
	must(t, m.Text("whole"), m.End("end_turn", nil), again.End(map[string]int{"output_tokens": 1}),
		turn.End("end_turn"), r.Finish(t.Context()))
}

// TestLongText: what is longer than one event goes in pieces that are cut between characters.
func TestLongText(t *testing.T) {
	var s told
	r := newRun(t, &s)
	turn, err := r.Turn(t.Context())
	must(t, err)
	text := strings.Repeat("日本€\x00", 30_000) + "\xff" + strings.Repeat("\xbf", 70_000)
	must(t, turn.User(text))
	var f schema.Fold
	for i := range s.events {
		e := s.events[i]
		e.Seq = schema.Seq(i + 1)
		f.Add(&e)
		if e.Actor != "user" && e.Type != schema.TypeTurnStart {
			t.Errorf("%s is said by %q", e.Type, e.Actor)
		}
	}
	if len(s.events) < 8 || f.Text("", "text") != strings.ToValidUTF8(text, "\ufffd") &&
		!sameRunes(f.Text("", "text"), text) {
		t.Errorf("%d events, %d bytes of %d", len(s.events), len(f.Text("", "text")), len(text))
	}
	must(t, turn.End(""), r.Finish(t.Context()))
}

// sameRunes compares with each broken byte replaced by itself.
func sameRunes(got, text string) bool {
	var b strings.Builder
	for _, c := range text { // a broken byte is U+FFFD
		b.WriteRune(c)
	}
	return got == b.String() && utf8.ValidString(got)
}

// TestHeardTakesUp: a person's message after the end is somebody else's event; once the pen has heard
// it, what it opens can be cancelled.
func TestHeardTakesUp(t *testing.T) {
	var s told
	r := newRun(t, &s)
	ctx := t.Context()
	must(t, r.State(ctx, schema.StateRunning, ""), r.Finish(ctx))
	n := len(s.events)
	must(t, r.Cancel(ctx, "late"))
	if len(s.events) != n {
		t.Error("what is over was cancelled")
	}
	r.Receive(&schema.Event{Type: schema.TypeCommandMessage, RunID: "run_1", Payload: []byte(`{"content":"more"}`)})
	must(t, r.Cancel(ctx, "not now"))
	if len(s.events) != n+1 || !strings.Contains(s.story(), `"state":"aborted","reason":"not now"`) {
		t.Errorf("told %s", s.story())
	}
}

// TestSayAll: events that belong together reach the log in one pack, as part of the lane and its turn.
func TestSayAll(t *testing.T) {
	ctx, log, key := t.Context(), memory.New(), schema.RunKey{Tenant: "t", Run: "run_1"}
	pub, err := producers.New(producers.Config{Log: log, Key: key})
	must(t, err)
	r, err := producers.NewRun(producers.RunConfig{Sink: pub, RunID: key.Run})
	must(t, err)
	turn, err := r.Turn(ctx)
	must(t, err)
	must(t, r.Flush(ctx))
	must(t, r.EmitAll(ctx, schema.Event{Type: schema.TypeProgress, Payload: []byte(`{"done":1}`), Cause: "evt_x"},
		schema.Event{Type: schema.TypeCommandsTaken, Payload: []byte(`{"through":1}`)}), r.Flush(ctx))
	packs := 0
	for p, err := range log.Since(ctx, key, 0) {
		must(t, err)
		if packs++; packs == 2 && p.Count != 2 {
			t.Errorf("the pack has %d events", p.Count)
		}
	}
	events := stored(t, log, key)
	if packs != 2 || len(events) != 3 || events[1].TurnID != turn.ID() || events[1].Cause != "evt_x" ||
		events[1].Actor != "agent" {
		t.Errorf("%d packs, %+v", packs, events)
	}
	must(t, turn.End(""), r.Finish(ctx))
	if err := r.EmitAll(ctx, schema.Event{Type: schema.TypeProgress}); !errors.Is(err, producers.ErrOver) {
		t.Errorf("behind the end: %v", err)
	}
	must(t, pub.Close(ctx))
}

// packsOf is a sink that notes how many events each call has.
type packsOf struct {
	told
	sizes []int
}

func (s *packsOf) Send(ctx context.Context, events ...schema.Event) error {
	s.sizes = append(s.sizes, len(events))
	return s.told.Send(ctx, events...)
}

// A turn's end and what is said with it are one call of the sink; a turn that is over says neither. A call that
// must be confirmed says so.
func TestTurnEndsWithAMark(t *testing.T) {
	var s packsOf
	r := newRun(t, &s)
	turn, err := r.Turn(t.Context())
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	c, err := m.Call("", "rm")
	must(t, err, c.ReadyAs(nil, "ask"), m.End("tool_use", nil))
	mark := schema.Event{Type: schema.TypeCommandsTaken, Payload: []byte(`{"through":2}`)}
	if err := turn.End("end_turn", mark); !errors.Is(err, producers.ErrOpen) {
		t.Fatalf("a call is open, and the turn ends: %v", err)
	}
	must(t, c.Finish("done"))
	n := len(s.events)
	must(t, turn.End("end_turn", mark))
	last := s.events[n:]
	if len(last) != 2 || s.sizes[len(s.sizes)-1] != 2 || last[0].Type != mark.Type ||
		last[1].Type != schema.TypeTurnEnd || last[0].TurnID != turn.ID() {
		t.Fatalf("%d calls, %+v", len(s.sizes), last)
	}
	if err := turn.End("end_turn", mark); !errors.Is(err, producers.ErrOver) || len(s.events) != n+2 {
		t.Fatalf("the turn ends twice: %v", err)
	}
	if !strings.Contains(s.story(), `"index":0,"permission":"ask"}`) {
		t.Fatal(s.story())
	}
	if _, err := r.Turn(t.Context()); err != nil {
		t.Fatalf("the next turn: %v", err)
	}
}

// TestFailSaysACode: tool.end of a call that fails has a code, the agent's own where it gives one, and the words beside
// it.
func TestFailSaysACode(t *testing.T) {
	var s told
	r := newRun(t, &s)
	turn, err := r.Turn(t.Context())
	must(t, err)
	for cause, want := range map[error]string{
		errors.New("no such file"): `"error":"KAI-TOOL-FAIL-0001","error_detail":{"type":"error","message":"no such file"}`,
		fmt.Errorf("read: %w", &producers.ToolError{Code: "KAI-TOOL-TIME-0001",
			Err: errors.New("too slow")}): `"error":"KAI-TOOL-TIME-0001","error_detail":{"type":"error","message":"read: too slow"}`,
	} {
		m, err := turn.Message(producers.MessageInfo{})
		must(t, err)
		c, err := m.Call("", "read")
		must(t, err)
		must(t, c.Ready(nil), m.End("tool_use", nil), c.Fail(cause))
		if e := s.events[len(s.events)-1]; e.Type != schema.TypeToolEnd || !strings.Contains(string(e.Payload), want) {
			t.Errorf("%s %s", e.Type, e.Payload)
		}
	}
}

// TestMessagesSayWhoSpeaks: what is said in a message of somebody else than the assistant has its actor.
func TestMessagesSayWhoSpeaks(t *testing.T) {
	for role, want := range map[string]string{"user": "user", "system": "system", "tool": "tool", "assistant": "agent",
		"": "agent"} {
		var s told
		r := newRun(t, &s)
		turn, err := r.Turn(t.Context())
		must(t, err)
		begun := len(s.events)
		m, err := turn.Message(producers.MessageInfo{Role: role})
		must(t, err)
		must(t, m.Text("hello"), m.End("", nil))
		for _, e := range s.events[begun:] {
			if e.Actor != want {
				t.Errorf("%q: %s is of %q", role, e.Type, e.Actor)
			}
		}
	}
}
