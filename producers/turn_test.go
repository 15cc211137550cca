package producers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/provider"
	"agentstream/adapters/provider/providertest"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// answered begins a turn and streams a recorded answer of a model into it.
func answered(t *testing.T, s *told, body io.Reader) (*producers.Run, *producers.Turn, error) {
	t.Helper()
	r := newRun(t, s)
	must(t, r.State(t.Context(), schema.StateRunning, ""))
	turn, err := r.Turn(t.Context())
	must(t, err)
	return r, turn, turn.Model("anthropic", "m1", anthropic.NewDecoder(provider.Config{}), body)
}

// TestModelAnswers: a recorded answer through a turn says what the adapter alone says, the calls that it
// asks for can be run, and everything belongs to the turn.
func TestModelAnswers(t *testing.T) {
	want, read := anthropictest.Recordings(t)
	for name := range want {
		t.Run(filepath.Base(name), func(t *testing.T) {
			var s told
			r, turn, err := answered(t, &s, strings.NewReader(string(read(name))))
			if failed := want[name].Error != nil; failed != (err != nil) {
				t.Fatalf("error %v, want one: %v", err, failed)
			}
			calls := turn.Calls()
			for _, c := range calls {
				if len(c.Args()) == 0 || c.Tool() == "" {
					t.Errorf("call %s of %q has input %s", c.ID(), c.Tool(), c.Args())
				}
				must(t, c.Finish("done"))
			}
			must(t, turn.End("end_turn"), r.Finish(t.Context()))
			var inside []schema.Event
			for _, e := range s.events {
				if e.Type != schema.TypeRunLifecycle && e.TurnID != turn.ID() {
					t.Errorf("%s is of turn %q", e.Type, e.TurnID)
				}
				if e.Type != schema.TypeToolEnd || !strings.Contains(string(e.Payload), `"output":"done"`) {
					inside = append(inside, e)
				}
			}
			anthropictest.Check(t, inside, want[name])
		})
	}
}

// TestModelBreaksOff: a body that ends early, or a connection that does, ends the message honestly, and
// the turn can go on.
func TestModelBreaksOff(t *testing.T) {
	body, err := os.ReadFile(filepath.Join(providertest.Dir(t), "anthropic", "text-long.sse"))
	must(t, err)
	gone := errors.New("connection reset")
	for _, r := range []io.Reader{strings.NewReader(string(body[:len(body)/2])),
		io.MultiReader(strings.NewReader(string(body[:len(body)/2])), iotest.ErrReader(gone))} {
		var s told
		run, turn, err := answered(t, &s, r)
		if err == nil {
			t.Fatal("no error")
		}
		if !strings.Contains(s.story(), `"incomplete":true`) ||
			!strings.Contains(s.story(), `model.end {"call_id":"model_1","ok":false`) {
			t.Errorf("told %s", s.story())
		}
		m, err := turn.Message(producers.MessageInfo{})
		must(t, err)
		must(t, m.Text("Once more."), m.End("end_turn", nil), turn.End("end_turn"), run.Finish(t.Context()))
	}
}

// TestTurnCloses: a turn that is left is ended, as what its context says.
func TestTurnCloses(t *testing.T) {
	var s told
	r := newRun(t, &s)
	ctx, cancel := context.WithCancelCause(t.Context())
	turn, err := r.Turn(ctx)
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	must(t, m.Text("half"))
	cancel(errors.New("shutting down"))
	if err := m.Text("more"); err == nil {
		t.Error("said behind the end of its context")
	}
	must(t, turn.Close(), turn.Close())
	if !strings.HasSuffix(s.story(), `turn.end {"turn_id":"turn_1","stop_reason":"cancelled","reason":"shutting down"}`+
		"\n") {
		t.Errorf("told %s", s.story())
	}
	if turn, err = r.Turn(t.Context()); err != nil {
		t.Fatal(err)
	}
	must(t, turn.Close())
	if !strings.HasSuffix(s.story(), `turn.end {"turn_id":"turn_2","stop_reason":"error","reason":"the agent left the turn"}`+"\n") {
		t.Errorf("told %s", s.story())
	}
}

