package postgres_test

import (
	"strings"
	"testing"
	"time"

	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// TestSessionsPlan: with 100,000 runs, nearly all of them archived sessions, a page of those that are not, of those
// of an agent, and of both, is read from an index in either order.
func TestSessionsPlan(t *testing.T) {
	admin, dsn := ownedMigrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	fillRuns(t, pool(t, admin), manyRuns)
	exec(t, pool(t, admin), `update agent_runs set session = '{"title":"t"}', session_seq = 1, session_agent = 'agent_' || (replace(id, 'run_', '')::int / 2) % 20,
		session_archived_at = case when replace(id, 'run_', '')::int % 1000 > 2 then first_ts end,
		session_deleted_at = case when replace(id, 'run_', '')::int % 500 = 77 then first_ts end`)
	exec(t, pool(t, admin), `vacuum analyze agent_runs`)
	middle := schema.RunCursor{Started: time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC), ID: "run_5"}
	done := []schema.RunState{schema.StateDone}
	for name, tt := range map[string]struct {
		q     schema.RunsQuery
		index string
	}{
		"open":       {schema.RunsQuery{Sessions: true}, "agent_runs_open"},
		"open next":  {schema.RunsQuery{Sessions: true, After: middle}, "agent_runs_open"},
		"open since": {schema.RunsQuery{Sessions: true, Since: middle.Started}, "agent_runs_open"},
		"all":        {schema.RunsQuery{Sessions: true, Archived: true, After: middle}, "agent_runs_list"},
		"agent":      {schema.RunsQuery{Agent: "agent_7"}, "agent_runs_agent"},
		"agent next": {schema.RunsQuery{Agent: "agent_7", Sessions: true, Archived: true, After: middle},
			"agent_runs_agent"},
		"agent open":      {schema.RunsQuery{Agent: "agent_0", Sessions: true}, "agent_runs_agent_open"},
		"agent open next": {schema.RunsQuery{Agent: "agent_0", Sessions: true, After: middle}, "agent_runs_agent_open"},
		"no such agent":   {schema.RunsQuery{Agent: "agent_99"}, "agent_runs_agent"},
		"done and open":   {schema.RunsQuery{Sessions: true, States: done}, "agent_runs_"},
	} {
		for _, oldest := range []bool{false, true} {
			q := tt.q
			q.Limit, q.Oldest = 50, oldest
			begun := time.Now()
			runs, err := s.Runs(t.Context(), "acme", q)
			took := time.Since(begun)
			if err != nil || (len(runs) == 0) != (name == "no such agent") {
				t.Fatalf("%s: %d runs, %v", name, len(runs), err)
			}
			text, args := s.RunsQuery("acme", q)
			most := 0
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				plan, rows := explain(t, p, mode, text, args)
				if most = max(most, rows); strings.Contains(plan, "Seq Scan") || rows > 50*3 || !strings.Contains(plan, tt.index) {
					t.Errorf("%s, oldest %v, %s: %d rows\n%s", name, oldest, mode, rows, plan)
				}
			}
			t.Logf("%s, oldest %v: %d of %d runs in %v, %d rows read", name, oldest, len(runs), manyRuns,
				took.Round(10*time.Microsecond), most)
		}
	}
}

// TestSessionModes: all modes in which the driver can send statements keep the same session.
func TestSessionModes(t *testing.T) {
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		dsn := migrated(t)
		s, err := postgres.Open(t.Context(), postgres.Config{DSN: dsn + "&default_query_exec_mode=" + mode})
		if err != nil {
			t.Fatal(err)
		}
		w := persistertest.NewWriter(key, day)
		first := w.Pack("", persistertest.Event(schema.TypeSessionCreated, `{"title":"\u0000"}`),
			persistertest.Event(schema.TypeSessionUpdated, `{"agent":"é"}`))
		late, last := w.Pack("", persistertest.Event(schema.TypeSessionUpdated, `{"title":"a","x":1}`)),
			w.Pack("", persistertest.Event(schema.TypeSessionUpdated, `{"title":"b"}`))
		persistertest.Put(t, s, first)
		persistertest.Put(t, s, last, w.Texts("", 20))
		persistertest.Put(t, s, late)
		runs, err := s.Runs(t.Context(), "acme", schema.RunsQuery{Sessions: true, Agent: "é", Limit: 2})
		if err != nil || len(runs) != 1 || string(runs[0].Session) != `{"title":"b","agent":"é","x":1}` {
			t.Errorf("%s: %+v, %v", mode, runs, err)
		}
		var title string
		if err := pool(t, dsn).QueryRow(t.Context(),
			`select session::jsonb ->> 'title' from agent_v_runs where session_agent = 'é'`).Scan(&title); err != nil ||
			title != "b" {
			t.Errorf("%s: %q, %v", mode, title, err)
		}
		s.Close()
	}
}
