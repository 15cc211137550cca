package otlp

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/schema"
)

// openSpan is a span that is made. Its ids are known as long as its lane is, since others may name it as their parent.
type openSpan struct {
	pb    *tracepb.Span
	ended bool
	fault string   // error.type
	use   *chatUse // of a chat that has ended
	lost  bool     // something of its content was left out
}

// sampled are the flags of every span: it is sampled, and its parent is not remote.
const sampled = 0x101

// traceID returns the id of the trace that begins in a run at a seq. That of the run's beginning is 0, so that it is
// known also where the beginning is lost.
func traceID(key schema.RunKey, from schema.Seq) []byte {
	sum := sha256.Sum256(hashInput("trace", key, from, 0))
	return sum[:16]
}

// spanID returns the id of the nth span that a record of a run has begun.
func spanID(kind string, key schema.RunKey, seq schema.Seq, nth int) []byte {
	sum := sha256.Sum256(hashInput(kind, key, seq, nth))
	return sum[:8]
}

// hashInput returns what an id is the hash of. Names of tenants and runs have no zero bytes.
func hashInput(kind string, key schema.RunKey, seq schema.Seq, nth int) []byte {
	b := append([]byte("agentstream\x00"), kind...)
	b = append(append(b, 0), key.Tenant...)
	b = append(append(b, 0), key.Run...)
	b = binary.BigEndian.AppendUint64(append(b, 0), uint64(seq))
	return binary.BigEndian.AppendUint64(b, uint64(nth))
}

// open makes a span that begins with the record at hand. Without a parent it is the root of a trace.
func (t *tracer) open(parent *openSpan, l *laneSpans, name string, kind tracepb.Span_SpanKind) *openSpan {
	t.nth++
	pb := &tracepb.Span{SpanId: spanID("span", t.key, t.seq, t.nth), Name: clip(name, maxName), Kind: kind,
		StartTimeUnixNano: t.now, Flags: sampled}
	if parent != nil {
		pb.TraceId, pb.ParentSpanId = parent.pb.TraceId, parent.pb.SpanId
	}
	pb.Attributes = append(pb.Attributes, text("agentstream.tenant", t.key.Tenant),
		text("agentstream.run.id", t.key.Run), text("gen_ai.conversation.id", t.key.Run),
		number("agentstream.seq", int64(t.seq)))
	if l.child != "" {
		pb.Attributes = append(pb.Attributes, text("agentstream.child.id", l.child))
	}
	s := &openSpan{pb: pb}
	t.begun = append(t.begun, s)
	t.size += spanCost
	return s
}

// finish ends a span with the record at hand. It is made when the record is done, with what the rest of that says.
func (t *tracer) finish(s *openSpan) {
	if s == nil || s.ended {
		return
	}
	s.ended = true
	s.pb.EndTimeUnixNano = max(t.now, s.pb.StartTimeUnixNano)
	t.ends = append(t.ends, s)
	t.size -= spanCost + eventCost*len(s.pb.Events)
}

// settle makes the spans that the record at hand has begun and ended.
func (t *tracer) settle() {
	for _, s := range t.begun {
		if t.options.Pending && !s.ended {
			t.make(pendingOf(s.pb))
		}
	}
	for _, c := range t.full {
		c.openSpan.use = c.use(c.addTotals())
	}
	for _, s := range t.ends {
		if s.lost {
			s.add(truth("agentstream.truncated", true))
		}
		t.make(s.pb)
		t.out[len(t.out)-1].use = s.use
	}
	t.begun, t.ends, t.full = t.begun[:0], t.ends[:0], t.full[:0]
}

func (t *tracer) make(pb *tracepb.Span) { t.out = append(t.out, made{seq: t.seq, span: pb}) }

// pendingOf returns the marker that a span has begun. Backends keep the first or the last of two spans with one id,
// or both: so the marker has an id of its own, and is a child of the span that will come. Logfire reads the two
// attributes with its name.
func pendingOf(pb *tracepb.Span) *tracepb.Span {
	parent := "0000000000000000"
	if len(pb.ParentSpanId) > 0 {
		parent = hex.EncodeToString(pb.ParentSpanId)
	}
	id := sha256.Sum256(append([]byte("agentstream\x00pending\x00"), pb.SpanId...))
	return &tracepb.Span{TraceId: pb.TraceId, SpanId: id[:8], ParentSpanId: pb.SpanId, Name: pb.Name,
		Kind: tracepb.Span_SPAN_KIND_INTERNAL, Flags: sampled, Links: slices.Clone(pb.Links),
		StartTimeUnixNano: pb.StartTimeUnixNano, EndTimeUnixNano: pb.StartTimeUnixNano,
		Attributes: append(slices.Clone(pb.Attributes), truth("agentstream.pending", true),
			text("logfire.span_type", "pending_span"), text("logfire.pending_parent_id", parent))}
}

// fail sets the status of a span. typ is a class of errors, "" when nothing is known of it.
func (s *openSpan) fail(typ string) {
	if s.fault != "" {
		return
	}
	s.fault = cmp.Or(typ, "_OTHER")
	s.pb.Status = &tracepb.Status{Code: tracepb.Status_STATUS_CODE_ERROR}
	s.add(text("error.type", s.fault))
}

// maxEvents bounds the events of a span.
const maxEvents = 64

// note adds an event to a span that goes on.
func (t *tracer) note(s *openSpan, name string, attributes ...attribute) {
	if s == nil || s.ended {
		return
	}
	if len(s.pb.Events) == maxEvents {
		s.pb.DroppedEventsCount++
		return
	}
	s.pb.Events = append(s.pb.Events, &tracepb.Span_Event{TimeUnixNano: t.now, Name: name, Attributes: attributes})
	t.size += eventCost
}

// About how much memory a span and an event of it take, in bytes.
const (
	spanCost  = 2 << 10
	eventCost = 256
)

// unixNano returns a time as spans have it. Times before 1970 are none.
func unixNano(at time.Time) uint64 { return uint64(max(at.UnixNano(), 0)) }
