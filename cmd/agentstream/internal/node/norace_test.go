//go:build !race

package node

import (
	"bytes"
	"flag"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/internal/cputime"
	"agentstream/protocols/langgraph"
	"agentstream/protocols/metis"
	"agentstream/protocols/nimi"
	"agentstream/protocols/otlp"
	"agentstream/protocols/qoder"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/schematest"
)

var (
	growthSize = flag.Int("growth", 600, "things in the smallest run of TestEveryEventCostsTheSame")
	growthOf   = flag.String("growth.of", "", "regular expression: which runs and readers it looks at")
	growthAll  = flag.Bool("growth.all", false,
		"it looks at every kind with every reader and at every mix: a quarter of an hour; without it at one pair of eight, another reader for each kind")
)

// requests are the forms in which each dialect shows a run. A dialect whose frames are records has none.
func requests(t *testing.T) map[string]map[string]dialect.Request {
	t.Helper()
	const run = schematest.Root
	older, err := langgraph.Legacy{Thread: run, Subgraphs: true, LastEventID: "-1"}.Request()
	if err != nil {
		t.Fatal(err)
	}
	sub, err := langgraph.ParseSubscribe([]byte(`{"channels":["lifecycle","messages","tools","input","values","updates","checkpoints","tasks","custom"]}`))
	if err != nil {
		t.Fatal(err)
	}
	thread, err := sub.Request(run, "")
	if err != nil {
		t.Fatal(err)
	}
	of := func(stream string) dialect.Request { return dialect.Request{Run: run, Stream: stream} }
	return map[string]map[string]dialect.Request{
		"native": {},
		"qoder":  {"session": qoder.Request(run, "")},
		"metis": {"events": metis.EventsRequest(run, metis.Filter{Workers: true}),
			"messages": metis.MessagesRequest(run)},
		"langchain": {"events": thread, "runs": older, "messages": langgraph.MessagesRequest(run)},
		"ai-sdk":    {"chat": {Run: run, Stream: "chat", Form: "all"}},
		"openai":    {"events": {Run: run, Span: "1"}},
		"ag-ui":     {"watch": {Run: run, Form: "all"}},
		"runtime": {"job": of(nimi.StreamJob), "workflow": of(nimi.StreamWorkflow), "scenario": of(nimi.StreamScenario),
			"realtime": of(nimi.StreamRealtime), "agent": of(nimi.StreamAgent)},
	}
}

// grower reads runs.
type grower struct {
	name string
	read func(*testing.T, []schema.Record)
	deep bool // of every mix as well: it makes no frames, which cost more than what is to be seen
}

func growers(t *testing.T) (all []grower) {
	t.Helper()
	all = []grower{
		{"fold", func(_ *testing.T, list []schema.Record) {
			var f schema.Fold
			for _, r := range list {
				f.AddRecord(r)
			}
			f.AppendSnapshot(nil)
		}, true},
		{"assemble", func(t *testing.T, list []schema.Record) {
			a := assemble.New(assemble.Limits{Message: 384 << 10, All: 4 << 20, Text: 256 << 10, Texts: 4 << 20})
			for _, r := range list {
				if _, err := a.Next(r); err != nil {
					t.Fatal(err)
				}
			}
		}, true},
	}
	known := requests(t)
	for _, p := range (&ListenFlags{}).protocols(otlp.New(otlp.Config{})) {
		name := p.Dialect.Info().Name
		forms, ok := known[name]
		if !ok && len(p.AllStreams()) > 0 { // one without streams shows no run
			t.Errorf("no form of the dialect %s is looked at", name)
		}
		if _, ok := p.Dialect.Projector(dialect.Request{}).(dialect.Stateful); ok {
			all = append(all, grower{name, projects(p.Dialect, dialect.Request{}, false), true})
		}
		for form, req := range forms {
			all = append(all, grower{name + " " + form, projects(p.Dialect, req, true), false})
		}
	}
	return all
}

// projects makes the frames of records, or only feeds them to a projector.
func projects(d dialect.Dialect, req dialect.Request, shown bool) func(*testing.T, []schema.Record) {
	return func(t *testing.T, list []schema.Record) {
		p := d.Projector(req)
		var frames *dialect.Frames
		if shown {
			frames = new(dialect.Frames)
		}
		for _, r := range list {
			if err := p.Project(frames, r); err != nil {
				t.Fatal(err)
			}
			if shown {
				frames.Reset()
			}
		}
	}
}

