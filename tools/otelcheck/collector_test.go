package otelcheck

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/fileprovider"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/exporter/otlphttpexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/batchprocessor"
	"go.opentelemetry.io/collector/processor/memorylimiterprocessor"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	lognats "agentstream/fanout/natsjs"
	"agentstream/internal/testkit"
	"agentstream/schema"
	"agentstream/schema/schematest"
	"agentstream/tap"
	"agentstream/tap/natsjs"
	"agentstream/tap/sink"
)

// kept is the exporter of the collector under test: it keeps what comes.
type kept struct {
	component.StartFunc
	component.ShutdownFunc
	consumertest.TracesSink
	metrics keptMetrics
}

// keptMetrics is the same for metrics.
type keptMetrics struct {
	component.StartFunc
	component.ShutdownFunc
	consumertest.MetricsSink
}

// newCollector returns a collector of its own modules, which exports to a kept, with a configuration.
func newCollector(t *testing.T, to *kept, config string) *otelcol.Collector {
	t.Helper()
	settings := otelcol.CollectorSettings{
		BuildInfo:               component.NewDefaultBuildInfo(),
		DisableGracefulShutdown: true,
		Factories: func() (f otelcol.Factories, err error) {
			type config = component.Config
			traces := func(context.Context, exporter.Settings, config) (exporter.Traces, error) { return to, nil }
			metrics := func(context.Context, exporter.Settings, config) (exporter.Metrics, error) {
				return &to.metrics, nil
			}
			keep := exporter.NewFactory(component.MustNewType("keep"), func() config { return &struct{}{} },
				exporter.WithTraces(traces, component.StabilityLevelStable),
				exporter.WithMetrics(metrics, component.StabilityLevelStable))
			f.Telemetry = otelconftelemetry.NewFactory()
			f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](otlpreceiver.NewFactory())
			if err != nil {
				return f, err
			}
			f.Processors, err = otelcol.MakeFactoryMap[processor.Factory](batchprocessor.NewFactory(),
				memorylimiterprocessor.NewFactory())
			if err != nil {
				return f, err
			}
			f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](keep, debugexporter.NewFactory(),
				otlphttpexporter.NewFactory())
			return f, err
		},
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs: []string{"file:" + config}, ProviderFactories: []confmap.ProviderFactory{fileprovider.NewFactory()}}},
	}
	c, err := otelcol.NewCollector(settings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestExampleConfiguration: the collector takes the configuration that is shipped.
func TestExampleConfiguration(t *testing.T) {
	if err := newCollector(t, &kept{}, "../../examples/otel/collector.yaml").DryRun(t.Context()); err != nil {
		t.Error(err)
	}
}

// start runs a collector until the test ends, and returns its addresses for gRPC and HTTP.
func start(t *testing.T, to *kept) (overGRPC, overHTTP string) {
	t.Helper()
	overGRPC, overHTTP = testkit.FreeAddr(t), testkit.FreeAddr(t)
	config := filepath.Join(t.TempDir(), "collector.yaml")
	text := fmt.Sprintf(`
receivers: {otlp: {protocols: {grpc: {endpoint: "%s"}, http: {endpoint: "%s"}}}}
processors: {batch: {timeout: 10ms}}
exporters: {keep: {}}
service:
  telemetry: {metrics: {level: none}, logs: {level: error}}
  pipelines:
    traces: {receivers: [otlp], processors: [batch], exporters: [keep]}
    metrics: {receivers: [otlp], exporters: [keep]}
`, overGRPC, overHTTP)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCollector(t, to, config)
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := c.Run(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		c.Shutdown()
		ended.Wait()
	})
	return overGRPC, overHTTP
}

// log is a log in NATS with one run.
type log struct {
	t      *testing.T
	server *testkit.Server
}

func (l *log) publish(packs []schema.Pack) {
	l.t.Helper()
	for _, p := range packs {
		subject := schema.Subject(p.Key, p.Child, l.server.Partitions)
		msg := &nats.Msg{Subject: subject, Header: p.Headers(), Data: p.Body}
		if _, err := l.server.JS.PublishMsg(l.t.Context(), msg); err != nil {
			l.t.Fatal(err)
		}
	}
}

