package producers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/provider"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// TestEverythingAtOnce: turns, children, tools, cancellations, failures and recoveries of all lanes at the same
// time leave a log in which each thing begins once and ends once, in its lane.
func TestEverythingAtOnce(t *testing.T) {
	for seed := range uint64(10) {
		ctx, log, key := t.Context(), memory.New(), schema.RunKey{Tenant: "t", Run: "run_1"}
		pub, err := producers.New(producers.Config{Log: log, Key: key, BufferEvents: 16})
		must(t, err)
		r, err := producers.NewRun(producers.RunConfig{Sink: pub, RunID: "run_1"})
		must(t, err)
		must(t, r.State(ctx, schema.StateRunning, ""))
		c := &crowd{t: t, ctx: ctx, run: r, lanes: []*producers.Lane{&r.Lane}}
		var all sync.WaitGroup
		for g := range uint64(8) {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, g))
				for range 60 {
					c.act(rng)
				}
			})
		}
		all.Wait()
		must(t, r.Cancel(ctx, "enough"), pub.Close(ctx))
		if complaint := disorder(stored(t, log, key)); complaint != "" {
			t.Fatalf("seed %d: %s", seed, complaint)
		}
	}
}

// crowd is many who use one pen.
type crowd struct {
	t     *testing.T
	ctx   context.Context
	run   *producers.Run
	mu    sync.Mutex
	lanes []*producers.Lane
	turns []*producers.Turn
	kids  atomic.Int64
}

func (c *crowd) pick(rng *rand.Rand) (*producers.Lane, *producers.Turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lanes[rng.IntN(len(c.lanes))]
	if len(c.turns) == 0 {
		return l, nil
	}
	return l, c.turns[rng.IntN(len(c.turns))]
}

// ok takes what a busy pen may say.
func (c *crowd) ok(doing string, err error) {
	if err != nil && !errors.Is(err, producers.ErrOver) && !errors.Is(err, producers.ErrOpen) {
		c.t.Errorf("%s: %v", doing, err)
	}
}

func (c *crowd) act(rng *rand.Rand) {
	l, turn := c.pick(rng)
	switch n := rng.IntN(20); {
	case n == 0 && l.ID() != "":
		c.ok("cancel", l.Cancel(c.ctx, "stop"))
	case n == 1 && l.ID() != "":
		c.ok("fail", l.Fail(c.ctx, nil))
	case n == 2:
		c.ok("recover", l.Recover(c.ctx, "again"))
	case n == 3:
		c.ok("done", l.Finish(c.ctx))
		c.ok("running", c.run.State(c.ctx, schema.StateRunning, ""))
	case n == 4 && turn != nil:
		c.ok("cancel turn", turn.Cancel("no"))
	case n == 5 && turn != nil:
		c.ok("close turn", turn.Close())
	case n == 6 && turn != nil:
		c.ok("end turn", turn.End("end_turn"))
	case n == 7:
		c.run.Receive(&schema.Event{Type: "command.pause", RunID: "run_1"})
	case n < 10:
		child, err := l.Spawn(c.ctx, fmt.Sprintf("kid_%d", c.kids.Add(1)), "", "")
		c.ok("spawn", err)
		if err == nil {
			c.mu.Lock()
			c.lanes = append(c.lanes, child)
			c.mu.Unlock()
		}
	case n < 13 || turn == nil:
		turn, err := l.Turn(c.ctx)
		c.ok("turn", err)
		if err == nil {
			c.mu.Lock()
			c.turns = append(c.turns, turn)
			c.mu.Unlock()
		}
	case n < 15:
		c.ok("say", l.Emit(c.ctx, schema.TypeProgress, nil))
	default:
		_ = turn.ID() + fmt.Sprint(turn.Context().Err(), len(turn.Calls()))
		c.ok("speak", speak(turn))
	}
}

// speak says a message with a call, whose tool runs.
func speak(turn *producers.Turn) error {
	m, err := turn.Message(producers.MessageInfo{})
	if err != nil {
		return err
	}
	c, err := m.Call("", "t")
	if err != nil {
		return err
	}
	if err := errors.Join(m.Text("x"), c.Input("{}"), c.Ready(nil)); err != nil {
		return err
	}
	if err := m.End("tool_use", nil); err != nil {
		return err
	}
	return errors.Join(c.Output("x"), c.Finish(nil))
}

