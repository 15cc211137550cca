package openai

import (
	"encoding/json"
	"flag"
	"testing"

	"agentstream/schema/schematest"
)

var damaged = flag.Uint64("damaged", 300, "how many damaged logs are read")

// TestDamagedLogs: of logs in which any control event is doubled, missing or late, a client takes every response;
// nothing is shown twice and nothing is made up.
func TestDamagedLogs(t *testing.T) {
	schematest.CheckDamaged(t, *damaged, shownOf)
}

func shownOf(t *testing.T, s schematest.Scenario) schematest.Shown {
	t.Helper()
	shown := schematest.Shown{}
	records := schematest.RecordsOf(t, "run_a", s)
	for n := 1; ; n++ {
		list, _ := eventsOf(t, n, records)
		if len(list) == 0 {
			return shown
		}
		v := &rules{}
		for i, f := range list {
			if err := v.check(f); err != nil {
				t.Fatalf("%s: response %d, event %d: %v: %s", s.Name, n, i, err, f)
			}
			show(shown, f)
		}
	}
}

func show(shown schematest.Shown, data string) {
	var e struct {
		Type string
		Item struct {
			Type, Name string
			CallID     string `json:"call_id"`
		}
		Response struct{ Usage json.RawMessage }
	}
	_ = json.Unmarshal([]byte(data), &e) // the rules have read it
	shown["all "+e.Type+" "+e.Item.Type]++
	shown["name "+e.Item.Name] = 1
	if e.Item.CallID != "" {
		shown[e.Type+" "+e.Item.CallID]++
	}
	if len(e.Response.Usage) > 4 {
		shown["all usage "+string(e.Response.Usage)]++
	}
}
