package postgres_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/schema"
)

// place is an offset of a stream; nothing of it is stored at 0.
func place(stream string, position uint64) persister.Offset {
	if position == 0 {
		return persister.Offset{Stream: stream}
	}
	return persister.Offset{Stream: stream, Identity: "x", Position: position}
}

func moving(t testing.TB, from, to persister.Offset, packs ...schema.Pack) *persister.Transfer {
	t.Helper()
	return &persister.Transfer{Chunks: chunks(t, packs...), From: from, To: to, Owner: "p1"}
}

// transferPacks moves an offset by one.
func transferPacks(t testing.TB, s *postgres.Store, from uint64, packs ...schema.Pack) persister.Result {
	t.Helper()
	res, err := s.Transfer(t.Context(), moving(t, place("L_0", from), place("L_0", from+1), packs...))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// locked waits until so many sessions wait for a lock.
func locked(t testing.TB, p *pgxpool.Pool, want int) {
	t.Helper()
	for n, tick := 0, time.Tick(5*time.Millisecond); n < want; <-tick {
		if t.Failed() {
			t.FailNow()
		}
		n = ask[int](t, p, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)
	}
}

// TestOvertakenWaits: who is slower waits for the faster one's commit, holding no run, and fails then; it goes
// through when the faster one fails.
func TestOvertakenWaits(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	a, b := w.Texts("", 20), w.Texts("", 20)
	transferPacks(t, s, 0, a)
	for _, commits := range []bool{false, true} {
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(t.Context(), `update agent_log_offsets set position = position + 1`); err != nil {
			t.Fatal(err)
		}
		from := uint64(1)
		if commits {
			from = 2
		}
		transfer := moving(t, place("L_0", from), place("L_0", from+1), b)
		var wg sync.WaitGroup
		var res persister.Result
		wg.Go(func() { res, err = s.Transfer(t.Context(), transfer) })
		locked(t, p, 1)
		if _, err := tx.Exec(t.Context(), `select from agent_runs for update nowait`); err != nil {
			t.Errorf("the run is locked: %v", err)
		}
		if commits {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			wg.Wait()
			if !errors.Is(err, persister.ErrOvertaken) {
				t.Fatalf("%+v, %v", res, err)
			}
			continue
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if wg.Wait(); err != nil || res.Inserted != 20 {
			t.Fatalf("%+v, %v", res, err)
		}
	}
	if n := ask[int](t, p, `select position from agent_log_offsets`); n != 3 {
		t.Errorf("the offset is %d", n)
	}
}

// TestTransferAgain: a transaction that is done again because keys were taken moves its offset once.
func TestTransferAgain(t *testing.T) {
	dsn := migrated(t)
	a, b, p := open(t, dsn), open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	transferPacks(t, a, 0, w.Texts("", 10))
	rest := w.Texts("", 60)
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
		stream := fmt.Sprint("L_", i)
		transfer := moving(t, place(stream, uint64(1-i)), place(stream, 2), rest)
		wg.Go(func() {
			var err error
			if results[i], err = s.Transfer(t.Context(), transfer); err != nil {
				t.Error(err)
			}
		})
	}
	locked(t, p, 2)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if in, re := results[0].Inserted+results[1].Inserted, results[0].Repeated+results[1].Repeated; in != 60 || re != 60 {
		t.Errorf("%+v", results)
	}
	if n := a.Races() + b.Races(); n != 0 {
		t.Errorf("%d transactions were done again", n)
	}
	if got := ask[string](t, p, `select string_agg(concat_ws(' ', stream, position), ', ' order by stream) from agent_log_offsets`); got != "L_0 2, L_1 2" {
		t.Errorf("offsets are %s", got)
	}
}

// TestTransferPartition: a partition that is gone is made again, a role that may not copy inserts, a payload that
// jsonb refuses is left out. Each begins the transaction anew, the offset with it.
func TestTransferPartition(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(key, day)
	count(t, "new", transferPacks(t, s, 0, w.Texts("", 50)), 50, 0, 0, 0)
	exec(t, p, `drop table agent_run_events_20260228`)
	count(t, "partition dropped", transferPacks(t, s, 1, w.Texts("", 50)), 50, 0, 0, 0)
	exec(t, p, `alter table agent_run_events detach partition agent_run_events_20260228`)
	count(t, "partition detached", transferPacks(t, s, 2, w.Texts("", 50)), 50, 0, 0, 0)
	exec(t, p, `alter table agent_run_events add check (payload is null or payload->>'text' <> 'surprise')`)
	surprise := w.Pack("", persistertest.Event(schema.TypeTextDelta, `{"text":"surprise"}`))
	count(t, "payload refused", transferPacks(t, s, 3, surprise), 1, 0, 0, 0)
	if n := ask[int](t, p, `select position from agent_log_offsets`); n != 4 {
		t.Errorf("the offset is %d", n)
	}
	if n := ask[int](t, p, `select count(*) from agent_run_events where payload is null`); n != 1 {
		t.Errorf("%d rows have no payload", n)
	}
}

// TestReadersSeeOffsets: an edge's role reads the offsets and cannot move them, whether it was granted before the
// table was there or afterwards. Others see nothing.
func TestReadersSeeOffsets(t *testing.T) {
	admin, owner := owned(t)
	if err := postgres.MigrateTo(t.Context(), owner, 14); err != nil {
		t.Fatal(err)
	}
	p, o := pool(t, admin), pool(t, owner)
	name := ask[string](t, p, `select current_database()`)
	for _, role := range []string{"old_", "new_", "analyst_"} {
		exec(t, p, `create role `+role+name+` login`)
	}
	exec(t, o, `create policy agent_reader_`+
		ask[string](t, p, `select oid::text from pg_roles where rolname = $1`, "old_"+name)+
		` on agent_runs for select to old_`+name+` using (koder_user_id = 'x')`) // as GrantReader made it
	s := open(t, owner)
	for range 2 { // again is the same
		if err := tables.GrantReader(t.Context(), owner, "new_"+name); err != nil {
			t.Fatal(err)
		}
	}
	if err := tables.GrantAnalyst(t.Context(), owner, "analyst_"+name, "acme"); err != nil {
		t.Fatal(err)
	}
	transferPacks(t, s, 0, persistertest.NewWriter(key, day).Texts("", 3))
	for role, want := range map[string]int{"old_": 1, "new_": 1, "analyst_": 0} {
		r, err := postgres.Open(t.Context(), postgres.Config{DSN: as(admin, role+name)})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := r.Offsets(t.Context()); len(got) != want || (err == nil) != (want > 0) {
			t.Errorf("%s reads %+v, %v", role, got, err)
		}
		if _, err := r.Transfer(t.Context(), moving(t, place("L_0", 1), place("L_0", 2))); err == nil ||
			errors.Is(err, persister.ErrOvertaken) {
			t.Errorf("%s moves the offset: %v", role, err)
		}
	}
	if got, err := s.Offsets(t.Context()); err != nil || len(got) != 1 || !got[0].Same(place("L_0", 1)) {
		t.Errorf("%+v, %v", got, err)
	}
}
