package assemble

import (
	"bytes"
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// TestHead: what is read of an envelope is what schema reads, whatever records came before.
func TestHead(t *testing.T) {
	names := []string{"", "", "turn_1", "turn \"2\"", `,"payload":{}`, "é\u2028", "x"}
	rapid.Check(t, func(rt *rapid.T) {
		var s schematest.Scenario
		for range rapid.IntRange(1, 12).Draw(rt, "length") {
			e := schema.Event{Type: "custom.x", ChildID: rapid.SampledFrom([]string{"", "kid"}).Draw(rt, "lane")}
			e.Payload = json.RawMessage(rapid.SampledFrom([]string{`{}`, `{"payload":{}}`,
				`{"a":",\"payload\":"}`}).Draw(rt, "payload"))
			e.TurnID = rapid.SampledFrom(names).Draw(rt, "turn")
			e.Actor = rapid.SampledFrom(names).Draw(rt, "actor")
			e.Cause = rapid.SampledFrom(names).Draw(rt, "cause")
			e.Extra = json.RawMessage(rapid.SampledFrom([]string{``, ``, `"x":{"turn_id":"no"}`}).Draw(rt, "extra"))
			s.Events = append(s.Events, e)
		}
		var h Head
		for _, r := range records(t, s) {
			if ok := h.read(r); !ok || !bytes.Equal(h.Payload, r.Payload()) {
				rt.Fatalf("payload %s of %s", h.Payload, r.Line)
			}
			if h.Turn != r.Attribute("turn_id") || h.Actor != r.Attribute("actor") || h.Cause != r.Attribute("cause") {
				rt.Fatalf("%+v of %s", h, r.Line)
			}
		}
	})
	if new(Head).read(schema.Record{}) {
		t.Error("nothing has a payload")
	}
}
