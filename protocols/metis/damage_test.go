package metis

import (
	"encoding/json"
	"flag"
	"strings"
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
	for _, e := range events(t, project(t, projector(Filter{}, ""), records(t, s))) {
		var p struct {
			ToolUse string `json:"tool_use_id"`
			Name    string `json:"tool_name"`
			Request string `json:"confirmation_request_id"`
			Worker  string `json:"worker_session_id"`
		}
		_ = json.Unmarshal(e.Payload, &p) // producers' own are what they are
		switch kind, _, _ := strings.Cut(e.Type, "."); kind {
		case "tool", "delegate":
			shown[e.Type+" "+p.ToolUse+p.Request+p.Worker]++
			shown[e.Type+" name "+p.Name] = 1
		case "llm", "turn":
			shown["all "+e.Type]++
		}
	}
	return shown
}
