package bench

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"
)

// comparison is one job done by the product and by bare variants of it.
type comparison struct {
	title  string
	units  []string  // of the figures that each run gives: ev/s, or p50_ms and p99_ms
	own    []variant // the product's; the first is the one that ratios are of
	bare   []variant
	server int // pid
}

// variant does the job once and gives one figure per unit. It calls start and stop around what is
// measured, and checks afterwards that nothing is missing.
type variant struct {
	name   string // for the table
	metric string // for testing.B
	run    func(context.Context, *stopwatch) ([]float64, error)
}

// limit bounds one run of a variant: all of them end by themselves long before.
const limit = 2 * time.Minute

// outcome is what a variant gave over all rounds.
type outcome struct {
	variant
	figures [][]float64 // by unit, then by round
	own     []float64   // CPU of this process, µs per event
	server  []float64   // CPU of the NATS server, µs per event
	others  []float64   // share of the machine's CPU that other processes took
	notes   []string
}

func (c *comparison) variants() []variant { return slices.Concat(c.own, c.bare) }

// measure runs the variants in turns, A B C A B C, after warm rounds that do not count: what the
// machine does meanwhile hits all of them alike.
func (c *comparison) measure(ctx context.Context, warm, rounds int) ([]outcome, error) {
	out := make([]outcome, 0, len(c.own)+len(c.bare))
	for _, v := range c.variants() {
		out = append(out, outcome{variant: v, figures: make([][]float64, len(c.units))})
	}
	for r := -warm; r < rounds; r++ {
		for i := range out {
			runtime.GC() // of what the one before left behind
			w, figures, err := c.once(ctx, out[i].variant)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", c.title, out[i].name, err)
			}
			if r >= 0 {
				out[i].add(w, figures)
			}
		}
	}
	return out, nil
}

func (c *comparison) once(ctx context.Context, v variant) (*stopwatch, []float64, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	w := &stopwatch{server: c.server}
	figures, err := v.run(ctx, w)
	if err == nil && len(figures) != len(c.units) {
		err = fmt.Errorf("%d figures for %d units", len(figures), len(c.units))
	}
	return w, figures, err
}

func (o *outcome) add(w *stopwatch, figures []float64) {
	for i, f := range figures {
		o.figures[i] = append(o.figures[i], f)
	}
	per := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(w.events) }
	o.own, o.server = append(o.own, per(w.own)), append(o.server, per(w.served))
	o.others = append(o.others, w.others)
	if w.note != "" {
		o.notes = append(o.notes, w.note)
	}
}

// ratios are ours to theirs, round by round.
func ratios(ours, theirs []float64) []float64 {
	out := make([]float64, len(ours))
	for i := range ours {
		out[i] = ours[i] / theirs[i]
	}
	return out
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// percentile of sorted values, by the nearest rank.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(math.Ceil(p/100*float64(len(sorted)))) - 1
	return sorted[max(i, 0)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
