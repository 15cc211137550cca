package postgres_test

import (
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
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
		{persistertest.Event("command.answer", `{"request_id":"q"}`), "paused resume 23:59:03"},
		{persistertest.Event(schema.TypeTextDelta, `{"text":"a"}`), "paused resume 23:59:03"},
		{persistertest.Lifecycle(schema.StatePaused), "paused resume 23:59:03"},
		{persistertest.Lifecycle(schema.StateAwaitingApproval), "awaiting_approval approval 23:59:07"},
		{persistertest.Lifecycle(schema.StateDone), "done nothing "},
	} {
		persistertest.Put(t, s, w.Pack("", c.event))
		if got := ask[string](t, p, `select state || ' ' || coalesce(waits_for, 'nothing') || ' ' || coalesce(to_char(waits_since at time zone 'UTC', 'HH24:MI:SS'), '') from agent_v_runs`); got != c.want {
			t.Errorf("after event %d: %q, want %q", i+1, got, c.want)
		}
	}
}

// TestStatesOfOlderTables: a run that had come to its state before tables kept when waits since its newest event, as
// it did, and from its next state on since that. So it is for an owner without other rights.
func TestStatesOfOlderTables(t *testing.T) {
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	first := w.Pack("", persistertest.Lifecycle(schema.StateRunning), persistertest.Lifecycle(schema.StatePaused))
	second := w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"a"}`))
	dsn := testkit.Postgres(t)
	persistertest.Put(t, open(t, dsn), first, second)
	admin, owner := owned(t)
	if err := postgres.MigrateTo(t.Context(), owner, 20); err != nil {
		t.Fatal(err)
	}
	from, p := pool(t, dsn), pool(t, admin)
	const columns = `select string_agg(quote_ident(column_name), ',' order by ordinal_position) from information_schema.columns
		where table_name = $1 and is_generated = 'NEVER'`
	exec(t, p, `create table agent_run_events_20260228 partition of agent_run_events for values from ('2026-02-28') to ('2026-03-01')`)
	for _, table := range []string{"agent_runs", "agent_run_lanes", "agent_run_events"} {
		copyTable(t, from, p, table, ask[string](t, p, columns, table), "true")
	}
	if _, err := tables.Migrate(t.Context(), owner, false); err != nil {
		t.Fatal(err)
	}
	s := open(t, owner)
	for i, c := range []struct {
		event schema.Event
		want  string
	}{
		{persistertest.Event(schema.TypeTextDelta, `{"text":"b"}`), "paused 23:59:04"},
		{persistertest.Lifecycle(schema.StatePaused), "paused 23:59:05"},
		{persistertest.Event(schema.TypeTextDelta, `{"text":"c"}`), "paused 23:59:05"},
		{persistertest.Lifecycle(schema.StateAwaitingApproval), "awaiting_approval 23:59:07"},
		{persistertest.Event(schema.TypeTextDelta, `{"text":"d"}`), "awaiting_approval 23:59:07"},
	} {
		persistertest.Put(t, s, w.Pack("", c.event))
		runs, err := s.Runs(t.Context(), "acme", schema.RunsQuery{Limit: 1})
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		if got := string(runs[0].State) + " " + runs[0].WaitStart().UTC().Format("15:04:05"); got != c.want {
			t.Errorf("after event %d: %q, want %q", i+1, got, c.want)
		}
	}
}
