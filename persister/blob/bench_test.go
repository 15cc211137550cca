package blob_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/internal/cputime"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// long is a run in memory: tables whose rows cost nothing, so that what is measured is the object.
type long struct {
	key   schema.RunKey
	place persister.Place
	lines []persister.Line
}

func (l *long) Place(context.Context, schema.RunKey) (persister.Place, error) { return l.place, nil }

func (l *long) Page(_ context.Context, _ schema.RunKey, _ string, after, through schema.Seq) ([]persister.Line, error) {
	if after < l.place.Floor {
		return nil, nil
	}
	end := min(schema.Seq(len(l.lines)), through, after+persister.PageRows)
	return l.lines[after:end], nil
}

func (l *long) Frames(context.Context, schema.RunKey, string, schema.Seq) ([]persister.Frame, error) {
	return nil, nil
}

func (l *long) Claim(context.Context, time.Duration, time.Duration, int) ([]schema.RunKey, error) {
	return nil, nil
}
func (l *long) Defer(context.Context, schema.RunKey, time.Duration) error              { return nil }
func (l *long) Backlog(context.Context, time.Duration, int) (int, error)               { return 0, nil }
func (l *long) Ping(context.Context) error                                             { return nil }
func (l *long) Head(context.Context, schema.RunKey, string) (h schema.Head, err error) { return }

func (l *long) SetArchived(_ context.Context, _ schema.RunKey, through schema.Seq, uri string, _ int64) (bool, error) {
	l.place.Archived, l.place.URI = through, uri
	return true, nil
}

// longRun makes a run of n events as agents write them: many small deltas, some tools, several children.
func longRun(n int) *long {
	l := &long{key: schema.RunKey{Tenant: "acme", Run: "run_long"}}
	for _, p := range schematest.Packs(l.key, schematest.Generate(n, 11), 64) {
		seq := p.First
		for line := range schema.Lines(p.Body) {
			l.lines = append(l.lines, persister.Line{Seq: seq, Child: p.Child, Body: line})
			seq++
		}
		l.place.Day = p.Head.Day
	}
	l.place.Last = schema.Seq(len(l.lines))
	return l
}

// metered counts requests and bytes.
type metered struct {
	blob.ObjectStore
	requests, bytes *atomic.Int64
}

func (m metered) Read(ctx context.Context, name string, offset, length int64) ([]byte, int64, error) {
	data, size, err := m.ObjectStore.Read(ctx, name, offset, length)
	m.requests.Add(1)
	m.bytes.Add(int64(len(data)))
	return data, size, err
}

func (m metered) Put(ctx context.Context, name string, body io.Reader) error {
	return m.ObjectStore.Put(ctx, name, body)
}

func (m metered) List(ctx context.Context, prefix string) iter.Seq2[blob.Object, error] {
	return m.ObjectStore.List(ctx, prefix)
}

// BenchmarkObject writes a run of a million events, reads it whole, and reads a hundred events out of its
// middle, with frames of several sizes.
func BenchmarkObject(b *testing.B) {
	for kind, open := range map[string]func(testing.TB) (blob.ObjectStore, string){"folder": openFolder, "s3": openS3} {
		for _, frame := range []int{128 << 10, 256 << 10, 512 << 10, 1 << 20} {
			if kind == "s3" && frame != blob.FrameBytes {
				continue
			}
			b.Run(fmt.Sprintf("%s/%dKiB", kind, frame>>10), func(b *testing.B) {
				for b.Loop() {
					measure(b, open, frame)
				}
			})
		}
	}
}

func measure(b *testing.B, open func(testing.TB) (blob.ObjectStore, string), frame int) {
	b.Helper()
	b.StopTimer()
	const events, some = 1_000_000, 100
	l := longRun(events)
	raw := 0
	for i := range l.lines {
		raw += len(l.lines[i].Body) + 1
	}
	store, base := open(b)
	var requests, bytes atomic.Int64
	m := metered{store, &requests, &bytes}
	a, err := blob.NewArchiver(blob.ArchiverConfig{Tables: l, Queue: l, Store: m, Base: base, Frame: frame})
	if err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
	begun, used := time.Now(), cputime.Process().Seconds()
	if err := a.One(b.Context(), l.key); err != nil {
		b.Fatal(err)
	}
	took := time.Since(begun).Seconds()
	b.ReportMetric(cputime.Process().Seconds()-used, "cpu-s-archived")
	b.StopTimer()
	l.place.Floor = l.place.Last
	for o, err := range store.List(b.Context(), "") {
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(raw)/float64(o.Size), "ratio")
		b.ReportMetric(float64(o.Size), "B/object")
	}
	b.ReportMetric(float64(raw)/1e6/took, "MB/s-archived")
	b.ReportMetric(events/took, "events/s-archived")
	reader := func() *blob.Archive {
		r, err := blob.New(blob.Config{Tables: l, Heads: l, Store: m})
		if err != nil {
			b.Fatal(err)
		}
		requests.Store(0)
		bytes.Store(0)
		return r
	}
	r := reader()
	begun, used = time.Now(), cputime.Process().Seconds()
	n := 0
	for p, err := range r.Packs(b.Context(), l.key, 0, schema.MaxSeq) {
		if err != nil {
			b.Fatal(err)
		}
		n += p.Count
	}
	if n != events {
		b.Fatalf("%d events came", n)
	}
	b.ReportMetric(time.Since(begun).Seconds()*1e3, "ms-whole")
	b.ReportMetric(cputime.Process().Seconds()-used, "cpu-s-whole")
	b.ReportMetric(float64(bytes.Load()), "B-whole")
	b.ReportMetric(float64(requests.Load()), "requests-whole")
	var times []time.Duration
	used = cputime.Process().Seconds()
	for i := range 20 {
		r = reader() // without an index that is known
		after := schema.Seq(events/40 + i*events/20)
		begun := time.Now()
		n := 0
		for p, err := range r.Packs(b.Context(), l.key, after, after+some) {
			if err != nil {
				b.Fatal(err)
			}
			n += p.Count
		}
		if n != some {
			b.Fatalf("%d events came", n)
		}
		times = append(times, time.Since(begun))
	}
	b.ReportMetric((cputime.Process().Seconds()-used)/20*1e3, "cpu-ms-100")
	slices.Sort(times)
	b.ReportMetric(times[10].Seconds()*1e3, "ms-100")
	b.ReportMetric(float64(bytes.Load()), "B-100")
	b.ReportMetric(float64(requests.Load()), "requests-100")
	b.StartTimer()
}
