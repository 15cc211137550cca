package qoder

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

const testRun = "run_golden"

// shown is a frame as a client gets it.
type shown struct{ event, id, data string }

// said makes an event of a lane.
func said(child, typ, payload string) schema.Event {
	e := schema.Event{Type: typ, ChildID: child, Payload: json.RawMessage(payload)}
	if child != "" {
		e.Path = []string{schematest.Root, child}
	}
	return e
}

// scenario reads a log in short: one event per line, its type and payload, "child:" before those of a child.
func scenario(text string) schematest.Scenario {
	var s schematest.Scenario
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		typ, payload, _ := strings.Cut(line, " ")
		child := ""
		if c, t, ok := strings.Cut(typ, ":"); ok {
			child, typ = c, t
		}
		s.Events = append(s.Events, said(child, typ, payload))
	}
	return s
}

// records returns a scenario as the log holds it.
func records(t testing.TB, s schematest.Scenario) []schema.Record {
	t.Helper()
	return schematest.RecordsOf(t, testRun, s)
}

// feed returns the frames of records, those of each record in a list of their own when apart is not nil.
func feed(t testing.TB, p dialect.Projector, list []schema.Record) (all []shown) {
	t.Helper()
	var out dialect.Frames
	for _, r := range list {
		if err := p.Project(&out, r); err != nil {
			t.Fatalf("seq %d: %v", r.Seq, err)
		}
		for _, f := range out.List {
			if !json.Valid(f.Data) {
				t.Fatalf("seq %d: %s is no JSON", r.Seq, f.Data)
			}
			all = append(all, shown{string(f.Event), string(f.Token), string(f.Data)})
		}
		out.Reset()
	}
	return all
}

// projected returns the frames of a whole log in one form, as those of the session.
func projected(t testing.TB, increments bool, f form, list []schema.Record) []shown {
	t.Helper()
	return feed(t, Dialect{Increments: increments}.Projector(dialect.Request{Run: testRun, Form: f.key()}), list)
}

// brief writes frames without what all events have.
func brief(frames []shown) string {
	var b strings.Builder
	for _, f := range frames {
		data := f.data
		if i := strings.Index(data, `"schema_version":"1.0"`); i >= 0 {
			data = "{" + strings.TrimPrefix(data[i+len(`"schema_version":"1.0"`):], ",")
			data = strings.Replace(data, `"parent_tool_use_id":null,`, "", 1)
			data = strings.Replace(data, `,"parent_tool_use_id":null`, "", 1)
		}
		fmt.Fprintf(&b, "%s %s\n", f.event, data)
	}
	return b.String()
}
