package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentstream/bench/load"
)

// Shapes of the product.
const (
	shapeDev   = "dev"   // one process on embedded parts
	shapeSplit = "split" // nats-server, edge and persist; PostgreSQL apart
	shapeFloor = "floor" // package floor: what single events cost without the product
)

// beforeSuffix ends the name of a shape that is made of an earlier binary.
const beforeSuffix = "-before"

// shapeBefore as a bar's reference is the same shape made of the earlier binary.
const shapeBefore = "before"

func isBefore(shape string) bool { return strings.HasSuffix(shape, beforeSuffix) }

// isBeside reports whether a shape is only there to be compared with: no bar has to hold on it.
func isBeside(shape string) bool { return isBefore(shape) || shape == shapeFloor }

// isReference reports whether a bar compares with a target of the harness, and not with another shape.
func (b bar) isReference() bool { return b.of != shapeBefore && b.of != shapeDev }

// beside is the target that a shape is compared with.
func (b bar) beside(shape string) string {
	if b.of == shapeBefore {
		return shape + beforeSuffix
	}
	return b.of
}

// line is one thing that is measured, on the product and on its references.
type line struct {
	id, what string
	args     []string      // of the harness
	window   time.Duration // length of its timed part, for the CPU of single processes
	sdk      int           // not the harness: so many runs published through the SDK
	load     *load.Config  // not the harness: this load
	profile  bool          // a CPU profile is taken of the measured part
	disk     bool          // what an event takes on disk is measured as well
	bounded  bool          // dev keeps to the memory that it does by itself, which paces bulk: docs/scale.md, Memory
	sync     bool          // the log is written to the disk before it acknowledges
	nats     bool          // the harness publishes over NATS, as it does to the reference, not over HTTP
	refs     []reference
	bars     []bar
	show     []string // further metrics of the table
}

// single reports whether a line needs nothing but single events that come over HTTP and are watched.
func (l line) single() bool {
	many := slices.Contains(l.args, "s2") || l.load != nil && l.load.Scenario == load.ManyRuns
	return many && !l.nats && !l.profile
}

// reference is a target of the harness beside which a line is seen. Its arguments come after the
// line's own.
type reference struct {
	target string
	args   []string
}

// bar is a promise: metric at least, or at most, limit; with a reference, limit times that.
type bar struct {
	metric  string
	limit   float64
	of      string
	atLeast bool
}

func (b bar) String() string {
	sign := "≤"
	if b.atLeast {
		sign = "≥"
	}
	if b.of != "" {
		return fmt.Sprintf("%s %s × %s", sign, figure(b.limit), b.of)
	}
	return sign + " " + figure(b.limit)
}

func atMost(metric string, limit float64) bar { return bar{metric: metric, limit: limit} }
func atLeast(metric string, limit float64) bar {
	return bar{metric: metric, limit: limit, atLeast: true}
}
func times(metric string, limit float64, of string) bar {
	return bar{metric: metric, limit: limit, of: of}
}

// mustBeZero are the metrics that make a figure worthless when they are not zero.
var mustBeZero = []string{"lost", "gap", "dup", "dropped_conns", "puberr", "notsent"}

// scenarios are the lines with a promise.
func scenarios(short bool) []line {
	watch, rate := 4*time.Second, 6*time.Second
	if short {
		watch, rate = 2*time.Second, 2*time.Second
	}
	return slices.Concat(fanOut(watch), delayLines(rate), manyRuns(rate), streamLines(rate), idle(), replays(),
		single(watch), publishing(watch))
}

func fanOut(dur time.Duration) []line {
	args := func(mode string) []string {
		return []string{"-s", "s1", "-n", "1000", "-mode", mode, "-dur", dur.String()}
	}
	show := []string{"delivered_s", "events_per_read", "wire_bytes_per_event", "p99_ms"}
	return []line{
		{id: "s1-sse", what: "1 run, 1,000 SSE", args: args("sse"), window: dur, show: show,
			refs: []reference{{target: "limit-log"}},
			bars: []bar{times("cpu_s_per_M", 1.5, "limit-log"), times("cpu_s_per_M", 1.03, shapeBefore)}},
		{id: "s1-ws", what: "1 run, 1,000 WebSockets", args: args("ws"), window: dur, show: show,
			refs: []reference{{target: "limit-wslog"}}, bars: []bar{times("cpu_s_per_M", 2, "limit-wslog")}},
	}
}

func manyRunsAt(runs, subs, rate int, dur time.Duration) []string {
	return []string{"-s", "s2", "-channels", strconv.Itoa(runs), "-subs", strconv.Itoa(subs), "-rate",
		strconv.Itoa(rate), "-dur", dur.String()}
}

// besideDev are the bars of what a split shape may take longer than dev.
var besideDev = []bar{times("p50_ms", 1.5, shapeDev), times("p99_ms", 1.5, shapeDev)}

