package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister/persistertest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var views = []string{"agent_v_runs", "agent_v_messages", "agent_v_tool_calls", "agent_v_usage_daily"}

// readAll reads every column of every row of a view, as text.
func readAll(t testing.TB, p *pgxpool.Pool, view string) (rows int) {
	t.Helper()
	err := p.QueryRow(t.Context(), `select count(*), coalesce(sum(length(v::text)), 0)::bigint from `+view+
		` v`).Scan(&rows, new(int64))
	if err != nil {
		t.Errorf("%s: %v", view, err)
	}
	return rows
}

// put stores events as a run of its own.
func put(t testing.TB, s persistertest.SuiteStore, key schema.RunKey, events []schema.Event) {
	t.Helper()
	w := persistertest.NewWriter(key, day)
	var packs []schema.Pack
	for _, e := range events {
		packs = append(packs, w.Pack(e.ChildID, schema.Event{Type: e.Type, Payload: e.Payload}))
	}
	persistertest.Put(t, s, packs...)
}

// TestViewsOfScenarios: the views show for every scenario what its fold contains.
func TestViewsOfScenarios(t *testing.T) {
	_, dsn := ownedMigrated(t)
	s := open(t, dsn)
	p := pool(t, dsn+"&options=-c%20agentstream.tenant%3Dacme")
	for _, sc := range schematest.All() {
		key := schema.RunKey{Tenant: "acme", Run: "run_" + sc.Name}
		put(t, s, key, sc.Events)
		sameAsFold(t, p, sc.Name, key, sc.Events)
	}
	for _, v := range views {
		if readAll(t, p, v) == 0 {
			t.Errorf("%s is empty", v)
		}
	}
}

// sameAsFold compares the views with the fold of a run's events, and returns the numbers of messages and calls.
func sameAsFold(t *testing.T, p *pgxpool.Pool, name string, key schema.RunKey, events []schema.Event) (messages,
	calls int) {
	t.Helper()
	var fold schema.Fold
	for i := range events {
		e := events[i]
		e.Seq = schema.Seq(i + 1)
		fold.Add(&e)
	}
	for _, m := range fold.Messages {
		if m.ID == "" {
			continue
		}
		messages++
		var want strings.Builder
		for _, b := range m.Blocks {
			if b.Kind == "text" {
				want.WriteString(b.Text.String())
			}
		}
		var got *string
		var model, stop string
		var end int64
		err := p.QueryRow(t.Context(), `select text, coalesce(model, ''), coalesce(stop_reason, ''), coalesce(end_seq, 0) from agent_v_messages
			where run_id = $1 and seq = $2`, key.Run, int64(m.Start)).Scan(&got, &model, &stop, &end)
		if err != nil {
			t.Errorf("%s, message %q at %d: %v", name, m.ID, m.Start, err)
			continue
		}
		if got == nil && strings.ContainsAny(want.String(), "\x00\uFFFD") {
			continue // jsonb cannot hold it
		}
		if m.Role == "user" && m.Start == m.End {
			end = int64(m.End) // it has no end of its own
		}
		if got == nil || *got != want.String() && name != "hostile" || model != m.Model || stop != m.StopReason ||
			end != int64(m.End) {
			t.Errorf("%s, message %q at %d to %d: %.80q %q %q, want %.80q %q %q to %d", name, m.ID, m.Start, end,
				deref(got), model, stop,
				want.String(), m.Model, m.StopReason, m.End)
		}
	}
	for _, c := range fold.Calls {
		if c.Start == c.End {
			continue // its tool.start is not there
		}
		calls++
		var tool, id, outcome string
		var end int64
		err := p.QueryRow(t.Context(), `select coalesce(tool, ''), coalesce(call_id, ''), coalesce(outcome, ''), coalesce(end_seq, 0) from agent_v_tool_calls
			where run_id = $1 and seq = $2`, key.Run, int64(c.Start)).Scan(&tool, &id, &outcome, &end)
		if err != nil || tool != c.Tool && tool != "" || len(c.ID) < 200 &&
			id != strings.ReplaceAll(c.ID, "\x00", "\uFFFD") || c.Done != (end > 0) || c.OK != (outcome == "ok") {
			t.Errorf("%s, call %q at %d: %q %q %q to %d, %v; want %v to %d", name, c.ID, c.Start, tool, id, outcome,
				end, err, c.OK, c.End)
		}
	}
	return messages, calls
}

