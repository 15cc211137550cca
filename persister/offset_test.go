package persister_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestKilledAtEveryTransaction: a process that is killed before a transaction, while the answer is on its way,
// or in the middle of one that the database does not finish, leaves rows and offset that belong together. The next
// one goes on from there: the rows equal the log, and none was written twice.
func TestKilledAtEveryTransaction(t *testing.T) {
	for _, moment := range []string{"before", "after", "hanging"} {
		for at := 1; ; at++ {
			var reached bool
			synctest.Test(t, func(t *testing.T) { reached = killedAt(t, moment, int64(at)) })
			if !reached {
				if at < 8 {
					t.Errorf("%s: only %d transactions were made: the test shows little", moment, at)
				}
				break
			}
		}
	}
}

// killedAt reports whether the transaction was reached.
func killedAt(t *testing.T, moment string, at int64) bool {
	q, store := newQueue("AGENT_0"), newLedger()
	first := &process{ledger: store}
	var calls atomic.Int64
	kill := func(when string) bool {
		if moment == when && calls.Load() == at {
			first.kill()
			return true
		}
		return false
	}
	store.fault = func(ctx context.Context, tr *persister.Transfer) error {
		if tr == nil {
			return nil
		}
		calls.Add(1)
		if kill("before") {
			return errAway
		}
		if kill("hanging") {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	store.after = func(*persister.Transfer) error {
		kill("after")
		return nil
	}
	packs := texts("r", 60, 10)
	q.put(packs...)
	cfg := persister.Config{Queues: []persister.Queue{q}, Store: first, BatchEvents: 100, Attempt: time.Second}
	p, stop := start(t, cfg)
	time.Sleep(5 * time.Second)
	stop()
	if s := p.Status()[0]; s.HeldBytes != 0 {
		t.Errorf("%s %d: %d bytes are held after the end", moment, at, s.HeldBytes)
	}
	reached := first.gone() != nil
	store.fault, store.after = nil, nil
	cfg.Store, cfg.Queues = store, []persister.Queue{q.open()}
	_, stop = start(t, cfg)
	time.Sleep(30 * time.Second)
	stop()
	store.once(t, packs)
	if t.Failed() {
		t.Logf("killed %s transaction %d", moment, at)
	}
	return reached
}

// TestLostAcknowledgement: a transaction is done and its answer is lost. The offset shows it: nothing is written
// twice, and the work goes on from where the transaction has come.
func TestLostAcknowledgement(t *testing.T) {
	for _, every := range []int64{2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			q, store := newQueue("AGENT_0"), newLedger()
			var calls atomic.Int64
			store.after = func(*persister.Transfer) error {
				if calls.Add(1)%every == 0 {
					return errAway
				}
				return nil
			}
			packs := texts("r", 100, 10)
			q.put(packs...)
			var recovered atomic.Int64
			p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100,
				Hooks: persister.Hooks{
					Recovered: func(string, time.Duration) { recovered.Add(1) },
				}})
			time.Sleep(time.Minute)
			store.once(t, packs)
			_, _, _, _, overtaken := store.history()
			if s := p.Status()[0]; overtaken == 0 || recovered.Load() == 0 || !s.RetryingSince.IsZero() ||
				s.HeldBytes != 0 || s.Offset.Position != 100 {
				t.Errorf("%d times overtaken, %d times recovered, status %+v", overtaken, recovered.Load(), s)
			}
			stop()
		})
	}
}

// TestLastAnswerIsLost: what follows a lost answer may be nothing. The outage is over all the same.
func TestLastAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		store.after = func(tr *persister.Transfer) error {
			if len(tr.Chunks) > 0 {
				return errAway
			}
			return nil
		}
		packs := texts("r", 1, 10)
		q.put(packs...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(30 * time.Second)
		store.once(t, packs)
		if s := p.Status()[0]; !s.RetryingSince.IsZero() || s.HeldBytes != 0 || s.LastError == "" || s.Offset.Position != 1 {
			t.Errorf("status %+v", s)
		}
		stop()
	})
}

// refiller writes the packs back that the stream lacks, and fails first.
type refiller struct {
	to       *queue
	packs    []schema.Pack
	failures atomic.Int64
	calls    atomic.Int64
	stored   persister.Offset // of the last call
}

func (r *refiller) Refill(ctx context.Context, stored persister.Offset) (persister.Offset, error) {
	r.calls.Add(1)
	r.stored = stored
	if r.failures.Add(-1) >= 0 {
		return persister.Offset{}, errAway
	}
	if err := pause(ctx, 3*time.Second); err != nil {
		return persister.Offset{}, err
	}
	r.to.mu.Lock()
	have := int(r.to.last)
	at := persister.Offset{Stream: r.to.name, Identity: r.to.identity, Position: uint64(len(r.packs))}
	r.to.mu.Unlock()
	r.to.put(r.packs[min(have, len(r.packs)):]...)
	return at, nil
}

