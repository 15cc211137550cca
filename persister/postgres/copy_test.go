package postgres_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"agentstream/internal/testkit"
	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// count fails when an append did something else.
func count(t testing.TB, what string, got persister.Result, inserted, repeated, dropped, conflicts int) {
	t.Helper()
	if got.Inserted != inserted || got.Repeated != repeated || got.Dropped != dropped || len(got.Conflicts) != conflicts {
		t.Fatalf("%s: %+v; want inserted %d, repeated %d, dropped %d, conflicts %d", what, got, inserted, repeated,
			dropped, conflicts)
	}
}

func usageEnd(n int) schema.Event {
	return persistertest.Event(schema.TypeMessageEnd, fmt.Sprintf(`{"usage":{"output_tokens":%d}}`, n))
}

// TestKeysTakenMeanwhile: two stores wait for one run with the same rows. The second one knows, when it has the run, that
// the first stored them. Where a run's row says less than its rows, what is copied is found there, and inserted instead.
func TestKeysTakenMeanwhile(t *testing.T) {
	dsn := migrated(t)
	a, b, p := open(t, dsn), open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	first, end, rest := w.Texts("", 10), w.Pack("", usageEnd(7)), w.Texts("", 60)
	appendPacks(t, a, first)
	appendPacks(t, b, first)
	tx, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `select from agent_runs for update`); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var results [2]persister.Result
	for i, s := range []*postgres.Store{a, b} {
		wg.Go(func() {
			c, err := persister.Chunks(end, rest)
			if err == nil {
				results[i], err = s.Append(t.Context(), c)
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	locked(t, p, 2)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if in, re := results[0].Inserted+results[1].Inserted, results[0].Repeated+results[1].Repeated; in != 61 || re != 61 {
		t.Errorf("%+v", results)
	}
	if n := a.Races() + b.Races(); n != 0 {
		t.Errorf("%d transactions were done again", n)
	}
	exec(t, p, `update agent_runs set last_seq = 20`)
	if got := appendPacks(t, a, rest); got.Repeated != 60 || a.Races() != 1 {
		t.Errorf("%+v, %d transactions were done again, want 1", got, a.Races())
	}
	if n := ask[int](t, p, `select count(*) from agent_run_events`); n != 71 {
		t.Errorf("%d rows", n)
	}
	if u := ask[string](t, p, `select usage->>'output_tokens' from agent_runs`); u != "7" {
		t.Errorf("usage is %s: counted more than once", u)
	}
}

// TestFloor: rows that have left the table for good are not written again, and a run that goes on is neither
// archived nor expired any more.
func TestFloor(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	old := []schema.Pack{w.Texts("", 4), w.Pack("", usageEnd(5)), w.Texts("", 25)}
	appendPacks(t, s, old...)
	exec(t, p, `update agent_runs set floor_seq = 20, archived_seq = 30, archived_at = now(), expired_at = now(), expired_seq = 20`)
	exec(t, p, `delete from agent_run_events where seq <= 20`)
	count(t, "again", appendPacks(t, s, old...), 0, 10, 20, 0)
	if !ask[bool](t, p, `select archived_at is not null and expired_at is not null from agent_runs`) {
		t.Error("a run that stands still is no longer archived or expired")
	}
	more := w.Texts("", 40)
	count(t, "again and more", appendPacks(t, s, append(old, more)...), 40, 10, 20, 0)
	if n := ask[int](t, p, `select count(*) from agent_run_events where seq > 20`); n != 50 ||
		n != ask[int](t, p, `select count(*) from agent_run_events`) {
		t.Errorf("%d rows behind the floor", n)
	}
	if !ask[bool](t, p, `select archived_at is null and expired_at is null and archived_seq = 30 and floor_seq = 20 and last_seq = 70
		and usage->>'output_tokens' = '5' from agent_runs`) {
		t.Error("run is", ask[string](t, p, `select r::text from agent_runs r`))
	}
}

// TestForgottenRun: of a run that is to be forgotten nothing moves, and its neighbours are stored.
func TestForgottenRun(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w, other := persistertest.NewWriter(key, day), persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_2"},
		day)
	appendPacks(t, s, w.Texts("", 3))
	exec(t, p, fmt.Sprintf(`update agent_runs set floor_seq = %d, deleted_at = now()`, schema.MaxSeq))
	before := ask[string](t, p, `select r::text from agent_runs r`)
	w.Lanes[""] = schema.Lane{Owner: "o", Epoch: 9}
	late := []schema.Pack{w.Texts("", 50), w.Texts("kid", 1), w.Pack("", usageEnd(3))}
	count(t, "late", appendPacks(t, s, append(late, other.Texts("", 30))...), 30, 0, 52, 0)
	count(t, "late alone", appendPacks(t, s, late...), 0, 0, 52, 0)
	if after := ask[string](t, p, `select r::text from agent_runs r where id = 'run_1'`); after != before {
		t.Errorf("run was\n%s\nand is\n%s", before, after)
	}
	if n := ask[int](t, p, `select count(*) from agent_run_lanes`); n != 0 {
		t.Errorf("%d lanes", n)
	}
	if n := ask[int](t, p, `select count(*) from agent_run_events where run_id = 'run_1'`); n != 3 {
		t.Errorf("%d rows", n)
	}
}

// TestManyDays: a batch is of several days, some with many rows and one with a few.
func TestManyDays(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	rows := map[string]int{"20260227": 100, "20260228": 30, "20260301": 64, "20260302": 1}
	var packs []schema.Pack
	for d, n := range rows {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_" + d}, d)
		packs = append(packs, w.Texts("kid", n))
	}
	count(t, "new", appendPacks(t, s, packs...), 195, 0, 0, 0)
	count(t, "again", appendPacks(t, s, packs...), 0, 195, 0, 0)
	for d, n := range rows {
		if got := ask[int](t, p, `select count(*) from agent_run_events_`+d+` where run_id = $1 and child_id = 'kid'`,
			"run_"+d); got != n {
			t.Errorf("%s has %d rows of %d", d, got, n)
		}
	}
}

// TestConflictsBesideCopies: what is new is stored, what is there already is compared, both in one batch and
// within it.
func TestConflictsBesideCopies(t *testing.T) {
	dsn := migrated(t)
	s := open(t, dsn)
	w, forger := persistertest.NewWriter(key, day), persistertest.NewWriter(key, day)
	a, b := w.Texts("", 30), w.Texts("", 50)
	appendPacks(t, s, a)
	forger.Texts("", 4)
	forged := []schema.Pack{forger.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"forged"}`))} // seq 5
	forger.Texts("", 40)
	forged = append(forged, forger.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"forged"}`))) // seq 46
	res := appendPacks(t, s, a, b, forged[0], forged[1], b)
	count(t, "mixed", res, 50, 80, 0, 2)
	if n := s.Races(); n != 0 {
		t.Errorf("%d transactions were done again: rows that were there were copied", n)
	}
	if res.Conflicts[0].Chunk != 2 || res.Conflicts[1].Chunk != 3 {
		t.Errorf("conflicts are %+v", res.Conflicts)
	}
	if got := replayed(t, s, key); !bytes.Equal(got, append(bytes.Clone(a.Body), b.Body...)) {
		t.Error("stored rows differ")
	}
}

