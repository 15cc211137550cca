package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sort"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/runs"
	"agentstream/fanout"
	"agentstream/schema"
)

// Checkpoints keeps copies of stateful projectors along runs, those of the runs used last: a stream that begins in the
// middle, or a page, is fed from the copy before it and not from the run's beginning. A run is read on by one
// request at a time; the others of its run and dialect wait for that, and mostly have nothing left to read then.
type Checkpoints struct {
	rs    *runs.Runs
	each  int           // bytes of one copy
	turns chan struct{} // bounds how many read history at once
	runs  *cache[checkpointKey, runCheckpoints]
}

type checkpointKey struct {
	run     schema.RunKey
	dialect string
}

// runCheckpoints is one run as one dialect reads it.
type runCheckpoints struct {
	key     checkpointKey
	points  []checkpoint // at growing places, spacing apart
	newest  checkpoint   // the furthest that was asked for
	spacing schema.Seq   // between checkpoints

	origin  []byte     // the first record that was read
	first   schema.Seq // its seq
	checked time.Time  // when the run was last seen to begin with it
}

// checkpoint is a projector that was fed everything up to a place. It is never fed again.
type checkpoint struct {
	seq  schema.Seq
	p    dialect.Stateful
	size int // of p
}

// How many checkpoints a run has, and how far apart they are at first. When there are more, every second one goes.
const (
	maxCheckpoints  = 32
	checkpointApart = 512
	runCost         = 1 << 10
	checkpointBytes = 64 << 20
	checkpointReads = 8
)

func NewCheckpoints(rs *runs.Runs, each int) *Checkpoints {
	return &Checkpoints{
		rs: rs, each: each, turns: make(chan struct{}, checkpointReads),
		runs: newCache(checkpointBytes, func(key checkpointKey) runCheckpoints { return runCheckpoints{key: key} }),
	}
}

// At returns a projector of the caller's own that was fed a run up to through, which must exist. The error wraps
// fanout.ErrExpired when that is before what is kept.
func (ts *Checkpoints) At(ctx context.Context, key schema.RunKey, d dialect.Dialect, through schema.Seq, req dialect.Request) (dialect.Stateful, error) {
	none, ok := d.Projector(dialect.Request{}).(dialect.Stateful)
	if !ok {
		return nil, fmt.Errorf("dialect %s keeps no state", d.Info().Name)
	}
	if through == 0 {
		return none.For(req), nil
	}
	k, err := ts.runs.enter(ctx, checkpointKey{key, d.Info().Name})
	if err != nil {
		return nil, err
	}
	t := &k.what
	defer func() { ts.runs.leave(k, t.size()) }()
	if err := ts.renew(ctx, t); err != nil {
		return nil, err
	}
	m := t.before(through)
	if m.seq == through {
		return m.p.For(req), nil
	}
	if m.p == nil {
		m.p = none
	}
	p, err := ts.advance(ctx, t, m, through)
	if err != nil {
		return nil, fmt.Errorf("read %s up to %d: %w", key, through, err)
	}
	return p.For(req), nil
}

// before returns the nearest checkpoint at or before a place; the zero checkpoint when there is none.
func (t *runCheckpoints) before(through schema.Seq) (best checkpoint) {
	for _, m := range t.points {
		if m.seq <= through {
			best = m
		}
	}
	if t.newest.seq <= through && t.newest.seq > best.seq {
		best = t.newest
	}
	return best
}

