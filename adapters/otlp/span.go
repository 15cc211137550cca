package otlp

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/adapters/provider"
)

// Type is the type of the event that keeps a span.
const Type = "custom.otel.span"

// Bounds of what is kept of a span.
const (
	maxValue  = 192 << 10 // bytes of one attribute
	maxValues = 400 << 10 // of all of them; an event has at most 512 KiB
	maxMarks  = 128       // events of a span, and links
	maxNames  = 64        // attributes that are named where they were cut
	maxDepth  = 32        // of a value within a value
	maxName   = 512       // bytes
)

// Bytes of the ids.
const (
	traceBytes = 16
	spanBytes  = 8
)

// Kept is a span, or a log record of one, on its way into the log.
type Kept struct {
	Trace, ID string
	Type      string // of the event
	Payload   json.RawMessage
}

// Origin is what the spans of one scope have in common.
type Origin struct {
	resource []*common.KeyValue
	scope    string
}

// OriginOf returns the origin of the spans of a scope. Both may be nil.
func OriginOf(of *trace.ResourceSpans, scope *trace.ScopeSpans) Origin {
	return Origin{resource: of.GetResource().GetAttributes(), scope: scope.GetScope().GetName()}
}

// Keep makes the payload of a span. ok is false for one without ids.
func Keep(from Origin, s *trace.Span) (k Kept, ok bool) {
	if !isID(s.GetTraceId(), traceBytes) || !isID(s.GetSpanId(), spanBytes) {
		return Kept{}, false
	}
	k = Kept{Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Type: Type}
	p := provider.Fields{{Name: "span_id", Value: provider.Quote(k.ID)},
		{Name: "trace_id", Value: provider.Quote(k.Trace)}}
	if isID(s.ParentSpanId, spanBytes) {
		p = add(p, "parent_id", provider.Quote(hex.EncodeToString(s.ParentSpanId)))
	}
	p = add(p, "name", provider.Quote(clip(s.Name)))
	p = add(p, "kind", provider.Number(int(s.Kind)))
	p = add(p, "start", nanos(s.StartTimeUnixNano))
	p = add(p, "end", nanos(s.EndTimeUnixNano))
	if st := s.GetStatus(); st.GetCode() != 0 || st.GetMessage() != "" {
		p = add(p, "status", provider.Fields{{Name: "code", Value: provider.Number(int(st.Code))},
			{Name: "message", Value: provider.Quote(clip(st.Message))}}.Encode())
	}
	p = add(p, "scope", provider.Quote(clip(from.scope)))
	b := &budget{left: maxValues}
	attributes := b.values(s.Attributes)
	p = add(p, "events", b.events(s.Events))
	p = add(p, "attributes", attributes)
	p = add(p, "resource", b.values(from.resource))
	p = append(add(p, "links", links(s.Links)), b.losses()...)
	k.Payload = p.Encode()
	return k, true
}

// FixIDs turns the ids of a span that was read as JSON into what they stand for: OTLP writes them in hex, where JSON of
// protobuf has base64. An id that is no hex becomes none.
func FixIDs(s *trace.Span) {
	s.TraceId, s.SpanId, s.ParentSpanId = fromHex(s.TraceId), fromHex(s.SpanId), fromHex(s.ParentSpanId)
	for _, l := range s.Links {
		l.TraceId, l.SpanId = fromHex(l.TraceId), fromHex(l.SpanId)
	}
}

// fromHex reads hex that was read as base64.
func fromHex(b []byte) []byte {
	id, err := hex.DecodeString(base64.StdEncoding.EncodeToString(b))
	if err != nil {
		return nil
	}
	return id
}

// isID reports whether an id has its length, and is not all zeros.
func isID(b []byte, n int) bool {
	return len(b) == n && slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}

// add adds a member that has a value.
func add(p provider.Fields, name string, value json.RawMessage) provider.Fields {
	if !provider.HasValue(value) {
		return p
	}
	return append(p, provider.Field{Name: name, Value: value})
}

// nanos writes a time, which no number of JSON holds.
func nanos(n uint64) json.RawMessage { return provider.Quote(strconv.FormatUint(n, 10)) }

// clip shortens a name.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxName)], "\uFFFD")
}

// links writes the links of a span.
func links(list []*trace.Span_Link) json.RawMessage {
	var out []json.RawMessage
	for _, l := range list[:min(len(list), maxMarks)] {
		out = append(out, provider.Fields{{Name: "trace_id", Value: provider.Quote(hex.EncodeToString(l.TraceId))},
			{Name: "span_id", Value: provider.Quote(hex.EncodeToString(l.SpanId))}}.Encode())
	}
	return provider.List(out)
}

// budget is the room that the values of a span have.
type budget struct {
	left  int
	cut   int // bytes that found none
	names []json.RawMessage
}

// events writes the events of a span.
func (b *budget) events(list []*trace.Span_Event) json.RawMessage {
	var out []json.RawMessage
	for _, e := range list[:min(len(list), maxMarks)] {
		p := provider.Fields{{Name: "name", Value: provider.Quote(clip(e.Name))},
			{Name: "time", Value: nanos(e.TimeUnixNano)}}
		out = append(out, add(p, "attributes", b.values(e.Attributes)).Encode())
	}
	if more := len(list) - len(out); more > 0 {
		b.omit("events", more)
	}
	return provider.List(out)
}

