package otlp_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	spans "agentstream/adapters/otlp"
	"agentstream/edge/edgetest"
	"agentstream/producers"
	"agentstream/protocols/otlp"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a log with a node that takes traces.
type world struct {
	t       *testing.T
	nodes   *edgetest.Nodes
	node    *edgetest.Node
	settler *otlp.Settler
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, nodes: edgetest.Share()}
	w.restart()
	return w
}

// restart replaces the node by another one, which remembers nothing.
func (w *world) restart() {
	w.t.Helper()
	if w.node != nil {
		w.node.Stop()
	}
	w.node = w.nodes.Start(w.t, otlp.New(otlp.Config{}).Protocol())
	app, err := producers.NewAppender(producers.AppenderConfig{Log: w.nodes.Log})
	if err != nil {
		w.t.Fatal(err)
	}
	w.settler = otlp.NewSettler(otlp.SettlerConfig{Log: w.nodes.Log, Appender: app, Settle: time.Nanosecond})
}

// post sends a body as it is.
func (w *world) post(body []byte, headers ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.node.Host+otlp.Path,
		bytes.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := w.node.HTTP.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(text)
}

// send sends spans, and expects that all are taken.
func (w *world) send(list ...*trace.Span) {
	w.t.Helper()
	resp, text := w.post(encode(w.t, list...))
	if resp.StatusCode != http.StatusOK || text != "" {
		w.t.Fatalf("%d %q", resp.StatusCode, text)
	}
}

// settle settles a trace.
func (w *world) settle(id string) {
	w.t.Helper()
	next, err := w.settler.Settle(w.t.Context(), schema.RunKey{Tenant: edgetest.Tenant, Run: spans.RunPrefix + id})
	if err != nil || !next.IsZero() {
		w.t.Fatal(next, err)
	}
}

// events are those of the run of a trace.
func (w *world) events(id string) (list []schema.Event) {
	w.t.Helper()
	for p, err := range w.nodes.Log.Since(context.Background(),
		schema.RunKey{Tenant: edgetest.Tenant, Run: spans.RunPrefix + id}, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				w.t.Fatal(err)
			}
			e, err := r.Event()
			if err != nil {
				w.t.Fatal(err)
			}
			list = append(list, e)
		}
	}
	return list
}

// story is what the run of a trace says: what was translated, without ids and numbers.
func (w *world) story(id string) string {
	var b strings.Builder
	for _, e := range w.events(id) {
		if e.Cause != "" {
			fmt.Fprintf(&b, "%s %s %s %s\n", e.TS, strings.TrimPrefix(e.ChildID, spans.RunPrefix+id), e.Type, e.Payload)
		}
	}
	return b.String()
}

// count counts the events of a type.
func (w *world) count(id, typ string) (n int) {
	for _, e := range w.events(id) {
		if e.Type == typ {
			n++
		}
	}
	return n
}

func encode(t *testing.T, list ...*trace.Span) []byte {
	t.Helper()
	b, err := proto.Marshal(&trace.TracesData{ResourceSpans: []*trace.ResourceSpans{{ScopeSpans: []*trace.ScopeSpans{{Spans: list}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func zip(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b)
	_ = z.Close()
	return out.Bytes()
}

// began is when the traces of tests begin.
var began = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// spanOf makes a span: its number is its id, and it lasts from one millisecond to another one. Attributes are names and
// values.
func spanOf(id string, n, parent, from, to int, name string, attributes ...any) *trace.Span {
	tid, _ := hex.DecodeString(id)
	s := &trace.Span{TraceId: tid, SpanId: []byte(fmt.Sprintf("%08d", n)), Name: name,
		StartTimeUnixNano: uint64(began.Add(time.Duration(from) * time.Millisecond).UnixNano()),
		EndTimeUnixNano:   uint64(began.Add(time.Duration(to) * time.Millisecond).UnixNano())}
	if parent > 0 {
		s.ParentSpanId = []byte(fmt.Sprintf("%08d", parent))
	}
	for i := 0; i < len(attributes); i += 2 {
		v := &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: fmt.Sprint(attributes[i+1])}}
		if n, isNumber := attributes[i+1].(int); isNumber {
			v.Value = &common.AnyValue_IntValue{IntValue: int64(n)}
		}
		s.Attributes = append(s.Attributes, &common.KeyValue{Key: attributes[i].(string), Value: v})
	}
	return s
}

// traceID is the id of the n-th trace of a test.
func traceID(n int) string { return fmt.Sprintf("%032x", n) }
