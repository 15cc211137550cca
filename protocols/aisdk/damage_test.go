package aisdk

import (
	"flag"
	"testing"

	"agentstream/edge/dialect"
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
		for i, f := range framesOf(t, dialect.Request{Run: "run_a", Span: first.String(), Form: "99"}, records) {
			if err := v.check(f); err != nil {
				t.Fatalf("%s: response %d, chunk %d: %v: %s", s.Name, first, i, err, f)
			}
			p := jsonscan.Fields(nil).Read([]byte(f))
			if call := p.Str("toolCallId"); call != "" {
				shown[p.Str("type")+" "+call]++
				shown["name "+p.Str("toolName")] = 1
				continue
			}
			switch typ := p.Str("type"); typ {
			case "data-state", "data-state-update", "data-progress": // the same again says nothing
			default:
				shown["all "+typ+p.Str("name")]++
			}
		}
	}
	return shown
}
