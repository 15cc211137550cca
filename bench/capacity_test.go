package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// fullEnv asks for the size that the capacity page speaks of instead of a small one.
const fullEnv = "AGENTSTREAM_FULL"

// crowd is how many runs the test stores, how many of them it looks at one by one, and how many it
// watches at once. The server may hold so many bytes per run: in the small form, its fixed costs and
// the race detector's are spread over few.
type crowd struct{ runs, perRun, sample, watched, writers, bytes int }

func crowdSize() crowd {
	if os.Getenv(fullEnv) != "" {
		return crowd{runs: 100_000, perRun: 2, sample: 1000, watched: 20_000, writers: 32, bytes: 8 << 10}
	}
	return crowd{runs: 5_000, perRun: 2, sample: 100, watched: 1_000, writers: 16, bytes: 64 << 10}
}

// stage is what one more event of a run costs while so many runs are stored.
type stage struct {
	runs                 int
	head, replay, live   []time.Duration // sorted
	memory, memoryBefore float64         // of the server, MiB
}

// TestHundredThousandSubjects stores one subject per run in a real broker and looks, at a tenth, at a
// third and at all of them, whether anything got slower with their number: reading a run's head from
// the leader, replaying a run, and an event's way to a watcher.
func TestHundredThousandSubjects(t *testing.T) {
	if testing.Short() {
		t.Skip("stores thousands of runs")
	}
	h, n := newHouse(t), crowdSize()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	runs := h.runs(n.runs)
	appender, err := producers.NewAppender(producers.AppenderConfig{Log: h.log})
	if err != nil {
		t.Fatal(err)
	}
	before := rssOf(t, h.nats.pid)
	var stages []stage
	stored := 0
	for _, upTo := range []int{n.runs / 10, n.runs / 3, n.runs} {
		began := time.Now()
		h.fill(ctx, t, appender, runs[stored:upTo], n)
		rate := float64((upTo-stored)*n.perRun) / time.Since(began).Seconds()
		stored = upTo
		s := h.look(ctx, t, appender, runs[:stored], n)
		s.memoryBefore = before
		stages = append(stages, s)
		t.Logf("%s runs, written at %s ev/s: head p50 %.2f p99 %.2f ms; replay p50 %.2f p99 %.2f ms; live p50 %.2f p99 %.2f ms; server %.0f MiB, %.0f bytes per run",
			thousands(stored), thousands(int(rate)), milliseconds(percentile(s.head, 50)), milliseconds(percentile(s.head, 99)),
			milliseconds(percentile(s.replay, 50)), milliseconds(percentile(s.replay, 99)),
			milliseconds(percentile(s.live, 50)), milliseconds(percentile(s.live, 99)), s.memory, s.bytesPerRun())
	}
	flat(t, stages, n)
	h.watchMany(ctx, t, appender, runs, n)
}

func (s stage) bytesPerRun() float64 {
	return (s.memory - s.memoryBefore) * (1 << 20) / float64(s.runs)
}

// flat fails when the median at ten times the runs is far above what it was. A scan over all subjects
// would be ten times as slow; what other processes take from the machine is less than that.
func flat(t *testing.T, stages []stage, n crowd) {
	t.Helper()
	first, last := stages[0], stages[len(stages)-1]
	for what, of := range map[string]func(stage) []time.Duration{
		"reading a head": func(s stage) []time.Duration { return s.head },
		"replaying":      func(s stage) []time.Duration { return s.replay },
		"a live event":   func(s stage) []time.Duration { return s.live },
	} {
		was, is := percentile(of(first), 50), percentile(of(last), 50)
		if is > 3*was+time.Millisecond {
			t.Errorf("%s took %v with %d runs and takes %v with %d", what, was, first.runs, is, last.runs)
		}
	}
	if b := last.bytesPerRun(); b > float64(n.bytes) {
		t.Errorf("the server holds %.0f bytes per run", b)
	}
}

