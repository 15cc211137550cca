package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister/persistertest"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

const manyRuns = 100_000

// fillRuns writes rows of runs as Append would, without their events: state done but for every
// thousandth, one child each.
func fillRuns(t testing.TB, p *pgxpool.Pool, n int) {
	t.Helper()
	for _, q := range []string{
		`insert into agent_runs (koder_user_id, id, run_day, state, last_seq, last_id, first_ts, last_ts, usage)
		select case when i % 2 = 0 then 'acme' else 'globex' end, 'run_' || i, '2026-01-01'::date + i / 1000, case when i % 1000 = 0 then 'running' else 'done' end,
			9, 'evt', '2026-01-01'::timestamptz + make_interval(secs => (i * 7919) % 1000003), '2026-01-01', '{"output_tokens":5}' from generate_series(1, $1::int) i`,
		`insert into agent_run_lanes (koder_user_id, run_id, lane, owner, epoch, joined_at)
		select case when i % 2 = 0 then 'acme' else 'globex' end, 'run_' || i, 'kid_' || i, '', 0, '2026-01-01'::timestamptz + make_interval(secs => i) from generate_series(1, $1::int) i`,
	} {
		if _, err := p.Exec(t.Context(), q, n); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, p, `vacuum analyze agent_runs`)
	exec(t, p, `vacuum analyze agent_run_lanes`)
}

// TestRunsPlan: with 100,000 runs a page is read from an index in its order; nothing sorts or filters
// them all, also when the server plans without looking at the values.
func TestRunsPlan(t *testing.T) {
	admin, dsn := ownedMigrated(t)
	s, p := open(t, dsn), pool(t, dsn) // an owner that row security holds
	fillRuns(t, pool(t, admin), manyRuns)
	first, err := s.Runs(t.Context(), "acme", schema.RunsQuery{Limit: 50})
	if err != nil || len(first) != 50 {
		t.Fatalf("%d runs, %v", len(first), err)
	}
	after := first[49].Cursor()
	rare, common := []schema.RunState{schema.StateRunning}, []schema.RunState{schema.StateDone, schema.StatePaused,
		schema.StateRunning}
	for name, q := range map[string]schema.RunsQuery{
		"first": {}, "next": {After: after}, "since": {Since: after.Started.Add(-time.Hour)},
		"until": {Until: after.Started, After: after},
		"rare":  {States: rare}, "rare next": {States: rare, After: after},
		"common next": {States: common, After: after, Since: time.Unix(0, 0)},
	} {
		q.Limit = 50
		begun := time.Now()
		if _, err := s.Runs(t.Context(), "acme", q); err != nil {
			t.Fatal(err)
		}
		took := time.Since(begun)
		text, args := s.RunsQuery("acme", q)
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plan, rows := explain(t, p, mode, text, args)
			if strings.Contains(plan, "Seq Scan") || rows > 50*(1+len(q.States)) ||
				strings.Contains(plan, "external") || !strings.Contains(plan, "agent_runs_list") {
				t.Errorf("%s, %s: %d rows\n%s", name, mode, rows, plan)
			}
		}
		t.Logf("%s: page of 50 among %d runs in %v", name, manyRuns, took.Round(10*time.Microsecond))
	}
	exec(t, pool(t, admin), `update agent_runs set asked_ts = first_ts, asks = '[]' where state = 'running'; analyze agent_runs`)
	for name, q := range map[string]schema.RunsQuery{"first": {}, "next": {After: after}, "oldest": {Oldest: true}} {
		q.Limit, q.Waits = 50, true
		text, args := s.RunsQuery("acme", q)
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plan, rows := explain(t, p, mode, text, args)
			if strings.Contains(plan, "Seq Scan") || strings.Contains(plan, "Sort") || rows > 50 ||
				!strings.Contains(plan, "agent_runs_waiting") {
				t.Errorf("waiting, %s, %s: %d rows\n%s", name, mode, rows, plan)
			}
		}
	}
	plan, rows := explain(t, p, "force_generic_plan", sqlstore.ParentQuery, []any{"acme", "kid_77778"})
	if !strings.Contains(plan, "agent_run_lanes_child") || rows != 1 {
		t.Errorf("%d rows\n%s", rows, plan)
	}
	begun := time.Now()
	if run, err := s.Parent(t.Context(), "acme", "kid_77778"); err != nil || run != "run_77778" {
		t.Errorf("%q, %v", run, err)
	}
	t.Logf("the root of one of %d children in %v", manyRuns, time.Since(begun).Round(10*time.Microsecond))
}

