package postgres_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/internal/testkit"
	"agentstream/persister/postgres/tables"
)

// scaleEvents is how many events TestViewsAtScale stores, of how many days; AGENTSTREAM_SCALE_EVENTS and
// AGENTSTREAM_SCALE_DAYS set them.
const (
	scaleEvents = 200_000
	scaleDays   = 90
)

// Of the runs of TestViewsAtScale: 200 events each, ten messages and ten tool calls among them, twenty
// tenants.
const (
	scalePerRun  = 200
	scaleTenants = 20
)

// fillDay writes the runs of one day into its partition.
const fillDay = `insert into agent_run_events_%[1]s (koder_user_id, run_day, run_id, seq, id, type, ts, line, payload)
select 'tenant_' || r %% %[4]d, date '%[2]s', 'run_%[1]s_' || r, s, 'evt_%[1]s_' || r || '_' || s, typ, date '%[2]s' + make_interval(secs => r %% 80000 + s),
	'{"id":"evt","type":"' || typ || '","payload":' || body || '}', body::jsonb
from generate_series(1, %[3]d) r, generate_series(1, %[5]d) s,
	lateral (select case s %% 20 when 1 then 'message.start' when 16 then 'message.end' when 17 then 'tool.start' when 18 then 'tool.end' else 'text.delta' end) x (typ),
	lateral (select case typ
		when 'message.start' then '{"message_id":"m' || s || '","role":"assistant","model":"model-' || r %% 3 || '"}'
		when 'message.end' then '{"message_id":"m' || s - 15 || '","content":[{"type":"text","text":"' || repeat('word ', 60) || '"}],"stop_reason":"end_turn","usage":{"input_tokens":900,"output_tokens":70}}'
		when 'tool.start' then '{"call_id":"c' || s || '","tool":"grep","input":{"q":"x"}}'
		when 'tool.end' then '{"call_id":"c' || s - 1 || '","ok":true,"duration_ms":12}'
		else '{"text":"some words of a model that goes on ' || s || '"}' end) y (body)`

const fillDayRuns = `insert into agent_runs (koder_user_id, id, run_day, state, last_seq, last_id, first_ts, last_ts, usage)
select 'tenant_' || r %% %[4]d, 'run_%[1]s_' || r, date '%[2]s', 'done', %[5]d, 'evt', date '%[2]s' + make_interval(secs => r %% 80000),
	date '%[2]s' + make_interval(secs => r %% 80000 + %[5]d), '{"output_tokens":700}' from generate_series(1, %[3]d) r`

// fillDayViews writes what an append would write for the views.
const fillDayViews = `
insert into agent_run_messages (koder_user_id, run_id, lane, kind, seq, run_day, ts, message_id, role, model, stop_reason)
select koder_user_id, run_id, '', case type when 'message.start' then 'start' else 'end' end, seq, run_day, ts, coalesce(payload ->> 'message_id', ''),
	coalesce(payload ->> 'role', ''), coalesce(payload ->> 'model', ''), coalesce(payload ->> 'stop_reason', '')
from agent_run_events_%[1]s where type in ('message.start', 'message.end');
insert into agent_run_tool_calls (koder_user_id, run_id, lane, call_id, kind, seq, run_day, ts, tool, outcome, duration_ms, start_seq, took_ms)
select koder_user_id, run_id, '', payload ->> 'call_id', case type when 'tool.start' then 'start' else 'end' end, seq, run_day, ts,
	case type when 'tool.end' then 'grep' else coalesce(payload ->> 'tool', '') end, case type when 'tool.end' then 'ok' else '' end, (payload ->> 'duration_ms')::float8,
	case type when 'tool.end' then seq - 1 else 0 end, (payload ->> 'duration_ms')::float8
from agent_run_events_%[1]s where type in ('tool.start', 'tool.end');
insert into agent_run_usage (koder_user_id, run_id, seq, day, start_seq, model, reported, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens)
select e.koder_user_id, e.run_id, e.seq, e.ts::date, e.seq - 15, s.payload ->> 'model', true, 900, 70, 0, 0
from agent_run_events_%[1]s e join agent_run_events_%[1]s s on s.koder_user_id = e.koder_user_id and s.run_id = e.run_id and s.seq = e.seq - 15
where e.type = 'message.end'`

func fillScale(t *testing.T, p *pgxpool.Pool, events, days int) {
	t.Helper()
	perDay := max(events/scalePerRun/days, 8)
	first := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for d := range days {
		at := first.AddDate(0, 0, d)
		name, date := at.Format("20060102"), at.Format(time.DateOnly)
		exec(t, p, fmt.Sprintf(`create table agent_run_events_%s (like agent_run_events including all);
			alter table agent_run_events attach partition agent_run_events_%s for values from ('%s') to ('%s')`, name, name, date, at.AddDate(0, 0, 1).Format(time.DateOnly)))
		exec(t, p, fmt.Sprintf(fillDayRuns, name, date, perDay, scaleTenants, scalePerRun))
		exec(t, p, fmt.Sprintf(fillDay, name, date, perDay, scaleTenants, scalePerRun))
		exec(t, p, fmt.Sprintf(fillDayViews, name))
	}
	exec(t, p, `vacuum analyze`)
}

