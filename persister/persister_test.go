package persister_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const day = "20260228"

func key(run string) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: run} }

// start runs a persister until stop, inside a synctest bubble or out of it.
func start(t *testing.T, cfg persister.Config) (p *persister.Persister, stop func()) {
	t.Helper()
	p, err := persister.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return p, stop
}

func body(t *testing.T, s persistertest.SuiteStore, key schema.RunKey) []byte {
	t.Helper()
	var b []byte
	for p, err := range s.Packs(t.Context(), key, 0, schema.MaxSeq) {
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, p.Body...)
	}
	return b
}

func bodies(packs ...schema.Pack) (b []byte) {
	for _, p := range packs {
		b = append(b, p.Body...)
	}
	return b
}

func deadLetters(t *testing.T, s persistertest.SuiteStore) []persister.DeadLetter {
	t.Helper()
	l, err := s.DeadLetters(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		w := persistertest.NewWriter(key("r"), day)
		packs := []schema.Pack{w.Texts("", 3), w.Texts("kid", 2), w.Texts("", 1)}
		q.put(packs...)
		var stored persister.Stored
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hooks: persister.Hooks{
			Stored: func(stream string, s persister.Stored) { stored = s },
		}})
		synctest.Wait()
		store.once(t, packs)
		if stored.Messages != 3 || stored.Inserted != 6 {
			t.Errorf("the hook saw %+v", stored)
		}
		time.Sleep(11 * time.Second)
		s := p.Status()[0]
		if s.Stream != "AGENT_0" || s.Standby || s.Inserted != 6 || s.Lag.Messages != 0 || s.LagAt.IsZero() ||
			!s.RetryingSince.IsZero() || s.HeldBytes != 0 {
			t.Errorf("status is %+v", s)
		}
		want := persister.Offset{Stream: "AGENT_0", Identity: "1", Position: 3}
		if at := store.offset(t, "AGENT_0"); !at.Same(want) || !at.StoredAt.Equal(q.msgs[2].Stored) || !s.Offset.Same(want) {
			t.Errorf("offset is %+v, status says %+v", at, s.Offset)
		}
		stop()
	})
}

// TestOutage: an hour without the store. What is held in memory is a batch and the one that waits, and soon nothing,
// the state is visible, attempts are few, and everything flows when it is back.
func TestOutage(t *testing.T) {
	for _, begun := range []bool{false, true} { // before the outage, with an offset
		synctest.Test(t, func(t *testing.T) {
			q, store := newQueue("AGENT_0"), newLedger()
			var away atomic.Bool
			var attempts atomic.Int64
			store.fault = func(context.Context, *persister.Transfer) error {
				if !away.Load() {
					return nil
				}
				return errAway
			}
			packs := texts("r", 500, 10)
			var recovered time.Duration
			cfg := persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100, HeldBytes: 256 << 10,
				Hooks: persister.Hooks{
					Retrying:  func(string, error, time.Time, time.Duration) { attempts.Add(1) },
					Recovered: func(_ string, outage time.Duration) { recovered = outage },
				}}
			away.Store(!begun)
			p, stop := start(t, cfg)
			time.Sleep(20 * time.Millisecond)
			away.Store(true)
			q.put(packs...)
			time.Sleep(5 * time.Second)
			s := p.Status()[0]
			if s.HeldBytes > 256<<10 || begun != (s.HeldBytes > 0) {
				t.Errorf("%d bytes are held", s.HeldBytes)
			}
			time.Sleep(time.Hour - 5*time.Second)
			synctest.Wait()
			s = p.Status()[0]
			if since := time.Since(s.RetryingSince); since < time.Hour || since > time.Hour+time.Second ||
				!strings.Contains(s.LastError, "refused") {
				t.Errorf("status in the outage: %+v", s)
			}
			if begun && s.Lag.Messages != 500 {
				t.Errorf("the lag is %d in the outage", s.Lag.Messages)
			}
			// 10 s at most between attempts, half of it at least: 360 to 720 an hour, and the first few.
			_, _, _, reads, _ := store.history()
			if n := attempts.Load(); n < 350 || n > 740 || reads > 3600 {
				t.Errorf("%d attempts and %d reads in an hour", n, reads)
			}
			if s.HeldBytes != 0 {
				t.Errorf("%d bytes are held after an hour", s.HeldBytes)
			}
			away.Store(false)
			time.Sleep(time.Minute)
			store.once(t, packs)
			if s := p.Status()[0]; recovered < time.Hour || !s.RetryingSince.IsZero() || s.HeldBytes != 0 ||
				s.Lag.Messages != 0 {
				t.Errorf("outage %v, status %+v", recovered, s)
			}
			stop()
		})
	}
}