// delayLines are lines at a rate that leaves the machine room: what counts is the delay.
func delayLines(dur time.Duration) (list []line) {
	at := func(id, what string, runs, subs, rate int, bars ...bar) line {
		return line{id: id, what: fmt.Sprintf("%s, %s ev/s, a POST each", what, thousands(rate)), window: dur,
			args: manyRunsAt(runs, subs, rate, dur),
			show: []string{"acked_s", "p50_ms", "p99_ms", "cpu_s_per_M", "harness_cores"},
			refs: []reference{{target: "nats-js"}}, bars: bars}
	}
	for _, rate := range []int{100, 1000} {
		list = append(list, at(fmt.Sprintf("pace-1000-%d", rate), "1 run, 1,000 SSE", 1, 1000, rate))
	}
	return append(list,
		at("pace-500-2000", "500 runs × 2 watchers", 500, 2, 2000, append(besideDev, atMost("p99_ms", 10))...),
		at("pace-500-5000", "500 runs × 2 watchers", 500, 2, 5000,
			append(besideDev, times("cpu_s_per_M", 1.6, "nats-js"), atMost("p50_ms", 1), atMost("p99_ms", 25))...))
}

// single are acknowledged POSTs of one event, the publisher's worst case, and of few.
func single(dur time.Duration) (list []line) {
	for _, l := range []struct {
		id, what    string
		runs, batch int
		sync        bool
		bars        []bar
	}{
		{"one-1", "a POST an event", 1, 1, false, nil},
		{"one-64", "a POST an event", 64, 1, false, []bar{atLeast("acked_s", 25_000)}},
		{"16-64", "16 events a POST", 64, 16, false, []bar{atLeast("acked_s", 100_000)}},
		{"sync-64", "a POST an event, --sync always", 64, 1, true, nil},
	} {
		ref := "nats-js"
		if l.sync {
			ref = "nats-jssync"
		}
		list = append(list, line{id: "s5-" + l.id,
			what: fmt.Sprintf("acknowledged publish, %d run(s), %s", l.runs, l.what), sync: l.sync,
			args: []string{"-s", "s5", "-channels", strconv.Itoa(l.runs), "-batch", strconv.Itoa(l.batch), "-dur",
				dur.String()}, window: dur,
			show: []string{"acked_s", "cpu_s_per_M"}, refs: []reference{{target: ref}}, bars: l.bars})
	}
	return list
}

func manyRuns(dur time.Duration) (list []line) {
	for _, over := range []struct {
		id, how string
		nats    bool
	}{{"s2", "a POST each", false}, {"s2-nats", "over NATS", true}} {
		bars := []bar{times("p50_ms", 2, "nats-js"), times("p99_ms", 2, "nats-js"), times("cpu_s_per_M", 2, "nats-js")}
		if !over.nats {
			bars = append(append(bars, besideDev...), atLeast("acked_s", 9990), atMost("p50_ms", 4), atMost("p99_ms", 90))
		}
		list = append(list, line{id: over.id, what: "500 runs × 2 watchers, 10,000 ev/s, " + over.how, window: dur,
			nats: over.nats,
			args: manyRunsAt(500, 2, 10_000, dur), bars: bars,
			show: []string{"acked_s", "delivered_s", "p999_ms", "harness_cores"}, refs: []reference{{target: "nats-js"}}})
	}
	return list
}

func idle() (list []line) {
	for _, mode := range []string{"sse", "ws"} {
		limit := map[string]float64{"sse": 8, "ws": 10}[mode]
		for _, n := range []int{5000, 19000} {
			list = append(list, line{id: fmt.Sprintf("s3-%s-%d", mode, n),
				what: fmt.Sprintf("%s idle %s", thousands(n), transport(mode)),
				args: []string{"-s", "s3", "-n", strconv.Itoa(n), "-mode", mode},
				bars: []bar{atMost("rss_KiB_per_conn", limit), times("rss_KiB_per_conn", 1.03, shapeBefore)},
				show: []string{"idle_cores", "cpu_us_per_connect", "connects_s"}})
		}
	}
	return list
}

func transport(mode string) string {
	if mode == "ws" {
		return "WebSockets"
	}
	return "SSE"
}

func replays() (list []line) {
	for _, r := range []struct {
		events, clients int
		bar             bar
	}{
		{10_000, 1, atLeast("replayed_s", 400_000)},
		{10_000, 50, atLeast("replayed_s", 2_000_000)},
		{100_000, 1, atMost("ttlb_ms", 250)},
	} {
		args := []string{"-events", strconv.Itoa(r.events), "-k", strconv.Itoa(r.clients)}
		list = append(list, line{id: fmt.Sprintf("s4-%d-%d", r.events, r.clients),
			what: fmt.Sprintf("replay of %s events, %d client(s)", thousands(r.events), r.clients),
			args: append([]string{"-s", "s4"}, args...), show: []string{"replayed_s", "ttlb_ms", "cpu_s_per_M"},
			refs: []reference{{target: "nats-js", args: []string{"-s", "jsread"}}},
			bars: []bar{r.bar, {metric: "replayed_s", limit: 0.97, of: shapeBefore, atLeast: true},
				atLeast("complete_conns", float64(r.clients))}})
	}
	return list
}

