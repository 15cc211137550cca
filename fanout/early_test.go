package fanout_test

import (
	"bytes"
	"context"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout"
	"agentstream/fanout/fanouttest"
	"agentstream/fanout/memory"
	"agentstream/schema"
)

// handLog is a log whose copies come when the test sends them. It counts reads of history.
type handLog struct {
	*memory.Log
	mu    sync.Mutex
	fn    func(schema.Pack)
	walks int
}

func (l *handLog) Watch(_ context.Context, _ schema.RunKey, fn func(schema.Pack)) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fn = fn
	return func() {}, nil
}

func (l *handLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	l.mu.Lock()
	l.walks++
	l.mu.Unlock()
	return l.Log.Packs(ctx, key, after, through)
}

// early is one reader of a run that its hub gets from its writers and as copies.
type early struct {
	t     *testing.T
	log   *handLog
	hub   *fanout.Hub
	sub   *fanout.Subscription
	packs []schema.Pack // as readers get them
	want  [][]byte
	pos   schema.Seq
	gaps  int
}

func newEarly(t *testing.T) (e *early, end func()) {
	e = &early{t: t, log: &handLog{Log: memory.New()}}
	var stop func()
	e.hub, stop = runHub(t, fanout.Config{Stream: e.log, Tail: e.log,
		Hooks: fanout.Hooks{Gap: func(schema.RunKey) { e.gaps++ }}})
	packs, want := endedRun(60, 3)
	e.want = want
	after := uint64(0)
	for i := range packs {
		stored, err := e.log.Append(t.Context(), &packs[i], after)
		if err != nil {
			t.Fatal(err)
		}
		e.packs, after = append(e.packs, packs[i].At(stored)), stored
		if i == 0 { // the rest is stored once somebody reads
			if e.sub, err = e.hub.Subscribe(t.Context(), fanouttest.Key, packs[0].Last()); err != nil {
				t.Fatal(err)
			}
			e.pos = packs[0].Last()
		}
	}
	return e, func() { e.sub.Close(); stop() }
}

func (e *early) copied(i int) { e.log.fn(e.packs[i]) }
func (e *early) stored(i int) { e.hub.Deliver(e.packs[i]) }

// expects reads until the reader has pack i, and then finds nothing more.
func (e *early) expects(i int) {
	e.t.Helper()
	for e.pos < e.packs[i].Last() {
		e.next(time.Hour)
	}
	if e.pos > e.packs[i].Last() {
		e.t.Fatalf("the reader is at %d, pack %d ends at %d", e.pos, i, e.packs[i].Last())
	}
	e.next(0)
}

// next reads a batch. Without a wait there must be none.
func (e *early) next(wait time.Duration) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), wait)
	defer cancel()
	b, err := e.sub.Next(ctx)
	if wait == 0 {
		if err == nil {
			e.t.Fatalf("behind %d there is more", e.pos)
		}
		return
	}
	if err != nil {
		e.t.Fatalf("behind %d: %v", e.pos, err)
	}
	for i := range b.Packs {
		for r, err := range b.Packs[i].Records(b.After) {
			if err != nil || r.Seq != e.pos+1 || !bytes.Equal(r.Line, e.want[e.pos]) {
				e.t.Fatalf("seq %d behind %d: %v", r.Seq, e.pos, err)
			}
			e.pos = r.Seq
		}
	}
}

// A pack that this process has written is delivered once, whichever of it and its copy comes first, and what
// others have written between is neither overtaken nor read from history.
func TestStoredBesideItsCopy(t *testing.T) {
	for name, test := range map[string]func(e *early){
		"before": func(e *early) {
			for i := 1; i < 5; i++ {
				e.stored(i)
				e.expects(i)
				e.copied(i)
				e.expects(i)
			}
		},
		"behind": func(e *early) {
			for i := 1; i < 5; i++ {
				e.copied(i)
				e.stored(i)
				e.expects(i)
			}
		},
		"copies are lost": func(e *early) {
			for i := 1; i < 5; i++ {
				e.stored(i)
			}
			e.expects(4)
		},
		"a foreign one between": func(e *early) {
			e.stored(1)
			e.stored(3) // 2 is of another process
			e.expects(1)
			e.copied(1)
			e.expects(1)
			e.copied(2)
			e.expects(2)
			e.copied(3)
			e.stored(4)
			e.expects(4)
		},
		"in another order": func(e *early) {
			e.stored(2)
			e.stored(1)
			e.expects(1)
			e.copied(1)
			e.copied(2)
			e.expects(2)
		},
		"nobody watches": func(e *early) {
			p := e.packs[1]
			p.Key.Run = "run_2"
			e.hub.Deliver(p)
			e.expects(0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, end := newEarly(t)
				defer end()
				walks := e.log.walks
				test(e)
				if synctest.Wait(); e.log.walks != walks || e.gaps != 0 {
					t.Errorf("%d reads of history, %d gaps", e.log.walks-walks, e.gaps)
				}
			})
		})
	}
}

// The copies of a run are lost, and its own packs after a foreign one do not hide that from the audit.
func TestStoredBehindALostCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, end := newEarly(t)
		defer end()
		for i := 1; i < len(e.packs); i++ {
			if i != 3 {
				e.stored(i)
				time.Sleep(10 * time.Millisecond)
			}
		}
		e.expects(2)
		for e.pos < schema.Seq(len(e.want)) { // an hour at most
			e.stored(len(e.packs) - 1)
			e.next(time.Hour)
		}
	})
}

// Two edges write one run and watch it. Each gives its own packs to its hub, early or late; copies of all get lost,
// come twice and late. Every reader of both gets each number once, in order, byte for byte.
func TestTwoEdgesUnderFaults(t *testing.T) {
	fired := make(map[string]int)
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			c := &chaos{Log: memory.New(), rnd: rand.New(rand.NewPCG(seed, 11)), fired: fired}
			packs, want := endedRun(300, seed)
			var hubs [2]*fanout.Hub
			for i := range hubs {
				h, stop := runHub(t, fanout.Config{Stream: c, Tail: c, RingBytes: 600, AuditEvery: 100 * time.Millisecond})
				defer stop()
				hubs[i] = h
			}
			last := fanouttest.Store(t, fanouttest.Backend{Append: c.Append}, packs[:3], 0)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() { follow(t, hubs[i%2], c, schema.Seq(i)%(packs[2].Last()+1), want) })
			}
			for i := 3; i < len(packs); i++ {
				last = fanouttest.Store(t, fanouttest.Backend{Append: c.Append}, packs[i:i+1], last)
				own, p := hubs[c.delay().Milliseconds()%2], packs[i].At(last)
				switch c.roll("answer lost", "answer late") {
				case "answer lost":
				case "answer late":
					time.AfterFunc(c.delay(), func() { own.Deliver(p) })
				default:
					own.Deliver(p)
				}
				time.Sleep(c.delay() / 8)
			}
			wg.Wait()
		})
	}
	for _, f := range []string{"copy lost", "copy twice", "copy late", "answer lost", "answer late"} {
		if fired[f] == 0 {
			t.Errorf("%s: never", f)
		}
	}
}