// fill writes the events of each run one by one, as slow agents do.
func (h *house) fill(ctx context.Context, t *testing.T, a *producers.Appender, runs []schema.RunKey, n crowd) {
	t.Helper()
	payloads := texts(16)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range n.writers {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(runs) {
					return nil
				}
				for k := range n.perRun {
					if err := append1(ctx, a, runs[i], payloads[(i+k)%len(payloads)]); err != nil {
						return err
					}
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// look takes a sample over all runs, one after another: nothing waits behind anything else.
func (h *house) look(ctx context.Context, t *testing.T, a *producers.Appender, runs []schema.RunKey, n crowd) stage {
	t.Helper()
	s := stage{runs: len(runs), memory: rssOf(t, h.nats.pid)}
	for i := range n.sample {
		key := runs[i*len(runs)/n.sample]
		began := time.Now()
		head, err := h.log.Head(ctx, key, "")
		if err != nil {
			t.Fatal(err)
		}
		s.head = append(s.head, time.Since(began))
		began = time.Now()
		h.replayAll(ctx, t, key, head.Last)
		s.replay = append(s.replay, time.Since(began))
		s.live = append(s.live, h.liveOnce(ctx, t, a, key, head.Last))
	}
	for _, list := range [][]time.Duration{s.head, s.replay, s.live} {
		slices.Sort(list)
	}
	return s
}

// replayAll reads a run from its beginning and fails unless it has exactly these events.
func (h *house) replayAll(ctx context.Context, t *testing.T, key schema.RunKey, last schema.Seq) {
	t.Helper()
	seen := schema.Seq(0)
	for p, err := range h.hub.Packs(ctx, key, 0, last) {
		if err != nil {
			t.Fatal(err)
		}
		if p.First != seen+1 {
			t.Fatalf("run %s: a pack begins with %d behind %d", key, p.First, seen)
		}
		seen = p.Last()
	}
	if seen != last {
		t.Fatalf("run %s ends at %d, its head says %d", key, seen, last)
	}
}

// liveOnce watches a run, appends one event, and returns the time until the watcher has it.
func (h *house) liveOnce(ctx context.Context, t *testing.T, a *producers.Appender, key schema.RunKey,
	last schema.Seq) time.Duration {
	t.Helper()
	sub, err := h.hub.Subscribe(ctx, key, last)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	if sub.Head().Last != last {
		t.Fatalf("run %s is watched from %d, its head says %d", key, sub.Head().Last, last)
	}
	began := time.Now()
	if err := append1(ctx, a, key, texts(1)[0]); err != nil {
		t.Fatal(err)
	}
	batch, err := sub.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	if err := isNext(key, batch, last); err != nil {
		t.Fatal(err)
	}
	return took
}

func append1(ctx context.Context, a *producers.Appender, key schema.RunKey, payload []byte) error {
	event := schema.Event{Type: schema.TypeTextDelta, Payload: payload}
	if err := event.Prepare(key.Run); err != nil {
		return err
	}
	if _, err := a.Append(ctx, key, []schema.Event{event}, producers.AppendOptions{}); err != nil {
		return fmt.Errorf("append to %s: %w", key, err)
	}
	return nil
}

// isNext is an error unless the batch is exactly the one event behind last.
func isNext(key schema.RunKey, b fanout.Batch, last schema.Seq) error {
	var seqs []schema.Seq
	for _, p := range b.Packs {
		for rec, err := range p.Records(b.After) {
			if err != nil {
				return err
			}
			seqs = append(seqs, rec.Seq)
		}
	}
	if !slices.Equal(seqs, []schema.Seq{last + 1}) {
		return fmt.Errorf("run %s: a watcher behind %d got %v", key, last, seqs)
	}
	return nil
}

// watchMany watches many runs at once, and then each gets one event: every watcher must have its own.
func (h *house) watchMany(ctx context.Context, t *testing.T, a *producers.Appender, runs []schema.RunKey, n crowd) {
	t.Helper()
	subs := make([]*fanout.Subscription, n.watched)
	server, heap := rssOf(t, h.nats.pid), heapInUse()
	began := time.Now()
	each(ctx, t, n, func(ctx context.Context, i int) error {
		key := runs[i*len(runs)/n.watched]
		head, err := h.hub.Head(ctx, key)
		if err == nil {
			subs[i], err = h.hub.Subscribe(t.Context(), key, head.Last)
		}
		return err
	})
	joined := time.Since(began)
	per := func(bytes float64) float64 { return bytes / float64(n.watched) }
	serverEach, heapEach := per((rssOf(t, h.nats.pid)-server)*(1<<20)), per(heapInUse()-heap)
	took := make([]time.Duration, n.watched)
	each(ctx, t, n, func(ctx context.Context, i int) error {
		key, last := runs[i*len(runs)/n.watched], subs[i].Head().Last
		began := time.Now()
		if err := append1(ctx, a, key, texts(1)[0]); err != nil {
			return err
		}
		batch, err := subs[i].Next(ctx)
		if err != nil {
			return err
		}
		took[i] = time.Since(began)
		return isNext(key, batch, last)
	})
	for _, s := range subs {
		s.Close()
	}
	slices.Sort(took)
	t.Logf("%s of them watched at once: joined at %s a second, %.0f bytes each in the hub's process and %.0f in the server; with %d writers live p50 %.2f p99 %.2f ms",
		thousands(n.watched), thousands(int(float64(n.watched)/joined.Seconds())), heapEach, serverEach, n.writers,
		milliseconds(percentile(took, 50)), milliseconds(percentile(took, 99)))
}

// each does something for every watched run, in as many goroutines as there are writers.
func each(ctx context.Context, t *testing.T, n crowd, do func(ctx context.Context, i int) error) {
	t.Helper()
	g, ctx := errgroup.WithContext(ctx)
	for w := range n.writers {
		g.Go(func() error {
			for i := w; i < n.watched; i += n.writers {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func heapInUse() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse + m.StackInuse)
}

// rssOf is the resident memory of a process in MiB.
func rssOf(t *testing.T, pid int) float64 {
	t.Helper()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		t.Skip("memory is read from proc(5): ", err)
	}
	pages, err := strconv.ParseFloat(string(bytes.Fields(b)[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
