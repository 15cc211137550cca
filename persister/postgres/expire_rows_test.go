package postgres_test

import (
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/persister/postgres"
	"agentstream/schema"
)

// expire marks a run of two events and returns its scraps.
func expire(t *testing.T, s *postgres.Store, key schema.RunKey, last schema.Seq) []persister.Scrap {
	t.Helper()
	marked, err := s.Expire(t.Context(), []persister.EndedRun{{Key: key, Place: persister.Place{Last: last}}}, time.Now())
	if err != nil || len(marked) != 1 {
		t.Fatal(marked, err)
	}
	scraps, err := s.ScrapsOf(t.Context(), key)
	if err != nil || len(scraps) != 1 {
		t.Fatal(scraps, err)
	}
	return scraps
}

// TestRowsOfPartitionsThatAreOff: rows are removed from a partition that is half off, or off, as well: they would
// be back with the next run of its day.
func TestRowsOfPartitionsThatAreOff(t *testing.T) {
	for _, half := range []bool{false, true} {
		dsn := migrated(t)
		s, p := open(t, dsn), pool(t, dsn)
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "gone"}, "20260105")
		appendPacks(t, s, endedPack(w))
		scraps := expire(t, s, w.Key, 2)
		if half {
			tx, err := p.Begin(t.Context())
			if err == nil {
				_, err = tx.Exec(t.Context(), "select count(*) from agent_run_events")
			}
			if err != nil {
				t.Fatal(err)
			}
			conn, err := p.Acquire(t.Context())
			if err == nil {
				_, err = conn.Exec(t.Context(), "set statement_timeout = 300")
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), "alter table agent_run_events detach partition agent_run_events_20260105 concurrently"); err == nil {
				t.Fatal("nothing held the detach up")
			}
			conn.Release()
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		} else {
			exec(t, p, "alter table agent_run_events detach partition agent_run_events_20260105")
		}
		if n, all, err := s.RemoveRows(t.Context(), scraps, 1); err != nil || n != 1 || all {
			t.Fatalf("half %v: %d removed, %v, %v", half, n, all, err)
		}
		if n, all, err := s.RemoveRows(t.Context(), scraps, 10); err != nil || n != 1 || !all {
			t.Fatalf("half %v: %d removed, %v, %v", half, n, all, err)
		}
		next := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "next"}, "20260105")
		pack := endedPack(next)
		appendPacks(t, s, pack)
		if n := ask[int](t, p, "select count(*) from agent_run_events"); n != 2 {
			t.Fatalf("half %v: %d rows, want those of the new run", half, n)
		}
		if got := replayed(t, s, next.Key); string(got) != string(pack.Body) {
			t.Fatalf("half %v: %q", half, got)
		}
	}
}

// TestDropBehindLongReader: a report that runs for hours makes the keeper leave partitions alone, and nobody
// who appends waits for it, neither on that day nor on a new one.
func TestDropBehindLongReader(t *testing.T) {
	dsn := migrated(t)
	s, p := open(t, dsn), pool(t, dsn)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "r"}, "20260105")
	appendPacks(t, s, endedPack(w))
	expire(t, s, w.Key, 2)
	tx, err := p.Begin(t.Context())
	if err == nil { // a reader that nothing ends but the server, after a minute of waiting for it
		_, err = tx.Exec(t.Context(), "set local idle_in_transaction_session_timeout = '60s'")
	}
	if err == nil {
		_, err = tx.Exec(t.Context(), "select count(*) from agent_run_events")
	}
	if err != nil {
		t.Fatal(err)
	}
	days, err := s.DropDays(t.Context(), []string{"20260105", "20260106"})
	if err != nil || len(days) > 0 {
		t.Fatalf("%v, %v", days, err)
	}
	if n := ask[int](t, p, "select count(*) from pg_inherits where inhdetachpending"); n != 0 {
		t.Fatal("a partition is left half off")
	}
	next := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "s"}, "20260107")
	appendPacks(t, s, w.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`)), endedPack(next))
	if _, err := tx.Exec(t.Context(), "select 1"); err != nil {
		t.Fatalf("somebody waited until the reader had ended: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}
