package spans

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Batch is work on events of many runs, which nobody has asked for.
type Batch struct {
	Name     string        // of the span
	Stream   string        // partition of the log; "": of a server that has them all
	Messages int           // of the log; 0: not known
	Events   int           // 0: none, or not known
	Took     time.Duration // until now
	Failed   bool
}

// Add adds the span of a batch that is over, if it is sampled: as many as of requests without a traceparent.
func (t *Tracer) Add(b Batch) {
	now := time.Now()
	_, span := t.tracer.Start(context.Background(), b.Name, oteltrace.WithSpanKind(oteltrace.SpanKindInternal),
		oteltrace.WithTimestamp(now.Add(-b.Took)))
	if !span.IsRecording() {
		return
	}
	if b.Stream != "" {
		span.SetAttributes(attribute.String("agentstream.stream", b.Stream))
	}
	if b.Messages > 0 {
		span.SetAttributes(attribute.Int("agentstream.messages", b.Messages))
	}
	if b.Events > 0 {
		span.SetAttributes(attribute.Int("agentstream.events", b.Events))
	}
	if b.Failed {
		span.SetStatus(codes.Error, "")
	}
	span.End(oteltrace.WithTimestamp(now))
}
