package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// costs are what one of each takes of each part, in µs of CPU, on the split shape.
type costs struct {
	post     float64 // edge: one event posted by itself
	deliver  float64 // edge: one event to one watcher, alone in its write
	crowd    float64 // edge: one event to one watcher of a crowd that reads many at a time
	nats     float64 // one event stored, copied and read by the persister
	persist  float64 // one event
	postgres float64 // one event
	sseKiB   float64 // edge: one idle watcher
	wsKiB    float64
}

var errNotMeasured = errors.New("not measured yet")

// costsOf reads them from the measurements. What single events cost comes from two lines that differ
// in nothing but the watchers of each run: the slope is a delivery, the rest is the post.
func (r *results) costsOf() (c costs, err error) {
	perEvent := func(line, process, per string) float64 {
		cores, ok1 := r.cores(line, shapeSplit, process)
		rate, ok2 := r.metric(line, shapeSplit, per)
		if !ok1 || !ok2 || rate.median == 0 || r.spoilReason(line, shapeSplit) != "" {
			err = errors.Join(err, fmt.Errorf("%s of %s: %w", process, line, errNotMeasured))
			return math.NaN()
		}
		return cores.median / rate.median * 1e6
	}
	one, four := perEvent("live-1", "edge", "acked_s"), perEvent("live-4", "edge", "acked_s")
	c.deliver = (four - one) / 3
	c.post = one - c.deliver
	few, many := perEvent("watchers-100", "edge", "published_s"), perEvent("watchers-10000", "edge", "published_s")
	c.crowd = (many - few) / 9900
	// At 10,000 events a second the fixed costs of a process weigh less than at 2,000.
	busy := "s2"
	if len(r.of(busy, shapeSplit)) == 0 {
		busy = "live-4"
	}
	c.nats = perEvent(busy, "nats", "acked_s")
	c.persist = perEvent(busy, "persist", "acked_s")
	c.postgres = perEvent(busy, "postgres", "acked_s")
	for line, to := range map[string]*float64{"s3-sse-19000": &c.sseKiB, "s3-ws-19000": &c.wsKiB} {
		v, ok := r.metric(line, shapeSplit, "rss_KiB_per_conn")
		if !ok {
			err = errors.Join(err, fmt.Errorf("memory of %s: %w", line, errNotMeasured))
		}
		*to = v.median
	}
	return c, err
}

// deployment is what is asked for.
type deployment struct {
	watchers, runs int
	perRun         float64 // events a second of each run
}

// node is one machine, of which only a part may be used.
type node struct {
	cores int
	share float64
	gib   float64
}

func (n node) usable() float64 { return float64(n.cores) * n.share }

// replicas of the log: each server of three stores everything.
const replicas = 3

// demand is what a load takes of each part, in cores, and of the edges' memory.
type demand struct {
	events, deliveries            float64 // a second
	edge, nats, persist, postgres float64
	edgeGiB                       float64
}

// demandOf assumes single events, which is the most that they can cost, and watchers spread evenly.
func (c costs) demandOf(l deployment) demand {
	d := demand{events: float64(l.runs) * l.perRun, deliveries: float64(l.watchers) * l.perRun}
	d.edge = (d.events*c.post + d.deliveries*c.deliver) / 1e6
	d.nats = replicas * d.events * c.nats / 1e6
	d.persist = d.events * c.persist / 1e6
	d.postgres = d.events * c.postgres / 1e6
	d.edgeGiB = float64(l.watchers) * c.sseKiB / (1 << 20)
	return d
}

// edges is how many nodes serve the clients: by CPU or by memory, whatever is more.
func (d demand) edges(n node) int {
	return max(1, nodesFor(d.edge, n.usable()), nodesFor(d.edgeGiB, n.gib*n.share))
}

func nodesFor(want, each float64) int { return int(math.Ceil(want/each - 1e-9)) }

// ceiling is what one node of a part carries.
type ceiling struct {
	part   string
	events float64 // a second
	beyond string
}

// ceilings begin with the part that is full first.
func (c costs) ceilings(n node, watchersPerRun float64) []ceiling {
	at := func(us float64) float64 { return n.usable() * 1e6 / us }
	list := []ceiling{
		{"edge", at(c.post + watchersPerRun*c.deliver), "more edges: they share nothing"},
		{"NATS", at(c.nats), "partitions on more servers: each stream is one group of three"},
		{"persister", at(c.persist), "more processes: they share each partition's consumer"},
		{"PostgreSQL", at(c.postgres), "a larger server, then a database for a part of the tenants"},
	}
	slices.SortFunc(list, func(a, b ceiling) int { return int(math.Copysign(1, a.events-b.events)) })
	return list
}

// What the page is asked for.
var (
	million   = deployment{watchers: 1_000_000, runs: 100_000}
	plainNode = node{cores: 8, share: 0.6, gib: 16}
	rates     = []float64{0.1, 0.5, 2, 10}
)

// writeCapacity prints what the measurements mean for a deployment.
func (r *results) writeCapacity(w io.Writer) error {
	c, err := r.costsOf()
	if err != nil {
		return err
	}
	fmt.Fprint(w, "What one of each costs, in the split shape:\n\n")
	row(w, "what", "of", "cost")
	rule(w, 3)
	for _, v := range []struct {
		what, of string
		cost     float64
		unit     string
	}{
		{"a million events, posted one by one", "edge", c.post, "CPU s"},
		{"", "NATS, one replica", c.nats, "CPU s"},
		{"", "persister", c.persist, "CPU s"},
		{"", "PostgreSQL", c.postgres, "CPU s"},
		{"a million deliveries, each event alone in its write", "edge", c.deliver, "CPU s"},
		{"a million deliveries to a crowd, many events in a write", "edge", c.crowd, "CPU s"},
		{"an idle SSE watcher", "edge", c.sseKiB, "KiB"},
		{"an idle WebSocket watcher", "edge", c.wsKiB, "KiB"},
	} {
		row(w, v.what, v.of, figure(v.cost)+" "+v.unit)
	}
	n := plainNode
	fmt.Fprintf(w, "\n%s watchers of %s live runs, on nodes of %d cores and %s GiB of which %s %% may be used:\n\n",
		thousands(million.watchers), thousands(million.runs), n.cores, figure(n.gib), figure(100*n.share))
	row(w, "events/s per run", "events/s", "deliveries/s", "edge cores", "edge GiB", "edges", "NATS cores (3 replicas)",
		"persister cores", "PostgreSQL cores")
	rule(w, 9)
	for _, rate := range rates {
		l := million
		l.perRun = rate
		d := c.demandOf(l)
		row(w, figure(rate), figure(d.events), figure(d.deliveries), figure(d.edge), figure(d.edgeGiB),
			strconv.Itoa(d.edges(n)),
			figure(d.nats), figure(d.persist), figure(d.postgres))
	}
	perRun := float64(million.watchers) / float64(million.runs)
	fmt.Fprintf(w, "\nWhat one such node carries of single events at %s watchers per run, the part that is full first above:\n\n", figure(perRun))
	row(w, "part", "events/s", "beyond that")
	rule(w, 3)
	for _, v := range c.ceilings(n, perRun) {
		row(w, v.part, figure(v.events), v.beyond)
	}
	return nil
}
