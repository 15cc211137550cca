package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/klauspost/compress/gzip"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/clitest"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/cmd/agentstream/internal/taps"
	"agentstream/internal/testkit"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
	"agentstream/schema/trace"
)

// spanCollector is a collector over HTTP that keeps the newest span of each name, by service.
type spanCollector struct {
	mu    sync.Mutex
	spans map[string]*tracepb.Span // of service, a space and name
	fault error
}

func (c *spanCollector) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	var data tracepb.TracesData
	z, err := gzip.NewReader(r.Body)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(z)
		err = errors.Join(err, proto.Unmarshal(body, &data))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.Header.Get("X-Key") != "hush" {
		err = errors.New("a request without the key")
	}
	c.fault = errors.Join(c.fault, err)
	for _, of := range data.ResourceSpans {
		service := of.Resource.Attributes[0].Value.GetStringValue()
		for _, span := range of.ScopeSpans[0].Spans {
			c.spans[service+" "+span.Name] = span
		}
	}
}

// names returns which spans have come, and span one of them.
func (c *spanCollector) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.spans))
}

func (c *spanCollector) span(name string) *tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spans[name]
}

// Roles that serve no requests have spans of their own: a worker of each answer, in the trace of the message and above
// the request to the model; persist and taps of each batch.
func TestSpansOfRoles(t *testing.T) {
	c := &spanCollector{spans: map[string]*tracepb.Span{}}
	collector := httptest.NewServer(c)
	defer collector.Close()
	asked := make(chan string, 1)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get(trace.Header)
		w.WriteHeader(http.StatusTeapot)
	}))
	defer upstream.Close()

	server, dsn := testkit.NATS(t), testkit.Postgres(t)
	at, pg := cli.NATSFlags{NATS: server.Server.ClientURL()}, cli.PostgresFlags{Postgres: dsn}
	quiet := slog.New(slog.DiscardHandler)
	c1 := MigrateCmd{NATSFlags: at, PostgresFlags: pg, Streams: cli.Streams{Out: io.Discard}}
	if err := c1.Run(t.Context(), quiet); err != nil {
		t.Fatal(err)
	}
	all := process.CollectorFlags{OTLP: "otlp+" + collector.URL, OTLPSample: 1}
	own := process.SpanFlags{CollectorFlags: all, OTLPHeaders: "X-Key: hush"}
	tap := &taps.RunCmd{Name: "all", From: "all", NATSFlags: at, AdminListen: "off", CollectorFlags: all,
		OTLPSpanHeaders: "X-Key: hush",
		SinkFlags:       taps.SinkFlags{To: []string{"file:" + filepath.Join(t.TempDir(), "out")}, OTLPHeaders: "X-Key: other"}}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for _, run := range []func(context.Context, *slog.Logger) error{
		(&WorkerCmd{NATSFlags: at, PostgresFlags: pg, AdminListen: "off", Tenant: []string{"acme"}, Places: 1, SpanFlags: own,
			ModelFlags: ModelFlags{Upstream: []string{"openai=" + upstream.URL}, Models: []string{"m"}}}).Run,
		(&PersistCmd{NATSFlags: at, PostgresFlags: pg, AdminListen: "off", SpanFlags: own,
			PriceFlags: PriceFlags{Prices: "none"}}).Run,
		tap.Run,
	} {
		group.Go(func() {
			if err := run(ctx, quiet); err != nil {
				t.Error(err)
			}
		})
	}
	defer group.Wait()
	defer stop()

	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	askWorker(t, server, parent)
	got, ok := trace.Parse(<-asked)
	want := []string{"agentstream-persist store", "agentstream-tap deliver", "agentstream-worker answer"}
	clitest.WaitFor(t, func() bool { return slices.Equal(c.names(), want) })
	span, above := c.span(want[2]), [8]byte{0x00, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7}
	if !ok || string(span.SpanId) != string(got.Span[:]) || string(span.TraceId) != string(got.Trace[:]) ||
		string(span.ParentSpanId) != string(above[:]) || !strings.HasPrefix(parent[3:], got.String()[3:35]) ||
		span.Kind != tracepb.Span_SPAN_KIND_CONSUMER || span.Status.GetCode() != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the model is asked with %s, of %v", got, span)
	}
	for _, name := range want[:2] {
		span := c.span(name)
		if span.Kind != tracepb.Span_SPAN_KIND_INTERNAL || len(span.ParentSpanId) > 0 || len(span.Attributes) != 3 ||
			span.EndTimeUnixNano-span.StartTimeUnixNano > uint64(time.Minute) {
			t.Errorf("%s: %v", name, span)
		}
	}
	if c.fault != nil {
		t.Error(c.fault)
	}
}

// askWorker writes a session with a message that came with a traceparent.
func askWorker(t *testing.T, server *testkit.Server, parent string) {
	t.Helper()
	l, err := pubjs.Open(t.Context(), server.Conn)
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: l})
	if err != nil {
		t.Fatal(err)
	}
	_, err = app.Append(t.Context(), schema.RunKey{Tenant: "acme", Run: "run_1"}, []schema.Event{
		{Type: schema.TypeSessionCreated, Actor: "user", Payload: json.RawMessage(`{"once":true,"model":"m"}`)},
		{Type: schema.TypeCommandMessage, Actor: "user", Payload: json.RawMessage(`{"content":"hello"}`)},
	}, producers.AppendOptions{Whole: true, Trace: parent})
	if err != nil {
		t.Fatal(err)
	}
}
