package natsjs_test

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/fanout"
	"agentstream/fanout/fanouttest"
	"agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// alone returns a log that one process writes and reads.
func alone(t *testing.T, k *testkit.Server) (*natsjs.Log, *pubjs.Log, *nats.Conn) {
	t.Helper()
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{Partitions: k.Partitions, Alone: true}); err != nil {
		t.Fatal(err)
	}
	nc := k.Dial(t)
	l, err := natsjs.OpenAlone(t.Context(), k.Dial(t), nc)
	if err != nil {
		t.Fatal(err)
	}
	w, err := pubjs.OpenWith(t.Context(), nc,
		pubjs.Config{Stored: func(p schema.Pack, _ bool) { l.Deliver(p) }, Missed: l.SignalLoss, Copies: l, Short: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return l, w, nc
}

func TestConformanceAlone(t *testing.T) {
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		l, w, _ := alone(t, testkit.NATS(t))
		return fanouttest.Backend{Append: w.Append, Adopt: w.Adopt, History: l, Tail: l}
	})
}

// TestConformanceBeside: where others write too, the copies of what is written here are passed over.
func TestConformanceBeside(t *testing.T) {
	var taken atomic.Int64
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		k := testkit.NATS(t)
		nc := k.Dial(t)
		l, err := natsjs.OpenBeside(t.Context(), k.Dial(t), nc)
		if err != nil {
			t.Fatal(err)
		}
		w, err := pubjs.OpenWith(t.Context(), nc,
			pubjs.Config{Missed: l.SignalLoss, Copies: l, Stored: func(p schema.Pack, copied bool) {
				if copied {
					taken.Add(1)
					l.Deliver(p)
				}
			}})
		if err != nil {
			t.Fatal(err)
		}
		l.Skip(w.ClaimCopy)
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-ended })
		return fanouttest.Backend{Append: w.Append, Adopt: w.Adopt, History: l, Tail: l}
	})
	if taken.Load() == 0 {
		t.Error("no copy was taken")
	}
}

// A log that one process uses makes no copies, and makes them again when others are to use it.
func TestCopiesAreDeclared(t *testing.T) {
	k := testkit.NATS(t)
	copies := func() (n int) {
		for p := range k.Partitions {
			s, err := k.JS.Stream(t.Context(), natskit.StreamName(p))
			if err != nil {
				t.Fatal(err)
			}
			if s.CachedInfo().Config.RePublish != nil {
				n++
			}
		}
		return n
	}
	alone(t, k)
	if n := copies(); n != 0 {
		t.Errorf("%d of %d streams make copies", n, k.Partitions)
	}
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{}); err != nil {
		t.Fatal(err)
	}
	if n := copies(); n != k.Partitions {
		t.Errorf("%d of %d streams make copies", n, k.Partitions)
	}
}

// Readers get from a writer what its copy would be, in the order of the log.
func TestStoredIsItsCopy(t *testing.T) {
	k := testkit.NATS(t)
	l, b := open(t, k)
	var mu sync.Mutex
	var copies, stored []schema.Pack
	note := func(list *[]schema.Pack) func(schema.Pack) {
		return func(p schema.Pack) {
			mu.Lock()
			defer mu.Unlock()
			*list = append(*list, p)
		}
	}
	w, err := pubjs.OpenWith(t.Context(), k.Dial(t),
		pubjs.Config{Stored: func(p schema.Pack, _ bool) { note(&stored)(p) }})
	if err != nil {
		t.Fatal(err)
	}
	stop, err := l.Watch(t.Context(), fanouttest.Key, note(&copies))
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	packs := schematest.Packs(fanouttest.Key, schematest.ByName("children"), 2)
	for i := range packs { // what a writer's head has beside what is stored in packs
		packs[i].Head.Generation, packs[i].Head.Root = 7, "root"
		packs[i].Batch, packs[i].Part = "0123456789abcdef", i
	}
	b.Append = func(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
		p.Head.Generation = 0
		return w.Append(ctx, p, after)
	}
	fanouttest.Store(t, b, packs, 0)
	if err := w.Adopt(t.Context(), fanouttest.Key, "kid"); err != nil {
		t.Fatal(err)
	}
	fanouttest.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(copies) >= len(packs) })
	mu.Lock()
	defer mu.Unlock()
	last := stored[len(stored)-1]
	if last.Key.Run != "kid" || last.Head.Root != fanouttest.Key.Run || last.Count != 0 || last.Head.Stored == 0 {
		t.Errorf("the word of a child is %+v", last)
	}
	if stored = stored[:len(stored)-1]; !reflect.DeepEqual(stored, copies) {
		t.Errorf("stored\n%+v\ncopies\n%+v", stored, copies)
	}
}

// When the writer's connection breaks, answers may be lost with it: readers look at once.
func TestAloneLooksAfterTheWritersReconnect(t *testing.T) {
	k := testkit.NATS(t)
	l, w, nc := alone(t, k)
	h := fanouttest.OpenHub(t, fanout.Config{Stream: l, Tail: l, AuditEvery: time.Hour})
	packs := schematest.Packs(fanouttest.Key, schematest.ByName("plain"), 2)
	last := fanouttest.Store(t, fanouttest.Backend{Append: w.Append}, packs[:1], 0)
	sub, err := h.Subscribe(t.Context(), fanouttest.Key, packs[0].Last())
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	other, err := pubjs.Open(t.Context(), k.Conn) // stores what nobody hands over, as an answer that is lost does
	if err != nil {
		t.Fatal(err)
	}
	fanouttest.Store(t, fanouttest.Backend{Append: other.Append}, packs[1:2], last)
	if err := nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	b, err := sub.Next(t.Context())
	if err != nil || len(b.Packs) != 1 || b.Packs[0].First != packs[1].First {
		t.Fatalf("%+v, %v", b, err)
	}
}