// values writes attributes in their order. The small ones get their room first.
func (b *budget) values(list []*common.KeyValue) json.RawMessage {
	type value struct {
		at   int
		text json.RawMessage
	}
	all := make([]value, 0, min(len(list), 1024))
	for i, kv := range list {
		if i == cap(all) {
			b.omit("attributes", len(list)-i)
			break
		}
		all = append(all, value{i, jsonOf(kv.GetValue(), 0)})
	}
	order := slices.Clone(all)
	slices.SortStableFunc(order, func(x, y value) int { return len(x.text) - len(y.text) })
	for _, v := range order {
		kv := list[v.at]
		all[v.at].text = b.fit(clip(kv.GetKey()), kv.GetValue(), v.text)
	}
	out := make(provider.Fields, 0, len(all))
	for _, v := range all {
		if v.text != nil {
			out = append(out, provider.Field{Name: clip(list[v.at].GetKey()), Value: v.text})
		}
	}
	return out.Encode()
}

// fit returns as much of a value as there is room for: of a text its beginning, of anything else all or nothing.
func (b *budget) fit(name string, v *common.AnyValue, text json.RawMessage) json.RawMessage {
	room := min(b.left-len(name), maxValue)
	if len(text) > room {
		b.omit(name, len(text)-max(room, 0))
		s, isText := v.GetValue().(*common.AnyValue_StringValue)
		if !isText || room < maxName {
			return nil
		}
		text = cutText(s.StringValue, room)
	}
	b.left -= len(name) + len(text)
	return text
}

// cutText writes the beginning of a text, in at most so many bytes.
func cutText(s string, room int) json.RawMessage {
	n := min(len(s), room-2)
	for {
		text := provider.Quote(strings.ToValidUTF8(s[:n], ""))
		if len(text) <= room {
			return text
		}
		n -= (len(text)-room)/6 + 1 // an escape has at most six bytes for one
	}
}

// omit counts what found no room.
func (b *budget) omit(name string, bytes int) {
	b.cut += bytes
	if len(b.names) < maxNames {
		b.names = append(b.names, provider.Quote(name))
	}
}

// losses returns what found no room, as members of a payload.
func (b *budget) losses() provider.Fields {
	if b.cut == 0 {
		return nil
	}
	return provider.Fields{{Name: "omitted", Value: provider.List(b.names)},
		{Name: "omitted_bytes", Value: provider.Number(b.cut)}}
}

// jsonOf writes a value as JSON.
func jsonOf(v *common.AnyValue, depth int) json.RawMessage {
	if depth > maxDepth {
		return provider.Quote("…")
	}
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return provider.Quote(strings.ToValidUTF8(v.StringValue, "\uFFFD"))
	case *common.AnyValue_BoolValue:
		return provider.Bool(v.BoolValue)
	case *common.AnyValue_IntValue:
		return strconv.AppendInt(nil, v.IntValue, 10)
	case *common.AnyValue_DoubleValue:
		if math.IsNaN(v.DoubleValue) || math.IsInf(v.DoubleValue, 0) {
			return provider.Quote(strconv.FormatFloat(v.DoubleValue, 'g', -1, 64))
		}
		return strconv.AppendFloat(nil, v.DoubleValue, 'g', -1, 64)
	case *common.AnyValue_BytesValue:
		return provider.Quote(base64.StdEncoding.EncodeToString(v.BytesValue))
	case *common.AnyValue_ArrayValue:
		var list []json.RawMessage
		for _, e := range v.ArrayValue.GetValues() {
			list = append(list, jsonOf(e, depth+1))
		}
		return provider.List(list)
	case *common.AnyValue_KvlistValue:
		var p provider.Fields
		for _, kv := range v.KvlistValue.GetValues() {
			p = append(p, provider.Field{Name: clip(kv.GetKey()), Value: jsonOf(kv.GetValue(), depth+1)})
		}
		return p.Encode()
	}
	return json.RawMessage("null")
}

// Span is a span as it was kept.
type Span struct {
	Trace, ID, Parent string
	Name, Scope       string
	Start, End        uint64 // nanoseconds since 1970
	Failed            bool
	Message           string // of the status
	attributes        attributes
	events            []mark
}

// fault returns why a span has failed.
func (s *Span) fault() string { return cmp.Or(s.Message, "the span ended with an error") }

// mark is an event of a span.
type mark struct {
	name       string
	attributes attributes
}

// Parse reads the payload of an event that Keep has made. Of anything else it returns what can be read.
func Parse(payload []byte) *Span {
	p, _ := provider.Parse(payload)
	s := &Span{Trace: p.Str("trace_id"), ID: p.Str("span_id"), Parent: p.Str("parent_id"), Name: p.Str("name"),
		Scope: p.Str("scope")}
	s.Start, _ = strconv.ParseUint(p.Str("start"), 10, 64)
	s.End, _ = strconv.ParseUint(p.Str("end"), 10, 64)
	s.End = max(s.Start, s.End)
	status := p.Object("status")
	s.Failed, s.Message = status.Index("code") == int(trace.Status_STATUS_CODE_ERROR), status.Str("message")
	s.attributes = read(p.Object("attributes"))
	for _, raw := range provider.Elements(p.Get("events")) {
		e, _ := provider.Parse(raw)
		m := mark{e.Str("name"), read(e.Object("attributes"))}
		s.events = append(s.events, m)
		if m.name == "exception" && s.Message == "" {
			s.Message = m.attributes.str("exception.message")
		}
	}
	return s
}

// IDOf returns the id of what an event of a type keeps, from its payload, whose attributes it does not read. ok is
// false for an event that keeps neither a span nor a log record.
func IDOf(typ string, payload []byte) (id string, ok bool) {
	name := "span_id"
	switch typ {
	case Type:
	case LogType:
		name = "log_id"
	default:
		return "", false
	}
	p, _ := provider.Parse(payload)
	return p.Str(name), true
}

// timeOf writes a time as events have it; "" for one that is none.
func timeOf(nanos uint64) string {
	if nanos == 0 || nanos > 1<<62 {
		return ""
	}
	return time.Unix(0, int64(nanos)).UTC().Format(time.RFC3339Nano)
}
