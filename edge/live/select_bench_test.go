package live_test

import (
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/internal/cputime"
	"agentstream/protocols/qoder"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// kinds is the session protocol with selections: a client names the kinds of frames that it wants, of six, as a number
// of which each bit is one.
type kinds struct{ qoder.Dialect }

func (kinds) Info() dialect.Info { return dialect.Info{Name: "kinds"} }
func (kinds) Streams() []protocol.Stream {
	return []protocol.Stream{{Stream: dialect.Stream{Name: "kinds", Pattern: "GET /kinds/{run}", Transport: dialect.SSE,
		Mode: dialect.ModeB, Shared: true}}}
}

func (kinds) Open(in dialect.Input) (dialect.Request, error) {
	req := qoder.Request(in.Path["run"], "")
	req.Stream = in.Stream
	n, err := strconv.Atoi(in.Query.Get("kinds"))
	if err == nil {
		req.Select = kindSet(n)
	}
	return req, nil
}

func (d kinds) Projector(req dialect.Request) dialect.Projector {
	return kindProjector{d.Dialect.Projector(req).(dialect.Stateful)}
}

type kindSet uint

func (s kindSet) Key() string                 { return strconv.Itoa(int(s)) }
func (s kindSet) Match(f *dialect.Frame) bool { return s>>f.Kind&1 == 1 }

type kindProjector struct{ dialect.Stateful }

func (p kindProjector) For(req dialect.Request) dialect.Stateful {
	return kindProjector{p.Stateful.For(req)}
}

func (p kindProjector) Project(out *dialect.Frames, r schema.Record) error {
	err := p.Stateful.Project(out, r)
	if out != nil {
		for i := range out.List { // by their places: frames of all kinds are as many
			out.List[i].Kind = (int(r.Seq) + i) % 6
		}
	}
	return err
}

// readKinds reads a stream to its end for each selection, all at once, and returns the CPU time of the process.
func readKinds(b *testing.B, h *edgetest.House, run string, selected ...kindSet) (took time.Duration, bytes int64) {
	b.Helper()
	before := cputime.Process()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, s := range selected {
		wg.Go(func() {
			path := "/kinds/" + run
			if bits.OnesCount(uint(s)) < 6 {
				path += fmt.Sprintf("?kinds=%d", s)
			}
			resp, err := h.Client.Do(h.Request("GET", path, ""))
			if err != nil {
				b.Error(err)
				return
			}
			defer resp.Body.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if err != nil || resp.StatusCode != http.StatusOK {
				b.Errorf("%d, %v", resp.StatusCode, err)
			}
			mu.Lock()
			bytes += n
			mu.Unlock()
		})
	}
	wg.Wait()
	return cputime.Process() - before, bytes
}

var (
	allKinds  = []kindSet{63}
	sixKinds  = []kindSet{1, 2, 4, 8, 16, 32}    // together they are shown everything
	sixHalves = []kindSet{7, 14, 28, 56, 49, 35} // and three times everything
)

// talkative is a run in which agents mostly speak.
func talkative(events int, seed uint64) schematest.Scenario {
	s := schematest.Generate(events, seed)
	for i := range s.Events {
		if e := &s.Events[i]; e.Type == schema.TypeProgress {
			e.Type, e.Payload = schema.TypeTextDelta, []byte(`{"text":"a token of a few letters "}`)
		}
	}
	return s
}

// BenchmarkSelectedReplay reads 100,000 events of an ended run under six selections, and once without one: the CPU time
// of the process, clients included, as a multiple of the latter.
func BenchmarkSelectedReplay(b *testing.B) {
	h := edgetest.NewHouse(b)
	h.Fill("run", talkative(100_000, 1), 32)
	hub, err := fanout.New(fanout.Config{Stream: h.Log, Tail: h.Log}) // with the memory that a node has
	if err != nil {
		b.Fatal(err)
	}
	h = edgetest.NewHouse(b, serve(kinds{qoder.Dialect{Increments: true}}), func(c *edge.Config) { c.Hub = hub })
	readKinds(b, h, "run", allKinds...) // what a run's first reader alone pays for
	var full, six, halves time.Duration
	for b.Loop() {
		took, bytes := readKinds(b, h, "run", allKinds...)
		full += took
		took, same := readKinds(b, h, "run", sixKinds...)
		six += took
		if same < bytes {
			b.Fatalf("six clients got %d bytes together, one %d", same, bytes)
		}
		took, _ = readKinds(b, h, "run", sixHalves...)
		halves += took
	}
	b.ReportMetric(float64(six)/float64(full), "six/one")
	b.ReportMetric(float64(halves)/float64(full), "six-halves/one")
	b.ReportMetric(full.Seconds()/float64(b.N), "cpu-s/one")
}

// BenchmarkSelectedLive writes 2,000 events to 600 clients that are up to date, of one selection, and of six: the CPU
// time of the process, clients included, as a multiple of the former. All are shown the same number of frames.
func BenchmarkSelectedLive(b *testing.B) {
	var one, six time.Duration
	for i := 0; b.Loop(); i++ {
		one += liveKinds(b, i, []kindSet{7})
		six += liveKinds(b, i, sixHalves)
	}
	b.ReportMetric(float64(six)/float64(one), "six/one")
}

func liveKinds(b *testing.B, i int, selected []kindSet) time.Duration {
	b.StopTimer()
	defer b.StartTimer()
	const clients, events = 600, 2000
	h := edgetest.NewHouse(b, serve(kinds{qoder.Dialect{Increments: true}}))
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run"}, talkative(events, uint64(i)), 1)
	h.Store(packs[:1])
	var of []kindSet
	for n := range clients {
		of = append(of, selected[n%len(selected)])
	}
	took := make(chan time.Duration)
	go func() {
		cpu, _ := readKinds(b, h, "run", of...)
		took <- cpu
	}()
	edgetest.Eventually(b, "all are parked", func() bool { return h.Server.Census().Parked == clients })
	before := cputime.Process()
	h.Store(packs[1:])
	<-took
	return cputime.Process() - before
}

// serve makes a server speak a dialect besides the native one.
func serve(d dialect.Dialect) func(*edge.Config) {
	return func(c *edge.Config) { c.Protocols = append(c.Protocols, edgetest.Speak(d)...) }
}
