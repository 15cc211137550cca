package process

import (
	"time"

	"agentstream/internal/spans"
	"agentstream/persister"
)

// WithSpans returns hooks that also make spans of what a persister or a tap stores, of a given name, and of its outages. A
// nil tracer changes nothing.
func WithSpans(h persister.Hooks, t *spans.Tracer, name string) persister.Hooks {
	if t == nil {
		return h
	}
	stored, recovered := h.Stored, h.Recovered
	h.Stored = func(stream string, s persister.Stored) {
		if stored != nil {
			stored(stream, s)
		}
		t.Add(spans.Batch{Name: name, Stream: stream, Messages: s.Messages, Events: s.Inserted + s.Repeated + s.Dropped,
			Took: s.Took})
	}
	h.Recovered = func(stream string, outage time.Duration) {
		if recovered != nil {
			recovered(stream, outage)
		}
		t.Add(spans.Batch{Name: "outage", Stream: stream, Took: outage, Failed: true})
	}
	return h
}
