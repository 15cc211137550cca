package fanout_test

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// countingLog counts walks through history.
type countingLog struct {
	*memory.Log
	walks atomic.Int64
}

func (l *countingLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	l.walks.Add(1)
	return l.Log.Packs(ctx, key, after, through)
}

// TestLive: a reader whose next events lie in history is not live, and is when it has come to the newest.
func TestLive(t *testing.T) {
	key := schema.RunKey{Tenant: "acme", Run: "live"}
	packs := schematest.Packs(key, schematest.Generate(300, 3), 3)
	log := memory.New()
	stored := uint64(0)
	for i := range packs {
		var err error
		if stored, err = log.Append(t.Context(), &packs[i], stored); err != nil {
			t.Fatal(err)
		}
	}
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log, RingsBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	sub, err := hub.Subscribe(t.Context(), key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if sub.Live() {
		t.Error("a reader of history is live")
	}
	for pos := schema.Seq(0); pos < packs[len(packs)-1].Last(); {
		b, err := sub.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		pos = b.Packs[len(b.Packs)-1].Last()
	}
	if sub.Notify(func(bool) {}) || !sub.Live() {
		t.Error("a reader that has everything is not live")
	}
}

// TestHistoryIsReadOnceForAll: clients that come to a run together with nearly the same cursor cost one
// read of history, and each gets exactly what it lacks, also while the run goes on.
func TestHistoryIsReadOnceForAll(t *testing.T) {
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	packs := schematest.Packs(key, schematest.Generate(1000, 3), 3)
	log := &countingLog{Log: memory.New()}
	store := func(ps []schema.Pack) {
		for i := range ps {
			head, err := log.Log.Head(t.Context(), key, "")
			if err == nil {
				_, err = log.Log.Append(t.Context(), &ps[i], head.Stored)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	half := len(packs) / 2
	store(packs[:half])
	hub, err := fanout.New(fanout.Config{Stream: log, Tail: log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- hub.Run(ctx) }()
	keep, err := hub.Subscribe(t.Context(), key, packs[half-1].Last()) // somebody who is up to date
	if err != nil {
		t.Fatal(err)
	}
	const readers = 100
	last := packs[len(packs)-1].Last()
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			pos := schema.Seq(i % 40)
			sub, err := hub.Subscribe(t.Context(), key, pos)
			if err != nil {
				t.Error(err)
				return
			}
			defer sub.Close()
			for pos < last {
				b, err := sub.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				for j := range b.Packs {
					for r, err := range b.Packs[j].Records(b.After) {
						if err != nil || r.Seq != pos+1 {
							t.Errorf("behind %d comes %d: %v", pos, r.Seq, err)
							return
						}
						pos = r.Seq
					}
				}
			}
		})
	}
	store(packs[half:])
	wg.Wait()
	if n := log.walks.Load(); n > 45 { // one for each of 40 cursors at most, each of which begins further back
		t.Errorf("%d readers walked through history %d times", readers, n)
	}
	t.Logf("%d readers, %d walks through history", readers, log.walks.Load())
	keep.Close()
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}
