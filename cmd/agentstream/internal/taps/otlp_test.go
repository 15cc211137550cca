package taps

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/internal/testkit"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// traces is a collector over HTTP that keeps spans by id.
type traces struct {
	mu    sync.Mutex
	spans map[string]*tracepb.Span
	fault error
}

func (c *traces) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var data tracepb.TracesData
	z, err := gzip.NewReader(r.Body)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(z)
		err = errors.Join(err, proto.Unmarshal(body, &data))
	}
	if err != nil || r.Header.Get("X-Key") != "hush" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range data.ResourceSpans[0].ScopeSpans[0].Spans {
		id := string(span.TraceId) + string(span.SpanId)
		if have := c.spans[id]; have != nil && !proto.Equal(have, span) {
			c.fault = errors.New("two of one id: " + have.String() + ", " + span.String())
		}
		c.spans[id] = span
	}
}

// count returns how many spans have come that are no markers, and those of them whose parent is not there.
func (c *traces) count() (ended int, orphans []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans {
		if strings.Contains(span.String(), "agentstream.pending") {
			continue
		}
		ended++
		if len(span.ParentSpanId) > 0 && c.spans[string(span.TraceId)+string(span.ParentSpanId)] == nil {
			orphans = append(orphans, span.Name)
		}
	}
	return ended, orphans
}

// TestSpansOfALog: a tap that goes on in the middle of a run, in another process, reads the run's beginning from the
// log again: what has begun before ends as it would have.
func TestSpansOfALog(t *testing.T) {
	server := testkit.NATS(t)
	key := schema.RunKey{Tenant: "acme", Run: "run_1"}
	packs := schematest.Packs(key, schematest.ByName("children"), 1)
	publish := func(packs []schema.Pack) {
		for _, p := range packs {
			subject := schema.Subject(p.Key, p.Child, server.Partitions)
			msg := &nats.Msg{Subject: subject, Header: p.Headers(), Data: p.Body}
			if _, err := server.JS.PublishMsg(t.Context(), msg); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole, parts := &traces{spans: map[string]*tracepb.Span{}}, &traces{spans: map[string]*tracepb.Span{}}
	follow := func(name string, to *traces, ready func() bool) {
		collector := httptest.NewServer(to)
		defer collector.Close()
		sinks := SinkFlags{To: []string{"otlp+" + collector.URL}, OTLPHeaders: "X-Key: hush"}
		at := cli.NATSFlags{NATS: server.Server.ClientURL()}
		run := RunCmd{Name: name, From: "all", SinkFlags: sinks, NATSFlags: at, AdminListen: "off",
			Linger: time.Millisecond}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- run.Run(ctx, slog.New(slog.DiscardHandler)) }()
		for !ready() {
			select {
			case err := <-ended:
				t.Fatal(err)
			case <-time.After(5 * time.Millisecond):
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	publish(packs[:25])
	follow("parts", parts, func() bool { n, _ := parts.count(); return n == 1 })
	publish(packs[25:])
	follow("whole", whole, func() bool { n, _ := whole.count(); return n == 9 })
	follow("parts", parts, func() bool { n, _ := parts.count(); return n == 9 })
	if _, orphans := parts.count(); len(orphans) > 0 || parts.fault != nil {
		t.Errorf("orphans %v, %v", orphans, parts.fault)
	}
	for id, span := range whole.spans {
		if !proto.Equal(span, parts.spans[id]) {
			t.Errorf("%v\nis other than\n%v", parts.spans[id], span)
		}
	}
	none := SinkFlags{To: []string{"otlp+http://127.0.0.1:1"}}
	types := RunCmd{Name: "types", Types: []string{"message.end"}, SinkFlags: none}
	err := types.Run(t.Context(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "--types") {
		t.Errorf("a part of a run's events: %v", err)
	}
}
