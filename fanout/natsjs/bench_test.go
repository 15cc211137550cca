package natsjs_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"agentstream/fanout"
	"agentstream/fanout/fanouttest"
	"agentstream/fanout/natsjs"
	"agentstream/internal/testkit"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func openBench(b *testing.B) (*natsjs.Log, fanouttest.Backend) {
	b.Helper()
	nc := testkit.NATS(b).Dial(b)
	l, err := natsjs.Open(b.Context(), nc)
	if err != nil {
		b.Fatal(err)
	}
	w, err := pubjs.Open(b.Context(), nc)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-ended })
	return l, fanouttest.Backend{Append: w.Append, History: l, Tail: l}
}

// storedRun stores n events in packs of so many and gives the newest seq.
func storedRun(b *testing.B, back fanouttest.Backend, n, per int) schema.Seq {
	b.Helper()
	packs := schematest.Packs(fanouttest.Key, schematest.Generate(n, 1), per)
	fanouttest.Store(b, back, packs, 0)
	return packs[len(packs)-1].Last()
}

// BenchmarkWalk is one walk through 10,000 events of the log itself, in packs of one and of 16.
func BenchmarkWalk(b *testing.B) {
	for _, per := range []int{1, 16} {
		b.Run(fmt.Sprintf("per=%d", per), func(b *testing.B) {
			l, back := openBench(b)
			last := storedRun(b, back, 10000, per)
			b.ReportAllocs()
			for b.Loop() {
				var pos schema.Seq
				for p, err := range l.Packs(b.Context(), fanouttest.Key, 0, last) {
					if err != nil {
						b.Fatal(err)
					}
					pos = p.Last()
				}
				if pos != last {
					b.Fatalf("ended at %d", pos)
				}
			}
			b.ReportMetric(float64(last)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkReplay is so many readers that ask a hub for 10,000 events at once, each time of a hub that
// has none of them yet.
func BenchmarkReplay(b *testing.B) {
	for _, readers := range []int{1, 50} {
		for _, cache := range []int{-1, 0} {
			b.Run(fmt.Sprintf("readers=%d/cache=%v", readers, cache == 0), func(b *testing.B) {
				l, back := openBench(b)
				last := storedRun(b, back, 10000, 1)
				b.ReportAllocs()
				for b.Loop() {
					h, err := fanout.New(fanout.Config{Stream: l, Tail: l, CacheBytes: cache})
					if err != nil {
						b.Fatal(err)
					}
					var wg sync.WaitGroup
					for range readers {
						wg.Go(func() {
							var pos schema.Seq
							for p, err := range h.Packs(b.Context(), fanouttest.Key, 0, last) {
								if err != nil {
									b.Error(err)
									return
								}
								pos = p.Last()
							}
							if pos != last {
								b.Errorf("ended at %d", pos)
							}
						})
					}
					wg.Wait()
				}
				b.ReportMetric(float64(last)*float64(readers)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}

// BenchmarkTail is one pack of one event, from the broker's copy to the hub's view, with 500 runs
// watched.
func BenchmarkTail(b *testing.B) {
	const runs = 500
	l, back := openBench(b)
	var heard atomic.Int64
	tokens := make(chan struct{}, 1024)
	var packs [runs]schema.Pack
	for i := range runs {
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)}
		packs[i] = schematest.Packs(key, schematest.Generate(4, 1), 1)[0]
		stop, err := back.Tail.Watch(b.Context(), key, func(schema.Pack) { heard.Add(1); <-tokens })
		if err != nil {
			b.Fatal(err)
		}
		defer stop()
	}
	publish := natsjs.CopiesOf(l, packs[:])
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		tokens <- struct{}{}
		if err := publish(i % runs); err != nil {
			b.Fatal(err)
		}
		i++
	}
	for heard.Load() < int64(i) {
		runtime.Gosched()
	}
}

// BenchmarkWatchedRun reports what one watched run that is idle takes: topic, subscription, and the
// client's subscription at the broker.
func BenchmarkWatchedRun(b *testing.B) {
	l, back := openBench(b)
	const runs = 5000
	keys := make([]schema.RunKey, runs)
	for i := range keys {
		keys[i] = schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)}
		fanouttest.Store(b, back, schematest.Packs(keys[i], schematest.Generate(4, 1), 4)[:1], 0)
	}
	for b.Loop() {
		h, err := fanout.New(fanout.Config{Stream: l, Tail: l})
		if err != nil {
			b.Fatal(err)
		}
		before := heap()
		subs := make([]*fanout.Subscription, runs)
		for i, key := range keys {
			if subs[i], err = h.Subscribe(b.Context(), key, 4); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/runs, "B/run")
		for _, s := range subs {
			s.Close()
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
