package agui

import (
	"flag"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
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
	for _, first := range responsesOf(t, records) {
		v := newRules()
		for i, f := range framesOf(t, dialect.Request{Run: "run_a", Span: first.String(), Form: formWhole}, records) {
			if err := v.check(f.data); err != nil {
				t.Fatalf("%s: response %d, event %d: %v: %s", s.Name, first, i, err, f)
			}
			p := jsonscan.Fields(nil).Read([]byte(f.data))
			if call := p.Str("toolCallId"); call != "" {
				shown[p.Str("type")+" "+call]++
				shown["name "+p.Str("toolCallName")] = 1
				continue
			}
			switch what := p.Str("type") + p.Str("name"); what {
			case "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOMstate", "CUSTOMstate-update", "CUSTOMprogress":
				// again, they say nothing
			default:
				shown["all "+what]++
			}
		}
	}
	return shown
}

// TestStateWhileAsked: what an agent says while a question waits begins another run of the client's.
func TestStateWhileAsked(t *testing.T) {
	log := [][2]string{{"turn.start", `{"turn_id":"t"}`}, {"input.requested", `{"request_id":"q"}`},
		{"state.values", `{"values":{"n":1}}`},
		{"input.requested", `{"request_id":"r"}`}, {"state.update", `{"values":{"n":2}}`}, {"turn.end", `{"turn_id":"t"}`}}
	s := schematest.Scenario{Name: "state-while-asked"}
	for _, e := range log {
		s.Events = append(s.Events, schema.Event{Type: e[0], Payload: []byte(e[1])})
	}
	shown := shownOf(t, s)
	if shown["all RUN_STARTED"] != 3 || shown["all RUN_FINISHED"] != 3 {
		t.Error(shown)
	}
}
