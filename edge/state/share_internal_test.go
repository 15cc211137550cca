package state

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/internal/fair"
	"agentstream/producers"
	"agentstream/schema"
)

// stuckLog is a log that does not answer about some runs.
type stuckLog struct {
	*memory.Log
	stuck func(schema.RunKey) bool
	asked atomic.Int64 // for what it does not answer
}

func (l *stuckLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	return func(yield func(schema.Pack, error) bool) {
		if l.stuck(key) {
			l.asked.Add(1)
			<-ctx.Done()
			yield(schema.Pack{}, context.Cause(ctx))
			return
		}
		l.Log.Packs(ctx, key, after, through)(yield)
	}
}

// sharedCache returns a cache over runs of tenants, each of so many events.
func sharedCache(t *testing.T, stuck func(schema.RunKey) bool, events, total int,
	keys ...schema.RunKey) (*Cache, *stuckLog) {
	t.Helper()
	log := &stuckLog{Log: memory.New(), stuck: stuck}
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log, CacheBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: log.Log})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		batch := make([]schema.Event, events)
		for i := range batch {
			batch[i] = schema.Event{Type: schema.TypeProgress, Payload: fmt.Appendf(nil, `{"done":%d}`, i)}
			if err := batch[i].Prepare(key.Run); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := app.Append(t.Context(), key, batch, producers.AppendOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return New(&runs.Runs{Hub: hub}, 1<<20, total), log
}

func runsOf(tenant string, n int) (keys []schema.RunKey) {
	for i := range n {
		keys = append(keys, schema.RunKey{Tenant: tenant, Run: fmt.Sprint("run", i)})
	}
	return keys
}

// One tenant has a hundred reads of runs under way that go on for ever: what others read, and what commands need, those
// of the same tenant too, waits for none of them.
func TestReadsOfOneTenantHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big, small := runsOf("big", 100), runsOf("small", 2)
		own := schema.RunKey{Tenant: "big", Run: "own"}
		stuck := func(key schema.RunKey) bool { return key.Tenant == "big" && key != own }
		c, log := sharedCache(t, stuck, 10, 64<<20, append(append(big, small...), own)...)
		d := counter{fed: func() {}}
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		for _, key := range append(big, big...) {
			work.Go(func() { _, _ = c.Projector(ctx, key, d, 10, dialect.Request{}) })
			work.Go(func() { _, _ = c.Snapshot(ctx, key, 5) })
		}
		synctest.Wait()
		if n := int(log.asked.Load()); n == 0 || n > runs.AtOnce().Shared {
			t.Fatalf("%d reads are under way", n)
		}
		began := time.Now()
		soon, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		for _, key := range small {
			if _, err := c.Projector(soon, key, d, 10, dialect.Request{}); err != nil {
				t.Errorf("another tenant's state: %v", err)
			}
			if _, err := c.Snapshot(soon, key, 0); err != nil {
				t.Errorf("another tenant's snapshot: %v", err)
			}
		}
		if err := c.Fold(fair.Command(soon), own, 10, func(*Folded) error { return nil }); err != nil {
			t.Errorf("a command of the tenant: %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("others have waited for %v", took)
		}
		cancel()
		work.Wait()
	})
}

// A read of a run waits among the reads of its tenant, and has the turn at the run meanwhile. A command that needs the
// same is not behind them.
func TestCommandOvertakesTheReadThatItWaitsFor(t *testing.T) {
	for _, begun := range []bool{false, true} { // the read waits for its first slot, or has yielded
		synctest.Test(t, func(t *testing.T) {
			key := schema.RunKey{Tenant: "big", Run: "wanted"}
			big := runsOf("big", 20)
			c, _ := sharedCache(t, func(k schema.RunKey) bool { return k != key && k.Tenant == "big" }, 1000, 64<<20,
				append(big, key, schema.RunKey{Tenant: "small", Run: "a"})...)
			c.slots = fair.NewLanes(fair.Config{Firsts: 1}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			var work sync.WaitGroup
			read := func(key schema.RunKey, d counter) {
				work.Go(func() { _, _ = c.Projector(ctx, key, d, 1000, dialect.Request{}) })
				synctest.Wait()
			}
			n := 0
			slow := counter{fed: func() {
				if n++; begun && n == 100 {
					// Somebody with less comes, and stays.
					work.Go(func() { slot, _ := c.slots.Reads.Acquire(ctx, "small"); <-ctx.Done(); slot.Release() })
					synctest.Wait()
				}
				time.Sleep(time.Millisecond)
			}}
			if !begun {
				read(big[0], slow)
			}
			read(key, slow)
			if begun {
				time.Sleep(time.Second)
			}
			soon, end := context.WithTimeout(t.Context(), time.Minute)
			defer end()
			if p, err := c.Projector(fair.Command(soon), key, counter{fed: func() {}}, 1000,
				dialect.Request{}); err != nil || p.(*counted).n != 1000 {
				t.Errorf("begun %v: %v, the read has come to %d", begun, err, n)
			}
			cancel()
			work.Wait()
			for _, slots := range []*fair.Slots{c.slots.Reads, c.slots.Commands} {
				if held, waiting := slots.CountHeld("big"); held+waiting != 0 {
					t.Errorf("begun %v: %d slots are held, %d wait", begun, held, waiting)
				}
			}
		})
	}
}

// A tenant that reads more runs than are kept loses its own, and nothing of another tenant.
func TestCacheIsShared(t *testing.T) {
	big, small := runsOf("big", 200), runsOf("small", 3)
	c, _ := sharedCache(t, func(schema.RunKey) bool { return false }, 10, 64<<10, append(big, small...)...)
	fed := 0
	d := counter{fed: func() { fed++ }}
	ask := func(keys []schema.RunKey) {
		for _, key := range keys {
			if _, err := c.Projector(t.Context(), key, d, 10, dialect.Request{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask(small)
	ask(big)
	if c.idle.Weight() > c.total || fed != 2030 || len(c.all) > 100 {
		t.Errorf("%d bytes, %d records, %d are kept", c.idle.Weight(), fed, len(c.all))
	}
	ask(small)
	if fed != 2030 {
		t.Errorf("%d records of the other tenant were read again", fed-2030)
	}
}
