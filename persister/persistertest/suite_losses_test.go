package persistertest

import (
	"context"
	"errors"
	"testing"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// recording is what the suite tests of a store that records losses.
type recording interface {
	AddRunLosses(ctx context.Context, losses []persister.RunLoss) error
	Losses(ctx context.Context) ([]persister.Loss, error)
	RunLosses(ctx context.Context, tenant string, limit int) ([]persister.RunLoss, int, error)
	MarkRestored(ctx context.Context) error
}

type finding interface {
	DropRunLoss(ctx context.Context, l persister.RunLoss) error
}

// runLosses tests stores that record losses. open is as for runSuite.
func runLosses(t *testing.T, open func(t *testing.T) SuiteStore) {
	t.Run("losses", func(t *testing.T) { (&suite{T: t, store: open(t)}).losses() })
}

// losses: what is lost is recorded with the offset or not at all, once, and stays.
func (s *suite) losses() {
	r, ok := s.store.(recording)
	if !ok {
		s.Fatal("this store records no losses")
	}
	from, to := place("AGENT_0", 0), place("AGENT_0", 31)
	dropped := persister.Loss{Stream: "AGENT_0", Identity: "made today", First: 2, Last: 31, Reason: persister.LossDropped}
	before := persister.Loss{Stream: "AGENT_1", Identity: "made today", First: 1, Last: 9, Reason: persister.LossBefore}
	mine := persister.RunLoss{Key: schema.RunKey{Tenant: "acme", Run: "run_1"}, First: 11, Last: 40,
		Reason: persister.LossDropped}
	theirs := persister.RunLoss{Key: schema.RunKey{Tenant: "umbrella", Run: "run_1"}, First: 1, Last: 2,
		Reason: persister.LossObject}
	t := s.moving(from, to)
	t.Losses, t.RunLosses = []persister.Loss{dropped, before}, []persister.RunLoss{mine}
	s.transfer(t)
	again := s.moving(from, place("AGENT_0", 50)) // another process was faster
	again.Losses = []persister.Loss{{Stream: "AGENT_0", Identity: "made today", First: 7, Last: 9,
		Reason: persister.LossDropped}}
	if _, err := s.store.Transfer(s.Context(), again); !errors.Is(err, persister.ErrOvertaken) {
		s.Fatal(err)
	}
	for range 2 {
		if err := r.AddRunLosses(s.Context(), []persister.RunLoss{theirs, mine}); err != nil {
			s.Fatal(err)
		}
	}
	look := func(open ...bool) {
		s.Helper()
		got, err := r.Losses(s.Context())
		if err != nil || len(got) != 2 {
			s.Fatalf("%+v, %v", got, err)
		}
		for i, want := range []persister.Loss{dropped, before} {
			if got[i].Open() != open[i] || time.Since(got[i].Found) > time.Hour || time.Since(got[i].Found) < -time.Hour {
				s.Errorf("%+v", got[i])
			}
			if got[i].Found, got[i].Restored = (time.Time{}), (time.Time{}); got[i] != want {
				s.Errorf("%+v, want %+v", got[i], want)
			}
		}
	}
	look(true, true)
	if err := r.MarkRestored(s.Context()); err != nil {
		s.Fatal(err)
	}
	look(true, false) // only what had left before anything was stored can be made good by objects
	for tenant, want := range map[string]int{"acme": 1, "umbrella": 1, "nobody": 0, "*": 2} {
		got, all, err := r.RunLosses(s.Context(), tenant, 10)
		if err != nil || len(got) != want || all != want {
			s.Fatalf("%s: %+v of %d, %v", tenant, got, all, err)
		}
		for _, l := range got {
			if l.Found = (time.Time{}); l != mine && l != theirs || tenant != "*" && l.Key.Tenant != tenant {
				s.Errorf("%s: %+v", tenant, l)
			}
		}
	}
	if got, all, err := r.RunLosses(s.Context(), "*", 1); err != nil || len(got) != 1 || all != 2 {
		s.Errorf("%+v of %d, %v", got, all, err)
	}
	f, ok := s.store.(finding)
	if !ok {
		s.Fatal("this store drops no losses")
	}
	other := mine
	other.Last++
	for _, l := range []persister.RunLoss{other, mine} {
		if err := f.DropRunLoss(s.Context(), l); err != nil {
			s.Fatal(err)
		}
	}
	if got, all, err := r.RunLosses(s.Context(), "*", 10); err != nil || all != 1 || got[0].Key != theirs.Key {
		s.Errorf("after one was found: %+v, %v", got, err)
	}
}
