package persister_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestOutageEndsElsewhere: what was given back in an outage is stored by another process. Who has nothing
// to store any more does not say for ever that its store is away.
func TestOutageEndsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		var away atomic.Bool
		away.Store(true)
		store.Fault = func(context.Context, []persister.Chunk) error {
			if away.Load() {
				return errAway
			}
			return nil
		}
		q.put(texts("r", 20, 10)...)
		var recovered atomic.Int64
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hooks: persister.Hooks{
			Recovered: func(string, time.Duration) { recovered.Add(1) },
		}})
		time.Sleep(10 * time.Minute)
		if s := p.Status()[0]; s.RetryingSince.IsZero() || recovered.Load() != 0 {
			t.Errorf("in the outage: %d times recovered, %+v", recovered.Load(), s)
		}
		q.set(func() { // the other one was quicker
			for i := range q.msgs {
				q.acked[q.msgs[i].Position]++
			}
		})
		away.Store(false)
		time.Sleep(5 * time.Minute)
		if s := p.Status()[0]; !s.RetryingSince.IsZero() || recovered.Load() != 1 {
			t.Errorf("after it: %d times recovered, %+v", recovered.Load(), s)
		}
		stop()
	})
}

// TestAnswersButTakesNothing: a store that can be asked, and refuses each write, is not asked without a
// pause, however soon a batch is given back.
func TestAnswersButTakesNothing(t *testing.T) {
	for _, hold := range []time.Duration{time.Second, 5 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			q, store := newQueue("AGENT_0"), persistertest.NewMemory()
			var attempts atomic.Int64
			store.Fault = func(_ context.Context, chunks []persister.Chunk) error {
				if len(chunks) == 0 { // it was only asked
					return nil
				}
				if attempts.Add(1) > 10_000 {
					panic("without a pause")
				}
				return errAway
			}
			q.put(texts("r", 100, 10)...)
			_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hold: hold})
			time.Sleep(time.Hour)
			stop()
			if n := attempts.Load(); n > 800 {
				t.Errorf("%d attempts in an hour when batches are given back after %v", n, hold)
			}
		})
	}
}

// TestHoldsOnlyWhatItHas: of a batch whose front waits to be confirmed and whose rest was given back, only
// the front is held.
func TestHoldsOnlyWhatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		q.redeliver, q.takes = 9*time.Second, 30*time.Second
		var commits atomic.Int64
		store.Fault = func(context.Context, []persister.Chunk) error {
			if commits.Add(1) > 1 {
				return errAway
			}
			return nil
		}
		var front bool
		q.onHold = func(msgs []persister.Message) {
			for _, m := range msgs {
				if q.released[m.Position] > 0 {
					t.Errorf("message %d is held, and was given back", m.Position)
				}
				front = front || len(q.released) > 0 && m.Position == 1
			}
		}
		q.put(texts("r", 3, 10)...)
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 10, Hold: 5 * time.Second, Grace: time.Minute})
		time.Sleep(58 * time.Second)
		q.set(func() {
			if !front {
				t.Error("what waits to be confirmed was not held")
			}
			q.onHold = nil
		})
		stop()
	})
}

// TestManyDeadLettersAreNotAFlood: each is kept and counted, the log says only so many.
func TestManyDeadLettersAreNotAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		const n = 3000
		for i := range n {
			q.raw("agent.0.acme.r", nil, fmt.Appendf(nil, "nonsense %d", i))
		}
		var text logText
		var told atomic.Int64
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Logger: slog.New(slog.NewTextHandler(&text, nil)),
			Hooks: persister.Hooks{Buried: func(string, string) { told.Add(1) }}})
		time.Sleep(30 * time.Second)
		said := strings.Count(text.String(), "set aside as a dead letter")
		if told.Load() != n || p.Status()[0].Buried != n || said < 1 || said > 100 {
			t.Errorf("%d dead letters: the hook heard of %d, the log of %d", p.Status()[0].Buried, told.Load(), said)
		}
		q.raw("agent.0.acme.r", nil, []byte("the last"))
		time.Sleep(5 * time.Second)
		stop()
		if rest := fmt.Sprintf("unsaid=%d", n-said); !strings.Contains(text.String(), rest) {
			t.Errorf("the log does not say %s", rest)
		}
	})
}