// documented are the queries of docs/sql.md, by what they are about. An analyst asks them.
var documented = []struct{ name, text string }{
	{"runs, newest 20", `select * from agent_v_runs order by started desc limit 20`},
	{"runs of a day", `select * from agent_v_runs where started >= '2026-02-10' and started < '2026-02-11'`},
	{"one run", `select * from agent_v_runs where run_id = 'run_20260210_%d'`},
	{"messages of a run", `select seq, role, model, started, ended, text, output_tokens from agent_v_messages where run_id = 'run_20260210_%d' order by seq`},
	{"messages, no text", `select seq, role, model, started, ended, output_tokens from agent_v_messages where run_id = 'run_20260210_%d' order by seq`},
	{"messages, newest 20", `select run_id, seq, role, text from agent_v_messages order by started desc limit 20`},
	{"newest 20, no text", `select run_id, seq, role, model, output_tokens from agent_v_messages order by started desc limit 20`},
	{"messages of an hour", `select run_id, seq, model, text from agent_v_messages where started >= '2026-02-10 00:00' and started < '2026-02-10 01:00' limit 100`},
	{"tool calls of a run", `select tool, outcome, duration_ms from agent_v_tool_calls where run_id = 'run_20260210_%d' order by seq`},
	{"tool calls of a day", `select tool, outcome, count(*), percentile_disc(0.95) within group (order by duration_ms) as p95_ms from agent_v_tool_calls where started >= '2026-02-10' and started < '2026-02-11' group by 1, 2`},
	{"slowest tools, all calls", slowestTools},
	{"calls with input", `select tool, input, output from agent_v_tool_calls where run_id = 'run_20260210_%d' order by seq`},
	{"tool calls, newest 20", `select run_id, tool, outcome, duration_ms from agent_v_tool_calls order by started desc limit 20`},
	{"usage of 90 days", `select day, model, messages, input_tokens, output_tokens, cost from agent_v_usage_daily where day >= '2026-01-01' and day < '2026-04-01' order by day, model`},
	{"cost of a month", `select model, sum(input_tokens), sum(cost) from agent_v_usage_daily where day >= '2026-02-01' and day < '2026-03-01' group by model`},
}

const slowestTools = `select tool, count(*), percentile_disc(0.95) within group (order by duration_ms) as p95_ms, max(duration_ms) as max_ms
from agent_v_tool_times group by tool order by p95_ms desc limit 20`

// TestToolTimesPlan: the slowest tools over all calls come from an index alone.
func TestToolTimesPlan(t *testing.T) {
	server := testkit.StartPostgres(t)
	admin := server.Database(t)
	owner := as(admin, makeOwner(t, admin))
	open(t, owner)
	fillScale(t, pool(t, admin), 20_000, 2)
	exec(t, pool(t, admin), `create role analyst login`)
	if err := tables.GrantAnalyst(t.Context(), owner, "analyst", "tenant_7"); err != nil {
		t.Fatal(err)
	}
	plan := looked(t, as(admin, "analyst"), `explain (costs off) `+slowestTools)
	if !strings.Contains(plan, "Index Only Scan using agent_run_tool_calls_took") || strings.Contains(plan, "Join") ||
		strings.Contains(plan, "Loop") {
		t.Error(plan)
	}
}

// TestViewsAtScale prints what the documented queries take for an analyst of one tenant of twenty.
func TestViewsAtScale(t *testing.T) {
	events, days, rounds := scaleEvents, scaleDays, 5
	if n, err := strconv.Atoi(os.Getenv("AGENTSTREAM_SCALE_DAYS")); err == nil {
		days = n
	}
	if n, err := strconv.Atoi(os.Getenv("AGENTSTREAM_SCALE_EVENTS")); err == nil {
		events, rounds = n, 50
	}
	server := testkit.StartPostgres(t)
	admin := server.Database(t)
	owner := as(admin, makeOwner(t, admin))
	open(t, owner)
	p := pool(t, admin)
	begun := time.Now()
	fillScale(t, p, events, days)
	t.Logf("%d events stored in %v", ask[int](t, p, `select count(*) from agent_run_events`),
		time.Since(begun).Round(time.Second))
	exec(t, p, `insert into agent_model_prices (model, input, output) values ('model-*', 3, 15)`)
	exec(t, p, `create role analyst login`)
	if err := tables.GrantAnalyst(t.Context(), owner, "analyst", "tenant_7"); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), as(admin, "analyst"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var backend int
	if err := conn.QueryRow(t.Context(), `select pg_backend_pid()`).Scan(&backend); err != nil {
		t.Fatal(err)
	}
	for _, q := range documented {
		var took []time.Duration
		used := cpuOf(backend)
		rows := 0
		for i := range rounds {
			text := q.text
			if runs := (max(events/scalePerRun/days, 8)-7)/scaleTenants + 1; slices.Contains([]byte(text), '%') {
				text = fmt.Sprintf(text, 7+scaleTenants*(i%runs)) // another one of the tenant
			}
			begun := time.Now()
			results, err := conn.PgConn().Exec(t.Context(), text).ReadAll()
			if err != nil {
				t.Fatalf("%s: %v", q.name, err)
			}
			rows = max(rows, len(results[0].Rows))
			took = append(took, time.Since(begun))
		}
		slices.Sort(took)
		t.Logf("%-24s p50 %8v  p99 %8v  cpu %8v  %d rows", q.name, took[len(took)/2].Round(10*time.Microsecond),
			took[len(took)*99/100].Round(10*time.Microsecond),
			((cpuOf(backend) - used) / time.Duration(rounds)).Round(100*time.Microsecond), rows)
		if rows == 0 {
			t.Errorf("%s: nothing is found", q.name)
		}
		if os.Getenv("AGENTSTREAM_SCALE_PLANS") != "" {
			text := q.text
			if slices.Contains([]byte(text), '%') {
				text = fmt.Sprintf(text, 7)
			}
			t.Log(looked(t, as(admin, "analyst"), `explain (analyze, costs off, summary on) `+text))
		}
	}
}

// cpuOf is the CPU time that a process has used, in steps of 10 ms; 0 where the system does not tell. On a
// machine that does other work it says more than the clock.
func cpuOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // user and system
		n, _ := strconv.Atoi(f)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}
