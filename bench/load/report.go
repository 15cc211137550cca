package load

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"

	"agentstream/bench/plot"
)

// Text writes the result for people: figures, the account, and the distribution of latency.
func (r *Result) Text(w io.Writer) error {
	b := bufio.NewWriter(w)
	watched := fmt.Sprintf("%d watchers each over %s", r.Watchers, r.Transport)
	if r.Watchers == 0 {
		watched = "not watched"
	}
	fmt.Fprintf(b, "%s: %d runs, %s; published over %s, %d events of %d bytes in one request\n\n",
		r.title(), r.Runs, watched, r.Publisher, r.Batch, r.Size)
	if r.AckedPerSecond > 0 {
		fmt.Fprintf(b, "  acknowledged  %12.0f events/s\n", r.AckedPerSecond)
	}
	if r.DeliveredPerSecond > 0 {
		fmt.Fprintf(b, "  delivered     %12.0f events/s\n", r.DeliveredPerSecond)
	}
	r.Latency.line(b, r.measure())
	r.Ack.line(b, "publish to answer")
	r.Server.lines(b)
	fmt.Fprintf(b, "  client CPU    %12.2f cores of %d\n", r.Client, r.CPUs)
	fmt.Fprintf(b, "  account       %12d acknowledged, %d of %d deliveries: %d lost, %d twice, %d out of order, %d of another run\n",
		r.Acked, r.Delivered, r.Expected, r.Lost, r.Duplicate, r.Disorder, r.Stray)
	if r.Refused+r.Resumed+r.Cut > 0 {
		fmt.Fprintf(b, "                %12d events refused or unanswered; %d streams ended and were resumed, %d could not be\n", r.Refused, r.Resumed, r.Cut)
	}
	if r.Missed > 0 {
		fmt.Fprintf(b, "                %12d events were due but not published: the server did not keep up with the rate\n", r.Missed)
	}
	if r.Trouble != "" {
		fmt.Fprintf(b, "  trouble       %s\n", printable(r.Trouble))
	}
	s, name := r.distribution()
	s.rows(b, name)
	return b.Flush()
}

func (r *Result) title() string {
	return map[Scenario]string{FanOut: "s1 fan-out", ManyRuns: "s2 many runs", Idle: "s3 idle connections",
		Replay: "s4 replay", Publish: "s5 publish"}[r.Scenario]
}

func (r *Result) measure() string {
	if r.Scenario == Replay {
		return "asking to last byte"
	}
	return "due to delivered"
}

// distribution is the one to be drawn: of the deliveries, or of the answers where there are none.
func (r *Result) distribution() (Summary, string) {
	if r.Latency.N == 0 {
		return r.Ack, "publish to answer"
	}
	return r.Latency, r.measure()
}

func (s Summary) line(w io.Writer, name string) {
	if s.N > 0 {
		fmt.Fprintf(w, "  %-20s  p50 %s  p90 %s  p99 %s  p99.9 %s  max %s ms\n", name, short(s.P50), short(s.P90),
			short(s.P99), short(s.P999), short(s.Max))
	}
}

func (c *Cost) lines(w io.Writer) {
	if c == nil {
		fmt.Fprintf(w, "  server        not seen: name it by --pid or --admin\n")
		return
	}
	fmt.Fprintf(w, "  server CPU    %12.2f cores", c.Cores)
	if c.PerMillion > 0 {
		fmt.Fprintf(w, ", %.2f s per million", c.PerMillion)
	}
	if c.PerConnect > 0 {
		fmt.Fprintf(w, ", %.0f µs to open a connection", c.PerConnect)
	}
	fmt.Fprintf(w, "\n  server memory %12.1f MiB, %.1f before", float64(c.MemoryAfter)/(1<<20),
		float64(c.MemoryBefore)/(1<<20))
	if c.PerConnection != 0 {
		fmt.Fprintf(w, ": %.1f KiB a connection", c.PerConnection)
	}
	fmt.Fprintln(w)
}

const barCells = 40

// rows draws a histogram of characters.
func (s Summary) rows(w io.Writer, name string) {
	if len(s.Buckets) == 0 {
		return
	}
	var most int64
	for _, b := range s.Buckets {
		most = max(most, b.Count)
	}
	fmt.Fprintf(w, "\n  %s, ms\n", name)
	for _, b := range s.Buckets {
		cells := int(math.Ceil(float64(b.Count) / float64(most) * barCells))
		fmt.Fprintf(w, "  %8s to %8s %-*s %d\n", short(b.From), short(b.To), barCells, strings.Repeat("█", cells), b.Count)
	}
}

// short writes a number with three digits that count.
func short(v float64) string {
	if v == 0 {
		return "0"
	}
	return fmt.Sprintf("%.*f", min(max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))), 4), v)
}

// printable keeps a server's words from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// SVG draws the result: memory over time when connections were idle, else the distribution of
// latency. It returns [plot.ErrNothing] when nothing was measured.
func (r *Result) SVG(w io.Writer) error {
	if r.Scenario == Idle && r.Server != nil {
		c := plot.Chart{Title: r.title() + ": memory of the server", XLabel: "seconds", YLabel: "MiB",
			Series: []plot.Series{{}}}
		for _, s := range r.Timeline {
			c.Series[0].X = append(c.Series[0].X, s.Seconds)
			c.Series[0].Y = append(c.Series[0].Y, float64(s.Memory)/(1<<20))
		}
		return c.SVG(w)
	}
	c := plot.Chart{Title: r.title() + ": how long the slowest take", XLabel: "1 in … takes longer", YLabel: "ms",
		LogX: true, LogY: true}
	for _, s := range []struct {
		name string
		of   Summary
	}{{r.measure(), r.Latency}, {"publish to answer", r.Ack}} {
		line := plot.Series{Name: s.name}
		for i, q := range s.of.Curve.At {
			if v := s.of.Curve.Ms[i]; v > 0 { // a logarithmic axis has no zero
				line.X, line.Y = append(line.X, 1/(1-q)), append(line.Y, v)
			}
		}
		c.Series = append(c.Series, line)
	}
	return c.SVG(w)
}
