package producers_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

// distantLog is a log whose answers take their time, as those of a busy machine do.
type distantLog struct{ *memory.Log }

const (
	appendTime = time.Millisecond
	readTime   = 3 * time.Millisecond
	planTime   = 5 * time.Millisecond
)

func (l distantLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	time.Sleep(appendTime / 2)
	defer time.Sleep(appendTime / 2)
	return l.Log.Append(ctx, p, after)
}

func (l distantLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	defer time.Sleep(readTime)
	return l.Log.Head(ctx, key, lane)
}

// writeOn begins to write to the run, one append after the other without a pause, until stop.
func writeOn(t *testing.T, log producers.Log, by string) (stop func() int) {
	t.Helper()
	agent, err := producers.NewAppender(producers.AppenderConfig{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if _, err := agent.Append(t.Context(), key, []schema.Event{text("", fmt.Sprint(by, n))},
				producers.AppendOptions{}); err != nil {
				t.Error(err)
				return
			}
			n++
		}
	})
	stop = func() int { cancel(); wg.Wait(); return n }
	t.Cleanup(func() { stop() })
	return stop
}

// TestCommandBesideABusyWriter: a command that is planned for the very head that it follows is stored, however slow its
// rounds are beside those of an agent that never stops writing. What was planned for is still so.
func TestCommandBesideABusyWriter(t *testing.T) {
	for writers := 1; writers <= 3; writers++ {
		t.Run(fmt.Sprint(writers, " agents"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { commandBeside(t, writers) })
		})
	}
}

func commandBeside(t *testing.T, writers int) {
	log := distantLog{memory.New()}
	var stops []func() int
	for i := range writers {
		stops = append(stops, writeOn(t, log, fmt.Sprint("w", i, "-")))
	}
	node, _ := producers.NewAppender(producers.AppenderConfig{Log: log})
	time.Sleep(50 * time.Millisecond)
	for i := range 5 {
		plans, planned := 0, schema.Seq(0)
		plan := func(_ context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error) {
			time.Sleep(planTime)
			plans, planned = plans+1, head.Last
			return given, nil
		}
		r, err := node.Append(t.Context(), key, []schema.Event{text("", fmt.Sprint("stop", i))}, producers.AppendOptions{
			Whole: true, Plan: plan, Within: 10 * time.Second,
		})
		if err != nil || r.First != planned+1 || plans > 10 {
			t.Fatalf("command %d: %+v, planned %d times, at last for %d: %v", i, r, plans, planned, err)
		}
	}
	want := 5
	for _, stop := range stops {
		n := stop()
		want += n
		if n < 10 {
			t.Errorf("a writer has stored %d events meanwhile", n)
		}
	}
	if head, err := log.Log.Head(t.Context(), key, ""); err != nil || int(head.Last) != want {
		t.Errorf("head %+v, %v, want %d", head, err, want)
	}
}

// TestConflictBesideABusyWriter: of commands that exclude each other exactly one is stored, also where all of them hold
// the run against a busy agent; and who is refused keeps nobody waiting.
func TestConflictBesideABusyWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := distantLog{memory.New()}
		stop := writeOn(t, log, "w")
		time.Sleep(50 * time.Millisecond)
		var decided, stored sync.Map
		var wg sync.WaitGroup
		errDecided := errors.New("it is decided")
		for i := range 4 {
			wg.Go(func() {
				node, _ := producers.NewAppender(producers.AppenderConfig{Log: log})
				plan := func(ctx context.Context, head schema.Head, given []schema.Event) ([]schema.Event, error) {
					time.Sleep(planTime)
					for p, err := range log.Since(ctx, key, 0) {
						for r, err := range p.Records(0) {
							if err != nil {
								return nil, err
							}
							if r.Seq <= head.Last && string(r.Type) == "command.approve_plan" {
								decided.Store(i, true)
								return nil, errDecided
							}
						}
						if err != nil {
							return nil, err
						}
					}
					return given, nil
				}
				yes := schema.Event{Type: "command.approve_plan", Actor: "user", Payload: fmt.Appendf(nil, `{"plan_id":"p%d"}`, i)}
				_, err := node.Append(t.Context(), key, []schema.Event{yes},
					producers.AppendOptions{Whole: true, Plan: plan, Within: 20 * time.Second})
				switch {
				case err == nil:
					stored.Store(i, true)
				case !errors.Is(err, errDecided):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		refused := time.Now()
		before, _ := log.Log.Head(t.Context(), key, "")
		time.Sleep(100 * time.Millisecond)
		if after, _ := log.Log.Head(t.Context(), key, ""); after.Last < before.Last+20 {
			t.Errorf("%v after a refusal the agent has stored %d events", time.Since(refused), after.Last-before.Last)
		}
		stop()
		n := 0
		stored.Range(func(any, any) bool { n++; return true })
		if n != 1 {
			t.Errorf("%d commands are stored", n)
		}
	})
}

// TestHolderDies: who has asked the others to wait and is gone holds them up for seconds, not for ever.
func TestHolderDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := distantLog{memory.New()}
		stop := writeOn(t, log, "w")
		time.Sleep(20 * time.Millisecond)
		if err := log.Hold(t.Context(), key, "nobody"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		held, _ := log.Log.Head(t.Context(), key, "")
		if held.Held != "nobody" {
			t.Errorf("nobody has waited: %+v", held)
		}
		time.Sleep(2 * time.Second)
		if head, _ := log.Log.Head(t.Context(), key, ""); head.Last <= held.Last || head.Held != "" {
			t.Errorf("they wait for ever: %+v after %+v", head, held)
		}
		stop()
	})
}
