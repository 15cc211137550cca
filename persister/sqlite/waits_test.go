package sqlite

import (
	"path/filepath"
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
		{persistertest.Event("command.answer", `{"request_id":"q"}`), "paused resume 2026-02-28T23:59:03"},
		{persistertest.Event(schema.TypeTextDelta, `{"text":"a"}`), "paused resume 2026-02-28T23:59:03"},
		{persistertest.Lifecycle(schema.StatePaused), "paused resume 2026-02-28T23:59:03"},
		{persistertest.Lifecycle(schema.StateAwaitingApproval), "awaiting_approval approval 2026-02-28T23:59:07"},
		{persistertest.Lifecycle(schema.StateDone), "done nothing "},
	} {
		persistertest.Put(t, s, w.Pack("", c.event))
		var got string
		if err := s.read.QueryRowContext(t.Context(),
			`select state || ' ' || coalesce(waits_for, 'nothing') || ' ' || coalesce(substr(waits_since, 1, 19), '') from agent_v_runs`).Scan(&got); err != nil || got != c.want {
			t.Errorf("after event %d: %q, want %q (%v)", i+1, got, c.want, err)
		}
	}
}

// TestStatesOfOlderTables: a run that had come to its state before tables kept when waits since its newest event, as
// it did, and from its next state on since that.
func TestStatesOfOlderTables(t *testing.T) {
	kept, path := filepath.Join(t.TempDir(), "kept.db"), filepath.Join(t.TempDir(), "s.db")
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	s := opened(t, kept)
	persistertest.Put(t, s, w.Pack("", persistertest.Lifecycle(schema.StateRunning),
		persistertest.Lifecycle(schema.StatePaused)))
	persistertest.Put(t, s, w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"a"}`)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	copyOlder(t, path, kept, 20)
	s = opened(t, path)
	defer s.Close()
	for i, c := range []struct {
		event schema.Event
		want  string
	}{
		{persistertest.Event(schema.TypeTextDelta, `{"text":"b"}`), "paused 2026-02-28T23:59:04"},
		{persistertest.Lifecycle(schema.StatePaused), "paused 2026-02-28T23:59:05"},
		{persistertest.Event(schema.TypeTextDelta, `{"text":"c"}`), "paused 2026-02-28T23:59:05"},
		{persistertest.Lifecycle(schema.StateAwaitingApproval), "awaiting_approval 2026-02-28T23:59:07"},
		{persistertest.Event(schema.TypeTextDelta, `{"text":"d"}`), "awaiting_approval 2026-02-28T23:59:07"},
	} {
		persistertest.Put(t, s, w.Pack("", c.event))
		runs, err := s.Runs(t.Context(), "acme", schema.RunsQuery{Limit: 1})
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		if got := string(runs[0].State) + " " + runs[0].WaitStart().Format("2006-01-02T15:04:05"); got != c.want {
			t.Errorf("after event %d: %q, want %q", i+1, got, c.want)
		}
	}
}

func opened(t *testing.T, path string) *Store {
	t.Helper()
	if _, err := Migrate(t.Context(), path, false); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// copyOlder makes a file with the tables of a version and what they would hold of the runs of another file.
func copyOlder(t *testing.T, path, kept string, version int64) {
	t.Helper()
	db, err := openWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	provider, err := newProvider(db)
	if err == nil {
		_, err = provider.UpTo(t.Context(), version)
	}
	if err == nil {
		_, err = db.Exec(`attach '` + kept + `' as kept`)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"agent_runs", "agent_run_lanes", "agent_run_events"} {
		var columns string
		const names = `select group_concat('"' || name || '"') from pragma_table_info(?, 'main')`
		if err := db.QueryRow(names, table).Scan(&columns); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`insert into ` + table + ` (` + columns + `) select ` + columns + ` from kept.` +
			table); err != nil {
			t.Fatal(table, err)
		}
	}
}
