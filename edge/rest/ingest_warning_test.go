package rest_test

import (
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/edgetest"
)

// TestUnknownFieldsAreNamed: the answer of a POST names fields of payloads that their types do not have, bounded, and
// none where there is none to name. The events are stored as they are.
func TestUnknownFieldsAreNamed(t *testing.T) {
	h := edgetest.NewHouse(t)
	var many strings.Builder
	for i := range 50 {
		fmt.Fprintf(&many, `{"type":"progress","payload":{"f%02d%s":1}}`+"\n", i, strings.Repeat("x", 1000))
	}
	for name, tt := range map[string]struct{ body, want string }{
		"known":   {`{"type":"tool.start","payload":{"call_id":"c","tool":"t","input":{"anything":1}}}`, ""},
		"no type": {`{"type":"custom.mine","payload":{"anything":1}}`, ""},
		"adapter": {`{"type":"text.delta","payload":{"text":"a","message_id":"m"}}`, ""},
		"gate":    {`{"type":"plan.proposal","payload":{"plan":{"id":"p","steps":[]},"planning_gate":"required"}}`, ""},
		"control": {`{"type":"tool.start","payload":{"call_id":"c","tool":"t","inputs":{}}}`,
			`299 agentstream "unknown payload fields: tool.start inputs"`},
		"delta": {`{"type":"text.delta","payload":{"text":"a","idx":1}}` + "\n" +
			`{"type":"text.delta","payload":{"text":"b","idx":2}}`,
			`299 agentstream "unknown payload fields: text.delta idx"`},
		"escaped": {`{"type":"progress","payload":{"a\r\nb\"c":1}}`,
			`299 agentstream "unknown payload fields: progress a\r\nb\"c"`},
		"several": {`{"type":"progress","payload":{"x":1,"message":"m","y":2}}` + "\n" +
			`{"type":"tool.end","payload":{"call_id":"c","ok":true,"result":1}}`,
			`299 agentstream "unknown payload fields: progress x, progress y, tool.end result"`},
		"unsure": {`{"type":"child.spawn","payload":{"child_id":"k","x":1}}`,
			`299 agentstream "unknown payload fields: child.spawn x"`},
	} {
		a := h.Do("POST", "/v1/agent/runs/"+strings.ReplaceAll(name, " ", "_")+"/events", tt.body)
		if got := a.Header.Get("Warning"); a.Status != 200 || got != tt.want {
			t.Errorf("%s: %d %s, Warning %q, want %q", name, a.Status, a.Body, got, tt.want)
		}
	}
	a := h.Do("POST", "/v1/agent/runs/many/events", many.String())
	if got := a.Header.Get("Warning"); a.Status != 200 || strings.Count(got, "progress ") != 8 || len(got) > 8*150 {
		t.Errorf("many: %d, %d bytes: %.200s", a.Status, len(got), got)
	}
}