// TestPartitionUnderCopy: a partition that was dropped, detached or is being detached takes no row that
// readers would not see.
func TestPartitionUnderCopy(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	var want []byte
	for _, statement := range []string{
		`select`,
		`drop table agent_run_events_20260228`,
		`alter table agent_run_events detach partition agent_run_events_20260228`,
		`alter table agent_run_events detach partition agent_run_events_20260228 concurrently`,
	} {
		exec(t, p, statement)
		if strings.HasPrefix(statement, "drop") {
			want = nil
		}
		pack := w.Texts("", 100)
		want = append(want, pack.Body...)
		count(t, statement, appendPacks(t, s, pack), 100, 0, 0, 0)
		var got []byte
		rows, err := p.Query(t.Context(), `select line from agent_run_events order by seq`)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			got = append(append(got, rows.RawValues()[0]...), '\n')
		}
		if err := rows.Err(); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes in the table, want %d (%v)", statement, len(got), len(want), err)
		}
	}
}

// TestHalfDetached: whoever began to detach a partition was called off. Rows for it are stored all the same.
func TestHalfDetached(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	a, b, c := w.Texts("", 50), w.Texts("", 50), w.Texts("", 1)
	appendPacks(t, s, a)
	for _, pack := range []schema.Pack{b, c} {
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `select from agent_run_events limit 1`); err != nil {
			t.Fatal(err)
		}
		conn, err := p.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{`set statement_timeout = 300`,
			`alter table agent_run_events detach partition agent_run_events_20260228 concurrently`, `reset statement_timeout`} {
			_, _ = conn.Exec(t.Context(), statement)
		}
		conn.Release()
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !ask[bool](t, p, `select inhdetachpending from pg_inherits where inhrelid = 'agent_run_events_20260228'::regclass`) {
			t.Fatal("the partition is not half detached")
		}
		count(t, "half detached", appendPacks(t, s, pack), pack.Count, 0, 0, 0)
	}
	if got := replayed(t, s, key); !bytes.Equal(got, bytes.Join([][]byte{a.Body, b.Body, c.Body}, nil)) {
		t.Error("stored rows differ")
	}
}

