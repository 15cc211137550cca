package state

import (
	"bytes"
	"context"
	"fmt"
	"sort"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/schema"
)

// cappedProjector is a dialect's reader of a run, whose size is bounded.
type cappedProjector struct {
	dialect.Stateful
	none dialect.Stateful // fed nothing
	each int
}

func (p cappedProjector) feed(r schema.Record) error {
	err := p.Project(nil, r)
	if err == nil && r.Seq%checkpointApart == 0 && p.Size() > p.each {
		err = schema.ErrTooLarge
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errUnfed, ProjectError(r, err))
	}
	return err
}

// skip begins with what is left of a run. Nothing is left out of the middle.
func (p cappedProjector) skip(pos, first, through schema.Seq) (reader, schema.Seq) {
	switch {
	case first > through:
		return nil, 0
	case pos == 0:
		return p, first - 1
	}
	return cappedProjector{p.none, p.none, p.each}.copy(), 0
}

func (p cappedProjector) copy() reader {
	return cappedProjector{p.For(dialect.Request{}), p.none, p.each}
}
func (p cappedProjector) size() int { return p.Size() }

// Projector returns a projector of the caller's own that was fed a run up to through, which must exist. The error wraps
// fanout.ErrExpired when that is before what is kept.
func (c *Cache) Projector(ctx context.Context, key schema.RunKey, d dialect.Dialect, through schema.Seq,
	req dialect.Request) (dialect.Stateful, error) {
	none, ok := d.Projector(dialect.Request{}).(dialect.Stateful)
	if !ok {
		return nil, fmt.Errorf("dialect %s keeps no state", d.Info().Name)
	}
	if through == 0 {
		return none.For(req), nil
	}
	e, err := c.enter(ctx, readingKey{key, d.Info().Name})
	if err != nil {
		return nil, err
	}
	defer c.leave(e)
	if err := c.renew(ctx, e); err != nil {
		return nil, err
	}
	at := e.before(through)
	if at.r == nil {
		at.r = cappedProjector{none, none, c.each}
	}
	if at.seq < through {
		at.r, err = c.advance(ctx, e, at.r.copy(), at.seq, through)
		if err != nil {
			return nil, err
		}
	}
	return at.r.(cappedProjector).For(req), nil
}

// Found is where a frame is, and how a client that has it goes on.
type Found struct {
	Seq   schema.Seq
	Index int              // frames of the record up to it
	P     dialect.Stateful // fed the record
	Rest  []dialect.Frame  // frames of the record behind it
	// dialect.Frames.Again before the record; 0 also where the frame is one of those that are marked
	From schema.Seq
}

// Find looks for the frame with a cursor's token. The error wraps schema.ErrBadCursor when it is not there,
// fanout.ErrFuture for a place in a record that is not there yet.
func (c *Cache) Find(ctx context.Context, key schema.RunKey, d dialect.Dialect, at dialect.Cursor,
	req dialect.Request) (Found, error) {
	bad := dialect.Refuse(schema.ErrBadCursor, "no such event to go on behind")
	head, err := c.rs.Existing(ctx, key)
	if err != nil {
		return Found{}, err
	}
	if at.Place.Seq > 0 {
		if at.Seq, at.Token = at.Place.Seq, ""; at.Seq > head.Last {
			return Found{}, &ends.PositionError{Last: head.Last,
				Err: fmt.Errorf("a place in record %d: %w", at.Seq, fanout.ErrFuture)}
		}
	}
	if at.Seq < 1 || at.Seq > head.Last {
		return Found{}, bad
	}
	p, err := c.Projector(ctx, key, d, at.Seq-1, req)
	if err != nil {
		return Found{}, err
	}
	through := at.Seq
	if at.Later { // which may be the whole of a long run, when it never comes
		through = head.Last
	}
	turn, err := c.acquirePass(ctx, key.Tenant, nil)
	if err != nil {
		return Found{}, err
	}
	defer turn.release()
	var frames dialect.Frames
	if o, ok := p.(dialect.Opener); ok {
		if err := o.Open(&frames, at.Seq-1); err != nil {
			return Found{}, err
		}
	}
	from := frames.Again
	frames.Reset()
	last := 0 // frames of the newest record
	for r, err := range (runs.Source{Key: key}).Walk(ctx, c.rs.Hub, at.Seq-1, through) {
		if err != nil {
			return Found{}, err
		}
		if err := p.Project(&frames, r); err != nil {
			return Found{}, ProjectError(r, err)
		}
		if at.Place.Seq > 0 {
			return resultAt(at.Place, p, from, frames.List), nil
		}
		for i, f := range frames.List {
			if string(f.Token) != at.Token {
				continue
			}
			found := Found{Seq: r.Seq, Index: i + 1, P: p}
			if r.Seq == at.Seq && !f.Again { // with one that comes later everything is sent that it needs
				found.From = from
			}
			for _, f := range frames.List[i+1:] {
				found.Rest = append(found.Rest, clone(f))
			}
			return found, nil
		}
		last = len(frames.List)
		frames.Reset()
		if err := turn.tick(); err != nil {
			return Found{}, err
		}
	}
	if f, ok := p.(dialect.Foreteller); ok && at.Later && f.Foretold(at.Token) {
		return Found{Seq: through, Index: last, P: p}, nil
	}
	return Found{}, bad
}

// Skip finds the place after n frames, counted from the first one that a request is made of the records from first to
// last. The error wraps fanout.ErrFuture when there are fewer.
func (c *Cache) Skip(ctx context.Context, key schema.RunKey, d dialect.Dialect, n int, first, last schema.Seq,
	req dialect.Request) (Found, error) {
	p, err := c.Projector(ctx, key, d, first-1, req)
	if err != nil {
		return Found{}, err
	}
	turn, err := c.acquirePass(ctx, key.Tenant, nil)
	if err != nil {
		return Found{}, err
	}
	defer turn.release()
	var frames dialect.Frames
	for r, err := range (runs.Source{Key: key}).Walk(ctx, c.rs.Hub, first-1, last) {
		if err != nil {
			return Found{}, err
		}
		if err := p.Project(&frames, r); err != nil {
			return Found{}, ProjectError(r, err)
		}
		if n <= len(frames.List) {
			found := Found{Seq: r.Seq, Index: n, P: p}
			for _, f := range frames.List[n:] {
				found.Rest = append(found.Rest, clone(f))
			}
			return found, nil
		}
		n -= len(frames.List)
		frames.Reset()
		if err := turn.tick(); err != nil {
			return Found{}, err
		}
	}
	return Found{}, &ends.PositionError{Last: last,
		Err: fmt.Errorf("%d frames more than there are: %w", n, fanout.ErrFuture)}
}

// resultAt returns a position among the frames of its record, of which p was sent last.
func resultAt(at dialect.Place, p dialect.Stateful, from schema.Seq, list []dialect.Frame) Found {
	n := sort.Search(len(list), func(i int) bool { return list[i].Slot > at.Slot })
	f := Found{Seq: at.Seq, Index: n, P: p}
	if n == 0 || !list[n-1].Again {
		f.From = from
	}
	for _, frame := range list[n:] {
		f.Rest = append(f.Rest, clone(frame))
	}
	return f
}

// clone returns a frame of its own memory.
func clone(f dialect.Frame) dialect.Frame {
	f.Event, f.Data, f.Token = bytes.Clone(f.Event), bytes.Clone(f.Data), bytes.Clone(f.Token)
	return f
}

// ProjectError returns an error that names the record at which a projector failed.
func ProjectError(r schema.Record, err error) error {
	return fmt.Errorf("project seq %d: %w", r.Seq, err)
}
