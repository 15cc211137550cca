package fanout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/fanout"
	"agentstream/fanout/fanouttest"
	"agentstream/fanout/memory"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// watchedLog counts walks through it, and those that have not ended; it can be another log from one
// moment to the next, and stand still in the middle of a walk.
type watchedLog struct {
	log   atomic.Pointer[memory.Log]
	walks atomic.Int64
	open  atomic.Int64
	gate  chan struct{} // nil: walks do not stop; otherwise each waits for one token, or for its context
}

func newWatchedLog() *watchedLog {
	l := new(watchedLog)
	l.log.Store(memory.New())
	return l
}

func (l *watchedLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	return func(yield func(schema.Pack, error) bool) {
		l.walks.Add(1)
		l.open.Add(1)
		defer l.open.Add(-1)
		if l.gate != nil {
			select {
			case <-l.gate:
			case <-ctx.Done():
				yield(schema.Pack{}, context.Cause(ctx))
				return
			}
		}
		l.log.Load().Packs(ctx, key, after, through)(yield)
	}
}

func (l *watchedLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	return l.log.Load().Head(ctx, key, lane)
}

func (l *watchedLog) store(t testing.TB, packs []schema.Pack) {
	t.Helper()
	head, err := l.log.Load().Head(t.Context(), packs[0].Key, "")
	if err != nil {
		t.Fatal(err)
	}
	fanouttest.Store(t, fanouttest.Backend{Append: l.log.Load().Append}, packs, head.Stored)
}

func hubOf(t testing.TB, l *watchedLog, cfg fanout.Config) *fanout.Hub {
	t.Helper()
	cfg.Stream, cfg.Tail = l, l.log.Load()
	h, err := fanout.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// linesOf reads (after, through] and checks every number.
func linesOf(ctx context.Context, h *fanout.Hub, key schema.RunKey, after, through schema.Seq) ([][]byte, error) {
	var out [][]byte
	pos := after
	for p, err := range h.Packs(ctx, key, after, through) {
		if err != nil {
			return out, err
		}
		if p.First > pos+1 || p.First > through || p.Last() <= pos {
			return out, fmt.Errorf("pack %d to %d behind %d of (%d, %d]", p.First, p.Last(), pos, after, through)
		}
		for r, err := range p.Records(pos) {
			if err != nil || r.Seq != pos+1 {
				return out, fmt.Errorf("seq %d behind %d: %w", r.Seq, pos, err)
			}
			if pos = r.Seq; pos <= through {
				out = append(out, r.Line)
			}
		}
	}
	return out, nil
}

func generated(key schema.RunKey, n int, seed uint64, per int) ([]schema.Pack, [][]byte) {
	packs := schematest.Packs(key, schematest.Generate(n, seed), per)
	var lines [][]byte
	for i := range packs {
		for line := range schema.Lines(packs[i].Body) {
			lines = append(lines, line)
		}
	}
	return packs, lines
}

func same(a, b [][]byte) bool {
	return bytes.Equal(bytes.Join(a, nil), bytes.Join(b, nil)) && len(a) == len(b)
}

// Fifty clients that ask for 10,000 events at once cost one walk through the log, and those who come
// later none, wherever they begin.
func TestOneWalkForAll(t *testing.T) {
	l := newWatchedLog()
	packs, want := generated(fanouttest.Key, 10000, 1, 1)
	l.store(t, packs)
	var hits, misses atomic.Int64
	h := hubOf(t, l, fanout.Config{CacheFresh: time.Hour, Hooks: fanout.Hooks{Page: func(hit bool, _ int) {
		if hit {
			hits.Add(1)
		} else {
			misses.Add(1)
		}
	}}})
	through := schema.Seq(len(want))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if got, err := linesOf(t.Context(), h, fanouttest.Key, 0, through); err != nil || !same(got, want) {
				t.Errorf("%d lines of %d: %v", len(got), len(want), err)
			}
		})
	}
	wg.Wait()
	if n := l.walks.Load(); n > 2 { // a client may come just as the walk that it would share is given up
		t.Errorf("50 clients walked through the log %d times", n)
	}
	for after := schema.Seq(0); after < through; after += 777 {
		if got, err := linesOf(t.Context(), h, fanouttest.Key, after, through); err != nil || !same(got, want[after:]) {
			t.Errorf("behind %d: %d lines: %v", after, len(got), err)
		}
	}
	if n := l.walks.Load(); n > 2 || hits.Load() == 0 || misses.Load() == 0 {
		t.Errorf("%d walks, %d hits, %d misses", n, hits.Load(), misses.Load())
	}
	if n := l.open.Load(); n != 0 {
		t.Errorf("%d walks are still open", n)
	}
}

