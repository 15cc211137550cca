package state

import (
	"context"
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/schema"
)

// Folded is the fold of a run. It may be light, and may lack a beginning that is no longer kept.
type Folded struct {
	Fold  *schema.Fold
	First schema.Seq // first event that is still kept, when the run's beginning is gone; else 0

	run  schema.RunKey
	each int
	body []byte // snapshot of the fold; handed out, so never changed
}

// Fold calls fn with a run's fold, advanced to through if it was not there or further. Through must exist. fn must not
// keep it.
func (c *Cache) Fold(ctx context.Context, key schema.RunKey, through schema.Seq, fn func(*Folded) error) error {
	e, err := c.enter(ctx, readingKey{run: key})
	if err != nil {
		return err
	}
	defer c.leave(e)
	if err := c.renew(ctx, e); err != nil {
		return err
	}
	f, ok := e.newest.r.(*Folded)
	if !ok {
		f = &Folded{Fold: new(schema.Fold), run: key, each: c.each}
	}
	if f.Fold.Last < through {
		if _, err := c.advance(ctx, e, f, f.Fold.Last, through); err != nil {
			return err
		}
	}
	if err := f.checkSize(); err != nil {
		return err
	}
	err = fn(f)
	e.newest.size = f.size()
	return err
}

func (f *Folded) feed(r schema.Record) error {
	if err := f.checkSize(); err != nil {
		return err
	}
	f.body = nil
	f.Fold.AddRecord(r)
	return nil
}

// skip goes on without what is gone: what decides on commands is mostly near the end. There is no snapshot of it.
func (f *Folded) skip(_, first, through schema.Seq) (reader, schema.Seq) {
	if first > through+1 {
		return nil, 0
	}
	f.First = first
	f.Fold.Lighten()
	f.Fold.Last = first - 1
	return f, first - 1
}

func (f *Folded) copy() reader { return nil }
func (f *Folded) size() int    { return f.Fold.Size() + len(f.body) }

// checkSize makes a fold light that is too large, and refuses one that is too large even so.
func (f *Folded) checkSize() error {
	if f.Fold.Size() > f.each && !f.Fold.Light() {
		f.Fold.Lighten()
	}
	if f.Fold.Size() > f.each {
		return fmt.Errorf("fold of %s is over %d bytes: %w", f.run, f.each, schema.ErrTooLarge)
	}
	return nil
}

// snapshot returns the fold's JSON, which must not be changed. It wraps schema.ErrTooLarge or
// fanout.ErrExpired when there is none.
func (f *Folded) snapshot() ([]byte, error) {
	if f.First > 0 {
		return nil, fmt.Errorf("snapshot of %s: %w", f.run, &fanout.ExpiredError{First: f.First})
	}
	if f.Fold.Light() {
		return nil, errSnapshotTooLarge()
	}
	if f.body == nil {
		f.body = f.Fold.AppendSnapshot(make([]byte, 0, f.Fold.Size()+1024))
	}
	return f.body, nil
}

func errSnapshotTooLarge() error {
	return dialect.Refuse(schema.ErrTooLarge, "the run is too large for a snapshot; read its events or its replay.jsonl")
}

// at is the event that a fold ends with, with its snapshot as payload.
func at(f *schema.Fold, snapshot []byte) schema.Event {
	return schema.Event{ID: f.LastID(), TS: f.LastTS(), Seq: f.Last, Payload: snapshot}
}

// Snapshot returns the snapshot of a run, or of a child by its own id and numbers, at exactly through; 0 is
// the newest event, which is the cheap one. It is the payload of an event that has id, time and number of the last one.
// The bytes are shared and must not be changed. Errors: fanout.ErrNotFound, ErrFuture (through does not exist),
// ErrExpired (the beginning is gone), ErrUnavailable; schema.ErrTooLarge.
func (c *Cache) Snapshot(ctx context.Context, key schema.RunKey, through schema.Seq) (e schema.Event, err error) {
	src, head, err := c.rs.Locate(ctx, key)
	if err != nil {
		return schema.Event{}, err
	}
	if src.Child != "" {
		return c.anew(ctx, src, through)
	}
	if through > head.Last {
		return schema.Event{}, &ends.PositionError{Last: head.Last, Err: fmt.Errorf("at %d: %w", through, fanout.ErrFuture)}
	}
	want := through
	if want == 0 {
		want = head.Last
	}
	err = c.Fold(ctx, key, want, func(f *Folded) (err error) {
		if through > 0 && f.Fold.Last > through {
			return nil
		}
		body, err := f.snapshot()
		e = at(f.Fold, body)
		return err
	})
	if err == nil && e.Payload == nil { // the fold that is kept has gone further
		return c.anew(ctx, src, through)
	}
	return e, err
}

// anew folds a source from its beginning, for one request.
func (c *Cache) anew(ctx context.Context, src runs.Source, through schema.Seq) (schema.Event, error) {
	p, err := c.acquirePass(ctx, src.Key.Tenant, nil)
	if err != nil {
		return schema.Event{}, err
	}
	defer p.release()
	end := through
	if end == 0 {
		end = schema.MaxSeq
	}
	var f schema.Fold
	for r, err := range src.Walk(ctx, c.rs.Hub, 0, end) {
		if err != nil {
			return schema.Event{}, err
		}
		if f.AddRecord(r); f.Size() > c.each {
			return schema.Event{}, errSnapshotTooLarge()
		}
		if err := p.tick(); err != nil {
			return schema.Event{}, err
		}
	}
	switch {
	case f.Last == 0:
		return schema.Event{}, runs.ErrNoChild
	case f.Last < through:
		return schema.Event{}, &ends.PositionError{Last: f.Last, Err: fmt.Errorf("at %d: %w", through, fanout.ErrFuture)}
	}
	return at(&f, f.AppendSnapshot(nil)), nil
}
