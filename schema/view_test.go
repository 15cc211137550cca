package schema_test

import (
	"errors"
	"strings"
	"testing"

	"agentstream/schema"
)

// An event may be nested as deep as an event may be, and its run has a snapshot all the same, which
// can be read by itself and as the event of a stream.
func TestSnapshotOfTheDeepestEvent(t *testing.T) {
	const depth = 126 // of the input: the event and its payload are two more
	input := strings.Repeat("[", depth) + strings.Repeat("]", depth)
	line := func(typ, payload string) []byte {
		return []byte(`{"id":"evt_1","ts":"2026-01-01T00:00:00Z","type":"` + typ +
			`","run_id":"r1","child_id":null,"seq":1,"payload":` + payload + `}`)
	}
	e, err := schema.DecodeLine(line(schema.TypeToolStart, `{"call_id":"c","tool":"t","input":`+input+`}`))
	if err != nil {
		t.Fatal(err)
	}
	var f schema.Fold
	f.Add(&e)
	snapshot := f.AppendSnapshot(nil)
	if g, err := schema.ParseSnapshot(snapshot); err != nil || string(g.Calls[0].Input) != input {
		t.Errorf("read: %v", err)
	}
	shown, err := schema.DecodeView(line("run.snapshot", string(snapshot)))
	if err != nil || string(shown.Payload) != string(snapshot) {
		t.Errorf("as an event: %v", err)
	}
	if _, err := schema.DecodeLine(line(schema.TypeToolStart,
		`{"call_id":"c","tool":"t","input":[`+input+`]}`)); !errors.Is(err, schema.ErrMalformed) {
		t.Errorf("an event that is deeper: %v", err)
	}
	if _, err := schema.DecodeView(line("run.snapshot",
		strings.Repeat(`{"a":`, 200)+"0"+strings.Repeat("}", 200))); !errors.Is(err, schema.ErrMalformed) {
		t.Errorf("a view without bound: %v", err)
	}
}