// What comes from the cache costs nothing per pack.
func TestPacksFromTheCacheAllocateNothing(t *testing.T) {
	l := newWatchedLog()
	packs, want := generated(fanouttest.Key, 2000, 1, 1)
	l.store(t, packs)
	h := hubOf(t, l, fanout.Config{CacheFresh: time.Hour})
	ctx, n := t.Context(), 0
	read := func() {
		n = 0
		for p, err := range h.Packs(ctx, fanouttest.Key, 0, schema.Seq(len(want))) {
			if err != nil {
				t.Fatal(err)
			}
			n += p.Count
		}
	}
	read()
	if a := testing.AllocsPerRun(20, read); a > 8 || n != len(want) {
		t.Errorf("%.0f allocations for %d packs, %d events of %d", a, len(packs), n, len(want))
	}
}

// The reader who reads for all goes away in the middle: the others get everything.
func TestOneReaderGoesTheOthersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWatchedLog()
		l.gate = make(chan struct{}, 100)
		packs, want := generated(fanouttest.Key, 300, 1, 2)
		l.store(t, packs)
		h := hubOf(t, l, fanout.Config{})
		first, leave := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		gone := errors.New("gone")
		wg.Go(func() {
			if _, err := linesOf(first, h, fanouttest.Key, 0, schema.Seq(len(want))); !errors.Is(err, gone) {
				t.Errorf("who went got %v", err)
			}
		})
		synctest.Wait() // it stands in the log
		for i := range 20 {
			wg.Go(func() {
				after := schema.Seq(i % 3)
				if got, err := linesOf(t.Context(), h, fanouttest.Key, after, schema.Seq(len(want))); err != nil ||
					!same(got, want[after:]) {
					t.Errorf("who stayed: %d lines of %d: %v", len(got), len(want), err)
				}
			})
		}
		synctest.Wait()
		if n := l.walks.Load(); n != 1 {
			t.Errorf("%d walks while one is under way", n)
		}
		leave(gone)
		synctest.Wait()
		for range 30 {
			l.gate <- struct{}{}
		}
		wg.Wait()
		if n := l.open.Load(); n != 0 {
			t.Errorf("%d walks are still open", n)
		}
	})
}