// TestLogIsBehind: a log that lacks what is stored of it is an outage that is said, until it is whole again.
func TestLogIsBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		packs := texts("r", 30, 10)
		q.put(packs[:20]...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(5 * time.Second)
		q.cut(12)
		time.Sleep(10 * time.Minute)
		s := p.Status()[0]
		if s.RetryingSince.IsZero() || !strings.HasPrefix(s.LastError, "fetch: ") ||
			!strings.Contains(s.LastError, persister.ErrBehind.Error()) || s.Offset.Position != 20 {
			t.Errorf("status %+v", s)
		}
		if n := q.asked(); n > 1000 {
			t.Errorf("%d fetches in ten minutes", n)
		}
		q.put(packs[12:]...)
		time.Sleep(time.Minute)
		store.once(t, packs)
		if s := p.Status()[0]; !s.RetryingSince.IsZero() || s.HeldBytes != 0 {
			t.Errorf("status %+v", s)
		}
		stop()
	})
}

// TestRefill: a log that is behind, or is another one, is completed first, however often that fails, and its
// partition goes on.
func TestRefill(t *testing.T) {
	for name, lose := range map[string]func(*queue, schema.Pack){
		"tail":    func(q *queue, _ schema.Pack) { q.cut(12) },
		"another": func(q *queue, p schema.Pack) { q.anew(); q.put(p) },
	} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprint(name, running), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					q, store := newQueue("AGENT_0"), newLedger()
					packs := texts("r", 30, 10)
					q.put(packs[:20]...)
					fill := &refiller{to: q, packs: packs[:20]}
					fill.failures.Store(5)
					cfg := persister.Config{Queues: []persister.Queue{q}, Store: store, Refill: fill}
					p, stop := start(t, cfg)
					time.Sleep(5 * time.Second)
					if !running {
						stop()
					}
					lose(q, packs[0])
					if !running {
						p, stop = start(t, cfg)
					}
					time.Sleep(time.Minute)
					q.put(packs[20:]...)
					time.Sleep(time.Minute)
					store.once(t, packs)
					want := persister.Offset{Stream: "AGENT_0", Identity: q.identity, Position: 30}
					if n := fill.calls.Load(); n != 6 || fill.stored.Position != 20 || fill.stored.Identity != "1" {
						t.Errorf("filled %d times, last of %+v", n, fill.stored)
					}
					if s := p.Status()[0]; !s.RetryingSince.IsZero() || !s.Offset.Same(want) ||
						!store.offset(t, "AGENT_0").Same(want) ||
						s.Offset.Generation != 1 || store.offset(t, "AGENT_0").Generation != 1 {
						t.Errorf("status %+v", s)
					}
					stop()
				})
			})
		}
	}
}

// TestRefillAndKilled: the process may die after the refill, before the offset has moved to where it ended.
func TestRefillAndKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		packs := texts("r", 30, 10)
		q.put(packs[:20]...)
		fill := &refiller{to: q, packs: packs[:20]}
		cfg := persister.Config{Queues: []persister.Queue{q}, Store: store, Refill: fill}
		_, stop := start(t, cfg)
		time.Sleep(5 * time.Second)
		stop()
		q.anew()
		q.put(packs[0])
		var away atomic.Bool
		away.Store(true)
		store.fault = func(_ context.Context, tr *persister.Transfer) error {
			if tr != nil && away.Load() {
				return errAway
			}
			return nil
		}
		p, stop := start(t, cfg)
		time.Sleep(time.Minute)
		if s := p.Status()[0]; s.RetryingSince.IsZero() || !strings.HasPrefix(s.LastError, "store: ") {
			t.Errorf("status %+v", s)
		}
		away.Store(false)
		q.put(packs[20:]...)
		time.Sleep(time.Minute)
		store.once(t, packs)
		stop()
	})
}

// TestStreamMadeAnew: a stream that is empty and another one is begun at its beginning, once more and once more.
func TestStreamMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		packs := texts("r", 60, 10)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		for i := range 6 {
			q.put(packs[10*i : 10*i+10]...)
			time.Sleep(5 * time.Second)
			want := persister.Offset{Stream: "AGENT_0", Identity: fmt.Sprint(i/2 + 1), Position: uint64(i%2*10 + 10)}
			if at := store.offset(t, "AGENT_0"); !at.Same(want) {
				t.Errorf("the offset is %+v, want %+v", at, want)
			}
			if i%2 == 1 {
				q.anew()
				time.Sleep(5 * time.Second)
			}
		}
		store.once(t, packs)
		want := persister.Offset{Stream: "AGENT_0", Identity: "4"}
		if s := p.Status()[0]; !s.RetryingSince.IsZero() || !s.Offset.Same(want) || s.Offset.Generation != 3 {
			t.Errorf("status %+v", s)
		}
		stop()
	})
}

// TestHeadIsDropped: what the log has dropped before it was stored is counted, and the rest is stored.
func TestHeadIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		old, packs := texts("old", 5, 10), texts("r", 10, 10)
		q.put(old...)
		q.put(packs...)
		q.drop(5)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(15 * time.Second)
		store.once(t, packs)
		if s := p.Status()[0]; s.Lost != 5 || !s.Degraded || s.Offset.Position != 15 {
			t.Errorf("status %+v", s)
		}
		stop()
	})
}

