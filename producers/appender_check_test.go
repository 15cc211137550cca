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

var errNo = errors.New("the state says no")

// TestCheckSeesTheHeadThatCounts: what a check allowed is so when the events are stored. Four nodes,
// each of which remembers heads, on a log that loses answers: two may write only behind an even
// number, two behind an odd one. So they take turns, forty times.
func TestCheckSeesTheHeadThatCounts(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			log := newChaos(seed, 0.2)
			keys := new(memoryKeys)
			var wg sync.WaitGroup
			for c := range 4 {
				wg.Go(func() { alternate(t, log, keys, c) })
			}
			wg.Wait()
			log.DeliverLate()
			checkRun(t, log.Log, key, map[string]int{"c0": 10, "c1": 10, "c2": 10, "c3": 10})
		})
	}
}

func alternate(t *testing.T, log producers.Log, keys producers.Keys, c int) {
	node, err := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: keys})
	if err != nil {
		t.Error(err)
		return
	}
	who := fmt.Sprintf("c%d", c)
	for i := range 10 {
		var asked schema.Seq
		opt := producers.AppendOptions{IdempotencyKey: fmt.Sprintf("%s-%d", who, i),
			Plan: func(_ context.Context, h schema.Head, given []schema.Event) ([]schema.Event, error) {
				if asked = h.Last; int(asked)%2 != c%2 {
					return nil, errNo
				}
				return given, nil
			}}
		for try := 0; ; try++ {
			r, err := node.Append(t.Context(), key, batch(who, i, 1, ""), opt)
			if (errors.Is(err, errNo) || errors.Is(err, producers.ErrUnavailable)) && try < 100_000 && !t.Failed() {
				time.Sleep(time.Millisecond) // the others' turn, or the log's
				continue
			}
			if err != nil || int(r.First)%2 == c%2 || !r.Replayed && r.First != asked+1 {
				t.Errorf("%s %d: allowed at %d, stored %+v, %v", who, i, asked, r, err)
				return
			}
			break
		}
	}
}

// TestCheckRefuses: nothing is stored; a refusal on what is remembered looks again first; a repeat of
// what is stored is not asked about; a key whose first try was refused is not a repeat.
func TestCheckRefuses(t *testing.T) {
	log := &counting{Log: memory.New()}
	a, _ := producers.NewAppender(producers.AppenderConfig{Log: log, Keys: new(memoryKeys)})
	b, _ := producers.NewAppender(producers.AppenderConfig{Log: log})
	var asked []schema.Seq
	atLeast := func(n schema.Seq) func(context.Context, schema.Head, []schema.Event) ([]schema.Event, error) {
		return func(_ context.Context, h schema.Head, given []schema.Event) ([]schema.Event, error) {
			asked = append(asked, h.Last)
			if h.Last < n {
				return nil, errNo
			}
			return given, nil
		}
	}
	add := func(on *producers.Appender, opt producers.AppendOptions, want error) producers.Receipt {
		t.Helper()
		r, err := on.Append(t.Context(), key, []schema.Event{text("", "x")}, opt)
		if !errors.Is(err, want) {
			t.Fatalf("%v, want %v", err, want)
		}
		return r
	}
	add(a, producers.AppendOptions{Plan: atLeast(1)}, errNo)
	add(a, producers.AppendOptions{}, nil)
	add(a, producers.AppendOptions{IdempotencyKey: "k", Plan: atLeast(2)}, errNo)
	add(b, producers.AppendOptions{}, nil)
	add(a, producers.AppendOptions{}, nil)
	add(b, producers.AppendOptions{}, nil) // a remembers 3
	if asked = nil; add(a, producers.AppendOptions{IdempotencyKey: "k", Plan: atLeast(4)}, nil).Replayed {
		// The digest is the content's: atLeast is not part of it.
		t.Error("a first try that was refused counts as a repeat")
	}
	if fmt.Sprint(asked) != "[3 4]" {
		t.Errorf("asked about %v", asked)
	}
	if asked = nil; !add(a, producers.AppendOptions{IdempotencyKey: "k", Plan: atLeast(99)}, nil).Replayed ||
		asked != nil {
		t.Errorf("a repeat was asked about: %v", asked)
	}
	heads := log.heads
	asked = nil
	add(a, producers.AppendOptions{Plan: atLeast(5)}, nil)
	if log.heads != heads || fmt.Sprint(asked) != "[5]" {
		t.Errorf("asked about %v with %d reads", asked, log.heads-heads)
	}
	if head, _ := log.Log.Head(t.Context(), key, ""); head.Last != 6 {
		t.Errorf("%d events", head.Last)
	}
}

// TestDayIsThatOfStoring: the day of a run is that on which it is written, whatever time its first event tells.
func TestDayIsThatOfStoring(t *testing.T) {
	log := memory.New()
	a, err := producers.NewAppender(producers.AppenderConfig{Log: log,
		Now: func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }})
	if err != nil {
		t.Fatal(err)
	}
	old := text("", "x")
	old.TS = "2001-02-03T04:05:06.000Z"
	if _, err := a.Append(t.Context(), key, []schema.Event{old}, producers.AppendOptions{}); err != nil {
		t.Fatal(err)
	}
	if head, err := log.Head(t.Context(), key, ""); err != nil || head.Day != "20260304" {
		t.Errorf("day %q, %v", head.Day, err)
	}
}