// What is gone from the log is not given for longer than CacheFresh, and a run that was purged and
// begun anew is never mixed with its former life.
func TestWhatIsGoneIsNotGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWatchedLog()
		packs, want := generated(fanouttest.Key, 200, 1, 2)
		l.store(t, packs)
		h := hubOf(t, l, fanout.Config{CacheFresh: time.Second})
		end := schema.Seq(len(want))
		read := func(after schema.Seq) ([][]byte, error) { return linesOf(t.Context(), h, fanouttest.Key, after, end) }
		if got, err := read(0); err != nil || !same(got, want) {
			t.Fatalf("%d lines: %v", len(got), err)
		}
		l.log.Load().Expire(fanouttest.Key, packs[3].Last())
		time.Sleep(time.Second + 1)
		var expired *fanout.ExpiredError
		if _, err := read(0); !errors.As(err, &expired) || expired.First != packs[4].First {
			t.Errorf("behind 0, of which nothing is left: %v", err)
		}
		if got, err := read(packs[3].Last()); err != nil || !same(got, want[packs[3].Last():]) {
			t.Errorf("behind what has gone: %d lines: %v", len(got), err)
		}
		other, anew := generated(fanouttest.Key, 200, 2, 3)
		next := memory.New()
		fanouttest.Store(t, fanouttest.Backend{Append: next.Append},
			schematest.Packs(schema.RunKey{Tenant: "x", Run: "y"}, schematest.Generate(500, 3), 1), 0)
		fanouttest.Store(t, fanouttest.Backend{Append: next.Append}, other, 0)
		l.log.Store(next)
		end = schema.Seq(len(anew))
		if got, err := read(0); err != nil || !same(got, anew) { // at once: its pages lie before the others
			t.Errorf("begun anew: %d lines of %d: %v", len(got), len(anew), err)
		}
		time.Sleep(time.Second + 1)
		if got, err := read(2); err != nil || !same(got, anew[2:]) {
			t.Errorf("begun anew: %d lines of %d: %v", len(got), len(anew), err)
		}
		l.log.Store(memory.New())
		time.Sleep(time.Second + 1)
		if got, err := read(0); !errors.Is(err, fanout.ErrNotFound) {
			t.Errorf("a purged run: %d lines, %v", len(got), err)
		}
	})
}

// Of a run whose events have another content now, the hub gives it as soon as it is told to forget the run.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWatchedLog()
		packs, want := generated(fanouttest.Key, 200, 1, 2)
		l.store(t, packs)
		h := hubOf(t, l, fanout.Config{CacheFresh: time.Hour})
		read := func(lines [][]byte) ([][]byte, error) {
			return linesOf(t.Context(), h, fanouttest.Key, 0, schema.Seq(len(lines)))
		}
		if got, err := read(want); err != nil || !same(got, want) {
			t.Fatalf("%d lines: %v", len(got), err)
		}
		others, anew := generated(fanouttest.Key, 200, 1, 3)
		next := memory.New()
		fanouttest.Store(t, fanouttest.Backend{Append: next.Append}, others, 0)
		l.log.Store(next)
		if got, err := read(want); err != nil || !same(got, want) {
			t.Fatalf("the cache does not hold what is tried: %d lines, %v", len(got), err)
		}
		h.Forget(schema.RunKey{Tenant: fanouttest.Key.Tenant, Run: "other"})
		if got, err := read(want); err != nil || !same(got, want) {
			t.Errorf("another run was forgotten: %d lines, %v", len(got), err)
		}
		h.Forget(fanouttest.Key)
		if got, err := read(anew); err != nil || !same(got, anew) {
			t.Errorf("forgotten: %d lines of %d: %v", len(got), len(anew), err)
		}
	})
}

// A page of a beginning that is gone is not given again once a reader has met the hole after it.
func TestPagesBeforeAHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newWatchedLog()
		packs, want := generated(fanouttest.Key, 200, 1, 2)
		l.store(t, packs)
		h := hubOf(t, l, fanout.Config{CacheFresh: time.Second})
		if got, err := linesOf(t.Context(), h, fanouttest.Key, 0, packs[0].Last()); err != nil ||
			!same(got, want[:packs[0].Last()]) {
			t.Fatalf("%d lines: %v", len(got), err)
		}
		l.log.Load().Expire(fanouttest.Key, packs[3].Last())
		for i, before := range []schema.Seq{packs[0].Last(), 0} { // what the page has at first, and nothing then
			got, err := linesOf(t.Context(), h, fanouttest.Key, 0, schema.Seq(len(want)))
			var expired *fanout.ExpiredError
			if !errors.As(err, &expired) || expired.First != packs[4].First || len(got) != int(before) {
				t.Errorf("%d. reading: %d lines, %v", i+1, len(got), err)
			}
		}
	})
}

