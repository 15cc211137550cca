package persistertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// archiver is what the suite tests of a store that records where runs are and which must be archived.
type archiver interface {
	Place(ctx context.Context, key schema.RunKey) (persister.Place, error)
	Claim(ctx context.Context, settle, lease time.Duration, limit int) ([]schema.RunKey, error)
	Backlog(ctx context.Context, settle time.Duration, limit int) (int, error)
	SetArchived(ctx context.Context, key schema.RunKey, through schema.Seq, uri string, size int64) (bool, error)
}

// deferring is the rest of archiver: an interface has at most four methods.
type deferring interface {
	Defer(ctx context.Context, key schema.RunKey, wait time.Duration) error
}

// runArchive tests stores whose runs become objects. open is as for runSuite.
func runArchive(t *testing.T, open func(t *testing.T) SuiteStore) {
	t.Run("claims to archive", func(t *testing.T) { (&suite{T: t, store: open(t)}).claims() })
	t.Run("places", func(t *testing.T) { (&suite{T: t, store: open(t)}).places() })
}

// archiving returns the store as an archiver.
func (s *suite) archiving() archiver {
	s.Helper()
	a, ok := s.store.(archiver)
	if !ok {
		s.Fatal("this store does not archive")
	}
	return a
}

func (s *suite) claim(settle, lease time.Duration, limit int) (runs []string) {
	s.Helper()
	keys, err := s.archiving().Claim(s.Context(), settle, lease, limit)
	if err != nil {
		s.Fatal(err)
	}
	for _, key := range keys {
		runs = append(runs, key.Tenant+"/"+key.Run)
	}
	slices.Sort(runs)
	return runs
}

func (s *suite) backlog(settle time.Duration, want int) {
	s.Helper()
	if n, err := s.archiving().Backlog(s.Context(), settle, 100); err != nil || n != want {
		s.Fatalf("backlog is %d, %v; want %d", n, err, want)
	}
}

func (s *suite) place(key schema.RunKey, want persister.Place) {
	s.Helper()
	if got, err := s.archiving().Place(s.Context(), key); err != nil || got != want {
		s.Fatalf("place\n got %+v, %v\nwant %+v", got, err, want)
	}
}

// claims: runs that have ended and have not changed are returned, each to one caller for the time of its lease.
func (s *suite) claims() {
	s.archiving()
	for _, state := range []schema.RunState{schema.StateDone, schema.StateError, schema.StateAborted,
		schema.StateRunning} {
		w := NewWriter(schema.RunKey{Tenant: "acme", Run: "run_" + string(state)}, day)
		s.append(w.Texts("", 3), w.Pack("", Lifecycle(state)))
	}
	want := []string{"acme/run_aborted", "acme/run_done", "acme/run_error"}
	if got := s.claim(time.Hour, time.Hour, 10); len(got) > 0 {
		s.Fatalf("runs that have not rested are handed out: %q", got)
	}
	s.backlog(time.Hour, 0)
	s.backlog(0, 3)
	first := s.claim(0, time.Hour, 2)
	if len(first) != 2 {
		s.Fatalf("limit 2 gives %q", first)
	}
	got := append(first, s.claim(0, time.Hour, 10)...)
	if slices.Sort(got); !slices.Equal(got, want) {
		s.Fatalf("handed out: %q, want %q", got, want)
	}
	if again := s.claim(0, time.Hour, 10); len(again) > 0 {
		s.Fatalf("handed out twice: %q", again)
	}
	s.backlog(0, 3)
	key := schema.RunKey{Tenant: "acme", Run: "run_done"}
	if err := s.store.(deferring).Defer(s.Context(), key, 0); err != nil {
		s.Fatal(err)
	}
	if again := s.claim(0, -time.Second, 10); !slices.Equal(again, want[1:2]) {
		s.Fatalf("given back: %q", again)
	}
	if again := s.claim(0, time.Hour, 10); !slices.Equal(again, want[1:2]) { // the lease ended at once
		s.Fatalf("after the lease: %q", again)
	}
}

// places: where a run is stored, while it ends, is archived and gets new events.
func (s *suite) places() {
	a := s.archiving()
	s.place(key, persister.Place{})
	set := func(key schema.RunKey, through schema.Seq, want bool) {
		s.Helper()
		if got, err := a.SetArchived(s.Context(), key, through, "file:"+through.String(), 77); err != nil || got != want {
			s.Fatalf("archived up to %d: %v, %v", through, got, err)
		}
	}
	set(key, 3, false)
	w := NewWriter(key, day)
	s.append(w.Texts("", 3))
	set(key, 3, false) // it has not ended
	s.append(w.Pack("", Lifecycle(schema.StateDone)))
	s.place(key, persister.Place{Day: day, Last: 4})
	set(key, 3, false)
	set(key, 5, false)
	set(schema.RunKey{Tenant: "globex", Run: key.Run}, 4, false)
	s.place(key, persister.Place{Day: day, Last: 4})
	set(key, 4, true)
	set(key, 4, true)
	archived := persister.Place{Day: day, Last: 4, Archived: 4, URI: "file:4"}
	s.place(key, archived)
	s.backlog(0, 0)
	if got := s.claim(0, time.Hour, 10); len(got) > 0 {
		s.Fatalf("handed out once more: %q", got)
	}
	// The run gets new events: the object stays as it is, and the run is claimed when it has ended again.
	s.append(w.Pack("", Event(schema.TypeCommandMessage, `{"text":"go on"}`)))
	archived.Last = 5
	s.place(key, archived)
	set(key, 5, false)
	s.backlog(0, 0)
	s.append(w.Pack("", Lifecycle(schema.StateError)))
	s.backlog(0, 1)
	if got := s.claim(0, time.Hour, 10); !slices.Equal(got, []string{"acme/run_1"}) {
		s.Fatalf("a run that has ended again: %q", got)
	}
	set(key, 6, true)
	s.place(key, persister.Place{Day: day, Last: 6, Archived: 6, URI: "file:6"})
	s.place(schema.RunKey{Tenant: "globex", Run: key.Run}, persister.Place{})
}
