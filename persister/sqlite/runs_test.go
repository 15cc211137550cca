package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentstream/persister/persistertest"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// TestRunsPlan: with 20,000 runs a page is read from an index in its order, and no sort but that of
// the pages of several states.
func TestRunsPlan(t *testing.T) {
	const n = 20_000
	s := temp(t)
	if _, err := s.write.ExecContext(t.Context(), fmt.Sprintf(`
		with recursive seq(i) as (select 1 union all select i + 1 from seq where i < %d)
		insert into agent_runs (koder_user_id, id, run_day, state, last_seq, last_id, first_ts, last_ts, usage)
		select iif(i %% 2 = 0, 'acme', 'globex'), 'run_' || i, '20260101', iif(i %% 1000 = 0, 'running', 'done'), 9, 'evt',
			strftime('%%Y-%%m-%%dT%%H:%%M:%%S', 1767225600 + (i * 7919) %% 1000003, 'unixepoch') || '.000000000Z', '2026-01-01T00:00:00.000000000Z', '{"output_tokens":5}' from seq`, n)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.write.ExecContext(t.Context(), `insert into agent_run_lanes (koder_user_id, run_id, lane, owner, epoch, joined_at)
		select koder_user_id, id, 'kid_' || id, '', '', first_ts from agent_runs`); err != nil {
		t.Fatal(err)
	}
	first, err := s.Runs(t.Context(), "acme", schema.RunsQuery{Limit: 50})
	if err != nil || len(first) != 50 {
		t.Fatalf("%d runs, %v", len(first), err)
	}
	after := first[49].Cursor()
	for name, q := range map[string]schema.RunsQuery{
		"first": {}, "next": {After: after}, "since": {Since: after.Started.Add(-time.Hour)},
		"until":       {Until: after.Started, After: after},
		"rare":        {States: []schema.RunState{schema.StateRunning}, After: after},
		"common next": {States: []schema.RunState{schema.StateDone, schema.StatePaused, schema.StateRunning}, After: after},
	} {
		q.Limit = 50
		begun := time.Now()
		runs, err := s.Runs(t.Context(), "acme", q)
		took := time.Since(begun)
		if err != nil || len(runs) == 0 {
			t.Fatalf("%s: %d runs, %v", name, len(runs), err)
		}
		text, args := s.RunsQuery("acme", q)
		plan := explain(t, s, text, args...)
		if strings.Contains(plan, "SCAN agent_runs") ||
			strings.Count(plan, "USING INDEX agent_runs_list") != max(1, len(q.States)) ||
			strings.Contains(plan, "TEMP B-TREE") && len(q.States) == 0 {
			t.Errorf("%s:\n%s", name, plan)
		}
		t.Logf("%s: page of 50 among %d runs in %v", name, n, took.Round(10*time.Microsecond))
	}
	for name, q := range map[string]schema.RunsQuery{"first": {}, "next": {After: after}, "oldest": {Oldest: true}} {
		q.Limit, q.Waits = 50, true
		text, args := s.RunsQuery("acme", q)
		if plan := explain(t, s, text, args...); !strings.Contains(plan, "USING INDEX agent_runs_waiting") ||
			strings.Contains(plan, "TEMP B-TREE") {
			t.Errorf("waiting, %s:\n%s", name, plan)
		}
	}
	for name, q := range map[string]schema.RunsQuery{
		"words":      {Words: []string{"zebra", "id"}},
		"of a state": {Words: []string{"zebra"}, States: []schema.RunState{schema.StateDone}},
		"title":      {Title: "t"}, "tag": {Tag: "t"}, "model": {Model: "m"}, "reason": {Reason: "r"},
		"agent": {Agent: "a", Words: []string{"zebra"}},
		"next":  {Words: []string{"zebra"}, After: after}, "by events": {Words: []string{"zebra"}, Order: schema.OrderEvents},
	} {
		q.Limit, q.Models = 50, true
		want := "SEARCH agent_runs USING COVERING INDEX agent_runs_words"
		if q.Order != schema.OrderStarted {
			want = "SEARCH agent_runs USING PRIMARY KEY (koder_user_id=?)\n"
		}
		text, args := s.RunsQuery("acme", q)
		if plan := explain(t, s, text, args...); !strings.Contains(plan, want) {
			t.Errorf("search, %s:\n%s", name, plan)
		}
	}
	// Costs: messages are read once, and prices are looked up for each model and day, not for each message.
	text, args := s.RunsQuery("acme", schema.RunsQuery{Limit: 50, Models: true})
	costs := explain(t, s, text, args...)
	messages := strings.Count(costs, "SEARCH u USING PRIMARY KEY (koder_user_id=? AND run_id=?)\n")
	_, prices, _ := strings.Cut(costs, "MATERIALIZE priced\n")
	prices, _, _ = strings.Cut(prices, "SCAN p\n")
	if messages != 1 || strings.Contains(costs, "agent_run_events") || !strings.Contains(costs, "MATERIALIZE said") ||
		!strings.Contains(prices, "SCAN d\n") {
		t.Errorf("costs:\n%s", costs)
	}
	if plan := explain(t, s, sqlstore.ParentQuery, "acme", "kid_run_7"); !strings.Contains(plan,
		"agent_run_lanes_child") || strings.Contains(plan, "TEMP B-TREE") {
		t.Error(plan)
	}
	begun := time.Now()
	if run, err := s.Parent(t.Context(), "acme", "kid_run_17778"); err != nil || run != "run_17778" {
		t.Errorf("%q, %v", run, err)
	}
	t.Logf("the root of one of %d children in %v", n, time.Since(begun).Round(10*time.Microsecond))
}

func explain(t *testing.T, s *Store, text string, args ...any) string {
	t.Helper()
	var plan strings.Builder
	err := s.each(t.Context(), sqlstore.EveryTenant, func(scan func(...any) error) (bool, error) {
		var id, parent, unused int
		var detail string
		err := scan(&id, &parent, &unused, &detail)
		plan.WriteString(detail + "\n")
		return true, err
	}, "explain query plan "+text, args...)
	if err != nil {
		t.Fatal(err)
	}
	return plan.String()
}

// TestUpgrade: tables that were filled before runs were listed give, once migrated, what they would
// have given had they been kept from the start.
func TestUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	reopen := func() *Store {
		t.Helper()
		if _, err := Migrate(t.Context(), path, false); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	kept := filepath.Join(t.TempDir(), "kept.db")
	if _, err := Migrate(t.Context(), kept, false); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Config{Path: kept})
	if err != nil {
		t.Fatal(err)
	}
	packs := persistertest.FillRuns(t, s, 300)
	want := persistertest.ListRuns(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	oldForm(t, path, kept)
	s = reopen()
	persistertest.SameRuns(t, s, want)
	// Everything comes again, as after the restart of a persister: nothing is counted twice.
	if _, err := s.Append(t.Context(), chunks(t, packs...)); err != nil {
		t.Fatal(err)
	}
	persistertest.SameRuns(t, s, want)
}

// oldForm makes a file with the tables of version 1 and what they would hold of the runs of another file.
func oldForm(t *testing.T, path, kept string) {
	t.Helper()
	db, err := openWriter(path)
	if err != nil {
		t.Fatal(err)
	}
	provider, err := newProvider(db)
	if err == nil {
		_, err = provider.UpTo(t.Context(), 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	const runs = "koder_user_id, id, run_day, state, last_seq, last_id, anchors, first_ts, last_ts"
	const lanes, events = "koder_user_id, run_id, lane, owner, epoch", "koder_user_id, run_id, seq, run_day, id, child_id, type, ts, line"
	for _, text := range []string{
		`attach '` + kept + `' as kept`,
		`insert into agent_runs (` + runs + `) select ` + runs + ` from kept.agent_runs`,
		`update agent_runs set first_ts = '2020-01-01T00:00:00.000000000Z'`, // it was the earliest time of any event
		`insert into agent_run_lanes (` + lanes + `) select ` + lanes + ` from kept.agent_run_lanes where owner <> ''`,
		`insert into agent_run_events (` + events + `) select ` + events + ` from kept.agent_run_events`,
	} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(text, err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStamp: no time of a producer leaves the years that compare as text.
func TestStamp(t *testing.T) {
	last := ""
	for _, text := range []string{"0000-01-01T00:00:00+23:59", "0001-01-01T00:00:00Z", "2026-01-01T00:00:00.1Z",
		"2026-01-01T00:00:00.10001Z", "9999-12-31T23:59:59-23:59"} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		got := stamp(at)
		if back, err := time.Parse(tsLayout, got); err != nil || got <= last || back.Year() == at.UTC().Year() &&
			!back.Equal(at) {
			t.Errorf("%s is kept as %s (%v) behind %s", text, got, err, last)
		}
		last = got
	}
}
