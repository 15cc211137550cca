package qoder

import (
	"encoding/json"
	"flag"
	"testing"

	"agentstream/schema/schematest"
)

var damaged = flag.Uint64("damaged", 300, "how many damaged logs are read")

// TestDamagedLogs: of logs in which any control event is doubled, missing or late, nothing is shown twice and nothing
// is made up.
func TestDamagedLogs(t *testing.T) {
	schematest.CheckDamaged(t, *damaged, shownOf)
}

func shownOf(t *testing.T, s schematest.Scenario) schematest.Shown {
	shown := schematest.Shown{}
	for _, f := range projected(t, false, form{}, records(t, s)) {
		var e struct {
			Type   string
			Name   string
			Call   string `json:"call_id"`
			Thread string `json:"session_thread_id"`
		}
		if json.Unmarshal([]byte(f.data), &e) != nil {
			t.Fatalf("%s", f.data)
		}
		switch e.Type {
		case "agent.tool_use", "agent.custom_tool_use", "agent.tool_result", "agent.mcp_tool_use":
			if e.Call != "" {
				shown[e.Type+" "+e.Call]++
			}
			shown[e.Type+" name "+e.Name] = 1
		case "agent.message", "agent.thinking", "session.thread_created", "span.model_request_start", "span.model_request_end":
			shown["all "+e.Type]++
		}
	}
	return shown
}
