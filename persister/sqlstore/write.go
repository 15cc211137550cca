package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// ErrOtherDay reports that a run is stored with another day, which Work.Days has now. The transaction is rolled back.
var ErrOtherDay = errors.New("run is stored under another day")

// Work is the content of one transaction.
type Work struct {
	*persister.Transfer
	Batch persister.Batch
	Days  map[schema.RunKey]string // of runs that are stored with another day than that of their chunks
	keeps bool                     // conflicts are stored as dead letters too
}

// nothing reports whether there is nothing to write.
func (w *Work) nothing() bool {
	return len(w.Batch.Rows) == 0 && len(w.DeadLetters) == 0 && len(w.RunLosses) == 0 && !w.ShouldMoveOffset() &&
		!(w.keeps && len(w.Batch.Conflicts) > 0)
}

// Aside returns the dead letters to store, those of conflicts among them.
func (w *Work) Aside(conflicts []persister.Conflict) []persister.DeadLetter {
	if !w.keeps || len(conflicts) == 0 {
		return w.DeadLetters
	}
	return slices.Concat(w.DeadLetters, w.Conflicting(conflicts))
}

// Transfer implements persister.Store.
func (s *Store) Transfer(ctx context.Context, t *persister.Transfer) (persister.Result, error) {
	return s.do(ctx, &Work{Transfer: t, keeps: true})
}

// Append implements deadletter.Redriver.
func (s *Store) Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error) {
	return s.do(ctx, &Work{Transfer: &persister.Transfer{Chunks: chunks}})
}

// PutDeadLetters implements deadletter.Redriver.
func (s *Store) PutDeadLetters(ctx context.Context, deadLetters []persister.DeadLetter) error {
	_, err := s.do(ctx, &Work{Transfer: &persister.Transfer{DeadLetters: deadLetters}})
	return err
}

// do stores the work, and again when a run turns out to have another day.
func (s *Store) do(ctx context.Context, w *Work) (persister.Result, error) {
	w.Days = make(map[schema.RunKey]string)
	for {
		w.Batch = persister.Arrange(w.Chunks, w.Days)
		if w.nothing() {
			return persister.Result{Conflicts: w.Batch.Conflicts}, nil
		}
		res, err := s.db.Write(ctx, w)
		switch {
		case err == nil:
			return res, nil
		case errors.Is(err, ErrOtherDay):
			continue
		case s.d.Refused(err):
			err = fmt.Errorf("%w: %w", persister.ErrPoison, err)
		}
		return persister.Result{}, s.wrap(err, "store %d rows of %d runs, %d dead letters", len(w.Batch.Rows),
			len(w.Batch.Runs), len(w.DeadLetters))
	}
}

// Nanoseconds returns the time since 1970, 0 for the zero time.
func Nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}
