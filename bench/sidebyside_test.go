package bench

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sizes bound every job.
type sizes struct {
	oneRun      int // events, one run
	synchronous int // events, one at a time
	runs        int // many runs
	perRun      int // events of each
	batches     int // POSTs
	replay      int // events
	replays     int // in one run of a variant
	neighbours  int // other runs in the stream
	watched     int // runs
	watchers    int // of each
	rate        int // events per second
	duration    time.Duration
}

var (
	full = sizes{oneRun: 200000, synchronous: 10000, runs: 1000, perRun: 100, batches: 800, replay: 10000, replays: 5,
		neighbours: 9, watched: 200, watchers: 2, rate: 2000, duration: 5 * time.Second}
	small = sizes{oneRun: 3000, synchronous: 300, runs: 40, perRun: 20, batches: 16, replay: 700, replays: 1,
		neighbours: 2, watched: 10, watchers: 2, rate: 400, duration: 500 * time.Millisecond}
)

// jobs are all comparisons, by the name of their benchmark.
var jobs = []struct {
	name string
	make func(*house, sizes) *comparison
}{
	{"PublishOneRun", publishOneRun},
	{"PublishManyRuns", publishManyRuns},
	{"Ingest1", func(h *house, n sizes) *comparison { return ingest(h, n, 1) }},
	{"Ingest16", func(h *house, n sizes) *comparison { return ingest(h, n, 16) }},
	{"ReplayPacks", func(h *house, n sizes) *comparison { return replay(h, n, 32) }},
	{"ReplaySingles", func(h *house, n sizes) *comparison { return replay(h, n, 1) }},
	{"Watch", watch},
}

// BenchmarkSideBySide prints the table. AGENTSTREAM_BENCH_ROUNDS is how many rounds count, 5 by
// default; with AGENTSTREAM_BENCH_BARE=no only the product runs, for a profile; with -short everything
// is small and the figures mean nothing.
func BenchmarkSideBySide(b *testing.B) {
	n, rounds := full, 5
	if testing.Short() {
		n, rounds = small, 1
	}
	if text := os.Getenv("AGENTSTREAM_BENCH_ROUNDS"); text != "" {
		r, err := strconv.Atoi(text)
		if err != nil || r < 1 {
			b.Fatalf("AGENTSTREAM_BENCH_ROUNDS is %q, not a number of rounds", text)
		}
		rounds = r
	}
	before := load()
	measured := make([]*section, len(jobs))
	for i, job := range jobs {
		b.Run(job.name, func(b *testing.B) {
			c := job.make(newHouse(b), n)
			if os.Getenv("AGENTSTREAM_BENCH_BARE") == "no" {
				c.own, c.bare = c.own[:1], nil
			}
			// b.N is not looked at: the rounds are what is repeated.
			out, err := c.measure(b.Context(), 1, rounds)
			if err != nil {
				b.Fatal(err)
			}
			s := section{c, out}
			s.metrics(b)
			measured[i] = &s // the last, should the framework have asked again
		})
	}
	var sections []section
	for _, s := range measured {
		if s != nil {
			sections = append(sections, *s)
		}
	}
	if len(sections) == 0 {
		return
	}
	var table strings.Builder
	for _, s := range sections {
		s.print(&table)
	}
	machine(&table, rounds, before, sections)
	os.Stdout.WriteString(table.String() + "\n")
}

// TestSideBySide holds the harness to its promise with small numbers: every variant delivers all, in
// order, once, or says so. It looks at no time.
func TestSideBySide(t *testing.T) {
	for _, job := range jobs {
		t.Run(job.name, func(t *testing.T) {
			c := job.make(newHouse(t), small)
			out, err := c.measure(t.Context(), 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range out {
				for u := range c.units {
					if len(o.figures[u]) != 1 || !(o.figures[u][0] > 0) {
						t.Errorf("%s: %s: %v", o.name, c.units[u], o.figures[u])
					}
				}
			}
			var table strings.Builder
			section{c, out}.print(&table)
			for _, v := range c.variants() {
				if !strings.Contains(table.String(), v.name) {
					t.Errorf("the table leaves %q out", v.name)
				}
			}
		})
	}
}
