package fanouttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// Backend is one log, from both sides.
type Backend struct {
	Append  func(ctx context.Context, p *schema.Pack, after uint64) (uint64, error)
	Adopt   func(ctx context.Context, root schema.RunKey, children ...string) error // makes an id that of a child
	History fanout.History
	Tail    fanout.Tail
}

// Key is the run that the suite uses.
var Key = schema.RunKey{Tenant: "acme", Run: "run_1"}

// Run tests a backend. open returns a fresh one, ready for use.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	tests := map[string]func(*testing.T, Backend){
		"history":            testHistory,
		"copies":             testCopies,
		"newest":             testNewest,
		"resume everywhere":  testResume,
		"many while writing": testManyWhileWriting,
		"errors":             testErrors,
		"await":              testAwait,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

// Store appends packs one after the other.
func Store(t testing.TB, b Backend, packs []schema.Pack, after uint64) uint64 {
	t.Helper()
	for i := range packs {
		stored, err := b.Append(context.Background(), &packs[i], after)
		if err != nil {
			t.Fatal(err)
		}
		after = stored
	}
	return after
}

// lines cuts bodies into lines.
func lines(packs []schema.Pack) (out [][]byte) {
	for i := range packs {
		for line := range schema.Lines(packs[i].Body) {
			out = append(out, line)
		}
	}
	return out
}

func testHistory(t *testing.T, b Backend) {
	for _, s := range schematest.All() {
		key := schema.RunKey{Tenant: "acme", Run: s.Name}
		packs := schematest.Packs(key, s, 3)
		Store(t, b, packs, 0)
		// The same run of another tenant must never show.
		Store(t, b, schematest.Packs(schema.RunKey{Tenant: "other", Run: s.Name}, s, 2), 0)
		want := lines(packs)
		step := max(1, len(want)/25)
		for after := 0; after <= len(want); after += step {
			for _, through := range []int{after, after + 1, len(want), len(want) + 10} {
				checkWalk(t, b, key, want, after, through)
			}
		}
		head, err := b.History.Head(t.Context(), key, "")
		if last := packs[len(packs)-1].Head; err != nil || head.Last != last.Last || head.State != last.State ||
			head.Day != last.Day || head.Stored == 0 {
			t.Fatalf("%s: head %+v, want %+v, err %v", s.Name, head, last, err)
		}
	}
}

func checkWalk(t *testing.T, b Backend, key schema.RunKey, want [][]byte, after, through int) {
	t.Helper()
	pos := after
	for p, err := range b.History.Packs(t.Context(), key, schema.Seq(after), schema.Seq(through)) {
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		if p.Last() <= schema.Seq(after) || p.First > schema.Seq(through) {
			t.Fatalf("%s: pack %d to %d for (%d, %d]", key, p.First, p.Last(), after, through)
		}
		for r, err := range p.Records(schema.Seq(pos)) {
			if err != nil || r.Seq != schema.Seq(pos+1) || !bytes.Equal(r.Line, want[pos]) {
				t.Fatalf("%s: seq %d where %d is next, err %v", key, r.Seq, pos+1, err)
			}
			pos++
		}
	}
	if pos < min(through, len(want)) {
		t.Fatalf("%s: walk (%d, %d] ended at %d", key, after, through, pos)
	}
}

func testCopies(t *testing.T, b Backend) {
	var mu sync.Mutex
	var got []schema.Pack
	stop, err := b.Tail.Watch(t.Context(), Key, func(p schema.Pack) {
		mu.Lock()
		got = append(got, p)
		mu.Unlock()
	})
	if err != nil {
		t.Fatal(err)
	}
	packs := schematest.Packs(Key, schematest.ByName("children"), 2)
	last := Store(t, b, packs, 0)
	if _, err := b.Append(t.Context(), &packs[0], last-1); !errors.Is(err, schema.ErrConflict) {
		t.Fatalf("stale append: %v", err)
	}
	Store(t, b, schematest.Packs(schema.RunKey{Tenant: "other", Run: Key.Run}, schematest.ByName("plain"), 2), 0)
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(got) }
	Eventually(t, func() bool { return count() >= len(packs) })
	stop()
	mu.Lock()
	defer mu.Unlock()
	if len(got) != len(packs) {
		t.Fatalf("%d copies of %d packs", len(got), len(packs))
	}
	for i, p := range got {
		if p.First != packs[i].First || !bytes.Equal(p.Body, packs[i].Body) || p.Key != Key ||
			p.Child != packs[i].Child || p.Head.Stored == 0 {
			t.Fatalf("copy %d is %+v", i, p)
		}
	}
}

