package qoder

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
			e := said(rapid.SampledFrom(lanes).Draw(rt, "lane"), "custom.x", rapid.SampledFrom([]string{`{}`, `{"payload":{}}`, `{"a":",\"payload\":"}`}).Draw(rt, "payload"))
			e.TurnID = rapid.SampledFrom(names).Draw(rt, "turn")
			e.Actor = rapid.SampledFrom(names).Draw(rt, "actor")
			e.Cause = rapid.SampledFrom(names).Draw(rt, "cause")
			e.Extra = json.RawMessage(rapid.SampledFrom([]string{``, ``, `"x":{"turn_id":"no"}`}).Draw(rt, "extra"))
			s.Events = append(s.Events, e)
		}
		var h head
		for _, r := range records(t, s) {
			if got := h.payload(r); !bytes.Equal(got, r.Payload()) {
				rt.Fatalf("payload %s of %s", got, r.Line)
			}
			if h.turn != r.Attribute("turn_id") || h.actor != r.Attribute("actor") || h.cause != r.Attribute("cause") {
				rt.Fatalf("%+v of %s", h, r.Line)
			}
		}
	})
	if got := new(head).payload(schema.Record{}); got != nil {
		t.Errorf("payload %q of nothing", got)
	}
}
