package persister_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// slow makes appends take a while.
func slow(store *persistertest.Memory, takes func(rows int) time.Duration) {
	store.Fault = func(ctx context.Context, chunks []persister.Chunk) error {
		select {
		case <-time.After(takes(rowsOf(chunks))):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func rowsOf(chunks []persister.Chunk) (n int) {
	for i := range chunks {
		n += len(chunks[i].Rows)
	}
	return n
}

func texts(run string, packs, events int) []schema.Pack {
	w := persistertest.NewWriter(key(run), day)
	out := make([]schema.Pack, packs)
	for i := range out {
		out[i] = w.Texts("", events)
	}
	return out
}

// logText keeps what was logged, for several goroutines.
type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestStepsOverlap: fetching, storing and confirming take a second each; ten batches take ten seconds
// and two more, not thirty.
func TestStepsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		q.takes = time.Second
		slow(store, func(int) time.Duration { return time.Second })
		packs := texts("r", 10, 10)
		q.put(packs...)
		begin := time.Now()
		var last atomic.Int64
		q.onAck = func([]persister.Message) { last.Store(int64(time.Since(begin))) }
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 10, BatchBytes: 8 << 10, HeldBytes: 64 << 10,
			Target: time.Hour})
		time.Sleep(time.Minute)
		stop()
		if acked, _ := q.counts(); acked != 10 || !bytes.Equal(body(t, store, key("r")), bodies(packs...)) {
			t.Errorf("acknowledged %d of 10", acked)
		}
		if took := time.Duration(last.Load()); took > 13*time.Second {
			t.Errorf("ten batches took %v", took)
		}
	})
}

// TestHeldBytes: what is fetched and not confirmed stays within its bound, also when nothing is stored.
func TestHeldBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		store.Fault = func(ctx context.Context, _ []persister.Chunk) error { <-ctx.Done(); return ctx.Err() }
		q.put(texts("r", 2000, 10)...)
		const bound = 1 << 20
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q, newQueue("AGENT_1")}, Store: store, HeldBytes: 2 * bound, Attempt: time.Hour})
		for range 100 {
			time.Sleep(time.Second)
			if s := p.Status()[0]; s.HeldBytes > bound+bound/4 || s.HeldBytes == 0 {
				t.Fatalf("%d bytes are held, %d are allowed", s.HeldBytes, bound)
			}
		}
		stop()
		if s := p.Status()[0]; s.HeldBytes != 0 {
			t.Errorf("%d bytes are held after the end", s.HeldBytes)
		}
	})
}

// TestHeldMessagesDoNotComeAgain: a transaction that takes longer than the queue waits is told to the
// queue; else the pipeline would be handed what it is writing.
func TestHeldMessagesDoNotComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		q.redeliver = 10 * time.Second
		slow(store, func(int) time.Duration { return 45 * time.Second })
		packs := texts("r", 40, 10)
		q.put(packs...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100})
		time.Sleep(time.Hour)
		stop()
		s := p.Status()[0]
		if !bytes.Equal(body(t, store, key("r")), bodies(packs...)) || s.Repeated != 0 {
			t.Errorf("%d rows came again, status %+v", s.Repeated, s)
		}
		if q.holds() == 0 {
			t.Error("nothing was held: the test shows nothing")
		}
	})
}

// TestOutageGivesBack: in an outage of hours nothing is held, nothing comes again and again, and what is
// stored afterwards is stored in order.
func TestOutageGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		q.redeliver = 10 * time.Second
		var away atomic.Bool
		away.Store(true)
		var order []schema.Seq
		store.Fault = func(_ context.Context, chunks []persister.Chunk) error {
			if away.Load() {
				return errAway
			}
			if len(chunks) > 0 {
				order = append(order, chunks[0].Rows[0].Seq)
			}
			return nil
		}
		packs := texts("r", 500, 10)
		q.put(packs...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100})
		time.Sleep(time.Minute)
		if s := p.Status()[0]; s.HeldBytes != 0 || s.RetryingSince.IsZero() {
			t.Errorf("after a minute without a store: %+v", s)
		}
		held := q.holds()
		time.Sleep(3 * time.Hour)
		if _, released := q.counts(); released > 300 || q.holds() != held {
			t.Errorf("%d messages were given back, %d held: they come again and again", released, q.holds()-held)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		stop()
		for i := 1; i < len(order); i++ {
			if order[i] <= order[i-1] {
				t.Fatalf("seq %d was stored after %d", order[i], order[i-1])
			}
		}
		if s := p.Status()[0]; !bytes.Equal(body(t, store, key("r")), bodies(packs...)) || s.Repeated != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestBatchSize: transactions grow while they are quick and more is waiting, shrink when they are slow,
// and stay within their bounds.
func TestBatchSize(t *testing.T) {
	for name, c := range map[string]struct {
		perRow   time.Duration
		min, max int // of the rows of a transaction, in the end
	}{
		"quick": {10 * time.Microsecond, 8000, 8000},
		"fair":  {100 * time.Microsecond, 1500, 5000},
		"slow":  {2 * time.Millisecond, 200, 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, store := newQueue("AGENT_0"), persistertest.NewMemory()
				var all []int
				slow(store, func(rows int) time.Duration {
					all = append(all, rows)
					return 10*time.Millisecond + time.Duration(rows)*c.perRow
				})
				q.put(texts("r", 600, 100)...)
				_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
				time.Sleep(30 * time.Second)
				stop()
				last := slices.Max(all[len(all)/2:])
				if last < c.min || last > c.max {
					t.Errorf("transactions have %d rows in the end, want %d to %d: %v", last, c.min, c.max, all)
				}
			})
		})
	}
}