// TestLargeRows: rows larger than the driver's buffer, and many of them.
func TestLargeRows(t *testing.T) {
	dsn := migrated(t)
	s := open(t, dsn)
	w := persistertest.NewWriter(key, day)
	var packs []schema.Pack
	var want []byte
	for i := range 60 {
		packs = append(packs, w.Pack("", persistertest.Event(schema.TypeTextDelta,
			`{"text":"`+strings.Repeat(fmt.Sprint(i%10), 11_000*(i%7))+`"}`)))
		want = append(want, packs[i].Body...)
	}
	count(t, "large", appendPacks(t, s, packs...), 60, 0, 0, 0)
	if !bytes.Equal(replayed(t, s, key), want) {
		t.Error("stored rows differ")
	}
	p := pool(t, dsn)
	if n := ask[int](t, p, `select count(*) from agent_run_events where pg_column_compression(line) = 'lz4' and pg_column_compression(payload) = 'lz4'`); n < 20 &&
		ask[bool](t, p, `select 'lz4' = any (enumvals) from pg_settings where name = 'default_toast_compression'`) {
		t.Errorf("%d rows are compressed by lz4", n)
	}
}

// asRole returns the DSN for another role, which it makes: no superuser, and it does not bypass row security.
func asRole(t testing.TB, dsn, name string) string {
	t.Helper()
	p := pool(t, dsn)
	name += "_" + ask[string](t, p, `select current_database()`)
	exec(t, p, `create role `+name+` login nosuperuser nobypassrls; grant all on schema public to `+name)
	t.Cleanup(p.Close)
	return strings.Replace(dsn, "postgres://postgres@", "postgres://"+name+"@", 1)
}

// TestRowSecurity: the owner of the tables is held to their policies and stores all the same.
func TestRowSecurity(t *testing.T) {
	super := testkit.Postgres(t)
	dsn := asRole(t, super, "own")
	s, o, p := open(t, dsn), pool(t, dsn), pool(t, super)
	for _, table := range []string{"agent_runs", "agent_run_lanes", "agent_run_events"} {
		exec(t, o, `alter table `+table+` enable row level security; alter table `+table+` force row level security;
			create policy of_test on `+table+` using (koder_user_id = current_setting('agentstream.tenant', true)
			or current_setting('agentstream.tenant', true) = '*')`)
	}
	w, forger := persistertest.NewWriter(key, day), persistertest.NewWriter(key, day)
	w.Lanes[""] = schema.Lane{Owner: "o", Epoch: 1}
	a, end, b := w.Texts("", 50), w.Pack("", usageEnd(4)), w.Texts("kid", 2)
	count(t, "new", appendPacks(t, s, a, end, b), 53, 0, 0, 0)
	count(t, "again", appendPacks(t, s, a, end, b), 0, 53, 0, 0)
	count(t, "forged", appendPacks(t, s, forger.Pack("", usageEnd(1))), 0, 0, 0, 1)
	if s.IsCopyless() {
		t.Error("rows were not copied")
	}
	if got := ask[string](t, p, `select concat_ws(' ', last_seq, usage, (select count(*) from agent_run_events), (select count(*) from agent_run_lanes))
		from agent_runs`); got != `53 {"output_tokens": 4} 53 2` {
		t.Errorf("stored: %s", got)
	}
	var n int
	if err := o.QueryRow(t.Context(), `select count(*) from agent_run_events`).Scan(&n); err == nil ||
		!strings.Contains(err.Error(), "agentstream.tenant") {
		t.Errorf("without a scope the owner sees %d rows, %v: the policies do not hold, or an empty answer is given", n, err)
	}
}

// TestPartitionOfAnother: a role that owns the tables and not a partition inserts.
func TestPartitionOfAnother(t *testing.T) {
	super := testkit.Postgres(t)
	s, p := open(t, asRole(t, super, "own")), pool(t, super)
	w := persistertest.NewWriter(key, day)
	a, b := w.Texts("", 30), w.Texts("", 50)
	count(t, "own", appendPacks(t, s, a), 30, 0, 0, 0)
	if s.IsCopyless() {
		t.Error("rows were not copied into the own partition")
	}
	exec(t, p, `alter table agent_run_events_20260228 owner to postgres`)
	count(t, "another's", appendPacks(t, s, a, b), 50, 30, 0, 0)
	if !s.IsCopyless() {
		t.Error("rows were copied into another's partition")
	}
}
