package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"agentstream/bench/plot"
)

// Marks between which a page carries what has been measured.
const markBegin, markEnd = "<!-- measured: begin -->", "<!-- measured: end -->"

// report writes the tables and pictures of what has been measured so far, and says whether all bars
// that were measured on all shapes hold. A page gets the scenarios, or how cost grows.
func (r *results) report(short bool, shapes []string, scenariosPage, growthPage string) (passed bool, err error) {
	lines, curves := scenarios(short), growth(short)
	passed = true
	if r.hasMeasured(lines) {
		var text bytes.Buffer
		passed = r.writeScenarios(&text, lines, shapes, short)
		err = os.WriteFile(filepath.Join(r.dir, "table.md"), slices.Concat([]byte("# Referee\n\n"), text.Bytes()), 0o644)
		if scenariosPage != "" {
			text.Reset()
			r.writeScenarios(&text, slices.DeleteFunc(slices.Clone(lines),
				func(l line) bool { return !r.hasMeasured([]line{l}) }), shapes, short)
			err = errors.Join(err, putInto(scenariosPage, text.String()))
		}
	}
	if r.hasMeasured(curves) {
		flat, err2 := r.reportGrowth(curves, short, shapes, growthPage)
		passed, err = passed && flat, errors.Join(err, err2)
	}
	return passed, errors.Join(err, r.draw(lines, curves, shapes))
}

// writeScenarios prints what there is of bars, figures and profiles. It reports whether every bar holds on every shape.
func (r *results) writeScenarios(w io.Writer, lines []line, shapes []string, short bool) bool {
	passed := r.writeBars(w, lines, shapes)
	fmt.Fprint(w, "\nAll figures:\n\n")
	r.writeAll(w, lines, shapes)
	if b, err := os.ReadFile(filepath.Join(r.dir, profilesFile)); err == nil {
		fmt.Fprintf(w, "\n%s", b)
	}
	fmt.Fprint(w, "\n"+machine(short))
	return passed
}

// hasMeasured reports whether there is a figure of one of the lines.
func (r *results) hasMeasured(lines []line) bool {
	for k := range r.records {
		for _, l := range lines {
			if l.id == k.Line {
				return true
			}
		}
	}
	return false
}

// reportGrowth writes capacity.md and puts the same into the page. What a capacity needs may be
// missing; the curves are then written without it, and the page stays as it is.
func (r *results) reportGrowth(curves []line, short bool, shapes []string, page string) (flat bool, err error) {
	var text bytes.Buffer
	capacity := r.writeCapacity(&text)
	if capacity != nil {
		text.Reset()
		fmt.Fprintf(&text, "No capacity: %s.\n", strings.ReplaceAll(capacity.Error(), "\n", "; "))
	}
	fmt.Fprint(&text, "\nCost growth:\n\n")
	flat = r.writeGrowth(&text, curves, shapes)
	if said := simulation(filepath.Join(r.dir, simulationFile)); said != "" {
		fmt.Fprint(&text, "\nSimulations:\n\n"+said)
	}
	fmt.Fprint(&text, "\n"+machine(short))
	if page != "" && capacity == nil {
		err = putInto(page, text.String())
	}
	fmt.Fprint(&text, "\n## All figures\n\n")
	r.writeAll(&text, curves, shapes)
	return flat, errors.Join(err, os.WriteFile(filepath.Join(r.dir, "capacity.md"), text.Bytes(), 0o644))
}

// simulationFile is the output of the tests that simulate many runs (go test -v), if it is there.
const simulationFile = "simulation.txt"

var logLine = regexp.MustCompile(`(?m)^ +[a-z0-9_]+_test\.go:[0-9]+: (.+)$`)

// simulation lists what the tests logged.
func simulation(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	var list strings.Builder
	for _, m := range logLine.FindAllSubmatch(b, -1) {
		fmt.Fprintf(&list, "- %s\n", m[1])
	}
	return list.String()
}

// putInto replaces what stands between the marks of a page.
func putInto(page, text string) error {
	b, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(b), markBegin)
	_, after, ok2 := strings.Cut(rest, markEnd)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no place for figures: %s … %s", page, markBegin, markEnd)
	}
	return os.WriteFile(page, []byte(before+markBegin+"\n"+strings.TrimSpace(text)+"\n"+markEnd+after), 0o644)
}

// machine describes what the figures are of.
func machine(short bool) string {
	length := ""
	if short {
		length = " Short rounds: the figures show that it works, nothing else."
	}
	return fmt.Sprintf("%d cores of %s, %s, %s. Load, servers and broker share them; loopback, file store, default sync.%s\n",
		runtime.NumCPU(), cpuModel(), kernel(), runtime.Version(), length)
}

func cpuModel() string { return procField("/proc/cpuinfo", "model name") }

func procField(file, name string) string {
	b, _ := os.ReadFile(file)
	for l := range strings.Lines(string(b)) {
		if k, v, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown " + name
}

func kernel() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "kernel " + strings.TrimSpace(string(b))
}

type drawing interface{ SVG(w io.Writer) error }

// draw makes a picture of each bar and each curve.
func (r *results) draw(lines, curves []line, shapes []string) error {
	pictures := map[string]drawing{}
	for _, l := range lines {
		for _, b := range l.bars {
			if b.of == shapeBefore || b.of == shapeDev {
				continue
			}
			pictures[l.id+"-"+b.metric] = r.bars(l, b, shapes)
		}
	}
	for name, chart := range r.curveCharts(curves, shapes) {
		pictures[name] = chart
	}
	var errs []error
	for name, p := range pictures {
		var svg bytes.Buffer
		if err := p.SVG(&svg); errors.Is(err, plot.ErrNothing) {
			continue
		} else if err != nil {
			errs = append(errs, fmt.Errorf("picture %s: %w", name, err))
			continue
		}
		errs = append(errs, os.WriteFile(filepath.Join(r.dir, name+".svg"), svg.Bytes(), 0o644))
	}
	return errors.Join(errs...)
}

// bars show the bar itself beside what was measured.
func (r *results) bars(l line, b bar, shapes []string) plot.Bars {
	p := plot.Bars{Title: l.what + ": " + unitOf(b.metric)}
	limit := b.limit
	for _, ref := range l.refs {
		if v, ok := r.metric(l.id, ref.target, b.metric); ok {
			p.Bars = append(p.Bars, plot.Bar{Label: ref.target, Value: v.median})
			if ref.target == b.of {
				limit *= v.median
			}
		}
	}
	measured := false
	for _, shape := range shapes {
		if v, ok := r.metric(l.id, shape, b.metric); ok {
			measured = true
			note := ""
			if why := r.spoilReason(l.id, shape); why != "" {
				note = "does not count: " + why
			}
			p.Bars = append(p.Bars, plot.Bar{Label: "agentstream " + shape, Value: v.median, Note: note})
		}
	}
	if !measured {
		return plot.Bars{}
	}
	p.Bars = append(p.Bars, plot.Bar{Label: "bar", Value: limit, Note: b.String()})
	return p
}