// TestGrowsAgain: after an outage transactions have one row; they grow whatever the number of events in a
// message is.
func TestGrowsAgain(t *testing.T) {
	for _, events := range []int{1, 3, 10, 100} {
		synctest.Test(t, func(t *testing.T) {
			q, store := newQueue("AGENT_0"), persistertest.NewMemory()
			var attempts atomic.Int64
			slow(store, func(int) time.Duration { return 10 * time.Millisecond })
			works := store.Fault
			store.Fault = func(ctx context.Context, c []persister.Chunk) error {
				if attempts.Add(1) < 15 {
					return errAway
				}
				return works(ctx, c)
			}
			q.put(texts("r", 20_000/events, events)...)
			p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hold: time.Hour})
			time.Sleep(2 * time.Minute)
			if n := attempts.Load(); n > 100 {
				t.Errorf("messages of %d events took %d transactions, %d rows each in the end", events, n, p.Status()[0].BatchRows)
			}
			stop()
		})
	}
}

// TestAlarms: half a window before the log drops what is not stored there is a warning, at a quarter an
// error, and what is lost is told, each time once.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logText
		logger := slog.New(slog.NewTextHandler(&text, nil))
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		store.Fault = func(context.Context, []persister.Chunk) error { return errAway }
		var told atomic.Uint64
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Logger: logger, Hooks: persister.Hooks{
			Lost: func(stream string, n uint64) { told.Add(n) },
		}})
		q.put(texts("r", 3, 10)...)
		seen := func(at time.Duration, degraded bool, alarm string, warnings, errors int) {
			t.Helper()
			synctest.Wait()
			s := p.Status()[0]
			w := strings.Count(text.String(), `level=WARN msg="persister: the log may`)
			e := strings.Count(text.String(), `level=ERROR msg="persister: the log may`)
			if s.Degraded != degraded || !strings.Contains(s.Alarm, alarm) || (alarm == "") != (s.Alarm == "") || w > 0 != (warnings > 0) || e > 0 != (errors > 0) {
				t.Errorf("at %v: alarm %q, %d warnings, %d errors; %+v", at, s.Alarm, w, e, s)
			}
			if w > 20 || e > 20 {
				t.Errorf("%d warnings and %d errors: too many", w, e)
			}
		}
		time.Sleep(20 * time.Minute)
		seen(20*time.Minute, false, "", 0, 0)
		time.Sleep(15 * time.Minute)
		seen(35*time.Minute, false, "is dropped in", 1, 0)
		time.Sleep(15 * time.Minute)
		seen(50*time.Minute, true, "is dropped in", 1, 1)
		q.set(func() { q.lost = 2 })
		time.Sleep(5 * time.Minute)
		seen(55*time.Minute, true, "2 messages were dropped", 1, 1)
		if n := strings.Count(text.String(), "they are lost"); n != 1 || told.Load() != 2 || p.Status()[0].Lost != 2 {
			t.Errorf("the loss was said %d times, the hook heard of %d", n, told.Load())
		}
		if s := p.Status()[0]; s.LagEvents != 30 {
			t.Errorf("three messages of ten events are taken for %d events", s.LagEvents)
		}
		stop()
	})
}

// TestStandby: the state says that a partition is another's, and who is on standby leaves the warning
// to the other.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logText
		q := newQueue("AGENT_0")
		q.away, q.fetchErr = true, fmt.Errorf("never asked")
		q.put(texts("r", 1, 1)...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: persistertest.NewMemory(), Logger: slog.New(slog.NewTextHandler(&text, nil))})
		time.Sleep(55 * time.Minute)
		if s := p.Status()[0]; !s.Standby || s.Alarm == "" || strings.Contains(text.String(), "the log may") {
			t.Errorf("status %+v, log %s", s, text.String())
		}
		q.set(func() { q.away = false })
		if p.Status()[0].Standby {
			t.Error("still on standby")
		}
		stop()
	})
}
