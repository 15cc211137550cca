package postgres_test

import (
	"flag"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/internal/testkit"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

var damaged = flag.Uint64("damaged", 60, "how many damaged logs are stored")

// firstColumn returns a function that returns the first column of a query's result, as text.
func firstColumn(t *testing.T, p *pgxpool.Pool) func(text, arg string) []string {
	return func(text, arg string) (all []string) {
		rows, err := p.Query(t.Context(), text, arg)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var s string
			if err := rows.Scan(&s); err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		return all
	}
}

// TestDamagedLogs: in logs in which any control event is doubled, missing or late, lists and views show what a fold
// has.
func TestDamagedLogs(t *testing.T) {
	_, dsn := ownedMigrated(t)
	persistertest.CheckRepeats(t, open(t, dsn), *damaged,
		firstColumn(t, pool(t, dsn+"&options=-c%20agentstream.tenant%3D%2A")))
}

// TestModels: a run has the model of its newest message.
func TestModels(t *testing.T) {
	_, dsn := ownedMigrated(t)
	persistertest.CheckModels(t, open(t, dsn), firstColumn(t, pool(t, dsn+"&options=-c%20agentstream.tenant%3D%2A")))
}

// TestRepeatsInAnyOrder: events that come twice, in whatever order they are stored and stored again, are shown once,
// and ids that begin again in another turn are shown again.
func TestRepeatsInAnyOrder(t *testing.T) {
	_, dsn := ownedMigrated(t)
	s, ask := open(t, dsn), firstColumn(t, pool(t, dsn+"&options=-c%20agentstream.tenant%3D%2A"))
	for round := range uint64(12) {
		r := rand.New(rand.NewPCG(round, 5))
		key := schema.RunKey{Tenant: "acme_" + string(rune('a'+round)), Run: "run_" + string(rune('a'+round))}
		w := persistertest.NewWriter(key, day)
		var packs []schema.Pack
		for _, e := range persistertest.Twice() {
			packs = append(packs, w.Pack("", e))
		}
		if round > 0 {
			r.Shuffle(len(packs), func(i, j int) { packs[i], packs[j] = packs[j], packs[i] })
		}
		for _, batch := range deliver(r, packs) {
			appendPacks(t, s, batch...)
		}
		persistertest.CheckTwice(t, key, ask)
	}
}

// TestRepeatsOfOlderTables: what came twice before tables knew of repeats is shown once after the migration, which an
// owner without other rights runs, and what comes twice after it too.
func TestRepeatsOfOlderTables(t *testing.T) {
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, day)
	events := persistertest.Twice()
	last := len(events) - 1 // the end of a call
	first, second, third := w.Pack("", events[:last]...), w.Pack("", events[last]), w.Pack("", events[last])
	dsn := testkit.Postgres(t)
	persistertest.Put(t, open(t, dsn), first)
	admin, owner := owned(t)
	if err := postgres.MigrateTo(t.Context(), owner, 21); err != nil {
		t.Fatal(err)
	}
	from, p := pool(t, dsn), pool(t, admin)
	const columns = `select string_agg(quote_ident(column_name), ',' order by ordinal_position) from information_schema.columns
		where table_name = $1 and is_generated = 'NEVER'`
	exec(t, p, `create table agent_run_events_20260228 partition of agent_run_events for values from ('2026-02-28') to ('2026-03-01')`)
	for _, table := range []string{"agent_runs", "agent_run_lanes", "agent_run_events"} {
		copyTable(t, from, p, table, ask[string](t, p, columns, table), "true")
	}
	for _, version := range []int64{4, 11} { // they count and collect every event
		if err := postgres.MigrateAgain(t.Context(), owner, version, ""); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, p, `update agent_run_messages set message_id = '' where kind = 'end'`) // as they had them
	if got := ask[int](t, p, `select count(*) from agent_v_messages`); got != 3 {
		t.Fatalf("older tables have %d messages", got)
	}
	if _, err := tables.Migrate(t.Context(), owner, false); err != nil {
		t.Fatal(err)
	}
	if got, want := ask[string](t, p, frameTables), ask[string](t, from, frameTables); got != want {
		t.Errorf("kept are\n%s\nby appends\n%s", firstDifference(got, want), firstDifference(want, got))
	}
	s := open(t, owner)
	persistertest.Put(t, s, second)
	persistertest.Put(t, s, third)
	persistertest.CheckTwice(t, w.Key, firstColumn(t, pool(t, owner+"&options=-c%20agentstream.tenant%3D%2A")))
}
