package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// reader is what a run is fed to, record by record.
type reader interface {
	// feed takes the next record. A reader that wraps errUnfed into the error is good for nothing any more.
	feed(r schema.Record) error
	// skip records that what was between pos and first is no longer kept. It returns the reader that goes on: this one
	// behind a place that is not 0, or one that was fed nothing, from 0; nil when there is none up to through.
	skip(pos, first, through schema.Seq) (next reader, from schema.Seq)
	// copy returns a copy, nil when there is none.
	copy() reader
	size() int // bytes
}

// errUnfed reports that a projector could not take a record.
var errUnfed = errors.New("it cannot be remembered")

// reading is a run as one reader has read it. Whose turn it is may change it.
type reading struct {
	newest checkpoint   // the furthest that was asked for; of a reader that has no copies the only one
	points []checkpoint // at growing places, spacing apart; never fed again

	spacing schema.Seq
	origin  []byte     // the first record that was read
	first   schema.Seq // its seq
	checked time.Time  // when the run was last seen to begin with it

	// Of the cache.
	key   readingKey
	turn  chan struct{} // holds one token
	users int
	idle  *fair.Kept[*reading]
	size  int // as counted in Cache.idle

	commands int                     // that wait for the turn
	hurry    context.CancelCauseFunc // of who has it; nil: it need not know
}

// checkpoint is a reader that was fed everything up to a place.
type checkpoint struct {
	seq  schema.Seq
	r    reader // nil with seq 0
	size int
}

const (
	// maxCheckpoints is how many checkpoints a run has. When there are more, every second one goes.
	maxCheckpoints = 32
	// checkpointApart is how far apart they are at first, in records.
	checkpointApart = 512
	// readingCost is about what a reading takes beside its readers.
	readingCost = 1 << 10
	// fresh is how long a reading is believed without a look whether the run is still the same.
	fresh = time.Second
)

// bytes is what the reading holds; 0 for nothing.
func (e *reading) bytes() int {
	if e.newest.r == nil {
		return 0
	}
	return readingCost + len(e.origin) + e.newest.size + e.weight()
}

// weight is the sum of what the checkpoints hold, in bytes.
func (e *reading) weight() (n int) {
	for _, p := range e.points {
		n += p.size
	}
	return n
}

// before returns the nearest checkpoint at or before a place; the zero checkpoint when there is none.
func (e *reading) before(through schema.Seq) (best checkpoint) {
	for _, p := range e.points {
		if p.seq <= through {
			best = p
		}
	}
	if e.newest.seq <= through && e.newest.seq > best.seq {
		best = e.newest
	}
	return best
}

// advance feeds r, which was fed a run up to pos, up to through, and leaves checkpoints on the way. It returns the
// reader that was fed, another one when what follows pos has expired and so r is of no use. What was read before an
// error stays, or nobody would get through a run that takes longer than a request.
func (c *Cache) advance(ctx context.Context, e *reading, r reader, pos, through schema.Seq) (reader, error) {
	p, err := c.acquirePass(ctx, e.key.run.Tenant, e)
	if err != nil {
		return nil, err
	}
	defer p.release()
	err = c.feed(ctx, e, p, r, &pos, through)
	gone := new(fanout.ExpiredError)
	for first := schema.Seq(0); errors.As(err, &gone) && gone.First > pos+1; {
		next, from := r.skip(pos, gone.First, through)
		if next == nil || from == 0 && gone.First <= first { // the same again, so it is not the beginning that is missing
			break
		}
		first = gone.First
		e.forget()
		r, pos = next, from
		err = c.feed(ctx, e, p, r, &pos, through)
	}
	if err == nil && pos < through {
		err = fmt.Errorf("history ends at %d: %w", pos, fanout.ErrUnavailable)
	}
	if pos > e.newest.seq && !errors.Is(err, errUnfed) {
		e.newest = checkpoint{pos, r, r.size()}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s up to %d: %w", e.key.run, through, err)
	}
	return r, nil
}

func (c *Cache) feed(ctx context.Context, e *reading, p *pass, r reader, pos *schema.Seq, through schema.Seq) error {
	for rec, err := range (runs.Source{Key: e.key.run}).Walk(ctx, c.rs.Hub, *pos, through) {
		if err != nil {
			return err
		}
		if e.origin == nil {
			e.origin, e.first, e.checked = bytes.Clone(rec.Line), rec.Seq, time.Now()
		}
		if err := r.feed(rec); err != nil {
			return err
		}
		*pos = rec.Seq
		if rec.Seq%checkpointApart == 0 {
			e.keep(rec.Seq, r, c.each)
		}
		if err := p.tick(); err != nil {
			return err
		}
	}
	return nil
}

// keep leaves a copy of r at seq, unless there is one nearby. All of them may have most bytes.
func (e *reading) keep(seq schema.Seq, r reader, most int) {
	e.spacing = max(e.spacing, checkpointApart)
	if n := len(e.points); n == 0 || seq >= e.points[n-1].seq+e.spacing {
		if copied := r.copy(); copied != nil {
			e.points = append(e.points, checkpoint{seq, copied, r.size()})
		}
	}
	for len(e.points) > maxCheckpoints || len(e.points) > 1 && e.weight() > most {
		kept := e.points[:0]
		for i, p := range e.points {
			if i%2 == 1 {
				kept = append(kept, p)
			}
		}
		clear(e.points[len(kept):])
		e.points = kept
		e.spacing *= 2
	}
}

// renew forgets what was read of a run whose beginning has expired since, or that was deleted: another run may
// bear its id by now.
func (c *Cache) renew(ctx context.Context, e *reading) error {
	if e.newest.r == nil || time.Since(e.checked) < fresh {
		return nil
	}
	same, err := c.isSameStart(ctx, e)
	switch {
	case err != nil:
		return err
	case same:
		e.checked = time.Now()
	default:
		e.forget()
	}
	return nil
}

// forget drops what was read, so that the run is read again.
func (e *reading) forget() { e.points, e.newest, e.origin = nil, checkpoint{}, nil }

// isSameStart reports whether the first record that is kept of the run is still the one that was read.
func (c *Cache) isSameStart(ctx context.Context, e *reading) (bool, error) {
	if e.origin == nil {
		return false, nil
	}
	for r, err := range (runs.Source{Key: e.key.run}).Walk(ctx, c.rs.Hub, e.first-1, e.first) {
		if errors.Is(err, fanout.ErrExpired) || errors.Is(err, fanout.ErrNotFound) {
			return false, nil
		}
		return err == nil && r.Seq == e.first && bytes.Equal(r.Line, e.origin), err
	}
	return false, nil
}