// deliver runs one process of the tap until something is so.
func (l *log) deliver(to string, done func() bool) {
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
	defer func() { _ = s.Close() }()
	cfg := tap.Config{Spec: tap.Spec{Name: "traces"}, Sink: s, Linger: time.Millisecond, Retry: 50 * time.Millisecond}
	member, err := natsjs.Join(l.t.Context(), nc, cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- member.Run(ctx) }()
	for !done() {
		select {
		case err := <-ended:
			l.t.Fatal(err)
		case <-time.After(5 * time.Millisecond):
		}
	}
	stop()
	if err := <-ended; err != nil {
		l.t.Error(err)
	}
}

// spans returns what the collector has, by id, and a fault when two of one id differ.
func spans(to *kept) (all map[string]ptrace.Span, fault string) {
	all = map[string]ptrace.Span{}
	for _, data := range to.AllTraces() {
		for _, resource := range data.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					id := span.TraceID().String() + "/" + span.SpanID().String()
					have, twice := all[id]
					if twice && (have.Name() != span.Name() || have.EndTimestamp() != span.EndTimestamp()) {
						fault = "two of one id: " + id
					}
					all[id] = span
				}
			}
		}
	}
	return all, fault
}

func isPending(span ptrace.Span) bool {
	_, ok := span.Attributes().Get("agentstream.pending")
	return ok
}

// TestRunInACollector: a run of three nodes with a pause, an approval and a killed worker is one trace in a real
// collector, over both transports, although the tap is stopped again and again. What has begun is there before it
// ends.
func TestRunInACollector(t *testing.T) {
	text, err := os.ReadFile("../../tap/otlp/testdata/nodes.run")
	if err != nil {
		t.Fatal(err)
	}
	for _, over := range []string{"grpc", "http"} {
		t.Run(over, func(t *testing.T) {
			to := &kept{}
			overGRPC, overHTTP := start(t, to)
			address := "otlp+grpc://" + overGRPC
			if over == "http" {
				address = "otlp+http://" + overHTTP
			}
			l := &log{t, testkit.NATS(t)}
			packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: "run_1"}, schematest.Short(string(text)), 1)
			for i := 0; i < len(packs); i += 3 {
				part := packs[i:min(i+3, len(packs))]
				l.publish(part)
				last := part[len(part)-1]
				l.deliver(address, func() bool { return isThere(to, last) })
			}
			check(t, to)
			if n := to.metrics.DataPointCount(); n == 0 {
				t.Error("no metrics have come")
			}
		})
	}
}

// isThere reports whether the collector has what a pack begins or ends; true for a pack that does neither.
func isThere(to *kept, p schema.Pack) bool {
	all, _ := spans(to)
	want := map[schema.Seq]int{3: 2, 6: 4, 9: 6, 12: 8, 15: 9, 18: 10, 21: 13, 24: 15, 27: 18, 30: 20, 33: 22, 35: 24}
	return len(all) >= want[p.Last()]
}

// check compares what the collector has with the run.
func check(t *testing.T, to *kept) {
	t.Helper()
	all, fault := spans(to)
	if fault != "" {
		t.Error(fault)
	}
	traces, names := map[string]bool{}, map[string]int{}
	for _, span := range all {
		traces[span.TraceID().String()] = true
		_, ok := all[span.TraceID().String()+"/"+span.ParentSpanID().String()]
		if !ok && !span.ParentSpanID().IsEmpty() {
			t.Errorf("an orphan: %s", span.Name())
		}
		if !isPending(span) {
			names[span.Name()]++
		}
	}
	want := map[string]int{"invoke_agent": 2, "turn": 1, "task plan": 1, "task look": 1, "task write": 1,
		"chat small-1": 2, "chat large-1": 2, "execute_tool search": 1, "wait_for_input": 1}
	if len(traces) != 1 || fmt.Sprint(names) != fmt.Sprint(want) {
		t.Errorf("%d traces with %v, want %v", len(traces), names, want)
	}
}
