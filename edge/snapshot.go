package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
)

// snapshot answers with the fold of a run, or of a child by its own id: at its newest event, or at
// ?at=N (schema/contracts/snapshot.schema.json).
func (s *Server) snapshot(c *call) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	at, err := snapshotAt(c.r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), s.cfg.LogTimeout)
	defer cancel()
	body, last, err := s.foldAt(ctx, key, at)
	if err != nil {
		return err
	}
	c.seq = last.Seq
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write(body) // a client that is gone has no use for the error
	return nil
}

func snapshotAt(r *http.Request) (schema.Seq, error) {
	q, err := readQuery(r)
	if err != nil || len(q["at"]) == 0 {
		return 0, err
	}
	at, err := q.seq("at", 0)
	if err == nil && at == 0 {
		err = fmt.Errorf("at is not a number from 1: %w", dialect.ErrBadRequest)
	}
	return at, err
}

// foldedAt is the event that a fold ends with.
type foldedAt struct {
	ID, TS string
	Seq    schema.Seq
}

// foldAt returns the snapshot of a run, or of a child by its own id and numbers, at exactly through; 0 is
// the newest event, which is the cheap one. The bytes are shared and must not be changed. Errors:
// fanout.ErrNotFound, ErrFuture (through does not exist), ErrExpired (the beginning is gone),
// ErrUnavailable; schema.ErrTooLarge.
func (s *Server) foldAt(ctx context.Context, key schema.RunKey, through schema.Seq) ([]byte, foldedAt, error) {
	src, head, err := s.locate(ctx, key)
	if err != nil {
		return nil, foldedAt{}, err
	}
	if src.child != "" {
		return s.foldAnew(ctx, src, through)
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
	err = s.folds.use(ctx, key, want, func(e *foldEntry) (err error) {
		at = foldedAt{ID: e.fold.LastID(), TS: e.fold.LastTS(), Seq: e.fold.Last}
		if through == 0 || at.Seq == through {
			body, err = e.snapshot()
		}
		return err
	})
	if err == nil && body == nil { // the fold that is kept has gone further
		return s.foldAnew(ctx, src, through)
	}
	return body, at, err
}

// foldAnew folds a source from its beginning, for one request.
func (s *Server) foldAnew(ctx context.Context, src source, through schema.Seq) ([]byte, foldedAt, error) {
	select {
	case s.folds.turns <- struct{}{}:
		defer func() { <-s.folds.turns }()
	case <-ctx.Done():
		return nil, foldedAt{}, context.Cause(ctx)
	}
	end := through
	if end == 0 {
		end = schema.MaxSeq
	}
	var f schema.Fold
	for r, err := range src.walk(ctx, s.hub, 0, end) {
		if err != nil {
			return nil, foldedAt{}, err
		}
		if f.AddRecord(r); f.Size() > s.cfg.MaxFoldBytes {
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

// locate finds what an id of the path names: a run, or else a child of one. The head is the run's.
func (s *Server) locate(ctx context.Context, key schema.RunKey) (source, schema.Head, error) {
	head, err := s.existing(ctx, key)
	if !errors.Is(err, fanout.ErrNotFound) {
		return source{key: key}, head, err
	}
	src, ok, perr := s.childOf(ctx, key, err)
	if perr != nil {
		return source{}, schema.Head{}, perr
	}
	if !ok {
		return source{}, schema.Head{}, err
	}
	head, err = s.existing(ctx, src.key)
	return src, head, err
}
