package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func open(t *testing.T, dir string) *results {
	t.Helper()
	r, err := openResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func with(t *testing.T, records ...record) *results {
	t.Helper()
	r := open(t, t.TempDir())
	for _, rec := range records {
		if err := r.add(rec); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func rec(round int, line, target string, metrics map[string]float64) record {
	return record{jobKey: jobKey{round, line, target}, Metrics: metrics}
}

// A bar without its reference among the line's targets could never be judged.
func TestPlanIsWhole(t *testing.T) {
	for _, short := range []bool{false, true} {
		seen := map[string]bool{}
		for _, l := range slices.Concat(scenarios(short), growth(short)) {
			if seen[l.id] {
				t.Errorf("two lines are %s", l.id)
			}
			seen[l.id] = true
			loads := 0
			for _, by := range []bool{l.sdk > 0, l.load != nil, len(l.args) > 0} {
				if by {
					loads++
				}
			}
			if loads != 1 {
				t.Errorf("%s is loaded by %d", l.id, loads)
			}
			for _, b := range l.bars {
				if b.of != "" && b.isReference() && !slices.ContainsFunc(l.refs,
					func(r reference) bool { return r.target == b.of }) {
					t.Errorf("%s is compared with %s, which is not measured", l.id, b.of)
				}
			}
			for _, name := range l.metrics() {
				if units[name] == "" {
					t.Errorf("%s: %s has no name for people", l.id, name)
				}
			}
		}
		for _, id := range []string{"s1-sse", "s1-ws", "s2", "s3-sse-19000", "s3-ws-5000", "s4-10000-50", "s4-100000-1",
			"s5-http-64", "s5-sdk-1",
			"watchers-10000", "runs-10000", "live-4"} {
			if !seen[id] {
				t.Errorf("no line is %s", id)
			}
		}
	}
}

func TestResultsSurviveAnInterruption(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir)
	good, bad := rec(1, "s2", shapeDev, map[string]float64{"p50_ms": 1}), record{jobKey: jobKey{1, "s2", shapeSplit},
		Err: "no answer"}
	for _, v := range []record{good, bad} {
		if err := r.add(v); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(dir, resultsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"round":2,"line":"s2","target":"dev","metr`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir)
	if !r.has(good.jobKey) {
		t.Error("a measurement is repeated")
	}
	if r.has(bad.jobKey) || r.has(jobKey{2, "s2", shapeDev}) {
		t.Error("what failed or was torn passes for measured")
	}
	after := rec(3, "s2", shapeDev, nil)
	if err := r.add(after); err != nil {
		t.Fatal(err)
	}
	if r = open(t, dir); !r.has(after.jobKey) || !r.has(good.jobKey) {
		t.Error("a line behind a torn one is lost")
	}
}

func TestFolderBelongsToOneBuild(t *testing.T) {
	dir := t.TempDir()
	one := subject{Agentstream: "a", Harness: "h"}
	for _, s := range []subject{one, one} {
		if err := open(t, dir).claim(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []subject{{Agentstream: "b", Harness: "h"}, {Agentstream: "a", Harness: "i"},
		{Agentstream: "a", Harness: "h", Short: true}} {
		if err := open(t, dir).claim(other); !errors.Is(err, errOtherSubject) {
			t.Errorf("%+v: %v", other, err)
		}
	}
}

func TestVerdicts(t *testing.T) {
	cpu := func(v float64) map[string]float64 { return map[string]float64{"cpu_s_per_M": v} }
	l := line{id: "x", refs: []reference{{target: "ref"}}}
	relative, absolute := times("cpu_s_per_M", 1.5, "ref"), atLeast("cpu_s_per_M", 2)
	r := with(t, rec(1, "x", "ref", cpu(1)), rec(2, "x", "ref", cpu(2)), rec(3, "x", "ref", cpu(9)),
		rec(1, "x", shapeDev, cpu(3)), rec(2, "x", shapeDev, cpu(2.9)), rec(3, "x", shapeDev, cpu(100)))
	if v := r.judge(l, relative, shapeDev); !v.passed || v.ratio != 1.5 || v.value.median != 3 {
		t.Errorf("the median at the bar: %+v", v)
	}
	if v := r.judge(l, times("cpu_s_per_M", 1.49, "ref"), shapeDev); v.passed || !strings.Contains(v.String(), "FAIL") {
		t.Errorf("above the bar: %v", v)
	}
	if v := r.judge(l, absolute, shapeDev); !v.passed {
		t.Errorf("at least: %v", v)
	}
	if v := r.judge(l, atLeast("cpu_s_per_M", 3.1), shapeDev); v.passed {
		t.Errorf("below the least: %v", v)
	}
	if v := r.judge(l, relative, shapeSplit); v.passed || v.String() != "not measured" {
		t.Errorf("nothing there: %v", v)
	}
	var table strings.Builder
	l.bars = []bar{absolute}
	if !r.writeBars(&table, []line{l}, []string{shapeDev}) ||
		r.writeBars(&table, []line{l}, []string{shapeDev, shapeSplit}) {
		t.Errorf("a shape that was not measured passes:\n%s", table.String())
	}
	for _, name := range mustBeZero {
		spoiled := with(t, rec(1, "x", "ref", cpu(1)), rec(1, "x", shapeDev, map[string]float64{"cpu_s_per_M": 1, name: 1}))
		if v := spoiled.judge(l, relative, shapeDev); v.passed || !strings.Contains(v.String(), name) {
			t.Errorf("%s does not spoil: %v", name, v)
		}
	}
	noRef := with(t, rec(1, "x", shapeDev, cpu(1)), record{jobKey: jobKey{1, "x", "ref"}, Err: "down"})
	if v := noRef.judge(l, relative, shapeDev); v.passed || !strings.Contains(v.String(), "down") {
		t.Errorf("without its reference: %v", v)
	}
}

// measured is a folder in which every cost of the model is known.
func measured(t *testing.T, c costs) *results {
	t.Helper()
	live := func(id string, watchers float64) record {
		const rate = 2000
		v := rec(1, id, shapeSplit, map[string]float64{"acked_s": rate})
		v.Cores = map[string]float64{"edge": rate * (c.post + watchers*c.deliver) / 1e6, "nats": 9, "persist": 9,
			"postgres": 9}
		return v
	}
	crowd := func(id string, watchers float64) record {
		const rate = 500
		v := rec(1, id, shapeSplit, map[string]float64{"published_s": rate})
		v.Cores = map[string]float64{"edge": rate * (7 + watchers*c.crowd) / 1e6}
		return v
	}
	s2 := rec(1, "s2", shapeSplit, map[string]float64{"acked_s": 1e4})
	s2.Cores = map[string]float64{"edge": 1, "nats": c.nats / 100, "persist": c.persist / 100,
		"postgres": c.postgres / 100}
	return with(t, live("live-1", 1), live("live-4", 4), crowd("watchers-100", 100), crowd("watchers-10000", 10_000), s2,
		rec(1, "s3-sse-19000", shapeSplit, map[string]float64{"rss_KiB_per_conn": c.sseKiB}),
		rec(1, "s3-ws-19000", shapeSplit, map[string]float64{"rss_KiB_per_conn": c.wsKiB}))
}

func TestCostsComeOutAsTheyWent(t *testing.T) {
	want := costs{post: 40, deliver: 12, crowd: 0.25, nats: 30, persist: 5, postgres: 8, sseKiB: 6, wsKiB: 7}
	r := measured(t, want)
	got, err := r.costsOf()
	if err != nil {
		t.Fatal(err)
	}
	for i, pair := range [][2]float64{{got.post, want.post}, {got.deliver, want.deliver}, {got.crowd, want.crowd},
		{got.nats, want.nats},
		{got.persist, want.persist}, {got.postgres, want.postgres}, {got.sseKiB, want.sseKiB}, {got.wsKiB, want.wsKiB}} {
		if math.Abs(pair[0]-pair[1]) > 1e-6 {
			t.Errorf("cost %d is %v, not %v", i, pair[0], pair[1])
		}
	}
	d := want.demandOf(deployment{watchers: 1_000_000, runs: 100_000, perRun: 2})
	for what, pair := range map[string][2]float64{"events": {d.events, 200_000},
		"deliveries": {d.deliveries, 2_000_000}, "edge": {d.edge, 32},
		"nats": {d.nats, 18}, "persist": {d.persist, 1}, "postgres": {d.postgres, 1.6},
		"memory": {d.edgeGiB, 6e6 / (1 << 20)}} {
		if math.Abs(pair[0]-pair[1]) > 1e-6 {
			t.Errorf("%s: %v, not %v", what, pair[0], pair[1])
		}
	}
	if n := d.edges(node{cores: 8, share: 0.5, gib: 16}); n != 8 {
		t.Errorf("32 cores are %d nodes of 4", n)
	}
	if n := d.edges(node{cores: 1000, share: 0.5, gib: 4}); n != 3 {
		t.Errorf("5.7 GiB are %d nodes of 2", n)
	}
	var parts []string
	for _, v := range want.ceilings(plainNode, 10) {
		parts = append(parts, v.part)
	}
	if got := strings.Join(parts, " "); got != "edge NATS PostgreSQL persister" {
		t.Errorf("full in the order %s", got)
	}
	delete(r.records, jobKey{1, "live-1", shapeSplit})
	if _, err := r.costsOf(); !errors.Is(err, errNotMeasured) {
		t.Errorf("without a line: %v", err)
	}
}

func TestGrowth(t *testing.T) {
	for _, v := range []struct {
		costs []float64
		want  float64
	}{
		{[]float64{9, 1, 1.1, 0.7}, 1.1}, // the first point is not held against the others
		{[]float64{1, 1, 1, 3}, 3},
		{[]float64{1, 2, 1}, 0.5},
	} {
		var points []point
		for i, c := range v.costs {
			points = append(points, point{float64(i), c})
		}
		if got, ok := growthOf(points); !ok || math.Abs(got-v.want) > 1e-9 {
			t.Errorf("%v grow %v times, not %v", v.costs, got, v.want)
		}
	}
	if _, ok := growthOf([]point{{1, 1}, {2, 1}}); ok {
		t.Error("two points are a curve")
	}
	curve := func(last float64) *results {
		return with(t, rec(1, "runs-1", shapeDev, map[string]float64{"cpu_s_per_M": 9}),
			rec(1, "runs-100", shapeDev, map[string]float64{"cpu_s_per_M": 1}),
			rec(1, "runs-10000", shapeDev, map[string]float64{"cpu_s_per_M": last}))
	}
	for last, word := range map[float64]string{1.2: "pass", 1.3: "FAIL"} {
		var text strings.Builder
		if curve(last).writeGrowth(&text, growth(false), []string{shapeDev}) {
			t.Error("a curve that was not measured passes")
		}
		if !strings.Contains(text.String(), "10,000: "+figure(last)) || !strings.Contains(text.String(), word) {
			t.Errorf("%v:\n%s", last, text.String())
		}
	}
}

// The page keeps what people wrote, and is refused when it has no place.
func TestFiguresGoBetweenTheMarks(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	for range 2 {
		if err := os.WriteFile(page, []byte("before\n"+markBegin+"\nold\n"+markEnd+"\nafter\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := putInto(page, "new\n"); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(page); string(b) != "before\n"+markBegin+"\nnew\n"+markEnd+"\nafter\n" {
			t.Fatalf("%s", b)
		}
	}
	if err := os.WriteFile(page, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := putInto(page, "new"); err == nil {
		t.Error("a page without marks is written")
	}
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "capacity.md"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(b), markBegin) != 1 || strings.Count(string(b), markEnd) != 1 {
		t.Error("docs/capacity.md has no place for its figures")
	}
}

func TestBusiestWindow(t *testing.T) {
	s := sampler{}
	at, cpu, nats := time.Unix(0, 0), 0.0, 0.0
	for i := range 100 { // ten seconds: half a core of edge from 6 s to 9 s, more before, nats always a tenth
		if i < 30 {
			cpu += 0.09
		}
		if i >= 60 && i < 90 {
			cpu += 0.05
		}
		nats += 0.01
		rss := 10.0
		if i == 50 {
			rss = 70
		}
		s.samples = append(s.samples, sample{at.Add(time.Duration(i) * 100 * time.Millisecond),
			map[string]float64{"edge": cpu, "nats": nats}, map[string]float64{"edge": rss}})
	}
	cores, peak := s.busiest(2 * time.Second)
	if math.Abs(cores["edge"]-0.5) > 1e-9 || math.Abs(cores["nats"]-0.1) > 1e-9 || peak["edge"] != 70 {
		t.Errorf("%v %v", cores, peak)
	}
	if cores, peak := s.busiest(0); len(cores) != 0 || peak["edge"] != 70 {
		t.Errorf("without a window %v %v", cores, peak)
	}
}

// A shape is held against what it was made of before, and one process against many; what was before, and the floor, are
// shown and decide nothing.
func TestBarsBetweenShapes(t *testing.T) {
	was := shapeDev + beforeSuffix
	metrics := func(v float64) map[string]float64 { return map[string]float64{"p50_ms": v} }
	r := with(t, rec(1, "x", was, metrics(10)), rec(1, "x", shapeDev, metrics(2)), rec(1, "x", shapeSplit, metrics(4)),
		rec(1, "x", shapeFloor, metrics(9)))
	l := line{id: "x", what: "x", bars: []bar{times("p50_ms", 1.5, shapeDev), times("p50_ms", 1.03, shapeBefore),
		atMost("p50_ms", 4)}}
	var table strings.Builder
	if r.writeBars(&table, []line{l}, []string{was, shapeDev}); !strings.Contains(table.String(),
		"| – | 2 = 0.2 × pass |") {
		t.Errorf("beside before:\n%s", &table)
	}
	if !strings.Contains(table.String(), "| 10 **FAIL** | 2 pass |") {
		t.Errorf("before is not shown:\n%s", &table)
	}
	table.Reset()
	if r.writeBars(&table, []line{l}, []string{shapeDev, shapeSplit}) ||
		!strings.Contains(table.String(), "| – | 4 = 2 × **FAIL** |") {
		t.Errorf("beside dev:\n%s", &table)
	}
	l.bars = l.bars[1:]
	table.Reset()
	if !r.writeBars(&table, []line{l}, []string{was, shapeFloor, shapeDev}) ||
		!strings.Contains(table.String(), "| 9 **FAIL** | 2 pass |") {
		t.Errorf("what was before decides, or the floor:\n%s", &table)
	}
	if lines := (options{only: "s2,pace-"}).selectLines(scenarios(false)); len(lines) != 5 ||
		lines[len(lines)-1].id != "s2" {
		t.Errorf("%d lines, of which one is s2 and four begin with pace-", len(lines))
	}
}

func TestWhatOthersTook(t *testing.T) {
	from := used{machine: 5, ours: 2, possible: 20}
	if v := (used{machine: 12, ours: 8, possible: 40}).others(from); v != 0.05 {
		t.Errorf("one second of twenty is %v", v)
	}
	if v := (used{machine: 12, ours: 10, possible: 40}).others(from); v != 0 {
		t.Errorf("less than nothing is %v", v)
	}
	if u := (&referee{}).busy(); u.possible <= 0 || u.machine <= 0 || u.machine > u.possible {
		t.Errorf("the machine was used for %+v", u)
	}
}

func TestSumOfAMetric(t *testing.T) {
	text := "# HELP lag x\nlag{stream=\"a b\"} 3\nlag{stream=\"c\"} 4.5\nlag_seconds{stream=\"c\"} 100\nlag 1e1\n"
	if v := sumOf(text, "lag"); v != 17.5 {
		t.Errorf("%v", v)
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.000123: "0.000123", 0.58123: "0.581", 12.34: "12.3", 999.4: "999",
		1234.5: "1,235",
		1e6:    "1,000,000", -1234: "-1,234", 2: "2", 1.5: "1.5"} {
		if got := figure(v); got != want {
			t.Errorf("%v is %s, not %s", v, got, want)
		}
	}
}

func TestOneMeasurementAtATime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	unlock, err := takeLock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
	defer cancel()
	if _, err := takeLock(ctx, file); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a lock that is held: %v", err)
	}
	unlock()
	again, err := takeLock(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
