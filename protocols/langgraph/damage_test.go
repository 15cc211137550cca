package langgraph

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
	for _, f := range project(t, projector(t, everything), records(t, s)) {
		var e event
		var data struct {
			Event   string
			ID      string
			Call    string `json:"tool_call_id"`
			Name    string `json:"tool_name"`
			Message string `json:"message_id"`
			Ask     string `json:"interrupt_id"`
		}
		if json.Unmarshal(f.Data, &e) != nil {
			t.Fatalf("%s", f.Data)
		}
		_ = json.Unmarshal(e.Params.Data, &data) // of values it may be anything
		switch {
		case e.Method == "tools" && data.Event != "tool-output-delta":
			shown[data.Event+" "+data.Call]++
			shown[data.Event+" name "+data.Name] = 1
		case data.Event == "message-start":
			shown[data.Event+" "+data.Message]++
		case e.Method == "tasks":
			shown[e.Method+" "+data.ID]++
		case data.Ask != "":
			shown[e.Method+" "+data.Ask]++
		}
	}
	return shown
}
