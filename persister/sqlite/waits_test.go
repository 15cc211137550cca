package sqlite

import (
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestWaitingInSQL: the view shows what a run waits for, and since when.
func TestWaitingInSQL(t *testing.T) {
	s := temp(t)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	for i, c := range []struct {
		event schema.Event
		want  string
	}{
		{persistertest.Lifecycle(schema.StateRunning), "running nothing "},
		{persistertest.Event(schema.TypeInputRequested, `{"request_id":"q"}`), "running answer 2026-02-28T23:59:02"},
		{persistertest.Lifecycle(schema.StatePaused), "paused resume 2026-02-28T23:59:02"},
		{persistertest.Event("command.answer", `{"request_id":"q"}`), "paused resume 2026-02-28T23:59:04"},
		{persistertest.Lifecycle(schema.StateAwaitingApproval), "awaiting_approval approval 2026-02-28T23:59:05"},
		{persistertest.Lifecycle(schema.StateDone), "done nothing "},
	} {
		persistertest.Put(t, s, w.Pack("", c.event))
		var got string
		if err := s.read.QueryRowContext(t.Context(), `select state || ' ' || coalesce(waits_for, 'nothing') || ' ' || coalesce(substr(waits_since, 1, 19), '') from agent_v_runs`).Scan(&got); err != nil || got != c.want {
			t.Errorf("after event %d: %q, want %q (%v)", i+1, got, c.want, err)
		}
	}
}
