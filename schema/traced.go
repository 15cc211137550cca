package schema

import (
	"slices"

	"agentstream/schema/jsonscan"
	"agentstream/schema/trace"
)

// traceBytes is what a trace adds to an event's line: `,"trace":"…"`.
const traceBytes = 70

// WithTrace returns the event with a traceparent in the field trace of its envelope, as trace.Of returns one. An event
// stays as it is that has that field, that is a delta, of which there are many, and that would be too large.
func (e *Event) WithTrace(parent string) Event {
	out := *e
	info, err := Lookup(e.Type)
	if err != nil || info.Delta || e.size()+traceBytes > MaxEventBytes || e.hasExtra(trace.Field) {
		return out
	}
	out.Extra = slices.Clone(e.Extra)
	if len(out.Extra) > 0 {
		out.Extra = append(out.Extra, ',')
	}
	out.Extra = jsonscan.AppendString(append(out.Extra, `"`+trace.Field+`":`...), parent)
	return out
}

// Trace returns the traceparent with which the event came, in the form of trace.Of; "" when it has none, or what it has is
// none.
func (e *Event) Trace() (parent string) {
	if len(e.Extra) == 0 {
		return ""
	}
	whole := append(append([]byte{'{'}, e.Extra...), '}')
	_ = eachField(whole, func(name string, v []byte) error { // what cannot be read has none
		if name == trace.Field {
			parent, _ = unquote(v)
		}
		return nil
	})
	p, ok := trace.Parse(parent)
	if !ok {
		return ""
	}
	return p.String()
}

// hasExtra reports whether the envelope has an unknown field of that name.
func (e *Event) hasExtra(field string) bool {
	if len(e.Extra) == 0 {
		return false
	}
	found := false
	whole := append(append([]byte{'{'}, e.Extra...), '}')
	err := eachField(whole, func(name string, _ []byte) error {
		found = found || name == field
		return nil
	})
	return found || err != nil
}