// Readers with any range, of many runs, while the runs grow and the cache holds next to nothing: each
// gets exactly what there is, and the cache stays within its bounds.
func TestCacheUnderEverything(t *testing.T) {
	for _, size := range []int{1, 20 << 10, 1 << 20} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { testCacheUnderEverything(t, size) })
	}
}

func testCacheUnderEverything(t *testing.T, size int) {
	l := newWatchedLog()
	const runs = 8
	var most atomic.Int64
	h := hubOf(t, l, fanout.Config{CacheBytes: size, CacheFresh: time.Millisecond,
		Hooks: fanout.Hooks{Page: func(_ bool, held int) {
			for old := most.Load(); int64(held) > old && !most.CompareAndSwap(old, int64(held)); old = most.Load() {
			}
		}}})
	var packs [runs][]schema.Pack
	var want [runs][][]byte
	var stored [runs]atomic.Int64
	key := func(i int) schema.RunKey { return schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)} }
	for i := range runs {
		packs[i], want[i] = generated(key(i), 600, uint64(i), 1+i)
		l.store(t, packs[i][:1])
		stored[i].Store(int64(packs[i][0].Last()))
	}
	var wg sync.WaitGroup
	for i := range runs {
		wg.Go(func() {
			for j := range packs[i][1:] {
				l.store(t, packs[i][j+1:j+2])
				stored[i].Store(int64(packs[i][j+1].Last()))
			}
		})
	}
	for g := range 12 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(g), 5))
			for range 150 {
				i := rnd.IntN(runs)
				have := int(stored[i].Load())
				after := rnd.IntN(have + 1)
				through := after + rnd.IntN(have-after+40)
				ctx, cancel := context.WithCancel(t.Context())
				if rnd.IntN(10) == 0 {
					go cancel()
				}
				got, err := linesOf(ctx, h, key(i), schema.Seq(after), schema.Seq(through))
				cut := errors.Is(err, context.Canceled)
				if err != nil && !cut || !same(got, want[i][after:after+len(got)]) || !cut && len(got) < min(through, have)-after {
					t.Errorf("run %d (%d, %d] of %d: %d lines: %v", i, after, through, have, len(got), err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if most.Load() > int64(size) {
		t.Errorf("cache of %d bytes held %d", size, most.Load())
	}
	if n := l.open.Load(); n != 0 {
		t.Errorf("%d walks are still open", n)
	}
}

// A tenant that reads more than the cache holds pushes out its own pages: what another tenant's readers have read is
// still there.
func TestPagesAreShared(t *testing.T) {
	log := newWatchedLog()
	held := 0
	h := hubOf(t, log, fanout.Config{CacheBytes: 256 << 10, CacheFresh: time.Hour,
		Hooks: fanout.Hooks{Page: func(_ bool, n int) { held = max(held, n) }}})
	read := func(tenant string, run int) {
		key := schema.RunKey{Tenant: tenant, Run: fmt.Sprint("run", run)}
		if !log.has(t, key) {
			packs, _ := generated(key, 100, 1, 10)
			log.store(t, packs)
		}
		if _, err := linesOf(t.Context(), h, key, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	read("small", 0)
	read("small", 1)
	for i := range 100 {
		read("big", i)
	}
	before := log.walks.Load()
	read("small", 0)
	read("small", 1)
	if n := log.walks.Load() - before; n > 0 {
		t.Errorf("%d walks for pages that another tenant has pushed out", n)
	}
	if held > 512<<10 || held < 200<<10 {
		t.Errorf("%d bytes are held", held)
	}
}

// has reports whether there is such a run.
func (l *watchedLog) has(t testing.TB, key schema.RunKey) bool {
	t.Helper()
	head, err := l.Head(t.Context(), key, "")
	if err != nil {
		t.Fatal(err)
	}
	return head.HasEvents()
}