// TestStuckPartition: the store hangs for one run; the other partitions go on.
func TestStuckPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newLedger()
		store.fault = func(ctx context.Context, tr *persister.Transfer) error {
			if tr != nil && len(tr.Chunks) > 0 && tr.Chunks[0].Key.Run == "stuck" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		a, b := newQueue("AGENT_0"), newQueue("AGENT_1")
		a.put(texts("stuck", 1, 1)...)
		good := texts("good", 1, 1)
		b.put(good...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{a, b}, Store: store})
		time.Sleep(10 * time.Minute)
		store.once(t, good)
		if s := p.Status(); s[0].RetryingSince.IsZero() || !s[1].RetryingSince.IsZero() {
			t.Errorf("status: %+v", s)
		}
		stop()
		if s := p.Status(); s[0].HeldBytes != 0 || store.offset(t, "AGENT_0").Position != 0 {
			t.Errorf("status: %+v", s)
		}
	})
}

// TestStuckAtTheBeginning: a store that hangs when an offset is kept for the first time is asked again.
func TestStuckAtTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		var stuck atomic.Bool
		stuck.Store(true)
		store.fault = func(ctx context.Context, tr *persister.Transfer) error {
			if stuck.Load() && tr != nil {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		packs := texts("r", 10, 10)
		q.put(packs...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(90 * time.Second)
		if s := p.Status()[0]; s.RetryingSince.IsZero() || !strings.HasPrefix(s.LastError, "store: ") {
			t.Errorf("status: %+v", s)
		}
		stuck.Store(false)
		time.Sleep(2 * time.Minute)
		store.once(t, packs)
		stop()
	})
}

// poison makes a store that refuses transactions which hold rows with certain text.
func poison(store *ledger, mark string) {
	store.fault = func(_ context.Context, tr *persister.Transfer) error {
		if tr != nil && marked(tr, mark) {
			return fmt.Errorf("value out of range: %w", persister.ErrPoison)
		}
		return nil
	}
}

func marked(tr *persister.Transfer, mark string) bool {
	for i := range tr.Chunks {
		for _, r := range tr.Chunks[i].Rows {
			if bytes.Contains(r.Line, []byte(mark)) {
				return true
			}
		}
	}
	return false
}

func TestPoisonIsIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_3"), newLedger()
		poison(store, "POISON")
		w, other := persistertest.NewWriter(key("r"), day), persistertest.NewWriter(key("other"), day)
		text := func(s string) schema.Event { return persistertest.Event(schema.TypeTextDelta, `{"text":"`+s+`"}`) }
		a := w.Texts("", 40)
		bad := w.Pack("kid", text("one"), text("POISON 1"), text("three"), text("POISON 2"), text("five"))
		c, o := w.Texts("", 30), other.Texts("", 70)
		q.put(a, bad, o, c)
		var told []string
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hooks: persister.Hooks{
			DeadLetter: func(stream, reason string) { told = append(told, stream+" "+reason) },
		}})
		synctest.Wait()
		stop()
		if at := store.offset(t, "AGENT_3"); at.Position != 4 {
			t.Errorf("the offset is %d, want 4", at.Position)
		}
		if !bytes.Equal(body(t, store, key("other")), o.Body) {
			t.Error("the other run is not whole")
		}
		lines := slices.Collect(schema.Lines(bad.Body))
		got := deadLetters(t, store)
		if len(got) != 2 {
			t.Fatalf("%d dead letters", len(got))
		}
		slices.SortFunc(got, func(x, y persister.DeadLetter) int { return int(x.Seq - y.Seq) })
		for i, n := range []int{1, 3} {
			l := got[i]
			if l.Seq != bad.First+schema.Seq(n) || !bytes.Equal(l.Body, lines[n]) || l.Reason != persister.ReasonRefused ||
				l.Stream != "AGENT_3" || l.Position != 2 || l.Key != key("r") || l.Header[schema.HeaderSeq][0] != "41" ||
				!strings.HasSuffix(l.Subject, ".acme.r.kid") || !strings.Contains(l.Detail, "out of range") {
				t.Errorf("letter %+v", l)
			}
		}
		// The neighbours of the poison are there; what is behind the hole is stored, not handed out.
		if got := body(t, store, key("r")); !bytes.Equal(got, append(slices.Clone(a.Body), append(lines[0], '\n')...)) {
			t.Errorf("before the hole: %d bytes", len(got))
		}
		if h, _ := store.Head(context.Background(), key("r"), ""); h.Last != c.Head.Last {
			t.Errorf("head is at %d, the log at %d", h.Last, c.Head.Last)
		}
		if s := p.Status()[0]; s.DeadLetters != 2 || s.Inserted != 40+3+30+70 || len(told) != 2 ||
			told[0] != "AGENT_3 refused" {
			t.Errorf("status %+v, hook %q", s, told)
		}
	})
}

func TestConflictIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		w, forger := persistertest.NewWriter(key("r"), day), persistertest.NewWriter(key("r"), day)
		a := w.Texts("", 3)
		q.put(a)
		q.put(forger.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"forged"}`)))
		b := w.Texts("", 1)
		q.put(b)
		var alarms []string
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hooks: persister.Hooks{
			Conflict: func(_ string, k schema.RunKey, seq schema.Seq) { alarms = append(alarms, fmt.Sprint(k, " ", seq)) },
		}})
		synctest.Wait()
		stop()
		if !bytes.Equal(body(t, store, key("r")), bodies(a, b)) {
			t.Error("the first content did not stay")
		}
		l := deadLetters(t, store)
		if len(l) != 1 || l[0].Reason != persister.ReasonConflict || l[0].Position != 2 ||
			!bytes.Contains(l[0].Body, []byte("forged")) {
			t.Errorf("letters %+v", l)
		}
		if len(alarms) != 1 || alarms[0] != "acme/r 1" || p.Status()[0].Conflicts != 1 {
			t.Errorf("alarms %q, status %+v", alarms, p.Status()[0])
		}
		if at := store.offset(t, "AGENT_0"); at.Position != 3 {
			t.Errorf("the offset is %d, want 3", at.Position)
		}
	})
}

// TestShutdownFinishesTheBatch: what has been fetched when Run is stopped is stored within its grace.
func TestShutdownFinishesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		slow(store, func(int) time.Duration { return 3 * time.Second })
		packs := texts("r", 2, 5)
		q.put(packs...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 5})
		time.Sleep(time.Second)
		stop()
		store.once(t, packs)
		if s := p.Status()[0]; s.HeldBytes != 0 || store.offset(t, "AGENT_0").Position != 2 {
			t.Errorf("status %+v", s)
		}
	})
}

// TestShutdownAbandons: a store that does not answer does not keep the process.
func TestShutdownAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		store.fault = func(ctx context.Context, tr *persister.Transfer) error {
			if tr == nil || len(tr.Chunks) == 0 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		q.put(texts("r", 2, 5)...)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Grace: 7 * time.Second})
		time.Sleep(time.Second)
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("stopping took %v", took)
		}
		if s := p.Status()[0]; s.HeldBytes != 0 || store.offset(t, "AGENT_0").Position != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestFetchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		q.fetchErr = errAway
		w := persistertest.NewWriter(key("r"), day)
		a := w.Texts("", 5)
		q.put(a)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(time.Minute)
		if s := p.Status()[0]; s.RetryingSince.IsZero() || !strings.HasPrefix(s.LastError, "fetch: ") {
			t.Errorf("status %+v", s)
		}
		q.set(func() { q.fetchErr = nil })
		time.Sleep(time.Minute)
		store.once(t, []schema.Pack{a})
		if s := p.Status()[0]; !s.RetryingSince.IsZero() {
			t.Errorf("status %+v", s)
		}
		// In the middle of the work too: what was fetched by then is stored.
		q.set(func() { q.fetchErr = errAway })
		b := w.Texts("", 5)
		q.put(b)
		time.Sleep(time.Minute)
		if s := p.Status()[0]; s.RetryingSince.IsZero() || s.HeldBytes != 0 {
			t.Errorf("status %+v", s)
		}
		q.set(func() { q.fetchErr = nil })
		time.Sleep(time.Minute)
		store.once(t, []schema.Pack{a, b})
		stop()
	})
}

// TestSlowStoreShrinksBatches: a store that cannot finish large transactions in time gets small ones.
func TestSlowStoreShrinksBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), newLedger()
		slow(store, func(rows int) time.Duration { return time.Duration(rows) * 300 * time.Millisecond })
		packs := texts("r", 100, 10)
		q.put(packs...)
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(2 * time.Hour)
		stop()
		store.once(t, packs)
	})
}

func TestConfig(t *testing.T) {
	q, store := newQueue("x"), persistertest.NewMemory()
	for name, cfg := range map[string]persister.Config{
		"no queue":  {Store: store},
		"no store":  {Queues: []persister.Queue{q}},
		"negative":  {Queues: []persister.Queue{q}, Store: store, BatchEvents: -1},
		"max < min": {Queues: []persister.Queue{q}, Store: store, RetryMin: time.Minute, RetryMax: time.Second},
	} {
		if _, err := persister.New(cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
