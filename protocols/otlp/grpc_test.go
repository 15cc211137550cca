package otlp_test

import (
	"strings"
	"testing"

	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	spans "agentstream/adapters/otlp"
	"agentstream/protocols/otlp"
)

// TestGRPC sends spans over gRPC, as exporters do, compressed: they are those of HTTP, and refusals are statuses.
func TestGRPC(t *testing.T) {
	w := newWorld(t)
	cc, err := grpc.NewClient(w.node.Host, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	id := traceID(3)
	bad := spanOf(id, 9, 0, 0, 1, "x")
	bad.SpanId = nil
	export := func(caller string, list ...*trace.Span) (string, error) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "test-caller", caller)
		request := &trace.TracesData{ResourceSpans: []*trace.ResourceSpans{{ScopeSpans: []*trace.ScopeSpans{{Spans: list}}}}}
		got := new(emptypb.Empty) // whose unknown fields are those of the response
		err := cc.Invoke(ctx, otlp.RPC, request, got, grpc.UseCompressor(gzip.Name))
		return string(got.ProtoReflect().GetUnknown()), err
	}
	list := []*trace.Span{chat(id, 2, 1, 1, 2, "q", strings.Repeat("a", 100<<10), ""),
		spanOf(id, 1, 0, 0, 9, "a", "gen_ai.operation.name", "invoke_agent")}
	if got, err := export("tenant:acme", list...); err != nil || got != "" {
		t.Errorf("%q %v", got, err)
	}
	if got, err := export("tenant:acme", append(list, bad)...); err != nil || !strings.Contains(got, "1 refused") {
		t.Errorf("%q %v", got, err)
	}
	if n := w.count(id, spans.Type); n != 2 {
		t.Errorf("%d spans are stored of 2", n)
	}
	w.settle(id)
	if story := w.story(id); !strings.Contains(story, "aaaa") {
		t.Error(story)
	}
	for caller, want := range map[string]codes.Code{"nobody": codes.Unauthenticated, "may:read": codes.PermissionDenied} {
		if _, err := export(caller, list...); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", caller, err, want)
		}
	}
	if _, err := export("tenant:other", list...); err != nil {
		t.Error(err)
	}
	if n := w.count(id, spans.Type); n != 2 {
		t.Errorf("another tenant has changed the run: %d spans", n)
	}
}
