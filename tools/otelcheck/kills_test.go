package otelcheck

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/collector/pdata/ptrace"

	lognats "agentstream/fanout/natsjs"
	"agentstream/internal/testkit"
	"agentstream/schema"
	"agentstream/schema/schematest"
	"agentstream/tap"
	"agentstream/tap/natsjs"
	"agentstream/tap/sink"
)

// seenWithin is how soon what begins is to be in the collector.
const seenWithin = 2 * time.Second

// process is a member of the tap with a connection of its own.
type process struct {
	nc    *nats.Conn
	sink  tap.Receiver
	stop  context.CancelFunc
	ended chan error
}

// join starts a member, with the pauses of the command.
func (l *log) join(to string) *process {
	l.t.Helper()
	nc := l.server.Dial(l.t)
	history, err := lognats.Open(l.t.Context(), nc)
	if err != nil {
		l.t.Fatal(err)
	}
	s, err := sink.Open(l.t.Context(), []string{to}, sink.Options{OTLP: sink.OTLP{History: history}})
	if err != nil {
		l.t.Fatal(err)
	}
	cfg := tap.Config{Spec: tap.Spec{Name: "traces"}, Sink: s, Stale: 200 * time.Millisecond}
	member, err := natsjs.Join(l.t.Context(), nc, cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.t.Context())
	p := &process{nc: nc, sink: s, stop: stop, ended: make(chan error, 1)}
	go func() { p.ended <- member.Run(ctx) }()
	return p
}

// kill cuts a member off: it stores nothing any more, and nobody is told.
func (p *process) kill() {
	p.nc.Close()
	p.stop()
	<-p.ended
	_ = p.sink.Close()
}

// address starts a collector and returns where it takes spans.
func address(t *testing.T, to *kept) string {
	t.Helper()
	overGRPC, _ := start(t, to)
	return "otlp+grpc://" + overGRPC
}

// nodes are the packs of a run of three nodes, of one event each.
func nodes(t *testing.T, run string) []schema.Pack {
	t.Helper()
	text, err := os.ReadFile("../../tap/otlp/testdata/nodes.run")
	if err != nil {
		t.Fatal(err)
	}
	return schematest.Packs(schema.RunKey{Tenant: "acme", Run: run}, schematest.Short(string(text)), 1)
}

// TestBeginningsAreSeen: each step that begins is in the collector while it goes on, as soon as is promised.
func TestBeginningsAreSeen(t *testing.T) {
	to := &kept{}
	l := &log{t, testkit.NATS(t)}
	p := l.join(address(t, to))
	defer p.kill()
	markers := func() (n int) {
		all, _ := spans(to)
		for _, span := range all {
			if isPending(span) {
				n++
			}
		}
		return n
	}
	begins := map[string]bool{schema.TypeTurnStart: true, schema.TypeTaskStart: true, schema.TypeModelStart: true,
		schema.TypeToolStart: true, schema.TypeChildSpawn: true}
	var worst time.Duration
	want, steps := 0, 0
	for i, pack := range nodes(t, "run_1") {
		l.publish([]schema.Pack{pack})
		began := time.Now()
		typ := typeOf(t, &pack)
		if i > 0 && !begins[typ] {
			continue
		}
		want++
		steps++
		for markers() < want {
			if time.Since(began) > 20*seenWithin {
				t.Fatalf("%d markers of %d after %s", markers(), want, typ)
			}
			time.Sleep(time.Millisecond)
		}
		want = markers()
		worst = max(worst, time.Since(began))
	}
	if worst > seenWithin {
		t.Errorf("a step was seen after %v", worst)
	}
	t.Logf("%d beginnings, each seen within %v", steps, worst.Round(time.Millisecond))
}

// typeOf returns the type of a pack's one event.
func typeOf(t *testing.T, p *schema.Pack) string {
	t.Helper()
	for r, err := range p.Records(0) {
		if err != nil {
			t.Fatal(err)
		}
		return string(r.Type)
	}
	return ""
}

// TestKillsBeforeACollector: members die again and again while runs of three nodes, with a pause, an approval and a
// killed worker, are written. Each run is one trace, no span is without its parent, none is there in two forms. A tap
// that is removed and made again changes nothing. AGENTSTREAM_KILLS is how many die.
func TestKillsBeforeACollector(t *testing.T) {
	kills := 12
	if s := os.Getenv("AGENTSTREAM_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("AGENTSTREAM_KILLS=%q", s)
		}
		kills = n
	}
	to := &kept{}
	l := &log{t, testkit.NATS(t)}
	where := address(t, to)
	var all [][]schema.Pack
	for i := range 10 {
		all = append(all, nodes(t, fmt.Sprint("run_", i)))
	}
	each := len(all[0])
	p := l.join(where)
	for i := range kills {
		for n := i * each / kills; n < (i+1)*each/kills; n++ {
			for _, packs := range all {
				l.publish(packs[n : n+1])
			}
		}
		if i%2 == 0 {
			time.Sleep(rand.N(300 * time.Millisecond))
		} else { // when something has come, and perhaps before it is noted as delivered
			before := to.SpanCount()
			for began := time.Now(); to.SpanCount() == before && time.Since(began) < time.Second; {
				time.Sleep(time.Millisecond)
			}
		}
		p.kill()
		p = l.join(where)
	}
	const spansOfRun = 24
	complete := func() bool {
		have, _ := spans(to)
		return len(have) >= spansOfRun*len(all)
	}
	for deadline := time.Now().Add(time.Minute); !complete(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			have, _ := spans(to)
			t.Fatalf("%d spans of %d", len(have), spansOfRun*len(all))
		}
	}
	p.kill()
	before := one(t, to, len(all), spansOfRun)
	sent := to.SpanCount()
	places, err := natsjs.Open(t.Context(), l.server.Conn)
	if err == nil {
		err = places.Forget(t.Context(), l.server.JS, "traces")
	}
	if err != nil {
		t.Fatal(err)
	}
	p = l.join(where)
	for deadline := time.Now().Add(time.Minute); to.SpanCount() < sent+spansOfRun*len(all); {
		if time.Now().After(deadline) {
			t.Fatalf("%d spans were sent again of %d", to.SpanCount()-sent, spansOfRun*len(all))
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.kill()
	after := one(t, to, len(all), spansOfRun)
	for id := range after {
		if _, ok := before[id]; !ok {
			t.Errorf("a tap that was made again has added %s", id)
		}
	}
	t.Logf("%d kills: %d spans of %d runs, no orphan, none in two forms; %d were sent more than once by then", kills,
		len(before), len(all), sent-len(before))
}

// one holds what a collector has to its runs: each is a trace of so many spans, all with their parents.
func one(t *testing.T, to *kept, runs, each int) map[string]ptrace.Span {
	t.Helper()
	all, fault := spans(to)
	if fault != "" {
		t.Error(fault)
	}
	traces := map[string]int{}
	for _, span := range all {
		traces[span.TraceID().String()]++
		_, ok := all[span.TraceID().String()+"/"+span.ParentSpanID().String()]
		if !ok && !span.ParentSpanID().IsEmpty() {
			t.Errorf("an orphan: %s", span.Name())
		}
	}
	for id, n := range traces {
		if n != each {
			t.Errorf("trace %s has %d spans of %d", id, n, each)
		}
	}
	if len(traces) != runs {
		t.Errorf("%d traces of %d runs", len(traces), runs)
	}
	return all
}
