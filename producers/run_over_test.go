package producers_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

// TestTurnWaitsForChildren: a turn does not end well before the children that it has sent out.
func TestTurnWaitsForChildren(t *testing.T) {
	var s told
	ctx := t.Context()
	r := newRun(t, &s)
	turn, err := r.Turn(ctx)
	must(t, err)
	child, err := r.Spawn(ctx, "run_a", "work", "")
	must(t, err)
	before := s.story()
	if err := turn.End("end_turn"); !errors.Is(err, producers.ErrOpen) || s.story() != before {
		t.Errorf("ended before its child: %v", err)
	}
	must(t, child.Finish(ctx), turn.End("end_turn"), r.Finish(ctx))
}

// TestOutputBehindTheEnd: a tool that begins or goes on printing after its call has ended is not heard.
func TestOutputBehindTheEnd(t *testing.T) {
	var s told
	ctx := t.Context()
	r := newRun(t, &s)
	turn, err := r.Turn(ctx)
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	c, err := m.Call("c1", "bash")
	must(t, err)
	if err := errors.Join(c.Output("early"), c.Run()); !errors.Is(err, producers.ErrOver) {
		t.Errorf("output before the call has begun: %v", err)
	}
	must(t, c.Ready(nil), m.End("tool_use", nil), c.Run())
	if e := s.events[len(s.events)-1]; e.Type != schema.TypeToolRun || string(e.Payload) != `{"call_id":"c1"}` ||
		e.TurnID != turn.ID() {
		t.Errorf("a tool that runs says %s %s", e.Type, e.Payload)
	}
	must(t, c.Output("1\n"), c.Finish("done"))
	before := s.story()
	for _, err := range []error{c.Output("2\n"), c.Run()} {
		if !errors.Is(err, producers.ErrOver) || s.story() != before {
			t.Errorf("output behind the end: %v", err)
		}
	}
}

// TestLateCancelHitsItsOwnTurn: whoever cancels a turn that ends at this moment does not cancel the next.
func TestLateCancelHitsItsOwnTurn(t *testing.T) {
	r, err := producers.NewRun(producers.RunConfig{Sink: silent{}, RunID: "run_1"})
	must(t, err)
	ctx := t.Context()
	for range 3000 {
		a, err := r.Turn(ctx)
		must(t, err)
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 4 {
			all.Go(func() {
				<-begin
				if err := a.Cancel("stop"); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		if err := a.End("end_turn"); err != nil && !errors.Is(err, producers.ErrOver) && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		b, err := r.Turn(ctx)
		if errors.Is(err, producers.ErrOpen) { // the cancellation is still being said
			all.Wait()
			b, err = r.Turn(ctx)
		}
		must(t, err)
		all.Wait()
		if err := b.End("end_turn"); err != nil {
			t.Fatalf("the next turn: %v", err)
		}
	}
}

// silent is a sink that keeps nothing.
type silent struct{}

func (silent) Send(context.Context, ...schema.Event) error { return nil }
func (silent) Flush(context.Context) error                 { return nil }
