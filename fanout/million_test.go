package fanout_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"runtime"
	"testing"
	"time"

	"agentstream/fanout"
	"agentstream/internal/cputime"
	"agentstream/schema"
)

// everyRun is a stream that holds one event of every run that is asked for, and takes no memory itself.
type everyRun struct {
	lost chan struct{}
	late schema.RunKey // has one event more than its watchers were told of
}

func (e *everyRun) newest(key schema.RunKey) schema.Seq {
	if key == e.late {
		return 2
	}
	return 1
}

func (e *everyRun) Head(_ context.Context, key schema.RunKey, _ string) (schema.Head, error) {
	return schema.Head{Last: 1, Stored: 1, Day: "20260101"}, nil
}

func (e *everyRun) Packs(_ context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	return func(yield func(schema.Pack, error) bool) {
		for seq := after + 1; seq <= min(through, e.newest(key)); seq++ {
			if !yield(schema.Pack{Key: key, First: seq, Count: 1, Body: []byte("{}\n"),
				Head: schema.Head{Last: seq, Stored: uint64(seq)}}, nil) {
				return
			}
		}
	}
}

func (e *everyRun) Watch(context.Context, schema.RunKey, func(schema.Pack)) (func(), error) {
	return func() {}, nil
}

func (e *everyRun) Newest(_ context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	out := make(map[schema.RunKey]schema.Seq, len(keys))
	for _, key := range keys {
		out[key] = e.newest(key)
	}
	return out, nil
}

func (e *everyRun) Losses() <-chan struct{} { return e.lost }

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMillionRuns: one hub watches a million runs, 50,000 in the short form. Each takes so many bytes, to
// come and to go costs the same among a million as among a few thousand, also while all are audited, and
// the audit finds the one run of which a copy was lost.
func TestMillionRuns(t *testing.T) {
	runs := 50_000
	if os.Getenv("AGENTSTREAM_FULL") == "1" {
		runs = 1_000_000
	}
	key := func(i int) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%08d", i)} }
	keys := make([]schema.RunKey, runs) // what a run's name takes is the caller's
	for i := range keys {
		keys[i] = key(i)
	}
	e := &everyRun{lost: make(chan struct{}, 1), late: keys[runs/2]}
	audited := make(chan int, 1)
	h, stop := runHub(t, fanout.Config{Stream: e, Tail: e, AuditEvery: time.Hour,
		Hooks: fanout.Hooks{Audited: func(n int, err error) {
			if err != nil {
				t.Error(err)
			}
			audited <- n
		}}})
	defer stop()
	before := heapInUse()
	subs := make([]*fanout.Subscription, runs)
	// Costs are CPU time: what else the machine does is not what is measured.
	take := func(from, through int) time.Duration {
		began := cputime.Process()
		for i := from; i < through; i++ {
			var err error
			if subs[i], err = h.Subscribe(t.Context(), keys[i], 1); err != nil {
				t.Fatal(err)
			}
		}
		return (cputime.Process() - began) / time.Duration(through-from)
	}
	few := runs / 10
	first := take(0, few)
	take(few, runs)
	each := float64(heapInUse()-before) / float64(runs)
	if each > 1024 {
		t.Errorf("a watched run takes %.0f bytes", each)
	}
	comeAndGo := func() time.Duration { // the best of five: the garbage collector works beside
		best := time.Hour
		for range 5 {
			began := cputime.Process()
			for i := range 2000 {
				subs[i].Close()
			}
			take(0, 2000)
			best = min(best, (cputime.Process()-began)/2000)
		}
		return best
	}
	full := comeAndGo()
	e.lost <- struct{}{} // everyone is audited
	began, meanwhile := cputime.Process(), 0
	for n := -1; n < 0; meanwhile++ {
		subs[0].Close()
		take(0, 1)
		select {
		case n = <-audited:
			if n < runs-1 || n > runs+1 {
				t.Errorf("%d of %d runs were audited", n, runs)
			}
		default:
		}
	}
	audit := cputime.Process() - began
	if b, err := subs[runs/2].Next(t.Context()); err != nil || len(b.Packs) != 1 || b.Packs[0].First != 2 {
		t.Errorf("the run of which a copy was lost: %+v, %v", b, err)
	}
	if meanwhile < 3 {
		t.Errorf("a subscriber came and went %d times during the audit: it waits for its end", meanwhile)
	}
	for _, s := range subs[few:] {
		s.Close()
	}
	few2 := comeAndGo()
	if full > 4*few2+4*time.Microsecond {
		t.Errorf("to come and go costs %v among %d runs and %v among %d", full, runs, few2, few)
	}
	for _, s := range subs[:few] {
		s.Close()
	}
	t.Logf("%d runs: %.0f bytes each; the first came in %v each; to come and go costs %v among all, %v among %d; audit of all %v, one came and went %d times meanwhile",
		runs, each, first, full, few2, few, audit, meanwhile)
}
