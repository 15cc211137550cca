package postgres_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// frameTables is what is kept for the views.
const frameTables = `select concat(
	(select string_agg(m::text, E'\n' order by koder_user_id, run_id, seq) from agent_run_messages m), E'\n\n',
	(select string_agg(c::text, E'\n' order by koder_user_id, run_id, seq) from agent_run_tool_calls c), E'\n\n',
	(select string_agg(u::text, E'\n' order by koder_user_id, run_id, seq) from agent_run_usage u))`

// framing makes the packs of some runs that frame their messages and calls, not always well: ids are used again,
// starts and ends are missing, values are of any kind. Some packs of a forger hold the same places.
func framing(r *rand.Rand) (packs []schema.Pack) {
	values := append(nasty(), `"m"`, `"a"`, `"`+strings.Repeat("a", 300)+`"`, `"`+strings.Repeat("a", 299)+`b"`)
	value := func() string { return values[r.IntN(len(values))] }
	event := func() schema.Event {
		switch r.IntN(7) {
		case 0, 1:
			return persistertest.Event(schema.TypeMessageStart,
				fmt.Sprintf(`{"message_id":%s,"model":%s,"role":%s}`, value(), value(), value()))
		case 2:
			return persistertest.Event(schema.TypeMessageEnd,
				fmt.Sprintf(`{"usage":{"input_tokens":%d},"stop_reason":%s}`, r.IntN(99), value()))
		case 3:
			return persistertest.Event(schema.TypeMessageEnd, fmt.Sprintf(`{"usage":%s,"content":%s}`, value(), value()))
		case 4:
			return persistertest.Event(schema.TypeToolStart, fmt.Sprintf(`{"call_id":%s,"tool":%s}`, value(), value()))
		case 5:
			return persistertest.Event(schema.TypeToolEnd,
				fmt.Sprintf(`{"call_id":%s,"ok":%s,"duration_ms":%s}`, value(), value(), value()))
		}
		return persistertest.Event(schema.TypeCommandMessage, fmt.Sprintf(`{"content":%s}`, value()))
	}
	for i := range 3 {
		key := schema.RunKey{Tenant: []string{"acme", "globex"}[i%2], Run: fmt.Sprint("run_", i)}
		w, forger := persistertest.NewWriter(key, day), persistertest.NewWriter(key, day)
		for range 20 {
			var events []schema.Event
			for range 1 + r.IntN(12) {
				events = append(events, event())
			}
			packs = append(packs, w.Pack([]string{"", "", "kid"}[r.IntN(3)], events...))
			if r.IntN(6) == 0 {
				forger.Head = w.Head
				forger.Head.Last -= schema.Seq(r.IntN(len(events) + 1))
				packs = append(packs, forger.Pack("kid", event(), persistertest.Event(schema.TypeTextDelta, `{"text":"forged"}`)))
			}
		}
	}
	return packs
}

// TestFramesInAnyOrder: whatever comes in whichever order, again, at the same places, through two stores, what is
// kept for the views follows from the stored events: it equals what is kept when those are stored once and in order.
func TestFramesInAnyOrder(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 23))
		dsn, orderedDSN := migrated(t), migrated(t)
		stores := []*postgres.Store{open(t, dsn), open(t, dsn)}
		if seed%3 == 2 {
			stores[0].Copyless()
		}
		packs := framing(r)
		shuffled := slices.Clone(packs)
		r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		for _, batch := range append(deliver(r, shuffled), deliver(r, packs)...) {
			appendPacks(t, stores[r.IntN(2)], batch...)
		}
		p, q := pool(t, dsn), pool(t, orderedDSN)
		ordered := open(t, orderedDSN)
		restore(t, p, ordered)
		got, want := ask[string](t, p, frameTables), ask[string](t, q, frameTables)
		if got != want || len(got) < 10_000 {
			t.Fatalf("seed %d: kept are\n%s\nin order\n%s", seed, firstDifference(got, want), firstDifference(want, got))
		}
		// as version 16 had them
		exec(t, q, `update agent_run_tool_calls set start_seq = 0, took_ms = null, tool = '' where kind = 'end'`)
		if err := postgres.MigrateAgain(t.Context(), orderedDSN, 18,
			`drop index agent_run_tool_calls_took, agent_runs_waiting`); err != nil {
			t.Fatal(err)
		}
		if got := ask[string](t, q, frameTables); got != want {
			t.Fatalf("seed %d: linked are\n%s\nby appends\n%s", seed, firstDifference(got, want), firstDifference(want, got))
		}
		exec(t, q, `truncate agent_run_messages, agent_run_tool_calls, agent_run_usage`)
		if err := postgres.MigrateAgain(t.Context(), orderedDSN, 11, ""); err != nil {
			t.Fatal(err)
		}
		if err := postgres.MigrateAgain(t.Context(), orderedDSN, 22, `drop index agent_run_messages_named`); err != nil {
			t.Fatal(err)
		}
		if got := ask[string](t, q, frameTables); got != want {
			t.Fatalf("seed %d: collected are\n%s\nby appends\n%s", seed, firstDifference(got, want), firstDifference(want, got))
		}
	}
}

