package postgres_test

import (
	"testing"

	"agentstream/persister/persistertest"
	"agentstream/schema"
)

// TestWaitingInSQL: the view shows what a run waits for, and since when.
func TestWaitingInSQL(t *testing.T) {
	admin, owner := ownedMigrated(t)
	s, p := open(t, owner), pool(t, admin)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	for i, c := range []struct {
		event schema.Event
		want  string
	}{
		{persistertest.Lifecycle(schema.StateRunning), "running nothing "},
		{persistertest.Event(schema.TypeInputRequested, `{"request_id":"q"}`), "running answer 23:59:02"},
		{persistertest.Lifecycle(schema.StatePaused), "paused resume 23:59:02"},
		{persistertest.Event("command.answer", `{"request_id":"q"}`), "paused resume 23:59:04"},
		{persistertest.Lifecycle(schema.StateAwaitingApproval), "awaiting_approval approval 23:59:05"},
		{persistertest.Lifecycle(schema.StateDone), "done nothing "},
	} {
		persistertest.Put(t, s, w.Pack("", c.event))
		if got := ask[string](t, p, `select state || ' ' || coalesce(waits_for, 'nothing') || ' ' || coalesce(to_char(waits_since at time zone 'UTC', 'HH24:MI:SS'), '') from agent_v_runs`); got != c.want {
			t.Errorf("after event %d: %q, want %q", i+1, got, c.want)
		}
	}
}