// explain runs a statement and returns its plan, with the most rows that any node has read.
func explain(t *testing.T, p *pgxpool.Pool, mode, text string, args []any) (string, int) {
	t.Helper()
	var plan strings.Builder
	most := 0
	err := pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `set local plan_cache_mode = `+mode+
			`; set local agentstream.tenant = 'acme'`); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), `explain (analyze, costs off, timing off) `+text, args...)
		if err != nil {
			return err
		}
		var line string
		_, err = pgx.ForEachRow(rows, []any{&line}, func() error {
			plan.WriteString(line + "\n")
			var n int
			if i := strings.Index(line, "actual rows="); i >= 0 {
				fmt.Sscanf(line[i:], "actual rows=%d", &n)
			}
			if i := strings.Index(line, "Rows Removed by Filter: "); i >= 0 {
				fmt.Sscanf(line[i:], "Rows Removed by Filter: %d", &n)
			}
			most = max(most, n)
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.String(), most
}

// TestUsageIsKept: why the sums are kept and not made when somebody asks. It prints what a page costs
// either way; the rows are those of runs with 40 messages of 4 KB each.
func TestUsageIsKept(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	const runs, messages = 50, 40
	words := persistertest.Event(schema.TypeTextDelta, `{"text":"word"}`)
	text := strings.Repeat("words and words ", 256)
	for i := range runs {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", i)}, day)
		var packs []schema.Pack
		for n := range messages {
			end := persistertest.Event(schema.TypeMessageEnd,
				fmt.Sprintf(`{"message_id":"m%d","content":[{"type":"text","text":%q}],`+
					`"usage":{"input_tokens":1000,"output_tokens":7}}`, n, text))
			packs = append(packs, w.Pack("", words, words, words, words, words, end))
		}
		if _, err := s.Append(t.Context(), chunks(t, packs...)); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, p, `vacuum analyze`)
	const atRead = `select r.id, (select jsonb_object_agg(k, n) from (select f.key as k, sum(f.value::text::bigint) as n
			from agent_run_events e cross join lateral jsonb_each(e.payload -> 'usage') f
			where e.koder_user_id = r.koder_user_id and e.run_day = r.run_day and e.run_id = r.id and e.type = 'message.end'
				and e.type in ('run.lifecycle', 'command.message', 'message.start', 'message.end') group by 1) x)::text
		from agent_runs r where koder_user_id = 'acme' order by first_ts desc, id desc limit 50`
	var kept, summed time.Duration
	const rounds = 20
	for range rounds {
		begun := time.Now()
		page, err := s.Runs(t.Context(), "acme", schema.RunsQuery{Limit: 50})
		if err != nil {
			t.Fatal(err)
		}
		kept += time.Since(begun)
		begun = time.Now()
		rows, err := p.Query(t.Context(), atRead)
		if err != nil {
			t.Fatal(err)
		}
		var id, usage string
		i := 0
		if _, err := pgx.ForEachRow(rows, []any{&id, &usage}, func() error {
			if got := schema.ParseUsage(usage); page[i].ID != id || got.String() != page[i].Usage.String() ||
				got["output_tokens"] != 7*messages {
				t.Errorf("%s: %s and kept %s", id, usage, page[i].Usage)
			}
			i++
			return nil
		}); err != nil || i != runs {
			t.Fatalf("%d rows, %v", i, err)
		}
		summed += time.Since(begun)
	}
	t.Logf("page of %d runs of %d messages: %v with kept sums, %v summed at read", runs, messages,
		(kept / rounds).Round(10*time.Microsecond), (summed / rounds).Round(10*time.Microsecond))
}
