package schematest

import (
	"encoding/json"
	"strings"
	"testing"

	"agentstream/schema"
)

// Short reads a run that is written in short: one event per line, its type and payload, {} for none; "child:" before
// the type of a child's.
func Short(text string) (s Scenario) {
	for line := range strings.Lines(text) {
		typ, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		if typ == "" {
			continue
		}
		if payload == "" {
			payload = "{}"
		}
		e := schema.Event{Type: typ, Payload: json.RawMessage(payload)}
		if child, t, ok := strings.Cut(typ, ":"); ok {
			e.ChildID, e.Type, e.Path = child, t, []string{Root, child}
		}
		s.Events = append(s.Events, e)
	}
	return s
}

// Records returns a scenario as readers of the run Root get it.
func Records(tb testing.TB, s Scenario) []schema.Record {
	tb.Helper()
	return RecordsOf(tb, Root, s)
}

// RecordsOf returns a scenario as readers of a run get it.
func RecordsOf(tb testing.TB, run string, s Scenario) (out []schema.Record) {
	tb.Helper()
	events := NumberEvents(run, s)
	for i := range events {
		r, err := schema.ScanLine(events[i].AppendLine(nil))
		if err != nil {
			tb.Fatalf("event %d: %v", i+1, err)
		}
		out = append(out, r)
	}
	return out
}