func testNewest(t *testing.T, b Backend) {
	var keys []schema.RunKey
	want := make(map[schema.RunKey]schema.Seq)
	for i := range 500 {
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)}
		keys = append(keys, key)
		if i%5 != 0 {
			packs := schematest.Packs(key, schematest.ByName("children"), 4)[:1+i%3]
			Store(t, b, packs, 0)
			want[key] = packs[len(packs)-1].Last()
		}
	}
	got, err := b.Tail.Newest(t.Context(), keys)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%d runs of %d, err %v", len(got), len(want), err)
	}
	for key, seq := range want {
		if got[key] != seq {
			t.Fatalf("%s: %d, want %d", key, got[key], seq)
		}
	}
}

// OpenHub returns a running hub over the backend.
func OpenHub(t testing.TB, cfg fanout.Config) *fanout.Hub {
	t.Helper()
	h, err := fanout.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return h
}

// Read follows a subscription up to seq last, checking every number, and returns the lines.
func Read(ctx context.Context, h *fanout.Hub, key schema.RunKey, after, last schema.Seq,
	stall func()) ([][]byte, error) {
	s, err := h.Subscribe(ctx, key, after)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var out [][]byte
	pos := after
	for pos < last {
		b, err := s.Next(ctx)
		if err != nil {
			return out, fmt.Errorf("behind %d: %w", pos, err)
		}
		if b.After != pos {
			return out, fmt.Errorf("batch behind %d where %d was delivered", b.After, pos)
		}
		for i := range b.Packs {
			for r, err := range b.Packs[i].Records(b.After) {
				if err != nil {
					return out, err
				}
				if r.Seq != pos+1 {
					return out, fmt.Errorf("seq %d behind %d", r.Seq, pos)
				}
				pos = r.Seq
				out = append(out, r.Line)
			}
		}
		if stall != nil {
			stall()
		}
	}
	return out, nil
}

func testResume(t *testing.T, b Backend) {
	h := OpenHub(t, fanout.Config{Stream: b.History, Tail: b.Tail, RingBytes: 4 << 10})
	packs := schematest.Packs(Key, schematest.Generate(400, 7), 5)
	want := lines(packs)
	half := len(packs) / 2
	last := Store(t, b, packs[:half], 0)
	n := packs[half-1].Last()
	for after := schema.Seq(0); after <= n; after++ {
		got, err := Read(t.Context(), h, Key, after, n, nil)
		if err != nil || !equal(got, want[after:n]) {
			t.Fatalf("resume behind %d: %d lines, err %v", after, len(got), err)
		}
	}
	// The rest comes while readers from everywhere are attached.
	var wg sync.WaitGroup
	end := schema.Seq(len(want))
	for after := schema.Seq(0); after <= n; after += 7 {
		wg.Go(func() {
			got, err := Read(t.Context(), h, Key, after, end, nil)
			if err != nil || !equal(got, want[after:]) {
				t.Errorf("live behind %d: %d lines of %d, err %v", after, len(got), len(want)-int(after), err)
			}
		})
	}
	Store(t, b, packs[half:], last)
	wg.Wait()
}

func equal(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

func testManyWhileWriting(t *testing.T, b Backend) {
	h := OpenHub(t, fanout.Config{Stream: b.History, Tail: b.Tail, RingBytes: 1 << 10})
	packs := schematest.Packs(Key, schematest.Generate(1500, 3), 4)
	want := lines(packs)
	last := Store(t, b, packs[:1], 0)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			n := 0
			stall := func() {
				if n++; i%4 == 0 && n%5 == 0 {
					<-time.After(3 * time.Millisecond) // a slow reader falls out of the ring
				}
			}
			got, err := Read(t.Context(), h, Key, 0, schema.Seq(len(want)), stall)
			if err != nil || !equal(got, want) {
				t.Errorf("reader %d: %d lines of %d, err %v", i, len(got), len(want), err)
			}
		})
	}
	Store(t, b, packs[1:], last)
	wg.Wait()
}

// silent is a tail whose copies are lost.
type silent struct{ fanout.Tail }

func (silent) Watch(context.Context, schema.RunKey, func(schema.Pack)) (func(), error) {
	return func() {}, nil
}