// disorder returns what starts twice, ends without a start, comes after the end of its lane, or is open at the end
// of the run; "" when nothing does.
func disorder(events []schema.Event) string {
	open, over := map[string]bool{}, map[string]bool{}
	ids := map[string]string{"turn": "turn_id", "model": "call_id", "message": "message_id", "block": "index",
		"tool": "call_id", "task": "task_id"}
	for i, e := range events {
		p := map[string]any{}
		if json.Unmarshal(e.Payload, &p) != nil && len(e.Payload) > 0 {
			return fmt.Sprintf("event %d: payload %s", i+1, e.Payload)
		}
		if e.Type == schema.TypeRunLifecycle {
			over[e.ChildID] = schema.RunState(p["state"].(string)).Final()
			continue
		}
		if over[e.ChildID] || over[""] {
			return fmt.Sprintf("event %d, %s of %q, comes behind the end", i+1, e.Type, e.ChildID)
		}
		what, way, _ := strings.Cut(e.Type, ".")
		if ids[what] == "" || way != "start" && way != "end" {
			continue
		}
		key := fmt.Sprint(e.ChildID, " ", what, " ", p[ids[what]])
		if what == "block" {
			key += fmt.Sprint(" ", p["message_id"])
		}
		if open[key] == (way == "start") {
			return fmt.Sprintf("event %d: %s of %s", i+1, e.Type, key)
		}
		if delete(open, key); way == "start" {
			open[key] = true
		}
	}
	if len(open) > 0 || !over[""] {
		return fmt.Sprintf("open are %v, the run has ended: %v", open, over[""])
	}
	return ""
}

// stuck is a log's sink without space, until it has.
type stuck struct {
	told
	on      atomic.Bool
	waiting atomic.Int64
}

func (s *stuck) Send(ctx context.Context, events ...schema.Event) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	for s.on.Load() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Millisecond):
		}
	}
	return s.told.Send(ctx, events...)
}

// TestCancelWhileALaneWaits: a lane that waits for space on a context of its own is interrupted by its
// cancellation, and nobody waits longer than the grace for the one of somebody else.
func TestCancelWhileALaneWaits(t *testing.T) {
	s := new(stuck)
	ctx := t.Context()
	r, err := producers.NewRun(producers.RunConfig{Sink: s, RunID: "run_1", Grace: 200 * time.Millisecond})
	must(t, err)
	must(t, r.State(ctx, schema.StateRunning, ""))
	turn, err := r.Turn(ctx)
	must(t, err)
	child, err := r.Spawn(ctx, "run_a", "", "")
	must(t, err)
	s.on.Store(true)
	said := make(chan error, 1)
	go func() { said <- r.Emit(context.Background(), schema.TypeProgress, nil) }()
	for s.waiting.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	r.Receive(&schema.Event{Type: schema.TypeCommandMessage, RunID: "run_1", Payload: []byte(`{"content":"x"}`)})
	if err := child.Cancel(ctx, "stop"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a child is cancelled while the run waits: %v", err)
	}
	if err := turn.Cancel("stop"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a turn is cancelled while the run waits: %v", err)
	}
	if turn.Calls() != nil || turn.Context().Err() == nil {
		t.Error("the turn goes on")
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		s.on.Store(false)
	}()
	must(t, r.Cancel(ctx, "stop")) // ends the one who waits
	if err := <-said; !errors.Is(err, producers.ErrOver) {
		t.Errorf("who waited says %v", err)
	}
	if complaint := disorder(s.events); complaint != "" {
		t.Errorf("%s\n%s", complaint, s.story())
	}
}

