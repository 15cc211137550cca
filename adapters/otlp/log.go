package otlp

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"

	common "go.opentelemetry.io/proto/otlp/common/v1"
	logs "go.opentelemetry.io/proto/otlp/logs/v1"

	"agentstream/adapters/provider"
)

// LogType is the type of the event that keeps a log record of a span.
const LogType = "custom.otel.log"

// logPrefix is what the names of events of models begin with.
const logPrefix = "gen_ai."

// eventName returns the name of the event that a record is; older libraries have it among the attributes.
func eventName(r *logs.LogRecord) string {
	name := r.GetEventName()
	for _, kv := range r.GetAttributes() {
		if name == "" && kv.GetKey() == "event.name" {
			name = kv.GetValue().GetStringValue()
		}
	}
	return name
}

// KeepLog makes the payload of a log record. A record has no id, so one is made of what it says and of nth: how many
// equal ones stand before it in its request. ok is false for one that is no event of a model, or belongs to no span.
func KeepLog(scope string, r *logs.LogRecord, nth func(sum string) int) (k Kept, ok bool) {
	name := eventName(r)
	if !strings.HasPrefix(name, logPrefix) || !isID(r.GetTraceId(), traceBytes) || !isID(r.GetSpanId(), spanBytes) {
		return Kept{}, false
	}
	span := provider.Quote(hex.EncodeToString(r.SpanId))
	k = Kept{Trace: hex.EncodeToString(r.TraceId), Type: LogType}
	p := provider.Fields{{Name: "trace_id", Value: provider.Quote(k.Trace)}, {Name: "in_span", Value: span}}
	p = add(p, "name", provider.Quote(clip(name)))
	p = add(p, "time", nanos(cmp.Or(r.TimeUnixNano, r.ObservedTimeUnixNano)))
	p = add(p, "scope", provider.Quote(clip(scope)))
	b := &budget{left: maxValues}
	if members, isMap := r.GetBody().GetValue().(*common.AnyValue_KvlistValue); isMap {
		p = add(p, "body", b.values(members.KvlistValue.GetValues()))
	} else if r.GetBody() != nil {
		p = add(p, "text", b.fit("text", r.Body, jsonOf(r.Body, 0)))
	}
	p = append(add(p, "attributes", b.values(r.Attributes)), b.losses()...)
	sum := sha256.Sum256(p.Encode())
	k.ID = hex.EncodeToString(sum[:traceBytes])
	if n := nth(k.ID); n > 0 {
		k.ID += "-" + strconv.Itoa(n)
	}
	k.Payload = append(provider.Fields{{Name: "log_id", Value: provider.Quote(k.ID)}}, p...).Encode()
	return k, true
}

// FixLogIDs is FixIDs of a log record.
func FixLogIDs(r *logs.LogRecord) { r.TraceId, r.SpanId = fromHex(r.TraceId), fromHex(r.SpanId) }

// Record is a log record as it was kept.
type Record struct {
	Span string // the id of the span that it belongs to
	time uint64
	mark mark
}

// ParseRecord reads the payload of an event that KeepLog has made. What the body says stands among the attributes.
func ParseRecord(payload []byte) *Record {
	p, _ := provider.Parse(payload)
	l := &Record{Span: p.Str("in_span"), mark: mark{p.Str("name"), read(p.Object("attributes"))}}
	l.time, _ = strconv.ParseUint(p.Str("time"), 10, 64)
	for _, f := range p.Object("body") {
		l.mark.attributes[f.Name] = f.Value
	}
	return l
}

// attach adds to spans the records that belong to them, in the order of their times. It returns the model calls that
// were emitted without a message, and have messages now.
func (t *Translator) attach(list []*Record) (late []*treeSpan) {
	fresh := make(map[string]bool)
	for _, l := range list {
		t.logs[l.Span] = append(t.logs[l.Span], l)
		fresh[l.Span] = true
	}
	for _, id := range slices.Sorted(maps.Keys(fresh)) {
		s := t.spans[id]
		if s == nil {
			continue
		}
		t.readLogs(s)
		if s.kind != chatSpan || s.wrapper || s.exchange.size() > 0 {
			continue
		}
		s.exchange = exchangeOf(s.Span)
		if s.exchange.size() > 0 {
			late = append(late, s)
		}
	}
	return late
}

// readLogs moves the records of a span to its events.
func (t *Translator) readLogs(s *treeSpan) {
	list := t.logs[s.ID]
	delete(t.logs, s.ID)
	slices.SortStableFunc(list, func(a, b *Record) int { return cmp.Compare(a.time, b.time) })
	for _, l := range list {
		s.events = append(s.events, l.mark)
	}
}

// tellLate emits the messages of a model call whose beginning and end were told without them.
func (t *Translator) tellLate(s *treeSpan) {
	t.beginLane(s.lane, s.start)
	w := s.lane.writer(s.exchange.provider, s.ID)
	t.say(w, s.lane, s)
	asked := w.Drain()
	speak(asked)
	t.emit(s.start, asked...)
	s.exchange.usage = nil
	for _, m := range s.exchange.output {
		t.answer(w, s.lane, s, m, false)
	}
}
