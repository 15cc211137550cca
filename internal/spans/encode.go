package spans

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
)

// encode returns spans as the protocol has them.
func encode(service string, batch []sdk.ReadOnlySpan) *tracepb.TracesData {
	all := make([]*tracepb.Span, len(batch))
	for i, s := range batch {
		all[i] = encodeSpan(s)
	}
	resource := &resourcepb.Resource{Attributes: []*commonpb.KeyValue{encodeAttribute(attribute.String("service.name",
		service))}}
	scope := &tracepb.ScopeSpans{Scope: &commonpb.InstrumentationScope{Name: scopeName}, Spans: all}
	return &tracepb.TracesData{ResourceSpans: []*tracepb.ResourceSpans{{Resource: resource,
		ScopeSpans: []*tracepb.ScopeSpans{scope}}}}
}

// Bits of the flags of a span: it is sampled, and whether its parent is remote is known, and so.
const (
	flagSampled = 0x001
	flagKnown   = 0x100
	flagRemote  = 0x200
)

func encodeSpan(s sdk.ReadOnlySpan) *tracepb.Span {
	at, parent := s.SpanContext(), s.Parent()
	trace, id := at.TraceID(), at.SpanID()
	pb := &tracepb.Span{TraceId: trace[:], SpanId: id[:], Name: s.Name(), Kind: encodeKind(s.SpanKind()),
		StartTimeUnixNano: uint64(s.StartTime().UnixNano()), EndTimeUnixNano: uint64(s.EndTime().UnixNano()),
		Flags: flagSampled | flagKnown}
	if parent.HasSpanID() {
		above := parent.SpanID()
		pb.ParentSpanId = above[:]
		pb.Flags |= flagRemote
	}
	for _, a := range s.Attributes() {
		pb.Attributes = append(pb.Attributes, encodeAttribute(a))
	}
	if s.Status().Code == codes.Error {
		pb.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	}
	return pb
}

// encodeKind returns a kind of span as the protocol has it.
func encodeKind(k oteltrace.SpanKind) tracepb.Span_SpanKind {
	switch k {
	case oteltrace.SpanKindServer:
		return tracepb.Span_SPAN_KIND_SERVER
	case oteltrace.SpanKindConsumer:
		return tracepb.Span_SPAN_KIND_CONSUMER
	}
	return tracepb.Span_SPAN_KIND_INTERNAL
}

// encodeAttribute returns an attribute: a text or a number.
func encodeAttribute(a attribute.KeyValue) *commonpb.KeyValue {
	v := &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: a.Value.Emit()}}
	if a.Value.Type() == attribute.INT64 {
		v = &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: a.Value.AsInt64()}}
	}
	return &commonpb.KeyValue{Key: string(a.Key), Value: v}
}