func deref(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

// nasty are values that stand where a view looks for another.
func nasty() []string {
	return []string{`null`, `true`, `"x"`, `""`, `-1`, `1.5`, `1e400`, `1e999`, `-0`, `123456789012345678901234567890`,
		`9223372036854775807`, `"\u0000"`, `"\ud800"`, `[]`, `{}`,
		`[null,1,"x",{"type":"text"},{"type":"text","text":{"a":1}},{"type":"text","text":"\u0000"},[[]]]`,
		`{"input_tokens":"7","output_tokens":[1],"cost":"x"}`,
		`{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807,"cost":1e300,"prompt_tokens_details":7}`,
		`{"input_tokens":-5,"output_tokens":1.5,"cost":-1,"input_tokens_details":{"cached_tokens":99}}`,
		`"` + strings.Repeat("é", 5000) + `"`, `"%_\\*"`}
}

// TestViewsNeverFail: every field that a view reads holds every nasty value, and everything is read.
func TestViewsNeverFail(t *testing.T) {
	_, dsn := ownedMigrated(t)
	s := open(t, dsn)
	run := 0
	fields := map[string][]string{
		schema.TypeMessageStart:   {"message_id", "role", "model", "usage"},
		schema.TypeMessageEnd:     {"message_id", "content", "stop_reason", "usage", "error"},
		schema.TypeToolStart:      {"call_id", "tool", "input", "skill_id"},
		schema.TypeToolEnd:        {"call_id", "ok", "error", "output", "duration_ms"},
		schema.TypeCommandMessage: {"content", "message_id"}, schema.TypeTextDelta: {"text"},
	}
	var batch []schema.Pack
	for typ, names := range fields {
		for _, name := range names {
			for _, v := range append(nasty(), persistertest.Hostile()...) {
				if len(v) > 20_000 {
					continue
				}
				w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprint("run_", run)}, day)
				run++
				around := map[string]string{schema.TypeMessageStart: `{"message_id":"m"}`,
					schema.TypeTextDelta: `{"text":"x"}`, schema.TypeToolStart: `{"call_id":"c","tool":"t"}`,
					schema.TypeToolEnd: `{"call_id":"c","ok":true}`, schema.TypeMessageEnd: `{"message_id":"m"}`,
					schema.TypeCommandMessage: `{"content":"x"}`}
				around[typ] = `{"` + name + `":` + v + `}`
				var events []schema.Event
				for _, k := range []string{schema.TypeCommandMessage, schema.TypeMessageStart, schema.TypeTextDelta,
					schema.TypeToolStart, schema.TypeToolEnd, schema.TypeMessageEnd} {
					events = append(events, persistertest.Event(k, around[k]))
				}
				batch = append(batch, w.Pack("", events...))
			}
		}
	}
	persistertest.Put(t, s, batch...)
	p := pool(t, dsn+"&options=-c%20agentstream.tenant%3Dacme")
	exec(t, p, `insert into agent_model_prices (model, input, output) values ('*', 1, 1), ('%', 1, 1), ('_\', 1, 1), ('é*é', 3, 3)`)
	for _, v := range views {
		if n := readAll(t, p, v); n == 0 {
			t.Errorf("%s is empty", v)
		}
	}
	if n := ask[int](t, p, `select count(*) from agent_run_usage`); n != run {
		t.Errorf("usage has %d rows of %d", n, run)
	}
}