// TestUnknownLagIsSaid: without the lag nobody would be warned, so that must be said, once.
func TestUnknownLagIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue("AGENT_0")
		q.lagErr = fmt.Errorf("permissions violation")
		var text logText
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: persistertest.NewMemory(), Logger: slog.New(slog.NewTextHandler(&text, nil))})
		said := func() int { return strings.Count(text.String(), "lag is not known") }
		time.Sleep(time.Hour)
		if n := said(); n != 1 {
			t.Errorf("said %d times", n)
		}
		q.set(func() { q.lagErr = nil })
		time.Sleep(time.Minute)
		q.set(func() { q.lagErr = errAway })
		time.Sleep(time.Minute)
		stop()
		if n := said(); n != 2 {
			t.Errorf("said %d times after it had been known again", n)
		}
	})
}

// TestStopAtAnyTime: whatever it is doing when it is told to stop, it stops in time, loses nothing and
// keeps nothing for itself.
func TestStopAtAnyTime(t *testing.T) {
	for seed := range 120 {
		synctest.Test(t, func(t *testing.T) {
			q, store := newQueue("AGENT_0"), persistertest.NewMemory()
			q.redeliver = 10 * time.Second
			q.takes = time.Duration(seed%4) * 700 * time.Millisecond
			var calls atomic.Int64
			store.Fault = func(ctx context.Context, chunks []persister.Chunk) error {
				switch n := calls.Add(1); {
				case seed%5 == 1 && n%3 != 0:
					return errAway
				case seed%5 == 2 && n > 4:
					<-ctx.Done()
					return ctx.Err()
				case seed%5 == 3:
					return errAway
				}
				select {
				case <-time.After(time.Duration(seed%7) * 400 * time.Millisecond):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			packs := texts("r", 300, 10)
			q.onAck = func(msgs []persister.Message) {
				h, _ := store.Head(context.Background(), key("r"), "")
				for _, m := range msgs {
					if last := schema.Seq(m.Position * 10); h.Last < last {
						t.Errorf("seed %d: message %d was confirmed with the store at %d", seed, m.Position, h.Last)
					}
				}
			}
			q.put(packs[:200]...)
			cfg := persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100, HeldBytes: 20_000 << (seed % 6),
				Attempt: 5 * time.Second, Hold: 7 * time.Second, Grace: 6 * time.Second}
			_, stop := start(t, cfg)
			time.Sleep(time.Duration(seed) * 377 * time.Millisecond)
			q.put(packs[200:]...)
			time.Sleep(time.Duration(seed%11) * 97 * time.Millisecond)
			begin := time.Now()
			stop()
			if took := time.Since(begin); took > cfg.Grace+time.Second+4*q.takes { // the queue here hears of no end
				t.Errorf("seed %d: stopping took %v", seed, took)
			}
			q.set(func() { // what was handed out is confirmed or given back
				for at := range q.out {
					if q.acked[at] == 0 {
						t.Errorf("seed %d: message %d was kept", seed, at)
					}
				}
			})
			store.Fault, q.onAck = nil, nil
			cfg.BatchEvents, cfg.HeldBytes = 0, 0
			_, stop = start(t, cfg)
			time.Sleep(2 * time.Minute)
			stop()
			if !bytes.Equal(body(t, store, key("r")), bodies(packs...)) || len(letters(t, store)) != 0 {
				t.Errorf("seed %d: rows differ from the stream", seed)
			}
		})
	}
}

func TestBoundsAreChecked(t *testing.T) {
	q := []persister.Queue{newQueue("AGENT_0")}
	for i, c := range []persister.Config{
		{LagEvery: -1}, {Attempt: -1}, {Grace: -1}, {Hold: -1}, {RetryMin: time.Minute, RetryMax: time.Second}, {BatchStart: 9, BatchEvents: 8},
	} {
		c.Queues, c.Store = q, persistertest.NewMemory()
		if _, err := persister.New(c); err == nil {
			t.Errorf("config %d is taken", i)
		}
	}
}