func publishing(dur time.Duration) (list []line) {
	bulk := func(runs int) line {
		return line{id: fmt.Sprintf("s5-http-%d", runs),
			what: fmt.Sprintf("acknowledged publish, %d run(s), HTTP batches of 64", runs),
			args: []string{"-s", "s5", "-channels", strconv.Itoa(runs), "-batch", "64", "-depth", "1024", "-dur",
				dur.String()},
			window: dur, show: []string{"cpu_s_per_M"}, refs: []reference{{target: "nats-js"}},
			bars: []bar{atLeast("acked_s", 100_000)}}
	}
	list = append(list, bulk(1), bulk(64))
	bounded := bulk(64)
	bounded.id, bounded.what, bounded.bounded = "s5-memory-64", bounded.what+
		", within the memory that dev keeps to by itself", true
	bounded.refs, bounded.bars, bounded.show = nil, nil, []string{"acked_s", "cpu_s_per_M"}
	list = append(list, bounded)
	// Beside a client that waits for acknowledgements on one run, and beside many that do not on many. The
	// client library stalls for ever with one message that may be unanswered; with two it has one or two.
	for _, l := range []struct {
		runs         int
		depth        string
		least, times float64
	}{{1, "2", 120_000, 5}, {64, "1024", 300_000, 0.7}} {
		bare := []string{"-s", "s5", "-channels", strconv.Itoa(l.runs), "-batch", "1", "-depth", l.depth, "-dur",
			dur.String()}
		list = append(list, line{id: fmt.Sprintf("s5-sdk-%d", l.runs),
			what: fmt.Sprintf("acknowledged publish, %d run(s), SDK", l.runs), sdk: l.runs,
			window: dur, show: []string{"cpu_s_per_M", "publisher_cpu_s_per_M"},
			refs: []reference{{target: "nats-js", args: bare}},
			bars: []bar{atLeast("acked_s", l.least), {metric: "acked_s", limit: l.times, of: "nats-js", atLeast: true}}})
	}
	slices.SortStableFunc(list, func(a, b line) int { return a.sdk - b.sdk })
	return list
}

// A point of a curve of costs: its line's id is curve-x.
const (
	curveWatchers = "watchers" // of one run
	curveRuns     = "runs"     // at the same rate in all
	curveLive     = "live"     // watchers of each of 500 runs at a rate that leaves nothing to coalesce
)

// growth are the lines whose cost is to be flat.
func growth(short bool) (list []line) {
	dur := 5 * time.Second
	if short {
		dur = 2 * time.Second
	}
	for _, n := range []int{10, 100, 1000, 10_000} {
		list = append(list, line{id: fmt.Sprintf("%s-%d", curveWatchers, n),
			what: fmt.Sprintf("1 run, %s watchers", thousands(n)), window: dur,
			args: []string{"-s", "s1", "-n", strconv.Itoa(n), "-dur", dur.String()},
			show: []string{"cpu_s_per_M", "delivered_s", "published_s"}})
	}
	for _, n := range []int{1, 100, 10_000} {
		list = append(list, live(curveRuns, n, n, 1, dur))
	}
	for _, n := range []int{1, 4} {
		list = append(list, live(curveLive, n, 500, n, dur))
	}
	return list
}

// capacityNeeds are the scenarios without which a capacity cannot be computed. What is already measured in
// the folder is not measured again.
func capacityNeeds(lines []line) []line {
	return slices.DeleteFunc(lines, func(l line) bool { return !slices.Contains([]string{"s2", "s3-sse-19000", "s3-ws-19000"}, l.id) })
}

// live is 2,000 single events a second. The warm-up reaches every one of 10,000 runs.
func live(curve string, x, runs, watchers int, dur time.Duration) line {
	return line{id: fmt.Sprintf("%s-%d", curve, x),
		what: fmt.Sprintf("%s run(s) × %d watcher(s), 2,000 ev/s", thousands(runs), watchers), window: dur,
		args: []string{"-s", "s2", "-channels", strconv.Itoa(runs), "-subs", strconv.Itoa(watchers), "-rate", "2000",
			"-batch", "1",
			"-warm", "6s", "-dur", dur.String()},
		show: []string{"cpu_s_per_M", "delivered_s", "acked_s", "p50_ms", "p99_ms"}}
}
