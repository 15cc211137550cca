package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/schema"
)

// Folds keeps folds of runs between requests, the ones used last. A fold is advanced from where it
// is, by one request at a time; the others of its run wait for that.
type Folds struct {
	rs    *runs.Runs
	each  int           // bytes of one
	turns chan struct{} // bounds how many read history at once
	runs  *cache[schema.RunKey, FoldEntry]
}

// foldReaders bounds how many folds read history at once: each may hold MaxFoldBytes.
const foldReaders = 8

type FoldEntry struct {
	key   schema.RunKey
	Fold  *schema.Fold
	First schema.Seq // first event that is still kept, when the run's beginning is gone; else 0

	origin  []byte    // the first event that the fold was made of
	checked time.Time // when the run was last seen to begin with it
	body    []byte    // snapshot of the fold; handed out, so never changed
}

func NewFolds(rs *runs.Runs, each, total int) *Folds {
	return &Folds{
		rs: rs, each: each, turns: make(chan struct{}, foldReaders),
		runs: newCache(total, func(key schema.RunKey) FoldEntry { return FoldEntry{key: key, Fold: new(schema.Fold)} }),
	}
}

// Use calls fn with a run's fold, advanced to through if it was not there or further. Through must
// exist. The fold may be light, and may lack a beginning that is no longer kept. fn must not keep it.
func (c *Folds) Use(ctx context.Context, key schema.RunKey, through schema.Seq, fn func(*FoldEntry) error) error {
	k, err := c.runs.enter(ctx, key)
	if err != nil {
		return err
	}
	e := &k.what
	defer func() { c.runs.leave(k, e.size()) }()
	if err := c.advance(ctx, e, through); err != nil {
		return err
	}
	return fn(e)
}

// size is what the entry holds, in bytes; 0 without events.
func (e *FoldEntry) size() int {
	if e.Fold.Last == 0 {
		return 0
	}
	return e.Fold.Size() + len(e.body) + len(e.origin) + foldCost
}

// foldCost is what an entry costs beside its fold.
const foldCost = 1 << 10

// foldFresh is how long a fold is believed without a look whether the run is still the same.
const foldFresh = time.Second

// renew forgets the fold of a run whose beginning has expired since, or that was deleted: another run may bear
// its id by now.
func (c *Folds) renew(ctx context.Context, e *FoldEntry) error {
	if e.Fold.Last == 0 || time.Since(e.checked) < foldFresh {
		return nil
	}
	same, err := beginsWith(ctx, c.rs.Hub, e.key, max(e.First, 1), e.origin)
	if err != nil {
		return err
	}
	if same {
		e.checked = time.Now()
		return nil
	}
	e.Fold, e.body, e.First, e.origin = new(schema.Fold), nil, 0, nil
	return nil
}

// advance folds up to through. What was folded before an error stays.
func (c *Folds) advance(ctx context.Context, e *FoldEntry, through schema.Seq) error {
	if err := c.renew(ctx, e); err != nil {
		return err
	}
	if e.Fold.Last >= through {
		return c.bound(e)
	}
	e.body = nil
	select {
	case c.turns <- struct{}{}:
		defer func() { <-c.turns }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := c.read(ctx, e, through)
	var gone *fanout.ExpiredError
	if errors.As(err, &gone) && gone.First > e.Fold.Last+1 && gone.First <= through+1 {
		// What decides on commands is mostly near the end. There is no snapshot of it.
		e.First = gone.First
		e.Fold.Lighten()
		e.Fold.Last = gone.First - 1
		err = c.read(ctx, e, through)
	}
	if err == nil && e.Fold.Last < through {
		err = fmt.Errorf("fold of %s ends at %d before %d: %w", e.key, e.Fold.Last, through, fanout.ErrUnavailable)
	}
	return err
}

func (c *Folds) read(ctx context.Context, e *FoldEntry, through schema.Seq) error {
	for p, err := range c.rs.Hub.Packs(ctx, e.key, e.Fold.Last, through) {
		if err != nil {
			return err
		}
		if err := c.bound(e); err != nil {
			return err
		}
		for r, err := range p.Records(e.Fold.Last) {
			if err != nil {
				return err
			}
			if r.Seq > through {
				return nil
			}
			if e.origin == nil {
				e.origin, e.checked = bytes.Clone(r.Line), time.Now()
			}
			e.Fold.AddRecord(r)
		}
	}
	return c.bound(e)
}

// bound makes a fold light that is too large, and refuses one that is too large even so.
func (c *Folds) bound(e *FoldEntry) error {
	if e.Fold.Size() > c.each && !e.Fold.Light() {
		e.Fold.Lighten()
	}
	if e.Fold.Size() > c.each {
		return fmt.Errorf("fold of %s is over %d bytes: %w", e.key, c.each, schema.ErrTooLarge)
	}
	return nil
}

// snapshot returns the fold's JSON, which must not be changed. It wraps schema.ErrTooLarge or
// fanout.ErrExpired when there is none.
func (e *FoldEntry) snapshot() ([]byte, error) {
	if e.First > 0 {
		return nil, fmt.Errorf("snapshot of %s: %w", e.key, &fanout.ExpiredError{First: e.First})
	}
	if e.Fold.Light() {
		return nil, errSnapshotTooLarge(e.key)
	}
	if e.body == nil {
		e.body = e.Fold.AppendSnapshot(make([]byte, 0, e.Fold.Size()+1024))
	}
	return e.body, nil
}

func errSnapshotTooLarge(key schema.RunKey) error {
	return fmt.Errorf("snapshot of %s: read its events or its replay.jsonl instead: %w", key.Run, schema.ErrTooLarge)
}
