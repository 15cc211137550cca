package spans

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	w3c "agentstream/schema/trace"
)

// Sender hands spans to a collector. It is safe for concurrent use.
type Sender interface {
	// Send returns when the collector has them.
	Send(ctx context.Context, spans *tracepb.TracesData) error
}

// Config is what a Tracer needs. Sender is required.
type Config struct {
	Sender  Sender
	Service string        // service.name; default agentstream
	Ratio   float64       // of requests without a traceparent that are sampled, from 0 to 1
	Dropped func(n int)   // spans were dropped; nil is off
	Every   time.Duration // longest wait of a span until it is sent; default 2 s
	Logger  *slog.Logger  // nil discards
}

// Bounds of what waits for the collector, and of one request to it, in spans; and how long the last one may take.
const (
	maxWaiting = 4096
	maxBatch   = 512
	sendTime   = 10 * time.Second
)

// Tracer makes spans of requests.
type Tracer struct {
	cfg     Config
	tracer  oteltrace.Tracer
	waiting chan sdk.ReadOnlySpan
}

// New returns a Tracer, or an error about the configuration.
func New(cfg Config) (*Tracer, error) {
	if cfg.Sender == nil || !(cfg.Ratio >= 0 && cfg.Ratio <= 1) {
		return nil, fmt.Errorf("spans: config: want a sender, and a ratio from 0 to 1, not %v", cfg.Ratio)
	}
	cfg.Service, cfg.Every = cmp.Or(cfg.Service, "agentstream"), cmp.Or(cfg.Every, 2*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	t := &Tracer{cfg: cfg, waiting: make(chan sdk.ReadOnlySpan, maxWaiting)}
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(queue{t}), sdk.WithResource(nil),
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(cfg.Ratio))))
	t.tracer = provider.Tracer(scopeName)
	return t, nil
}

// scopeName is the instrumentation scope of the spans.
const scopeName = "agentstream/requests"

// Span is a request that is sampled.
type Span struct{ span oteltrace.Span }

// Open begins the span of a request that came with a traceparent, "" for none. It returns nil when the request is not
// sampled.
func (t *Tracer) Open(parent string) *Span { return t.open(parent, oteltrace.SpanKindServer) }

// OpenAnswer begins the span of work on a message that was stored with a traceparent, "" for none. It returns nil when
// that is not sampled.
func (t *Tracer) OpenAnswer(parent string) *Span { return t.open(parent, oteltrace.SpanKindConsumer) }

func (t *Tracer) open(parent string, kind oteltrace.SpanKind) *Span {
	ctx := context.Background()
	if p, ok := w3c.Parse(parent); ok {
		if !p.IsSampled() {
			return nil
		}
		ctx = oteltrace.ContextWithRemoteSpanContext(ctx, oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
			TraceID: p.Trace, SpanID: p.Span, TraceFlags: oteltrace.FlagsSampled, Remote: true}))
	}
	_, span := t.tracer.Start(ctx, "request", oteltrace.WithSpanKind(kind))
	if !span.IsRecording() {
		return nil
	}
	return &Span{span}
}

// TraceID returns the id of the trace, in hex.
func (s *Span) TraceID() string { return s.span.SpanContext().TraceID().String() }

// Traceparent returns what requests send that are made for this one.
func (s *Span) Traceparent() string {
	at := s.span.SpanContext()
	return w3c.Parent{Trace: at.TraceID(), Span: at.SpanID(), Flags: w3c.Sampled}.String()
}

// End is what became of a request.
type End struct {
	Name          string // of the span; default Route
	Method, Route string // a pattern, never the target
	Status        int    // of HTTP; 0: none
	RequestID     string
	Tenant, Run   string // "" where there is none
	Failed        bool   // it is the server's fault
}

// Close ends the span. Only the first call counts.
func (s *Span) Close(e End) {
	s.span.SetName(cmp.Or(e.Name, e.Route, "none"))
	all := make([]attribute.KeyValue, 0, 6)
	for _, a := range []struct{ key, v string }{{"http.request.method", e.Method}, {"http.route", e.Route},
		{"agentstream.request.id", e.RequestID}, {"agentstream.tenant", e.Tenant}, {"agentstream.run.id", e.Run}} {
		if a.v != "" {
			all = append(all, attribute.String(a.key, a.v))
		}
	}
	if e.Status != 0 {
		all = append(all, attribute.Int("http.response.status_code", e.Status))
	}
	s.span.SetAttributes(all...)
	if e.Failed {
		s.span.SetStatus(codes.Error, "")
	}
	s.span.End()
}

// queue is the processor of the SDK's spans. It never waits.
type queue struct{ of *Tracer }

// OnStart implements the SDK's SpanProcessor.
func (queue) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd implements the SDK's SpanProcessor.
func (q queue) OnEnd(s sdk.ReadOnlySpan) {
	select {
	case q.of.waiting <- s:
	default:
		q.of.drop(1)
	}
}

// Shutdown implements the SDK's SpanProcessor.
func (queue) Shutdown(context.Context) error { return nil }

// ForceFlush implements the SDK's SpanProcessor.
func (queue) ForceFlush(context.Context) error { return nil }

func (t *Tracer) drop(n int) {
	if h := t.cfg.Dropped; h != nil {
		h(n)
	}
}

// Run sends spans until ctx ends, and then those that wait. What a collector does not take in time is dropped.
func (t *Tracer) Run(ctx context.Context) error {
	tick := time.NewTicker(t.cfg.Every)
	defer tick.Stop()
	var batch []sdk.ReadOnlySpan
	for {
		select {
		case s := <-t.waiting:
			batch = append(batch, s)
			if len(batch) < maxBatch {
				continue
			}
		case <-tick.C:
		case <-ctx.Done():
			t.flush(ctx, batch)
			return nil
		}
		t.send(ctx, batch)
		batch = batch[:0]
	}
}

// flush sends what is left when the process ends.
func (t *Tracer) flush(ctx context.Context, batch []sdk.ReadOnlySpan) {
	for {
		select {
		case s := <-t.waiting:
			batch = append(batch, s)
			continue
		default:
		}
		t.send(context.WithoutCancel(ctx), batch)
		return
	}
}

func (t *Tracer) send(ctx context.Context, batch []sdk.ReadOnlySpan) {
	if len(batch) == 0 {
		return
	}
	once, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	if err := t.cfg.Sender.Send(once, encode(t.cfg.Service, batch)); err != nil {
		t.drop(len(batch))
		if !errors.Is(err, context.Canceled) {
			t.cfg.Logger.Warn("spans of requests are lost: the collector did not take them", "spans", len(batch), "err", err)
		}
	}
}
