package postgres_test

import (
	"fmt"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/persister/persistertest"
	"agentstream/schema"
)

func endedPack(w *persistertest.Writer) schema.Pack {
	return w.Pack("", persistertest.Lifecycle(schema.StateRunning), persistertest.Lifecycle(schema.StateDone))
}

// TestDropAgainstAppends: a run that goes on while the partition of its day is dropped loses nothing, however
// its rows are written.
func TestDropAgainstAppends(t *testing.T) {
	s := open(t, migrated(t))
	dropped := 0
	for i := range 25 {
		w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: fmt.Sprintf("run_%d", i)},
			fmt.Sprintf("202601%02d", i%28+1))
		p := endedPack(w)
		appendPacks(t, s, p)
		if marked, err := s.Expire(t.Context(), []persister.EndedRun{{Key: w.Key, Place: persister.Place{Last: 2}}},
			time.Now()); err != nil || len(marked) != 1 {
			t.Fatal(marked, err)
		}
		more := []schema.Pack{w.Pack("", persistertest.Event(schema.TypeCommandMessage, `{"text":"go on"}`)),
			w.Texts("", 1), w.Texts("", 300), w.Texts("", 1)}
		done := make(chan error, 1)
		go func() {
			days, err := s.DropDays(t.Context(), []string{p.Head.Day})
			dropped += len(days)
			done <- err
		}()
		var want []byte
		for _, m := range more {
			appendPacks(t, s, m)
			want = append(want, m.Body...)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := replayed(t, s, w.Key); string(got) != string(want) {
			t.Fatalf("%d: %d bytes, want %d", i, len(got), len(want))
		}
	}
	t.Logf("%d of 25 partitions were dropped", dropped)
}

// TestUnfinishedDetach: what a process that was killed has left half done is finished by the next.
func TestUnfinishedDetach(t *testing.T) {
	dsn := migrated(t)
	s := open(t, dsn)
	p := pool(t, dsn)
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "gone"}, "20260105")
	keep := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "kept"}, "20260106")
	a, b := endedPack(w), endedPack(keep)
	appendPacks(t, s, a, b)
	if _, err := s.Expire(t.Context(), []persister.EndedRun{{Key: w.Key, Place: persister.Place{Last: 2}}},
		time.Now()); err != nil {
		t.Fatal(err)
	}
	tx, err := p.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), "select count(*) from agent_run_events")
	}
	if err != nil {
		t.Fatal(err)
	}
	conn, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err = conn.Exec(t.Context(), "set statement_timeout = 500"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "alter table agent_run_events detach partition agent_run_events_20260105 concurrently"); err == nil {
		t.Fatal("nothing held the detach up")
	}
	conn.Release()
	if n := ask[int](t, p, "select count(*) from pg_inherits where inhdetachpending"); n != 1 {
		t.Fatalf("%d are half detached", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.DropDays(t.Context(), []string{"20260105", "20260106"}); err != nil {
		t.Fatal(err)
	}
	if n := ask[int](t, p, "select count(*) from pg_class where relname = 'agent_run_events_20260105'"); n != 0 {
		t.Fatal("the table stands")
	}
	if got := replayed(t, s, keep.Key); string(got) != string(b.Body) {
		t.Fatalf("%q", got)
	}
}