// TestOpenThingsAreNotEnded: what cannot end well says so and stays as it is.
func TestOpenThingsAreNotEnded(t *testing.T) {
	var s told
	ctx := t.Context()
	r := newRun(t, &s)
	turn, err := r.Turn(ctx)
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	before := s.story()
	_, second := r.Turn(ctx)
	_, message := turn.Message(producers.MessageInfo{})
	for what, err := range map[string]error{"turn": turn.End(""), "run": r.Finish(ctx), "second turn": second,
		"second message": message} {
		if !errors.Is(err, producers.ErrOpen) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s.story() != before {
		t.Error("something was said")
	}
	c, err := m.Call("c1", "t")
	must(t, err)
	must(t, c.Input(`{"cut`))
	if err := c.Ready(nil); !errors.Is(err, schema.ErrMalformed) {
		t.Errorf("input that is no JSON: %v", err)
	}
	must(t, m.End("max_tokens", nil), turn.End("max_tokens"), r.Finish(ctx))
	if _, err := r.Turn(ctx); !errors.Is(err, producers.ErrOver) {
		t.Errorf("a turn behind the end: %v", err)
	}
	must(t, r.State(ctx, schema.StateRunning, "")) // a follow-up
	if _, err = r.Turn(ctx); err != nil {
		t.Error(err)
	}
}

// TestCancelMeetsSpeakers: however many speak while the run is cancelled, on a log that is slow, each
// thing ends once and nothing is said behind the end.
func TestCancelMeetsSpeakers(t *testing.T) {
	for seed := range uint64(40) {
		log := memory.New()
		key := schema.RunKey{Tenant: "t", Run: "run_1"}
		pub, err := producers.New(producers.Config{Log: log, Key: key, BufferEvents: 8})
		must(t, err)
		r, err := producers.NewRun(producers.RunConfig{Sink: pub, RunID: "run_1"})
		must(t, err)
		ctx := t.Context()
		must(t, r.State(ctx, schema.StateRunning, ""))
		rng := rand.New(rand.NewPCG(seed, 1))
		var all sync.WaitGroup
		speak := func(l *producers.Lane) {
			turn, err := l.Turn(ctx)
			if err != nil {
				return
			}
			all.Add(2)
			go func() {
				defer all.Done()
				defer turn.Close()
				for err == nil {
					err = chatter(turn)
				}
				if !errors.Is(err, producers.ErrOver) {
					t.Errorf("lane %q: %v", l.ID(), err)
				}
			}()
			go func() {
				defer all.Done()
				for turn.Context().Err() == nil {
					for _, c := range turn.Calls() {
						_ = c.Output("line\n") // the other one may have been faster
						_ = c.Finish("done")
					}
				}
			}()
		}
		speak(&r.Lane)
		for i := range 2 {
			child, err := r.Spawn(ctx, fmt.Sprintf("run_c%d", i), "", "")
			must(t, err)
			speak(child)
		}
		for range rng.IntN(30) {
			must(t, r.Emit(ctx, schema.TypeProgress, map[string]int{"done": 1}))
		}
		must(t, r.Cancel(ctx, "enough"), r.Cancel(ctx, "twice"))
		all.Wait()
		must(t, pub.Close(ctx))
		checkEnded(t, stored(t, log, key))
	}
}

// chatter says one message with a call.
func chatter(turn *producers.Turn) error {
	m, err := turn.Message(producers.MessageInfo{})
	if err != nil {
		return err
	}
	c, err := m.Call("", "tool")
	if err != nil {
		return err
	}
	for range 3 {
		if err := errors.Join(m.Text("word "), c.Input("")); err != nil {
			return err
		}
	}
	if err := errors.Join(c.Ready(nil), m.End("tool_use", nil)); err != nil {
		return err
	}
	for len(turn.Calls()) > 0 {
		if turn.Context().Err() != nil {
			return context.Cause(turn.Context())
		}
	}
	return nil
}

func stored(t *testing.T, log *memory.Log, key schema.RunKey) (out []schema.Event) {
	t.Helper()
	for p, err := range log.Since(t.Context(), key, 0) {
		must(t, err)
		for r, err := range p.Records(0) {
			must(t, err)
			e, err := r.Event()
			must(t, err)
			out = append(out, e)
		}
	}
	return out
}

// checkEnded counts beginnings and ends, with nothing of the code under test.
func checkEnded(t *testing.T, events []schema.Event) {
	t.Helper()
	open, ended := map[string]bool{}, map[string]bool{}
	for i, e := range events {
		if ended[e.ChildID] || ended[""] {
			t.Fatalf("event %d, %s of %q, comes behind the end", i+1, e.Type, e.ChildID)
		}
		p := object(t, e.Payload)
		name := func(what string, id any) string { return fmt.Sprint(e.ChildID, " ", what, " ", id) }
		begin := func(k string) {
			if open[k] {
				t.Fatalf("event %d: %s begins twice", i+1, k)
			}
			open[k] = true
		}
		end := func(k string) {
			if !open[k] {
				t.Fatalf("event %d: %s ends without a beginning", i+1, k)
			}
			delete(open, k)
		}
		switch e.Type {
		case schema.TypeTurnStart:
			begin(name("turn", p["turn_id"]))
		case schema.TypeTurnEnd:
			end(name("turn", p["turn_id"]))
		case schema.TypeMessageStart:
			begin(name("message", p["message_id"]))
		case schema.TypeMessageEnd:
			end(name("message", p["message_id"]))
		case schema.TypeBlockStart:
			begin(name("block", fmt.Sprint(p["message_id"], p["index"])))
		case schema.TypeBlockEnd:
			end(name("block", fmt.Sprint(p["message_id"], p["index"])))
		case schema.TypeToolStart:
			begin(name("call", p["call_id"]))
		case schema.TypeToolEnd:
			end(name("call", p["call_id"]))
		case schema.TypeRunLifecycle:
			ended[e.ChildID] = schema.RunState(p["state"].(string)).Final()
		}
	}
	if len(open) > 0 || !ended[""] || !ended["run_c0"] || !ended["run_c1"] {
		t.Fatalf("open are %v, ended %v", open, ended)
	}
}

func object(t *testing.T, raw []byte) (m map[string]any) {
	t.Helper()
	must(t, json.Unmarshal(raw, &m))
	return m
}
