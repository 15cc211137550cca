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

func body(t *testing.T, s persistertest.Store, key schema.RunKey) []byte {
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

func letters(t *testing.T, s persistertest.Store) []persister.DeadLetter {
	t.Helper()
	l, err := s.DeadLetters(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestStoresAndAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		w := persistertest.NewWriter(key("r"), day)
		packs := []schema.Pack{w.Texts("", 3), w.Texts("kid", 2), w.Texts("", 1)}
		q.put(packs...)
		q.onAck = func(msgs []persister.Message) {
			// At this moment, and not later, the rows must be there.
			if h, _ := store.Head(context.Background(), key("r"), ""); h.Last < 6 {
				t.Errorf("acknowledged %d messages with the store at %d", len(msgs), h.Last)
			}
		}
		var stored atomic.Int64
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hooks: persister.Hooks{
			Stored: func(_ string, s persister.Stored) { stored.Add(int64(s.Inserted)) },
		}})
		synctest.Wait()
		if got := body(t, store, key("r")); !bytes.Equal(got, bodies(packs...)) {
			t.Errorf("rows are %s", got)
		}
		if acked, _ := q.counts(); acked != 3 || stored.Load() != 6 {
			t.Errorf("acknowledged %d of 3, hook saw %d rows", acked, stored.Load())
		}
		time.Sleep(11 * time.Second)
		if s := p.Status()[0]; s.Stream != "AGENT_0" || s.Inserted != 6 || s.Lag.Messages != 0 || s.LagAt.IsZero() || !s.RetryingSince.IsZero() {
			t.Errorf("status is %+v", s)
		}
		stop()
	})
}

// TestOutage: an hour without the store. Nothing is acknowledged, the memory held is one batch, the
// state is visible, and everything flows when it is back.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		q.redeliver = 24 * time.Hour
		var away atomic.Bool
		var attempts atomic.Int64
		away.Store(true)
		store.Fault = func(context.Context, []persister.Chunk) error {
			attempts.Add(1)
			if away.Load() {
				return errAway
			}
			return nil
		}
		w := persistertest.NewWriter(key("r"), day)
		var packs []schema.Pack
		for range 500 {
			packs = append(packs, w.Texts("", 10))
		}
		q.put(packs...)
		begin := time.Now()
		var recovered time.Duration
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 100, Hooks: persister.Hooks{
			Recovered: func(_ string, outage time.Duration) { recovered = outage },
		}})
		time.Sleep(time.Hour)
		synctest.Wait()
		s := p.Status()[0]
		if acked, _ := q.counts(); acked != 0 {
			t.Errorf("%d messages were acknowledged without a store", acked)
		}
		if !s.RetryingSince.Equal(begin) || !strings.Contains(s.LastError, "refused") || s.Lag.Messages != 500 {
			t.Errorf("status in the outage: %+v", s)
		}
		// 10 s at most between attempts, half of it at least: 360 to 720 an hour, and the first few.
		if n := attempts.Load(); n < 350 || n > 740 {
			t.Errorf("%d attempts in an hour", n)
		}
		q.mu.Lock()
		if len(q.out) > 100 {
			t.Errorf("%d messages are held in memory, a batch has 100", len(q.out))
		}
		q.mu.Unlock()
		away.Store(false)
		time.Sleep(time.Minute)
		if got := body(t, store, key("r")); !bytes.Equal(got, bodies(packs...)) {
			t.Error("rows differ from the stream")
		}
		if acked, _ := q.counts(); acked != 500 || recovered < time.Hour || !p.Status()[0].RetryingSince.IsZero() {
			t.Errorf("acknowledged %d of 500, outage %v, status %+v", acked, recovered, p.Status()[0])
		}
		stop()
	})
}

// TestStuckPartition: the store hangs for one run; the other partitions go on.
func TestStuckPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := persistertest.NewMemory()
		store.Fault = func(ctx context.Context, chunks []persister.Chunk) error {
			if len(chunks) > 0 && chunks[0].Key.Run == "stuck" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		a, b := newQueue("AGENT_0"), newQueue("AGENT_1")
		a.put(persistertest.NewWriter(key("stuck"), day).Texts("", 1))
		good := persistertest.NewWriter(key("good"), day).Texts("", 1)
		b.put(good)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{a, b}, Store: store})
		time.Sleep(10 * time.Minute)
		if !bytes.Equal(body(t, store, key("good")), good.Body) {
			t.Error("the other partition waits")
		}
		if s := p.Status(); s[0].RetryingSince.IsZero() || !s[1].RetryingSince.IsZero() {
			t.Errorf("status: %+v", s)
		}
		stop()
		if _, released := a.counts(); released != 1 {
			t.Error("what was not stored is not released")
		}
	})
}

// poison makes a store that refuses chunks which hold certain text.
func poison(store *persistertest.Memory, mark string) {
	store.Fault = func(_ context.Context, chunks []persister.Chunk) error {
		for i := range chunks {
			for _, r := range chunks[i].Rows {
				if bytes.Contains(r.Line, []byte(mark)) {
					return fmt.Errorf("value out of range: %w", persister.ErrPoison)
				}
			}
		}
		return nil
	}
}

func TestPoisonIsIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_3"), persistertest.NewMemory()
		poison(store, "POISON")
		w, other := persistertest.NewWriter(key("r"), day), persistertest.NewWriter(key("other"), day)
		text := func(s string) schema.Event { return persistertest.Event(schema.TypeTextDelta, `{"text":"`+s+`"}`) }
		a := w.Texts("", 40)
		bad := w.Pack("kid", text("one"), text("POISON 1"), text("three"), text("POISON 2"), text("five"))
		c, o := w.Texts("", 30), other.Texts("", 70)
		q.put(a, bad, o, c)
		var buried []string
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Hooks: persister.Hooks{
			Buried: func(stream, reason string) { buried = append(buried, stream+" "+reason) },
		}})
		synctest.Wait()
		stop()
		if acked, _ := q.counts(); acked != 4 {
			t.Errorf("acknowledged %d of 4", acked)
		}
		if !bytes.Equal(body(t, store, key("other")), o.Body) {
			t.Error("the other run is not whole")
		}
		lines := slices.Collect(schema.Lines(bad.Body))
		got := letters(t, store)
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
		if s := p.Status()[0]; s.Buried != 2 || s.Inserted != 40+3+30+70 || len(buried) != 2 || buried[0] != "AGENT_3 refused" {
			t.Errorf("status %+v, hook %q", s, buried)
		}
	})
}

func TestConflictIsAnAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
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
		l := letters(t, store)
		if len(l) != 1 || l[0].Reason != persister.ReasonConflict || l[0].Position != 2 || !bytes.Contains(l[0].Body, []byte("forged")) {
			t.Errorf("letters %+v", l)
		}
		if len(alarms) != 1 || alarms[0] != "acme/r 1" || p.Status()[0].Conflicts != 1 {
			t.Errorf("alarms %q, status %+v", alarms, p.Status()[0])
		}
		if acked, _ := q.counts(); acked != 3 {
			t.Errorf("acknowledged %d of 3", acked)
		}
	})
}

// TestShutdown: the batch that is being written when Run is told to stop is finished.
func TestShutdownFinishesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		store.Fault = func(ctx context.Context, _ []persister.Chunk) error {
			select {
			case <-time.After(3 * time.Second): // a slow commit
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		w := persistertest.NewWriter(key("r"), day)
		a, b := w.Texts("", 5), w.Texts("", 5)
		q.put(a, b)
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, BatchEvents: 5})
		time.Sleep(time.Second)
		stop()
		if !bytes.Equal(body(t, store, key("r")), bodies(a, b)) {
			t.Error("the batch was not finished within its grace")
		}
		if acked, released := q.counts(); acked != 2 || released != 0 {
			t.Errorf("acknowledged %d, released %d", acked, released)
		}
	})
}

// TestShutdownAbandons: a store that does not answer does not keep the process.
func TestShutdownAbandons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		store.Fault = func(ctx context.Context, _ []persister.Chunk) error { <-ctx.Done(); return ctx.Err() }
		w := persistertest.NewWriter(key("r"), day)
		q.put(w.Texts("", 5), w.Texts("", 5))
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store, Grace: 7 * time.Second})
		time.Sleep(time.Second)
		begin := time.Now()
		stop()
		if took := time.Since(begin); took != 7*time.Second {
			t.Errorf("stopping took %v", took)
		}
		if acked, released := q.counts(); acked != 0 || released != 2 {
			t.Errorf("acknowledged %d, released %d", acked, released)
		}
	})
}

// TestLostAcknowledgement: rows are committed, the confirmation is not. The messages come again and
// change nothing.
func TestLostAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		q.ackErr = errors.New("no responders")
		w := persistertest.NewWriter(key("r"), day)
		a, b := w.Texts("", 5), w.Texts("", 5)
		q.put(a, b)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(2500 * time.Millisecond)
		q.set(func() { q.ackErr = nil })
		time.Sleep(2 * time.Minute)
		stop()
		if !bytes.Equal(body(t, store, key("r")), bodies(a, b)) || len(letters(t, store)) != 0 {
			t.Error("rows differ from the stream")
		}
		if s := p.Status()[0]; s.Inserted != 10 || s.Repeated != 10 || s.Lag.Messages != 0 {
			t.Errorf("status %+v", s)
		}
	})
}

func TestFetchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		q.fetchErr = errAway
		a := persistertest.NewWriter(key("r"), day).Texts("", 5)
		q.put(a)
		p, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(time.Minute)
		if s := p.Status()[0]; s.RetryingSince.IsZero() || !strings.HasPrefix(s.LastError, "fetch: ") {
			t.Errorf("status %+v", s)
		}
		q.set(func() { q.fetchErr = nil })
		time.Sleep(time.Minute)
		if s := p.Status()[0]; !s.RetryingSince.IsZero() || !bytes.Equal(body(t, store, key("r")), a.Body) {
			t.Errorf("status %+v", s)
		}
		stop()
	})
}

// TestSlowStoreShrinksBatches: a store that cannot finish large transactions in time gets small ones.
func TestSlowStoreShrinksBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, store := newQueue("AGENT_0"), persistertest.NewMemory()
		store.Fault = func(ctx context.Context, chunks []persister.Chunk) error {
			rows := 0
			for i := range chunks {
				rows += len(chunks[i].Rows)
			}
			select {
			case <-time.After(time.Duration(rows) * 300 * time.Millisecond):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		w := persistertest.NewWriter(key("r"), day)
		var packs []schema.Pack
		for range 100 {
			packs = append(packs, w.Texts("", 10))
		}
		q.put(packs...)
		q.redeliver = 24 * time.Hour
		_, stop := start(t, persister.Config{Queues: []persister.Queue{q}, Store: store})
		time.Sleep(2 * time.Hour)
		stop()
		if !bytes.Equal(body(t, store, key("r")), bodies(packs...)) {
			t.Error("a slow store never gets anything")
		}
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
