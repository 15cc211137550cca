package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"agentstream/bench/plot"
)

// flatWithin is how much a delivery may cost more at any later point than at the first that counts.
const flatWithin = 1.2

// point of a curve: x, and CPU µs per delivery.
type point struct{ x, cost float64 }

// curve reads the points of a curve on a shape, in the order of x, and why one must not count. With a
// process only its part is read.
func (r *results) curve(lines []line, curve, shape, process string) (points []point, why string) {
	for _, l := range lines {
		text, ok := strings.CutPrefix(l.id, curve+"-")
		x, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			continue
		}
		if why == "" {
			why = r.spoilReason(l.id, shape)
		}
		v, ok := r.metric(l.id, shape, "cpu_s_per_M")
		if process != "" {
			cores, ok1 := r.cores(l.id, shape, process)
			rate, ok2 := r.metric(l.id, shape, "delivered_s")
			v, ok = spread{median: cores.median / rate.median * 1e6}, ok1 && ok2 && rate.median > 0
		}
		if ok {
			points = append(points, point{x, v.median})
		}
	}
	return points, why
}

// growthOf is the largest cost behind the second point, as a multiple of the second's. The first point
// is left out: there, what an event costs by itself is not yet spread over many.
func growthOf(points []point) (float64, bool) {
	if len(points) < 3 {
		return 0, false
	}
	most := 0.0
	for _, p := range points[2:] {
		most = max(most, p.cost/points[1].cost)
	}
	return most, true
}

// writeGrowth prints the curves and whether they are flat.
func (r *results) writeGrowth(w io.Writer, lines []line, shapes []string) bool {
	all := true
	row(w, "curve", "shape", "CPU µs per delivery", "later ÷ second", "bar", "verdict")
	rule(w, 6)
	for _, c := range []struct{ id, what string }{{curveWatchers, "watchers of one run"},
		{curveRuns, "live runs, 2,000 ev/s in all"}} {
		for _, shape := range shapes {
			points, why := r.curve(lines, c.id, shape, "")
			var parts []string
			for _, p := range points {
				parts = append(parts, figure(p.x)+": "+figure(p.cost))
			}
			growth, ok := growthOf(points)
			word := "pass"
			switch {
			case why != "":
				word = "**FAIL**: " + why
			case !ok:
				word = "not measured"
			case growth > flatWithin:
				word = "**FAIL**"
			}
			all = all && word == "pass"
			row(w, c.what, shape, strings.Join(parts, "; "), figure(growth), "≤ "+figure(flatWithin), word)
		}
	}
	return all
}

// curveCharts draw the curves: each shape, and each process of the split one.
func (r *results) curveCharts(lines []line, shapes []string) map[string]plot.Chart {
	charts := map[string]plot.Chart{}
	for _, c := range []struct{ id, title, x string }{
		{curveWatchers, "CPU per delivery, watchers of one run", "watchers"},
		{curveRuns, "CPU per delivery, live runs at 2,000 events a second in all", "live runs"},
	} {
		chart := plot.Chart{Title: c.title, XLabel: c.x, YLabel: "CPU µs per delivery", LogX: true, LogY: true}
		for _, shape := range shapes {
			chart.Series = append(chart.Series, r.series(lines, c.id, shape, ""))
		}
		for _, process := range []string{"edge", "nats", "persist", "postgres"} {
			chart.Series = append(chart.Series, r.series(lines, c.id, shapeSplit, process))
		}
		charts["growth-"+c.id] = chart
	}
	return charts
}

// series leaves out what took no tick of the clock: a logarithm has no place for it.
func (r *results) series(lines []line, curve, shape, process string) plot.Series {
	s := plot.Series{Name: shape}
	if process != "" {
		s.Name = fmt.Sprintf("%s: %s alone", shape, process)
	}
	points, _ := r.curve(lines, curve, shape, process)
	for _, p := range points {
		if p.cost > 0 {
			s.X, s.Y = append(s.X, p.x), append(s.Y, p.cost)
		}
	}
	return s
}