// TestPoisonAndOutage: the store goes away, or an answer is lost, while poison is being looked for. What can be
// stored is stored, what cannot is set aside, and nothing is passed over.
func TestPoisonAndOutage(t *testing.T) {
	for fail := int64(1); fail < 60; fail++ {
		for _, lost := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) { poisonAndOutage(t, fail, lost) })
			if t.Failed() {
				t.Fatalf("at call %d, answer lost: %v", fail, lost)
			}
		}
	}
}

func poisonAndOutage(t *testing.T, fail int64, lost bool) {
	q, store := newQueue("AGENT_0"), newLedger()
	poison(store, "POISON")
	refuse := store.fault
	var calls atomic.Int64
	store.fault = func(ctx context.Context, tr *persister.Transfer) error {
		if err := refuse(ctx, tr); tr == nil || err != nil {
			if tr != nil && calls.Add(1) == fail {
				return errAway
			}
			return err
		}
		if calls.Add(1) == fail && !lost {
			return errAway
		}
		return nil
	}
	store.after = func(*persister.Transfer) error {
		if calls.Load() == fail && lost {
			return errAway
		}
		return nil
	}
	w, forger := persistertest.NewWriter(key("r"), day), persistertest.NewWriter(key("r"), day)
	text := func(s string) schema.Event { return persistertest.Event(schema.TypeTextDelta, `{"text":"`+s+`"}`) }
	a := w.Texts("", 10)
	bad := w.Pack("", text("one"), text("POISON 1"), text("three"), text("POISON 2"), text("five"))
	c := w.Texts("", 10)
	q.put(a, bad)
	q.raw("agent.0.acme.r", nil, []byte("nonsense"))
	q.put(forger.Pack("", text("forged"), text("POISON 3")), c)
	p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
	time.Sleep(time.Minute)
	stop()
	reasons := make(map[string]int)
	for _, l := range deadLetters(t, store) {
		reasons[l.Reason]++
	}
	if reasons[persister.ReasonRefused] != 3 || reasons[persister.ReasonBadMessage] != 1 ||
		reasons[persister.ReasonConflict] != 1 {
		t.Errorf("dead letters %v", reasons)
	}
	lines := slices.Collect(schema.Lines(bad.Body))
	if got := body(t, store, key("r")); !bytes.Equal(got, append(slices.Clone(a.Body), append(lines[0], '\n')...)) {
		t.Errorf("before the hole: %s", got)
	}
	// Rows of a divided message may come again; those of others may not.
	_, sums, _, _, _ := store.history()
	if h, err := store.Head(t.Context(), key("r"), ""); h.Last != c.Head.Last || err != nil ||
		sums.Inserted != 10+3+10 || sums.Repeated > 3 {
		t.Errorf("head is at %d, the log at %d: %+v", h.Last, c.Head.Last, sums)
	}
	if s := p.Status()[0]; s.HeldBytes != 0 || !s.RetryingSince.IsZero() || s.Offset.Position != 5 {
		t.Errorf("status %+v", s)
	}
}

// TestLettersThatAreRefused: a store that refuses even a dead letter stops its partition, and the status shows it.
func TestLettersThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		var refuses atomic.Bool
		refuses.Store(true)
		store.fault = func(_ context.Context, tr *persister.Transfer) error {
			if tr != nil && len(tr.DeadLetters) > 0 && refuses.Load() {
				return fmt.Errorf("no such letter: %w", persister.ErrPoison)
			}
			return nil
		}
		packs := texts("r", 2, 10)
		q.put(packs[0])
		q.raw("agent.0.acme.r", nil, []byte("nonsense"))
		q.put(packs[1])
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(time.Minute)
		if s := p.Status()[0]; s.RetryingSince.IsZero() || s.Offset.Position != 1 ||
			!bytes.Equal(body(t, store, key("r")), packs[0].Body) {
			t.Errorf("status %+v", s)
		}
		refuses.Store(false)
		time.Sleep(time.Minute)
		if s := p.Status()[0]; !s.RetryingSince.IsZero() || s.Offset.Position != 3 || len(deadLetters(t, store)) != 1 {
			t.Errorf("status %+v", s)
		}
		stop()
	})
}

// TestAgainAfterAnything: an error that a store does not know is tried again, whatever it wraps.
func TestAgainAfterAnything(t *testing.T) {
	for _, answer := range []error{context.Canceled, context.DeadlineExceeded, persister.ErrBehind, errors.New("?")} {
		synctest.Test(t, func(t *testing.T) {
			q, store := newQueue("AGENT_0"), newLedger()
			var calls atomic.Int64
			store.fault = func(context.Context, *persister.Transfer) error {
				if calls.Add(1)%5 < 2 {
					return answer
				}
				return nil
			}
			packs := texts("r", 30, 10)
			q.put(packs...)
			_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100})
			time.Sleep(2 * time.Minute)
			stop()
			store.once(t, packs)
		})
	}
}