// firstDifference returns the lines of a that b does not have, some of them.
func firstDifference(a, b string) string {
	have := make(map[string]bool)
	for line := range strings.Lines(b) {
		have[line] = true
	}
	var out strings.Builder
	for line := range strings.Lines(a) {
		if !have[line] && out.Len() < 1500 {
			out.WriteString(line)
		}
	}
	return out.String()
}

// restore stores the events of a database in another store, each by itself and in order.
func restore(t *testing.T, from *pgxpool.Pool, to *postgres.Store) {
	t.Helper()
	rows, err := from.Query(t.Context(), `select koder_user_id, run_id, to_char(run_day, 'YYYYMMDD'), coalesce(child_id, ''), seq, line
		from agent_run_events order by koder_user_id, run_id, seq`)
	if err != nil {
		t.Fatal(err)
	}
	var packs []schema.Pack
	for rows.Next() {
		p := schema.Pack{Count: 1, Writer: "w1"}
		var line string
		if err := rows.Scan(&p.Key.Tenant, &p.Key.Run, &p.Head.Day, &p.Child, &p.First, &line); err != nil {
			t.Fatal(err)
		}
		p.Head.Last, p.Head.LastID, p.Body = p.First, "evt", []byte(line+"\n")
		packs = append(packs, p)
	}
	appendPacks(t, to, packs...)
}

// TestFramesGoWithEvents: what is kept for the views goes with the rows, whether they are removed or their partition
// is dropped; usage stays until the run is forgotten.
func TestFramesGoWithEvents(t *testing.T) {
	dsn := migrated(t)
	s := open(t, dsn)
	p := pool(t, dsn)
	left := func(run string) string {
		return ask[string](t, p, fmt.Sprintf(`select concat_ws(' ', (select count(*) from agent_run_messages where run_id = '%[1]s'),
			(select count(*) from agent_run_tool_calls where run_id = '%[1]s'), (select count(*) from agent_run_usage where run_id = '%[1]s'))`, run))
	}
	frames := func(run, day string) (schema.RunKey, persister.EndedRun) {
		key := schema.RunKey{Tenant: "acme", Run: run}
		appendPacks(t, s, persistertest.NewWriter(key, day).Pack("",
			persistertest.Event(schema.TypeMessageStart, `{"message_id":"m"}`), usageEnd(1),
			persistertest.Event(schema.TypeToolStart, `{"call_id":"c"}`),
			persistertest.Event(schema.TypeToolEnd, `{"call_id":"c"}`), persistertest.Lifecycle(schema.StateDone)))
		if got := left(run); got != "2 2 1" {
			t.Fatalf("%s has %s", run, got)
		}
		return key, persister.EndedRun{Key: key, Place: persister.Place{Last: 5}}
	}
	_, removed := frames("removed", "20260101")
	_, dropped := frames("dropped", "20260102")
	forgotten, _ := frames("forgotten", "20260103")
	kept, _ := frames("kept", "20260101")
	marked, err := s.Expire(t.Context(), []persister.EndedRun{removed, dropped}, time.Now())
	if err != nil || len(marked) != 2 {
		t.Fatal(marked, err)
	}
	scraps, err := s.Scraps(t.Context(), 0, 10)
	if err != nil || len(scraps) != 2 {
		t.Fatal(scraps, err)
	}
	if days, err := s.DropDays(t.Context(), []string{"20260102"}); err != nil || len(days) != 1 {
		t.Fatal(days, err)
	}
	for _, c := range scraps {
		if c.Key.Run == "removed" {
			if _, _, err := s.RemoveRows(t.Context(), []persister.Scrap{c}, 100); err != nil {
				t.Fatal(err)
			}
			if got := left("removed"); got != "0 0 1" {
				t.Errorf("of the run whose rows are removed there are %s", got)
			}
		}
		if err := s.Discard(t.Context(), []int64{c.ID}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Forget(t.Context(), forgotten, schema.Head{}, time.Now()); err != nil {
		t.Fatal(err)
	}
	for run, want := range map[string]string{"removed": "0 0 1", "dropped": "0 0 1", "forgotten": "0 0 0",
		kept.Run: "2 2 1"} {
		if got := left(run); got != want {
			t.Errorf("%s: %s are left, want %s", run, got, want)
		}
	}
}