// advance feeds a copy of m up to through and leaves checkpoints on the way.
func (ts *Checkpoints) advance(ctx context.Context, t *runCheckpoints, m checkpoint, through schema.Seq) (dialect.Stateful, error) {
	if err := ts.begin(ctx); err != nil {
		return nil, err
	}
	defer ts.end()
	p, pos := m.p.For(dialect.Request{}), m.seq
	err := ts.feed(ctx, t, p, &pos, through)
	gone := new(fanout.ExpiredError)
	if pos == 0 && errors.As(err, &gone) && gone.First > 1 && gone.First <= through {
		pos = gone.First - 1
		err = ts.feed(ctx, t, p, &pos, through)
	}
	if err == nil && pos < through {
		err = fmt.Errorf("history ends at %d: %w", pos, fanout.ErrUnavailable)
	}
	// Who gives up leaves what was read to the next, or nobody would get through a run that takes longer.
	if pos > t.newest.seq && !errors.Is(err, errUnfed) {
		t.newest = checkpoint{seq: pos, p: p, size: p.Size()}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// begin waits until few enough read history; the caller calls end.
func (ts *Checkpoints) begin(ctx context.Context) error {
	select {
	case ts.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (ts *Checkpoints) end() { <-ts.turns }

// errUnfed reports that a projector could not take a record, and is good for nothing any more.
var errUnfed = errors.New("it cannot be remembered")

func (ts *Checkpoints) feed(ctx context.Context, t *runCheckpoints, p dialect.Stateful, pos *schema.Seq, through schema.Seq) error {
	for r, err := range (runs.Source{Key: t.key.run}).Walk(ctx, ts.rs.Hub, *pos, through) {
		if err != nil {
			return err
		}
		if t.origin == nil {
			t.origin, t.first, t.checked = bytes.Clone(r.Line), r.Seq, time.Now()
		}
		if err := p.Project(nil, r); err != nil {
			return fmt.Errorf("%w: %w", errUnfed, ProjectError(r, err))
		}
		*pos = r.Seq
		if r.Seq%checkpointApart != 0 {
			continue
		}
		size := p.Size()
		if size > ts.each {
			return fmt.Errorf("%w: %d bytes: %w", errUnfed, size, schema.ErrTooLarge)
		}
		t.keep(r.Seq, p, size)
		for len(t.points) > maxCheckpoints || len(t.points) > 1 && t.weight() > ts.each {
			t.thin()
		}
	}
	return nil
}

// weight is the sum of what the checkpoints hold, in bytes.
func (t *runCheckpoints) weight() (n int) {
	for _, m := range t.points {
		n += m.size
	}
	return n
}

// keep leaves a copy of p at seq, unless there is one nearby.
func (t *runCheckpoints) keep(seq schema.Seq, p dialect.Stateful, size int) {
	t.spacing = max(t.spacing, checkpointApart)
	if n := len(t.points); n == 0 || seq >= t.points[n-1].seq+t.spacing {
		t.points = append(t.points, checkpoint{seq, p.For(dialect.Request{}), size})
	}
}

// thin lets every second checkpoint go.
func (t *runCheckpoints) thin() {
	kept := t.points[:0]
	for i, m := range t.points {
		if i%2 == 1 {
			kept = append(kept, m)
		}
	}
	clear(t.points[len(kept):])
	t.points = kept
	t.spacing *= 2
}

// renew forgets what was read of a run whose beginning has expired since, or that was deleted: another run may
// bear its id by now.
func (ts *Checkpoints) renew(ctx context.Context, t *runCheckpoints) error {
	if t.origin == nil || time.Since(t.checked) < foldFresh {
		return nil
	}
	same, err := beginsWith(ctx, ts.rs.Hub, t.key.run, t.first, t.origin)
	switch {
	case err != nil:
		return err
	case same:
		t.checked = time.Now()
	default:
		t.points, t.newest, t.origin = nil, checkpoint{}, nil
	}
	return nil
}

// beginsWith reports whether the first record that is kept of a run is still this one.
func beginsWith(ctx context.Context, hub *fanout.Hub, key schema.RunKey, first schema.Seq, line []byte) (bool, error) {
	for p, err := range hub.Packs(ctx, key, first-1, first) {
		if errors.Is(err, fanout.ErrExpired) || errors.Is(err, fanout.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		for r, err := range p.Records(first - 1) {
			return err == nil && r.Seq == first && bytes.Equal(r.Line, line), err
		}
	}
	return false, nil
}

// size is what the run's checkpoints hold, in bytes; 0 for nothing.
func (t *runCheckpoints) size() int {
	if t.newest.p == nil {
		return 0
	}
	return runCost + len(t.origin) + t.newest.size + t.weight()
}

// Found is where a frame is, and how a client that has it goes on.
type Found struct {
	Seq   schema.Seq
	Index int              // frames of the record up to it
	P     dialect.Stateful // fed the record
	Rest  []dialect.Frame  // frames of the record behind it
	From  schema.Seq       // Prelude before the record; 0 also where the frame is one of those that are marked Again
}

// Find looks for the frame with a cursor's token. The error wraps schema.ErrBadCursor when it is not there.
func (ts *Checkpoints) Find(ctx context.Context, key schema.RunKey, d dialect.Dialect, c dialect.Cursor, req dialect.Request) (Found, error) {
	bad := dialect.Refuse(schema.ErrBadCursor, "no such event to go on behind")
	head, err := ts.rs.Existing(ctx, key)
	if err != nil {
		return Found{}, err
	}
	if c.Place.Seq > 0 {
		c.Seq, c.Token = c.Place.Seq, ""
	}
	if c.Seq < 1 || c.Seq > head.Last {
		return Found{}, bad
	}
	p, err := ts.At(ctx, key, d, c.Seq-1, req)
	if err != nil {
		return Found{}, err
	}
	through := c.Seq
	if c.Later { // which may be the whole of a long run, when it never comes
		through = head.Last
		if err := ts.begin(ctx); err != nil {
			return Found{}, err
		}
		defer ts.end()
	}
	from := PreludeOf(p)
	var frames dialect.Frames
	for r, err := range (runs.Source{Key: key}).Walk(ctx, ts.rs.Hub, c.Seq-1, through) {
		if err != nil {
			return Found{}, err
		}
		if err := p.Project(&frames, r); err != nil {
			return Found{}, ProjectError(r, err)
		}
		if c.Place.Seq > 0 {
			return foundAt(c.Place, p, from, frames.List), nil
		}
		for i, f := range frames.List {
			if string(f.Token) != c.Token {
				continue
			}
			at := Found{Seq: r.Seq, Index: i + 1, P: p}
			if r.Seq == c.Seq && !f.Again { // with one that comes later all is told that it needs
				at.From = from
			}
			for _, f := range frames.List[i+1:] {
				at.Rest = append(at.Rest, clone(f))
			}
			return at, nil
		}
		frames.Reset()
	}
	return Found{}, bad
}

// foundAt returns a place among the frames of its record, of which p was told last.
func foundAt(at dialect.Place, p dialect.Stateful, from schema.Seq, list []dialect.Frame) Found {
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

// PreludeOf returns the record from which on a client that begins behind all that p was fed needs frames; 0: none.
func PreludeOf(p dialect.Stateful) schema.Seq {
	if pre, ok := p.(dialect.Preluder); ok {
		return pre.Prelude()
	}
	return 0
}

// clone returns a frame of its own memory.
func clone(f dialect.Frame) dialect.Frame {
	f.Event, f.Data, f.Token = bytes.Clone(f.Event), bytes.Clone(f.Data), bytes.Clone(f.Token)
	return f
}

// ProjectError says at which record a projector failed.
func ProjectError(r schema.Record, err error) error {
	return fmt.Errorf("project seq %d: %w", r.Seq, err)
}
