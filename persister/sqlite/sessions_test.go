package sqlite

import (
	"strings"
	"testing"
	"time"

	"agentstream/schema"
)

// TestSessionsPlan: each list of sessions is read from an index in its order, in both directions.
func TestSessionsPlan(t *testing.T) {
	s := temp(t)
	after := schema.RunCursor{Started: time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC), ID: "run_5"}
	for name, tt := range map[string]struct {
		q     schema.RunsQuery
		index string
	}{
		"open":       {schema.RunsQuery{Sessions: true, After: after}, "agent_runs_open "},
		"all":        {schema.RunsQuery{Sessions: true, Archived: true, Since: after.Started}, "agent_runs_list "},
		"agent":      {schema.RunsQuery{Agent: "a", After: after}, "agent_runs_agent "},
		"agent open": {schema.RunsQuery{Agent: "a", Sessions: true}, "agent_runs_agent_open "},
	} {
		for _, oldest := range []bool{false, true} {
			tt.q.Oldest, tt.q.Limit = oldest, 50
			text, args := s.RunsQuery("acme", tt.q)
			plan := explain(t, s, text, args...)
			if strings.Contains(plan, "SCAN") || strings.Contains(plan, "TEMP B-TREE") ||
				!strings.Contains(plan, "USING INDEX "+tt.index) {
				t.Errorf("%s, oldest %v:\n%s", name, oldest, plan)
			}
		}
	}
}