// TestUsageInAnyOrder: usage is counted once and under its model, in whichever order packs are stored, and
// it goes with the run.
func TestUsageInAnyOrder(t *testing.T) {
	_, dsn := ownedMigrated(t)
	s := open(t, dsn)
	w := persistertest.NewWriter(key, day)
	var packs []schema.Pack
	for i := range 4 {
		child := []string{"", "kid"}[i%2]
		packs = append(packs, w.Pack(child, persistertest.Event(schema.TypeMessageStart,
			fmt.Sprintf(`{"message_id":"m%d","role":"assistant","model":"model-%d"}`, i, i))),
			w.Pack(child, persistertest.Event(schema.TypeMessageEnd,
				fmt.Sprintf(`{"message_id":"m%d","content":[{"type":"text","text":"\u0000"}],"usage":{"input_tokens":%d}}`, i, 1<<i))))
	}
	p := pool(t, dsn+"&options=-c%20agentstream.tenant%3D%2A")
	const asked = `select string_agg(concat_ws(' ', model, input_tokens, messages, calls), ', ' order by model) from agent_v_usage_daily`
	const want = "model-0 1 1 1, model-1 2 1 1, model-2 4 1 1, model-3 8 1 1"
	for n, order := range permutations(len(packs)) {
		if n%997 != 0 { // some of 40,320
			continue
		}
		for _, i := range order {
			appendPacks(t, s, packs[i])
		}
		appendPacks(t, s, packs...)
		if got := ask[string](t, p, asked); got != want {
			t.Fatalf("in the order %v: %s", order, got)
		}
		if n%2 == 0 {
			exec(t, p, `update agent_runs set deleted_at = now()`)
			if left := ask[int](t, p, `select (select count(*) from agent_run_usage) + (select count(*) from agent_run_messages)`); left != 0 {
				t.Fatalf("%d rows are left of a run that is to be forgotten", left)
			}
		}
		exec(t, p, `delete from agent_run_events; delete from agent_runs; delete from agent_run_lanes`)
	}
}

func permutations(n int) (all [][]int) {
	if n == 0 {
		return [][]int{nil}
	}
	for _, p := range permutations(n - 1) {
		for at := range n {
			q := append(append(append([]int(nil), p[:at]...), n-1), p[at:]...)
			all = append(all, q)
		}
	}
	return all
}

// TestCost: the cost that a provider reports wins, then the longest name that fits, then the newest price.
func TestCost(t *testing.T) {
	_, dsn := ownedMigrated(t)
	s := open(t, dsn)
	w := persistertest.NewWriter(key, day)
	message := func(model, usage string) schema.Pack {
		return w.Pack("", persistertest.Event(schema.TypeMessageStart,
			`{"message_id":"`+model+`","role":"assistant","model":"`+model+`"}`),
			persistertest.Event(schema.TypeMessageEnd, `{"message_id":"`+model+`","usage":`+usage+`}`))
	}
	appendPacks(t, s, message("a-1", `{"input_tokens":1000000,"output_tokens":10,"cache_read_input_tokens":500000}`),
		message("a-2", `{"prompt_tokens":3000000,"completion_tokens":0,"prompt_tokens_details":{"cached_tokens":1000000}}`),
		message("b", `{"promptTokenCount":7,"candidatesTokenCount":1,"thoughtsTokenCount":2,"cost":0.25}`),
		message("c", `{"input_tokens":1}`), message("d", `{}`))
	p := pool(t, dsn+"&options=-c%20agentstream.tenant%3Dacme")
	exec(t, p, `insert into agent_model_prices (model, valid_from, input, output, cache_read) values
		('a-*', '2020-01-01', 1, 1, 0.1), ('a-1', '2020-01-01', 9, 9, 9), ('a-1', '2026-01-01', 2, 100000, 0.5), ('a-1', '2027-01-01', 7, 7, 7)`)
	got := ask[string](t, p, `select string_agg(concat_ws(' ', model, input_tokens, output_tokens, cache_read_tokens, coalesce(cost::text, 'null')), ', ' order by model) from agent_v_usage_daily`)
	const want = "a-1 1000000 10 500000 3.250000, a-2 2000000 0 1000000 2.100000, b 7 3 0 0.250000, c 1 0 0 null, d 0 0 0 null"
	if got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestPrices(t *testing.T) {
	_, dsn := ownedMigrated(t)
	p := pool(t, dsn+"&options=-c%20agentstream.tenant%3Dacme")
	s := open(t, dsn)
	persistertest.CheckPrices(t, s, s, func(query string) string { return ask[string](t, p, query) },
		func(model, from string, price float64) {
			exec(t, p, fmt.Sprintf(`insert into agent_model_prices (model, valid_from, input, output) values ('%s', '%s', %v, %v)`, model, from, price, price))
		})
}

func TestCostsOfChildren(t *testing.T) {
	_, dsn := ownedMigrated(t)
	s := open(t, dsn)
	persistertest.CheckCostsOfChildren(t, s, s)
}