// testAwait has readers of a run that is not there yet: they get all of it when it begins, also when its copies are
// lost, and hear of it when the id becomes a child's. To all others there is no such run until then.
func testAwait(t *testing.T, b Backend) {
	packs := schematest.Packs(Key, schematest.ByName("children"), 2)
	want := lines(packs)
	hubs := []*fanout.Hub{
		OpenHub(t, fanout.Config{Stream: b.History, Tail: b.Tail, AuditEvery: time.Hour}),
		OpenHub(t, fanout.Config{Stream: b.History, Tail: silent{b.Tail}, AuditEvery: 10 * time.Millisecond}),
	}
	type read struct {
		lines [][]byte
		err   error
	}
	reads := make(chan read, 6)
	for i := range cap(reads) {
		s, err := hubs[i%2].Await(t.Context(), Key)
		if err != nil || s.Head().HasEvents() {
			t.Fatalf("%+v %v", s.Head(), err)
		}
		go func() {
			defer s.Close()
			var r read
			for len(r.lines) < len(want) && r.err == nil {
				var got fanout.Batch
				got, r.err = s.Next(t.Context())
				r.lines = append(r.lines, lines(got.Packs)...)
			}
			reads <- r
		}()
	}
	kid, err := hubs[0].Await(t.Context(), schema.RunKey{Tenant: Key.Tenant, Run: "kid_of_" + Key.Run})
	if err != nil {
		t.Fatal(err)
	}
	defer kid.Close()
	for _, h := range hubs {
		if _, err := h.Subscribe(t.Context(), Key, 0); !errors.Is(err, fanout.ErrNotFound) {
			t.Errorf("beside those who wait: %v", err)
		}
	}
	Store(t, b, schematest.Packs(schema.RunKey{Tenant: "other", Run: Key.Run}, schematest.ByName("plain"), 2), 0)
	last := Store(t, b, packs[:1], 0)
	for _, h := range hubs {
		if s, err := h.Subscribe(t.Context(), Key, 0); err != nil || s.Head().Last != packs[0].Last() {
			t.Errorf("once it has begun: %v", err)
		} else {
			s.Close()
		}
	}
	Store(t, b, packs[1:], last)
	for range cap(reads) {
		if r := <-reads; r.err != nil || !equal(r.lines, want) {
			t.Errorf("%d lines of %d, %v", len(r.lines), len(want), r.err)
		}
	}
	if err := b.Adopt(t.Context(), Key, "kid_of_"+Key.Run); err != nil {
		t.Fatal(err)
	}
	child := new(fanout.ChildError)
	if _, err := kid.Next(t.Context()); !errors.As(err, &child) || child.Root != Key.Run {
		t.Errorf("an id that has become a child's: %v", err)
	}
	if _, err := hubs[0].Await(t.Context(),
		schema.RunKey{Tenant: Key.Tenant, Run: "kid_of_" + Key.Run}); !errors.As(err, &child) {
		t.Errorf("an id that is a child's: %v", err)
	}
}

func testErrors(t *testing.T, b Backend) {
	h := OpenHub(t, fanout.Config{Stream: b.History, Tail: b.Tail})
	if _, err := h.Subscribe(t.Context(), Key, 0); !errors.Is(err, fanout.ErrNotFound) {
		t.Errorf("missing run: %v", err)
	}
	if _, err := h.Head(t.Context(), Key); !errors.Is(err, fanout.ErrNotFound) {
		t.Errorf("head of a missing run: %v", err)
	}
	if _, err := h.Subscribe(t.Context(), schema.RunKey{Tenant: "acme", Run: ">"}, 0); !errors.Is(err, schema.ErrBadID) {
		t.Errorf("wildcard as run id: %v", err)
	}
	packs := schematest.Packs(Key, schematest.ByName("plain"), 2)
	Store(t, b, packs, 0)
	end := packs[len(packs)-1].Last()
	if _, err := h.Subscribe(t.Context(), Key, end+1); !errors.Is(err, fanout.ErrFuture) {
		t.Errorf("cursor from the future: %v", err)
	}
	if _, err := h.Subscribe(t.Context(), schema.RunKey{Tenant: "other", Run: Key.Run}, 0); !errors.Is(err,
		fanout.ErrNotFound) {
		t.Errorf("another tenant's run: %v", err)
	}
	s, err := h.Subscribe(t.Context(), Key, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Next(t.Context())
	if err != nil || !got.Ended {
		t.Errorf("a whole run that is over: ended %v, err %v", got.Ended, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("behind the end: %v", err)
	}
}

// Eventually waits for a condition, 10 s at most.
func Eventually(t testing.TB, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !cond(); {
		if time.Now().After(end) {
			t.Fatal("waited 10 s in vain")
		}
		<-time.After(time.Millisecond)
	}
}
