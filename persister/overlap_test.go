package persister_test

import (
	"context"
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

// slow makes transactions with rows take a while.
func slow(store *ledger, takes func(rows int) time.Duration) {
	store.fault = func(ctx context.Context, tr *persister.Transfer) error {
		if tr == nil || len(tr.Chunks) == 0 {
			return ctx.Err()
		}
		return pause(ctx, takes(rowsOf(tr.Chunks)))
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

// TestStepsOverlap: fetching and storing take a second each; ten batches take ten seconds and one more, not
// twenty.
func TestStepsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		q.takes = time.Second
		slow(store, func(int) time.Duration { return time.Second })
		packs := texts("r", 10, 10)
		q.put(packs...)
		begin := time.Now()
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 10,
			BatchBytes: 8 << 10, HeldBytes: 64 << 10,
			Target: time.Hour})
		time.Sleep(time.Minute)
		stop()
		store.once(t, packs)
		moves, _, _, _, _ := store.history()
		if took := moves[len(moves)-1].at.Sub(begin); len(moves) < 11 || took > 12*time.Second {
			t.Errorf("%d transactions took %v", len(moves), took)
		}
	})
}

// TestHeldBytes: what is fetched and not stored stays within its bound, also when nothing is stored.
func TestHeldBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		var hangs atomic.Bool
		hangs.Store(true)
		store.fault = func(ctx context.Context, tr *persister.Transfer) error {
			if tr != nil && len(tr.Chunks) > 0 && hangs.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		packs := texts("r", 2000, 10)
		q.put(packs...)
		const bound = 1 << 20
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q, newQueue("AGENT_1")}, Store: store,
			HeldBytes: 2 * bound, Attempt: time.Hour})
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
		hangs.Store(false)
		p, stop = start(t, persister.Config{Queues: []persister.Queue{q.open()}, Store: store, HeldBytes: bound})
		for range 60 {
			time.Sleep(time.Second)
			if s := p.Status()[0]; s.HeldBytes > bound+bound/4 {
				t.Fatalf("%d bytes are held, %d are allowed", s.HeldBytes, bound)
			}
		}
		store.once(t, packs)
		if s := p.Status()[0]; s.HeldBytes != 0 {
			t.Errorf("%d bytes are held of nothing", s.HeldBytes)
		}
		stop()
	})
}

// TestSlowerThanStale: a transaction that takes longer than an offset may rest is repeated by nobody while there
// is one process, and stored once.
func TestSlowerThanStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		slow(store, func(int) time.Duration { return 45 * time.Second })
		packs := texts("r", 40, 10)
		q.put(packs...)
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100})
		time.Sleep(time.Hour)
		stop()
		store.once(t, packs)
		if _, _, _, _, overtaken := store.history(); overtaken > 0 {
			t.Errorf("%d transactions were overtaken", overtaken)
		}
	})
}

// TestBatchSize: transactions grow while they are quick and more is waiting, shrink when they are slow,
// and stay within their bounds.
func TestBatchSize(t *testing.T) {
	for name, c := range map[string]struct {
		perRow   time.Duration
		min, max int // of the rows of a transaction, in the end
		waited   time.Duration
	}{
		"quick":            {10 * time.Microsecond, 8000, 8000, 0},
		"fair":             {100 * time.Microsecond, 1500, 5000, 0},
		"slow":             {2 * time.Millisecond, 200, 300, 0},
		"quick, but waits": {10 * time.Microsecond, 8000, 8000, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, store := newQueue("AGENT_0"), newLedger()
				store.waited = c.waited
				var all []int
				slow(store, func(rows int) time.Duration {
					all = append(all, rows)
					return 10*time.Millisecond + time.Duration(rows)*c.perRow + c.waited
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
			q, store := newQueue("AGENT_0"), newLedger()
			var attempts atomic.Int64
			store.fault = func(ctx context.Context, tr *persister.Transfer) error {
				if tr == nil || len(tr.Chunks) == 0 {
					return nil
				}
				if attempts.Add(1) < 15 {
					return errAway
				}
				return pause(ctx, 10*time.Millisecond)
			}
			packs := texts("r", 20_000/events, events)
			q.put(packs...)
			p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
			time.Sleep(2 * time.Minute)
			if n := attempts.Load(); n > 100 {
				t.Errorf("messages of %d events took %d transactions, %d rows each in the end", events, n, p.Status()[0].BatchRows)
			}
			store.once(t, packs)
			stop()
		})
	}
}

// TestAlarms: half a window before the log drops what is not stored there is a warning, at a quarter an
// error, and losses are reported, each once.
func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text logText
		logger := slog.New(slog.NewTextHandler(&text, nil))
		q, store := newQueue("AGENT_0"), newLedger()
		store.fault = func(_ context.Context, tr *persister.Transfer) error {
			if tr != nil && len(tr.Chunks) > 0 {
				return errAway
			}
			return nil
		}
		var told atomic.Uint64
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Logger: logger,
			Hooks: persister.Hooks{
				Lost: func(stream string, n uint64) { told.Add(n) },
			}})
		q.put(texts("r", 3, 10)...)
		seen := func(at time.Duration, degraded bool, alarm string, warnings, errors int) {
			t.Helper()
			synctest.Wait()
			s := p.Status()[0]
			w := strings.Count(text.String(), `level=WARN msg="persister: the log may`)
			e := strings.Count(text.String(), `level=ERROR msg="persister: the log may`)
			if s.Degraded != degraded || !strings.Contains(s.Alarm, alarm) || (alarm == "") != (s.Alarm == "") ||
				w > 0 != (warnings > 0) || e > 0 != (errors > 0) {
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
		q.lost.Store(2)
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