// twice is how much more a run of twice the size may cost. It is 2 when an event costs the same whatever came before, 4
// when it costs as much as all that is open.
const twice = 2.3

// TestEveryEventCostsTheSame: in every dialect, in the fold and in the reading of a run an event costs the same,
// however much is open, has ended or waits.
func TestEveryEventCostsTheSame(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it works when it likes
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30))
	readers, mixes := growers(t), schematest.Mixes()
	for i, g := range schematest.Growths() {
		growing(t, g, sample(readers, i))
	}
	readers = slices.DeleteFunc(readers, func(r grower) bool { return !r.deep })
	for i, g := range mixes {
		if *growthAll || (i+i/8)%64 == 0 { // another pair of kinds each time
			growing(t, g, sample(readers, i))
		}
	}
}

// sample returns one reader of eight, another for each kind, or all of them.
func sample(readers []grower, kind int) (some []grower) {
	for i, r := range readers {
		if *growthAll || (i+kind)%8 == 0 {
			some = append(some, r)
		}
	}
	return some
}

// growing reads runs of a kind of three sizes. Where one costs too much, larger ones are read before that is believed:
// what an event costs with all that is open costs more and more, while runs that leave the caches do so once.
func growing(t *testing.T, g schematest.Growth, readers []grower) {
	t.Helper()
	only := regexp.MustCompile(*growthOf)
	var runs [3][]schema.Record
	runtime.GC()
	for _, r := range readers {
		if !only.MatchString(g.Name + ": " + r.name) {
			continue
		}
		if runs[0] == nil {
			runs = sizes(t, g, *growthSize)
		}
		took, ok := grows(t, r, runs)
		if ok {
			continue
		}
		if larger, ok := grows(t, r, sizes(t, g, 4**growthSize)); !ok {
			t.Errorf("%s: %s takes %v, and then %v", g.Name, r.name, took, larger)
		}
	}
}

// sizes makes a run, and two that are each twice as large as the one before.
func sizes(t *testing.T, g schematest.Growth, n int) (runs [3][]schema.Record) {
	t.Helper()
	for k := range runs {
		runs[k] = schematest.Records(t, schematest.Scenario{Events: g.Make(n << k)})
	}
	return runs
}

const (
	// tries is how often a run is read at most before its cost is judged.
	tries = 11
	// short is what is too short to be measured.
	short = 200 * time.Microsecond
)

// remember is what costs an event the same by its making: it keeps a copy of each record in a map.
func remember(_ *testing.T, list []schema.Record) {
	kept := map[schema.Seq][]byte{}
	for _, r := range list {
		scanned, _ := schema.ScanLine(r.Line) // it was scanned before
		kept[scanned.Seq] = bytes.Clone(scanned.Line)
	}
}

// grows reports whether the cost grows as the runs do, each of which is twice as large as the one before, and the
// median of each. It reads them again until that is so: other work on the machine changes a single figure. What it
// takes from the caches makes larger runs dearer for some time; so a reader is compared with remember then, which is
// read in turn with it.
func grows(t *testing.T, r grower, runs [3][]schema.Record) (took [3]time.Duration, ok bool) {
	t.Helper()
	var all, plain [3][]time.Duration
	median := func(of *[3][]time.Duration, k int, read func(*testing.T, []schema.Record)) float64 {
		of[k] = append(of[k], cputime.Of(func() { read(t, runs[k]) }))
		slices.Sort(of[k])
		return float64(of[k][len(of[k])/2])
	}
	for try := range tries {
		var reader, reference [3]float64
		for k := range runs {
			reader[k] = median(&all, k, r.read)
			if try > 0 {
				reference[k] = median(&plain, k, remember)
			}
			took[k] = time.Duration(reader[k])
		}
		most := twice * twice
		if try > 0 {
			most *= max(1, reference[2]/reference[0]/4)
		}
		if reader[2] <= most*reader[0] {
			return took, true
		}
	}
	return took, took[2] < short
}