// TestCancelIsTriedAgain: a cancellation that could not be said within its grace can be tried again, and says
// then what it has to.
func TestCancelIsTriedAgain(t *testing.T) {
	s := new(stuck)
	r, err := producers.NewRun(producers.RunConfig{Sink: s, RunID: "run_1", Grace: 50 * time.Millisecond})
	must(t, err)
	turn, err := r.Turn(t.Context())
	must(t, err)
	m, err := turn.Message(producers.MessageInfo{})
	must(t, err)
	must(t, m.Text("half"))
	s.on.Store(true)
	if err := turn.Cancel("stop"); err == nil {
		t.Error("cancelled without space")
	}
	s.on.Store(false)
	if err := m.Text("more"); !errors.Is(err, producers.ErrOver) {
		t.Error(err)
	}
	must(t, turn.Cancel("stop"), r.Finish(t.Context()))
	if complaint := disorder(s.events); complaint != "" {
		t.Errorf("%s\n%s", complaint, s.story())
	}
}

// endless gives comments for ever.
type endless struct{ read func() }

func (e endless) Read(b []byte) (int, error) {
	e.read()
	return copy(b, ": ping\n\n"), nil
}

// TestModelThatSaysNothing: a body that goes on without events ends with the turn, and one that gives nothing at
// all is given up.
func TestModelThatSaysNothing(t *testing.T) {
	var s told
	r := newRun(t, &s)
	turn, err := r.Turn(t.Context())
	must(t, err)
	n := 0
	err = turn.Model("", "", anthropic.NewDecoder(provider.Config{}), endless{func() {
		if n++; n == 5 {
			go turn.Cancel("stop")
		}
	}})
	if !errors.Is(err, producers.ErrOver) {
		t.Error(err)
	}
	must(t, turn.Close())
	turn, err = r.Turn(t.Context())
	must(t, err)
	if err := turn.Model("", "", anthropic.NewDecoder(provider.Config{}), idle{}); !errors.Is(err, io.ErrNoProgress) {
		t.Error(err)
	}
	must(t, turn.End("error"), r.Finish(t.Context()))
}

type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// TestPanics: an agent that panics in the middle of its turn has it closed, and a sink that does keeps nobody
// out.
func TestPanics(t *testing.T) {
	var s told
	r := newRun(t, &s)
	func() {
		defer func() { _ = recover() }()
		turn, err := r.Turn(t.Context())
		must(t, err)
		defer turn.Close()
		m, err := turn.Message(producers.MessageInfo{})
		must(t, err)
		must(t, m.Text("half"))
		panic("the agent")
	}()
	must(t, r.Finish(t.Context()))
	if complaint := disorder(s.events); complaint != "" {
		t.Errorf("%s\n%s", complaint, s.story())
	}
	wild := &wild{}
	r, err := producers.NewRun(producers.RunConfig{Sink: wild, RunID: "run_1", Grace: time.Second})
	must(t, err)
	must(t, r.State(t.Context(), schema.StateRunning, ""))
	wild.on = true
	for range 3 {
		func() {
			defer func() { _ = recover() }()
			_ = r.Cancel(t.Context(), "stop")
		}()
	}
	wild.on = false
	must(t, r.Cancel(t.Context(), "stop"))
}

// wild panics.
type wild struct {
	told
	on bool
}

func (w *wild) Send(ctx context.Context, events ...schema.Event) error {
	if w.on {
		panic("the sink")
	}
	return w.told.Send(ctx, events...)
}

// TestModelCallsSideBySide: each of several model calls of a turn has its own end.
func TestModelCallsSideBySide(t *testing.T) {
	var s told
	r := newRun(t, &s)
	turn, err := r.Turn(t.Context())
	must(t, err)
	var calls []*producers.ModelCall
	for range 3 {
		c, err := turn.BeginModel("", "")
		must(t, err)
		calls = append(calls, c)
	}
	must(t, calls[1].End(nil))
	if err := calls[1].Fail(nil); !errors.Is(err, producers.ErrOver) {
		t.Errorf("ended twice: %v", err)
	}
	end, err := turn.Task("x")
	must(t, err)
	must(t, end(true))
	if err := end(true); !errors.Is(err, producers.ErrOver) {
		t.Errorf("a task ended twice: %v", err)
	}
	must(t, r.Cancel(t.Context(), "stop"))
	if complaint := disorder(s.events); complaint != "" {
		t.Errorf("%s\n%s", complaint, s.story())
	}
}
