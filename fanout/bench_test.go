package fanout_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/schema"
)

// liveTail gives what is watched to the benchmark, which plays the broker.
type liveTail struct {
	*memory.Log
	fn func(schema.Pack)
}

func (l *liveTail) Watch(_ context.Context, _ schema.RunKey, fn func(schema.Pack)) (func(), error) {
	l.fn = fn
	return func() {}, nil
}

// BenchmarkLive is one copy of a pack of one event, from the broker's side to so many readers.
func BenchmarkLive(b *testing.B) {
	for _, readers := range []int{1, 10} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) { benchmarkLive(b, readers) })
	}
}

func benchmarkLive(b *testing.B, readers int) {
	l := newWatchedLog()
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	packs, _ := generated(key, 2, 1, 1)
	l.store(b, packs[:1])
	t := &liveTail{Log: l.log.Load()}
	h, err := fanout.New(fanout.Config{Stream: l, Tail: t})
	if err != nil {
		b.Fatal(err)
	}
	subs := make([]*fanout.Subscription, readers)
	for i := range subs {
		if subs[i], err = h.Subscribe(b.Context(), key, packs[0].Last()); err != nil {
			b.Fatal(err)
		}
		defer subs[i].Close()
	}
	p := packs[1]
	ctx := b.Context()
	ready, got := make(chan struct{}), make(chan error)
	for _, s := range subs {
		go func() {
			for range ready {
				_, err := s.Next(ctx)
				got <- err
			}
		}()
	}
	defer close(ready)
	b.ReportAllocs()
	for b.Loop() {
		for range readers {
			ready <- struct{}{}
		}
		runtime.Gosched() // so that they wait by then, most times
		t.fn(p)
		for range readers {
			if err := <-got; err != nil {
				b.Fatal(err)
			}
		}
		p.First++
		p.Head.Last++
	}
}

// BenchmarkCopies is one copy of a pack of one event that nobody waits for.
func BenchmarkCopies(b *testing.B) {
	l := newWatchedLog()
	key := schema.RunKey{Tenant: "acme", Run: "run"}
	packs, _ := generated(key, 2, 1, 1)
	l.store(b, packs[:1])
	t := &liveTail{Log: l.log.Load()}
	h, err := fanout.New(fanout.Config{Stream: l, Tail: t})
	if err != nil {
		b.Fatal(err)
	}
	s, err := h.Subscribe(b.Context(), key, packs[0].Last())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	p := packs[1]
	b.ReportAllocs()
	for b.Loop() {
		t.fn(p)
		p.First++
		p.Head.Last++
	}
}
