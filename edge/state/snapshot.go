package state

import (
	"context"
	"fmt"

	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/schema"
)

// foldedAt is the event that a fold ends with.
type foldedAt struct {
	ID, TS string
	Seq    schema.Seq
}

// At returns the snapshot of a run, or of a child by its own id and numbers, at exactly through; 0 is
// the newest event, which is the cheap one. The bytes are shared and must not be changed. Errors:
// fanout.ErrNotFound, ErrFuture (through does not exist), ErrExpired (the beginning is gone),
// ErrUnavailable; schema.ErrTooLarge.
func (c *Folds) At(ctx context.Context, key schema.RunKey, through schema.Seq) ([]byte, foldedAt, error) {
	src, head, err := c.rs.Locate(ctx, key)
	if err != nil {
		return nil, foldedAt{}, err
	}
	if src.Child != "" {
		return c.anew(ctx, src, through)
	}
	if through > head.Last {
		return nil, foldedAt{}, &ends.PositionError{Last: head.Last, Err: fmt.Errorf("at %d: %w", through, fanout.ErrFuture)}
	}
	var (
		body []byte
		at   foldedAt
	)
	want := through
	if want == 0 {
		want = head.Last
	}
	err = c.Use(ctx, key, want, func(e *FoldEntry) (err error) {
		at = foldedAt{ID: e.Fold.LastID(), TS: e.Fold.LastTS(), Seq: e.Fold.Last}
		if through == 0 || at.Seq == through {
			body, err = e.snapshot()
		}
		return err
	})
	if err == nil && body == nil { // the fold that is kept has gone further
		return c.anew(ctx, src, through)
	}
	return body, at, err
}

// foldAnew folds a source from its beginning, for one request.
func (c *Folds) anew(ctx context.Context, src runs.Source, through schema.Seq) ([]byte, foldedAt, error) {
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return nil, foldedAt{}, context.Cause(ctx)
	}
	end := through
	if end == 0 {
		end = schema.MaxSeq
	}
	var f schema.Fold
	for r, err := range src.Walk(ctx, c.rs.Hub, 0, end) {
		if err != nil {
			return nil, foldedAt{}, err
		}
		if f.AddRecord(r); f.Size() > c.each {
			return nil, foldedAt{}, errSnapshotTooLarge(src.Key)
		}
	}
	switch {
	case f.Last == 0:
		return nil, foldedAt{}, runs.ErrNoChild
	case f.Last < through:
		return nil, foldedAt{}, &ends.PositionError{Last: f.Last, Err: fmt.Errorf("at %d: %w", through, fanout.ErrFuture)}
	}
	return f.AppendSnapshot(nil), foldedAt{ID: f.LastID(), TS: f.LastTS(), Seq: f.Last}, nil
}
