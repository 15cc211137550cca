package edge

import (
	"agentstream/fanout"
	"agentstream/schema"
	"context"
	"fmt"
)

// foldedAt is the event that a fold ends with.
type foldedAt struct {
	ID, TS string
	Seq    schema.Seq
}

// foldAt returns the snapshot of a run, or of a child by its own id and numbers, at exactly through; 0 is
// the newest event, which is the cheap one. The bytes are shared and must not be changed. Errors:
// fanout.ErrNotFound, ErrFuture (through does not exist), ErrExpired (the beginning is gone),
// ErrUnavailable; schema.ErrTooLarge.
func (c *foldCache) foldAt(ctx context.Context, key schema.RunKey, through schema.Seq) ([]byte, foldedAt, error) {
	src, head, err := c.rs.locate(ctx, key)
	if err != nil {
		return nil, foldedAt{}, err
	}
	if src.child != "" {
		return c.foldAnew(ctx, src, through)
	}
	if through > head.Last {
		return nil, foldedAt{}, &positionError{last: head.Last, err: fmt.Errorf("at %d: %w", through, fanout.ErrFuture)}
	}
	var (
		body []byte
		at   foldedAt
	)
	want := through
	if want == 0 {
		want = head.Last
	}
	err = c.use(ctx, key, want, func(e *foldEntry) (err error) {
		at = foldedAt{ID: e.fold.LastID(), TS: e.fold.LastTS(), Seq: e.fold.Last}
		if through == 0 || at.Seq == through {
			body, err = e.snapshot()
		}
		return err
	})
	if err == nil && body == nil { // the fold that is kept has gone further
		return c.foldAnew(ctx, src, through)
	}
	return body, at, err
}

// foldAnew folds a source from its beginning, for one request.
func (c *foldCache) foldAnew(ctx context.Context, src source, through schema.Seq) ([]byte, foldedAt, error) {
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
	for r, err := range src.walk(ctx, c.rs.hub, 0, end) {
		if err != nil {
			return nil, foldedAt{}, err
		}
		if f.AddRecord(r); f.Size() > c.each {
			return nil, foldedAt{}, errSnapshotTooLarge(src.key)
		}
	}
	switch {
	case f.Last == 0:
		return nil, foldedAt{}, errNoChild
	case f.Last < through:
		return nil, foldedAt{}, &positionError{last: f.Last, err: fmt.Errorf("at %d: %w", through, fanout.ErrFuture)}
	}
	return f.AppendSnapshot(nil), foldedAt{ID: f.LastID(), TS: f.LastTS(), Seq: f.Last}, nil
}
