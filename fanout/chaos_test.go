package fanout_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentstream/fanout"
	"agentstream/fanout/fanouttest"
	"agentstream/fanout/memory"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chaos is a log whose copies get lost, come twice, late and in any order, and whose history fails
// now and then.
type chaos struct {
	*memory.Log
	mu    sync.Mutex
	rnd   *rand.Rand
	calm  bool
	fired map[string]int
}

func (c *chaos) roll(faults ...string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calm || c.rnd.IntN(3) != 0 {
		return ""
	}
	f := faults[c.rnd.IntN(len(faults))]
	c.fired[f]++
	return f
}

func (c *chaos) delay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.rnd.IntN(40)) * time.Millisecond
}

func (c *chaos) Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	return c.Log.Watch(ctx, key, func(p schema.Pack) {
		switch c.roll("copy lost", "copy twice", "copy late") {
		case "copy lost":
			return
		case "copy twice":
			fn(p)
		case "copy late":
			time.AfterFunc(c.delay(), func() { fn(p) })
			return
		}
		fn(p)
	})
}

var errChaos = errors.New("chaos")

func (c *chaos) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range c.Log.Packs(ctx, key, after, through) {
			if c.roll("history fails") != "" && c.roll("history fails") != "" {
				yield(schema.Pack{}, errChaos)
				return
			}
			if !yield(p, err) {
				return
			}
		}
	}
}

// follow reads to the end of the run like a client: whatever fails, it comes back with its cursor.
func follow(t *testing.T, h *fanout.Hub, c *chaos, after schema.Seq, want [][]byte) {
	pos := after
	for attempt := 0; pos < schema.Seq(len(want)); attempt++ {
		if attempt > 10000 {
			t.Errorf("reader from %d stands still at %d", after, pos)
			return
		}
		s, err := h.Subscribe(t.Context(), fanouttest.Key, pos)
		for err == nil {
			var b fanout.Batch
			if b, err = s.Next(t.Context()); err != nil {
				break
			}
			for i := range b.Packs {
				for r, err := range b.Packs[i].Records(b.After) {
					if err != nil || r.Seq != pos+1 || !bytes.Equal(r.Line, want[pos]) {
						t.Errorf("reader from %d: seq %d behind %d, err %v", after, r.Seq, pos, err)
						return
					}
					pos = r.Seq
				}
			}
			if b.Ended {
				break
			}
			time.Sleep(c.delay()) // a bubble's clock: costs nothing
		}
		if s != nil {
			s.Close()
		}
		if err != nil && !errors.Is(err, fanout.ErrUnavailable) && !errors.Is(err, fanout.ErrNotFound) {
			t.Errorf("reader from %d at %d: %v", after, pos, err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// Under any interleaving of lost, doubled, late copies, failing history, readers that stall and
// rings that hold nearly nothing: each reader gets each number once, in order, byte for byte.
func TestSeamUnderFaults(t *testing.T) {
	fired := make(map[string]int)
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			c := &chaos{Log: memory.New(), rnd: rand.New(rand.NewPCG(seed, 9)), fired: fired}
			packs, want := endedRun(300, seed)
			h, stop := runHub(t, fanout.Config{Stream: c, Tail: c, RingBytes: 600, AuditEvery: 100 * time.Millisecond})
			var wg sync.WaitGroup
			last := fanouttest.Store(t, fanouttest.Backend{Append: c.Append}, packs[:3], 0)
			for i := range 12 {
				after := schema.Seq(i) % (packs[2].Last() + 1)
				wg.Go(func() { follow(t, h, c, after, want) })
			}
			for i := 3; i < len(packs); i++ {
				last = fanouttest.Store(t, fanouttest.Backend{Append: c.Append}, packs[i:i+1], last)
				time.Sleep(c.delay() / 4)
				if i%10 == 0 {
					c.SignalLost()
				}
			}
			wg.Wait()
			stop()
		})
	}
	for _, f := range []string{"copy lost", "copy twice", "copy late", "history fails"} {
		if fired[f] == 0 {
			t.Errorf("fault %q never fired", f)
		}
	}
	t.Log(fired)
}

// endedRun is a generated run that ends, with its lines.
func endedRun(n int, seed uint64) ([]schema.Pack, [][]byte) {
	s := schematest.Generate(n, seed)
	if last := s.Events[len(s.Events)-1]; last.Type != schema.TypeRunLifecycle {
		s.Events = append(s.Events, schema.Event{Type: schema.TypeRunLifecycle, Payload: []byte(`{"state":"done"}`)})
	}
	packs := schematest.Packs(fanouttest.Key, s, 4)
	var lines [][]byte
	for _, p := range packs {
		for line := range schema.Lines(p.Body) {
			lines = append(lines, line)
		}
	}
	return packs, lines
}

func runHub(t *testing.T, cfg fanout.Config) (*fanout.Hub, func()) {
	t.Helper()
	h, err := fanout.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	return h, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// The stream's window moves on while readers replay: the archive gives what the stream drops, and
// the two are joined without a hole wherever the cut falls.
func TestSeamOfArchiveAndStream(t *testing.T) {
	packs, want := endedRun(200, 3)
	for cut := 0; cut <= len(packs); cut++ {
		for _, lag := range []int{0, 2} { // packs that the stream has dropped and the archive not yet has
			if cut == len(packs) && lag > 0 {
				continue // what nobody has any more, nobody can miss; the lag alarm is there to prevent it
			}
			synctest.Test(t, func(t *testing.T) {
				stream, archive := memory.New(), memory.New()
				fanouttest.Store(t, fanouttest.Backend{Append: stream.Append}, packs, 0)
				persisted := max(0, cut-lag)
				fanouttest.Store(t, fanouttest.Backend{Append: archive.Append}, packs[:persisted], 0)
				if cut > 0 {
					stream.Expire(fanouttest.Key, packs[cut-1].Last())
				}
				h, stop := runHub(t, fanout.Config{Stream: stream, Tail: stream, Archive: archive})
				defer stop()
				holds := persisted == cut
				got, err := fanouttest.Read(t.Context(), h, fanouttest.Key, 0, schema.Seq(len(want)), nil)
				switch {
				case holds && (err != nil || len(got) != len(want)):
					t.Fatalf("cut at %d: %d lines of %d, err %v", cut, len(got), len(want), err)
				case holds:
					for i := range want {
						if !bytes.Equal(got[i], want[i]) {
							t.Fatalf("cut at %d: line %d differs", cut, i+1)
						}
					}
				case persisted > 0 && !errors.Is(err, fanout.ErrUnavailable):
					t.Fatalf("cut at %d, archive at %d: %v", cut, persisted, err) // come back, it may be persisted by then
				case err == nil:
					t.Fatalf("cut at %d, archive at %d: a hole was stepped over", cut, persisted)
				}
			})
		}
	}
}

func TestExpiredIsSaidWithWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memory.New()
		packs, want := endedRun(100, 5)
		fanouttest.Store(t, fanouttest.Backend{Append: log.Append}, packs, 0)
		kept := packs[7].First
		log.Expire(fanouttest.Key, kept-1)
		h, stop := runHub(t, fanout.Config{Stream: log, Tail: log})
		defer stop()
		for after := schema.Seq(0); after < schema.Seq(len(want)); after++ {
			s, err := h.Subscribe(t.Context(), fanouttest.Key, after)
			var expired *fanout.ExpiredError
			switch {
			case after+1 < kept && (!errors.Is(err, fanout.ErrExpired) || !errors.As(err, &expired) || expired.First != kept):
				t.Fatalf("behind %d: %v", after, err)
			case after+1 >= kept && err != nil:
				t.Fatalf("behind %d: %v", after, err)
			}
			if s != nil {
				s.Close()
			}
		}
	})
}

