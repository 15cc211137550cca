package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// metrics of a line, each once.
func (l line) metrics() (list []string) {
	for _, b := range l.bars {
		list = append(list, b.metric)
	}
	list = append(list, l.show...)
	slices.Sort(list)
	return slices.Compact(list)
}

// verdict is the judgement of one bar on one shape.
type verdict struct {
	value  spread
	ratio  float64 // to the reference; 0 without one
	passed bool
	why    string // not judged, or failed for another reason than the bar
}

// judge compares medians over the rounds.
func (r *results) judge(l line, b bar, shape string) verdict {
	v, ok := r.metric(l.id, shape, b.metric)
	if why := r.spoilReason(l.id, shape); why != "" {
		return verdict{value: v, why: why}
	}
	if !ok {
		return verdict{why: "not measured"}
	}
	limit := b.limit
	out := verdict{value: v}
	if b.of != "" {
		of := b.beside(shape)
		ref, ok := r.metric(l.id, of, b.metric)
		if why := r.spoilReason(l.id, of); why != "" || !ok || ref.median == 0 {
			return verdict{value: v, why: "no reference " + why}
		}
		limit *= ref.median
		out.ratio = v.median / ref.median
	}
	out.passed = v.median <= limit
	if b.atLeast {
		out.passed = v.median >= limit
	}
	return out
}

func (v verdict) String() string {
	word := "**FAIL**"
	switch {
	case v.why == "not measured":
		return v.why
	case v.why != "":
		return word + ": " + v.why
	case v.passed:
		word = "pass"
	}
	text := v.value.String()
	if v.ratio != 0 {
		text += fmt.Sprintf(" = %s ×", figure(v.ratio))
	}
	return text + " " + word
}

// writeBars prints a row for each bar. It says whether every bar holds on every shape.
func (r *results) writeBars(w io.Writer, lines []line, shapes []string) (all bool) {
	all = true
	row(w, append([]string{"line", "figure", "bar", "reference"}, shapes...)...)
	rule(w, 4+len(shapes))
	for _, l := range lines {
		for _, b := range l.bars {
			if b.of == shapeBefore && !slices.ContainsFunc(shapes, isBefore) {
				continue
			}
			cells := []string{l.what, unitOf(b.metric), b.String(), "–"}
			if ref, ok := r.metric(l.id, b.of, b.metric); ok {
				cells[3] = ref.String()
			}
			for _, shape := range shapes {
				if b.of != "" && (b.beside(shape) == shape || isBeside(shape) && !b.isReference()) {
					cells = append(cells, "–")
					continue
				}
				v := r.judge(l, b, shape)
				all = all && (v.passed || isBeside(shape))
				cells = append(cells, v.String())
			}
			row(w, cells...)
		}
	}
	return all
}

// writeAll prints every metric of every line that has been measured.
func (r *results) writeAll(w io.Writer, lines []line, shapes []string) {
	row(w, "line", "target", "figures", "CPU by process, cores", "peak memory, MiB", "packs behind", "CPU",
		"taken by others")
	rule(w, 8)
	for _, l := range lines {
		var targets []string
		for _, ref := range l.refs {
			targets = append(targets, ref.target)
		}
		for _, target := range append(targets, shapes...) {
			list := r.of(l.id, target)
			if len(list) == 0 {
				continue
			}
			var figures []string
			for _, name := range l.metrics() {
				if v, ok := r.metric(l.id, target, name); ok {
					figures = append(figures, fmt.Sprintf("%s %s", unitOf(name), v))
				}
			}
			if why := r.spoilReason(l.id, target); why != "" {
				figures = append(figures, "DOES NOT COUNT: "+why)
			}
			lag, model := 0.0, ""
			var others []float64
			for _, rec := range list {
				lag, model = max(lag, rec.Lag), rec.CPU
				others = append(others, math.Round(100*rec.Others))
			}
			meanwhile, _ := spreadOf(others)
			row(w, l.what, target, strings.Join(figures, "; "),
				r.byProcess(list, func(rec record) map[string]float64 { return rec.Cores }),
				r.byProcess(list, func(rec record) map[string]float64 { return rec.PeakMiB }), figure(lag), model,
				meanwhile.String()+" %")
		}
	}
}

func (r *results) byProcess(list []record, of func(record) map[string]float64) string {
	values := map[string][]float64{}
	for _, rec := range list {
		for name, v := range of(rec) {
			values[name] = append(values[name], v)
		}
	}
	var parts []string
	for name, v := range values {
		s, _ := spreadOf(v)
		parts = append(parts, name+" "+figure(s.median))
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return "–"
	}
	return strings.Join(parts, ", ")
}

// units are the harness' names as people read them.
var units = map[string]string{
	"cpu_s_per_M": "CPU s per million", "delivered_s": "deliveries/s", "events_per_read": "events per read",
	"wire_bytes_per_event": "bytes per event on the wire", "p50_ms": "p50 ms",
	"p99_ms": "p99 ms", "p999_ms": "p99.9 ms", "acked_s": "acknowledged ev/s", "published_s": "published ev/s",
	"harness_cores":    "harness cores",
	"rss_KiB_per_conn": "KiB per connection", "idle_cores": "idle cores", "cpu_us_per_connect": "CPU µs per connect",
	"connects_s": "connects/s",
	"replayed_s": "replayed ev/s", "ttlb_ms": "time to last byte ms", "complete_conns": "complete clients",
	"publisher_cpu_s_per_M": "publisher's CPU s per million",
	"log_bytes_per_event":   "bytes per event in the log", "archive_bytes_per_event": "bytes per event in the archive",
}

func unitOf(metric string) string {
	if u, ok := units[metric]; ok {
		return u
	}
	return metric
}

func row(w io.Writer, cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(c, "|", `\|`), "\n", " ")
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
}

func rule(w io.Writer, cells int) { fmt.Fprintf(w, "|%s\n", strings.Repeat("---|", cells)) }
