package persister_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister"
)

// TestOutageEndsElsewhere: what one process could not store in an outage is stored by another. Who has nothing
// to store any more does not say for ever that its store is away.
func TestOutageEndsElsewhere(t *testing.T) {
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, store := newQueue("AGENT_0"), newLedger()
				mine := &process{ledger: store}
				packs := texts("r", 2000, 10)
				var recovered atomic.Int64
				p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: mine, Hold: time.Hour,
					Hooks: persister.Hooks{
						Recovered: func(string, time.Duration) { recovered.Add(1) },
					}})
				time.Sleep(time.Second)
				mine.cut(true)
				q.put(packs[:1000]...)
				time.Sleep(10 * time.Minute)
				if s := p.Status()[0]; s.RetryingSince.IsZero() || recovered.Load() != 0 || s.HeldBytes == 0 {
					t.Errorf("in the outage: %d times recovered, %+v", recovered.Load(), s)
				}
				_, stopOther := start(t, persister.Config{Queues: []persister.Queue{q.open()}, Store: store})
				end := 1000
				for i := range 120 {
					if i == 60 {
						mine.cut(false)
					}
					time.Sleep(time.Second)
					if busy { // then the other one keeps the partition
						q.put(packs[end])
						end++
					}
				}
				time.Sleep(2 * time.Second)
				if s := p.Status()[0]; !s.RetryingSince.IsZero() || recovered.Load() != 1 || s.HeldBytes != 0 || s.Standby != busy {
					t.Errorf("after it: %d times recovered, %+v", recovered.Load(), s)
				}
				store.once(t, packs[:end])
				stop()
				stopOther()
			})
		})
	}
}

// TestAnswersButTakesNothing: a store that can be asked, and refuses each write, is not asked without a pause.
func TestAnswersButTakesNothing(t *testing.T) {
	for name, answer := range map[string]error{"away": errAway, "poison": persister.ErrPoison,
		"overtaken": persister.ErrOvertaken} {
		for _, from := range []int{1, 2} { // of the calls
			t.Run(fmt.Sprint(name, from), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, store := newQueue("AGENT_0"), newLedger()
					var attempts atomic.Int64
					store.fault = func(_ context.Context, tr *persister.Transfer) error {
						if tr == nil || attempts.Add(1) < int64(from) {
							return nil
						}
						if attempts.Load() > 100_000 {
							panic("without a pause")
						}
						return answer
					}
					q.put(texts("r", 100, 1)...)
					q.raw("agent.0.acme.r", nil, []byte("nonsense"))
					_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
					time.Sleep(time.Hour)
					_, _, calls, reads, _ := store.history()
					stop()
					// Poison is looked for in all that was fetched: a few hundred transactions for one attempt.
					if calls > 200_000/2 || name != "poison" && calls > 800 || reads > 3600 {
						t.Errorf("%d attempts and %d reads in an hour", calls, reads)
					}
				})
			})
		}
	}
}

// TestManyDeadLettersAreNotAFlood: each is kept and counted, only a bounded number is logged.
func TestManyDeadLettersAreNotAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		const n = 3000
		for i := range n {
			q.raw("agent.0.acme.r", nil, fmt.Appendf(nil, "nonsense %d", i))
		}
		var text logText
		var told atomic.Int64
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store,
			Logger: slog.New(slog.NewTextHandler(&text, nil)),
			Hooks:  persister.Hooks{DeadLetter: func(string, string) { told.Add(1) }}})
		time.Sleep(30 * time.Second)
		said := strings.Count(text.String(), "set aside as a dead letter")
		if told.Load() != n || p.Status()[0].DeadLetters != n || said < 1 || said > 100 {
			t.Errorf("%d dead letters: the hook heard of %d, the log of %d", p.Status()[0].DeadLetters, told.Load(), said)
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
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: newLedger(),
			Logger: slog.New(slog.NewTextHandler(&text, nil))})
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

// TestStopAtAnyTime: whatever it is doing when it is stopped, it stops in time, loses nothing, stores nothing
// twice and keeps nothing for itself.
func TestStopAtAnyTime(t *testing.T) {
	for seed := range 120 {
		synctest.Test(t, func(t *testing.T) {
			q, store := newQueue("AGENT_0"), newLedger()
			q.takes = time.Duration(seed%4) * 700 * time.Millisecond
			var calls atomic.Int64
			store.fault = func(ctx context.Context, tr *persister.Transfer) error {
				switch n := calls.Add(1); {
				case tr == nil && seed%2 == 0:
					return nil
				case seed%6 == 1 && n%3 != 0:
					return errAway
				case seed%6 == 2 && n > 4:
					<-ctx.Done()
					return ctx.Err()
				case seed%6 == 3:
					return errAway
				}
				return pause(ctx, time.Duration(seed%7)*400*time.Millisecond)
			}
			store.after = func(*persister.Transfer) error { // the answer is lost
				if seed%6 == 4 && calls.Add(1)%2 == 0 {
					return errAway
				}
				return nil
			}
			packs := texts("r", 300, 10)
			q.put(packs[:200]...)
			cfg := persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100,
				HeldBytes: 20_000 << (seed % 6),
				Attempt:   5 * time.Second, Grace: 6 * time.Second, Alone: seed%2 == 0}
			p, stop := start(t, cfg)
			time.Sleep(time.Duration(seed) * 377 * time.Millisecond)
			q.put(packs[200:]...)
			time.Sleep(time.Duration(seed%11) * 97 * time.Millisecond)
			begin := time.Now()
			stop()
			if took := time.Since(begin); took > cfg.Grace+time.Second+2*q.takes { // this queue ignores the end of the context
				t.Errorf("seed %d: stopping took %v", seed, took)
			}
			if s := p.Status()[0]; s.HeldBytes != 0 {
				t.Errorf("seed %d: %d bytes were kept", seed, s.HeldBytes)
			}
			store.fault, store.after = nil, nil
			cfg.BatchEvents, cfg.HeldBytes = 0, 0
			_, stop = start(t, cfg)
			time.Sleep(2 * time.Minute)
			stop()
			store.once(t, packs)
		})
	}
}

func TestBoundsAreChecked(t *testing.T) {
	q := []persister.Queue{newQueue("AGENT_0")}
	for i, c := range []persister.Config{
		{LagEvery: -1}, {Attempt: -1}, {Grace: -1}, {Hold: -1}, {ShareEvery: -1}, {ShareStale: -1},
		{RetryMin: time.Minute, RetryMax: time.Second}, {BatchStart: 9, BatchEvents: 8},
	} {
		c.Queues, c.Store = q, newLedger()
		if _, err := persister.New(c); err == nil {
			t.Errorf("config %d is taken", i)
		}
	}
}

// TestStoring: a store that answers and takes nothing, as one does whose disk is full, is distinguished from one that
// works.
func TestStoring(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		var full atomic.Bool
		store.fault = func(_ context.Context, tr *persister.Transfer) error {
			if full.Load() && tr != nil {
				return errAway
			}
			return nil
		}
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		for range 2 {
			q.put(texts("r", 20, 10)...)
			time.Sleep(time.Minute)
			if err := p.Storing(); err != nil {
				t.Errorf("all is well: %v", err)
			}
			full.Store(true)
			q.put(texts("s", 20, 10)...)
			time.Sleep(10 * time.Minute)
			if err := p.Storing(); err == nil || !strings.Contains(err.Error(), "AGENT_0") ||
				!strings.Contains(err.Error(), errAway.Error()) {
				t.Errorf("nothing is stored: %v", err)
			}
			full.Store(false)
			time.Sleep(time.Minute)
		}
		stop()
	})
}