// A stream that stays silent ends the streams of live readers, after GiveUp, with an error that
// says to come back: no quiet stall.
func TestSilentStreamEndsLiveReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &silent{Log: memory.New()}
		packs, _ := endedRun(50, 1)
		fanouttest.Store(t, fanouttest.Backend{Append: log.Append}, packs[:5], 0)
		h, stop := runHub(t, fanout.Config{Stream: log, Tail: log, GiveUp: 30 * time.Second})
		defer stop()
		s, err := h.Subscribe(t.Context(), fanouttest.Key, packs[4].Last())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		log.mu.Lock()
		log.gone = true
		log.mu.Unlock()
		began := time.Now()
		if _, err := s.Next(t.Context()); !errors.Is(err, fanout.ErrUnavailable) {
			t.Fatalf("%v", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > time.Minute {
			t.Fatalf("told after %s", took)
		}
	})
}

type silent struct {
	*memory.Log
	mu   sync.Mutex
	gone bool
}

func (s *silent) Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	s.mu.Lock()
	gone := s.gone
	s.mu.Unlock()
	if gone {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Log.Newest(ctx, keys)
}

// When the hub goes, every reader is told, and nothing is left behind.
func TestClosingTheHub(t *testing.T) {
	log := memory.New()
	packs, _ := endedRun(50, 1)
	fanouttest.Store(t, fanouttest.Backend{Append: log.Append}, packs[:5], 0)
	h, stop := runHub(t, fanout.Config{Stream: log, Tail: log})
	told := make(chan error, 10)
	for range cap(told) {
		s, err := h.Subscribe(t.Context(), fanouttest.Key, packs[4].Last())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer s.Close()
			_, err := s.Next(context.Background())
			told <- err
		}()
	}
	stop()
	for range cap(told) {
		if err := <-told; !errors.Is(err, fanout.ErrClosed) {
			t.Fatal(err)
		}
	}
	if _, err := h.Subscribe(t.Context(), fanouttest.Key, 0); !errors.Is(err, fanout.ErrClosed) {
		t.Fatal(err)
	}
}

// Watched runs come and go by the thousand without leaving anything.
func TestTopicsComeAndGo(t *testing.T) {
	log := memory.New()
	watching := -1
	h, stop := runHub(t, fanout.Config{Stream: log, Tail: log,
		Hooks: fanout.Hooks{Watching: func(n int) { watching = n }}})
	defer stop()
	for i := range 1000 {
		key := schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)}
		fanouttest.Store(t, fanouttest.Backend{Append: log.Append}, schematest.Packs(key, schematest.ByName("plain"), 3), 0)
		a, err := h.Subscribe(t.Context(), key, 0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := h.Subscribe(t.Context(), key, 1)
		if err != nil {
			t.Fatal(err)
		}
		a.Close()
		a.Close()
		if watching != 1 {
			t.Fatalf("%d runs watched", watching)
		}
		b.Close()
		if watching != 0 {
			t.Fatalf("%d runs watched", watching)
		}
	}
}
