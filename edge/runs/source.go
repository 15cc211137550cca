package runs

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// Runs reads the runs of a node, and their children under their own numbers. It is safe for concurrent use.
type Runs struct {
	Hub     *fanout.Hub
	Catalog Catalog     // nil: a child is found while the log has its beginning
	Costs   Costs       // nil: what models cost is not known
	Slots   *fair.Lanes // bound what reads at once, of NewSlots; nil: nothing does
}

// Source is what a stream shows: a run with all its children, or one child under its own numbers. In
// the latter the child is the run, and seq counts its events alone (native digest §4.4).
type Source struct {
	Key   schema.RunKey // of the root, whose log it is
	Child string        // "": the root
}

// Walk yields, in order, the records with after < seq ≤ through in the source's numbers. A child's are
// counted from the log's beginning: nothing else knows them.
func (src Source) Walk(ctx context.Context, hub *fanout.Hub, after, through schema.Seq) iter.Seq2[schema.Record,
	error] {
	return func(yield func(schema.Record, error) bool) {
		own := OwnNumbers{Child: src.Child}
		from, to := after, through
		if src.Child != "" {
			from, to = 0, schema.MaxSeq
		}
		for p, err := range hub.Packs(ctx, src.Key, from, to) {
			if err != nil {
				yield(schema.Record{}, err)
				return
			}
			if ctx.Err() != nil { // packs may all be cached
				yield(schema.Record{}, context.Cause(ctx))
				return
			}
			if src.Child != "" && p.Child != src.Child {
				continue // a pack is of one lane
			}
			for r, err := range p.Records(from) {
				if err != nil {
					yield(schema.Record{}, err)
					return
				}
				if src.Child != "" {
					var mine bool
					if r, mine = own.Renumber(r); !mine {
						continue
					}
				}
				if r.Seq > through || r.Seq > after && !yield(r, nil) || r.Seq == through {
					return
				}
			}
		}
	}
}

// OwnNumbers counts a child's events and yields them as the child's own stream shows them.
type OwnNumbers struct {
	Child string
	n     schema.Seq // events so far
	ended bool       // the child's last lifecycle is final
}

// Renumber returns a record of the child with the child's own number, and false for one that is not the
// child's.
func (o *OwnNumbers) Renumber(r schema.Record) (schema.Record, bool) {
	if string(r.Child) != o.Child {
		return r, false
	}
	o.n++
	own, err := schema.ScanLine(r.AppendOwn(nil, o.n))
	if err != nil { // it was scanned before
		return r, false
	}
	switch string(r.Type) {
	case schema.TypeRunLifecycle:
		l, err := schema.ParseLifecycle(r.Payload())
		o.ended = err == nil && l.State.Final()
	default:
		o.ended = false
	}
	return own, true
}

// Tail is a source's live side.
type Tail struct {
	sub  *fanout.Subscription
	own  *OwnNumbers // nil for a root
	skip schema.Seq  // own numbers up to it are passed over
}

// ErrNoChild reports that a run has no such child.
var ErrNoChild = fmt.Errorf("no events of this child: %w", fanout.ErrNotFound)

// Follow opens the live side behind after, in the source's numbers. It refuses what fanout.Hub.Subscribe refuses; with
// await it does not refuse a run that is not there yet.
func (src Source) Follow(ctx context.Context, hub *fanout.Hub, after schema.Seq, await bool) (*Tail, error) {
	if src.Child == "" && await && after == 0 {
		sub, err := hub.Await(ctx, src.Key)
		return &Tail{sub: sub}, err
	}
	if src.Child == "" {
		sub, err := hub.Subscribe(ctx, src.Key, after)
		return &Tail{sub: sub}, err
	}
	sub, err := hub.Subscribe(ctx, src.Key, 0)
	return &Tail{sub: sub, own: &OwnNumbers{Child: src.Child}, skip: after}, err
}

// Notify reports whether Next returns at once. When it does not, tell is called once when it may; see
// fanout.Subscription.Notify.
func (t *Tail) Notify(tell func(here bool)) bool { return t.sub.Notify(tell) }

// Live reports whether Next reads no history.
func (t *Tail) Live() bool { return t.sub.Live() }

// Next waits for more records. ended says that the source is over and that these reach its end; of a
// child, that its own lifecycle is final or that the root's is.
func (t *Tail) Next(ctx context.Context, yield func(schema.Record) error) (ended bool, err error) {
	batch, err := t.sub.Next(ctx)
	if err != nil {
		return false, err
	}
	for i := range batch.Packs {
		for r, err := range batch.Packs[i].Records(batch.After) {
			if err != nil {
				return false, err
			}
			if t.own != nil {
				var mine bool
				if r, mine = t.own.Renumber(r); !mine || r.Seq <= t.skip {
					continue
				}
			}
			if err := yield(r); err != nil {
				return false, err
			}
		}
	}
	return batch.Ended || t.own != nil && t.own.ended && t.own.n >= t.skip, nil
}

func (t *Tail) Close() {
	if t.sub != nil {
		t.sub.Close()
	}
}

// Position is what is known of a source before it is read.
type Position struct {
	Last  schema.Seq // newest event
	Ended bool       // nothing will follow
}

// where returns where a source stands. The head is the root's.
func (rs *Runs) where(ctx context.Context, src Source, head schema.Head) (Position, error) {
	if src.Child == "" {
		return Position{Last: head.Last, Ended: head.State.Final()}, nil
	}
	slot, err := rs.Slot(ctx, src.Key.Tenant)
	if err != nil {
		return Position{}, err
	}
	defer slot.Release()
	own := OwnNumbers{Child: src.Child}
	for p, err := range rs.Hub.Packs(ctx, src.Key, 0, head.Last) {
		if err == nil {
			err = slot.Compute(ctx)
		}
		if err != nil {
			return Position{}, err
		}
		if p.Child != src.Child {
			continue
		}
		for r, err := range p.Records(0) {
			if err != nil {
				return Position{}, err
			}
			own.Renumber(r)
		}
	}
	if own.n == 0 {
		return Position{}, ErrNoChild
	}
	return Position{Last: own.n, Ended: own.ended || head.State.Final()}, nil
}

// WhereIs returns what an id of the path names, a run or else a child of one that has events, and where it stands. The
// error wraps fanout.ErrNotFound for what is neither.
func (rs *Runs) WhereIs(ctx context.Context, key schema.RunKey) (Source, Position, error) {
	src, head, err := rs.Locate(ctx, key)
	if err != nil {
		return src, Position{}, err
	}
	pos, err := rs.where(ctx, src, head)
	return src, pos, err
}

// Opened is a source with a live side at a cursor.
type Opened struct {
	Src   Source
	Tail  *Tail
	After schema.Seq // what the client has
	Pos   Position
	Await bool // the run need not be there yet
}

// Await opens an id at the start that need not be there yet. The caller closes the tail, whose Next returns a
// fanout.ChildError when the id becomes a child's; so does Await when it is one already.
func (rs *Runs) Await(ctx context.Context, key schema.RunKey) (o Opened, err error) {
	o = Opened{Src: Source{Key: key}, Await: true}
	if o.Tail, err = o.Src.Follow(ctx, rs.Hub, 0, true); err != nil {
		return o, err
	}
	head := o.Tail.sub.Head()
	o.Pos = Position{Last: head.Last, Ended: head.State.Final()}
	return o, nil
}

// Open finds what an id of the path names, a run or else a child of one, and opens it behind a cursor; with await also
// what is not there yet, if the cursor is the start. The caller closes the tail.
func (rs *Runs) Open(ctx context.Context, key schema.RunKey, c dialect.Cursor, await bool) (Opened, error) {
	await = await && c == (dialect.Cursor{})
	o, err := rs.OpenRoot(ctx, key, c)
	if !errors.Is(err, fanout.ErrNotFound) {
		return o, err
	}
	src, ok, perr := rs.childOf(ctx, key, err)
	if perr == nil && !ok && await {
		if o, err = rs.Await(ctx, key); err == nil {
			return o, nil
		}
		src, ok, perr = rs.childOf(ctx, key, err) // it may have become one
	}
	switch {
	case perr != nil:
		return o, perr
	case !ok:
		return o, err
	}
	return rs.openChild(ctx, src, c, await)
}

// childOf returns the source that an id names which is no run, for the reason why; ok is false when it is no child
// either. The log knows the children that were spawned within its window, the catalog those that have events.
func (rs *Runs) childOf(ctx context.Context, key schema.RunKey, why error) (src Source, ok bool, err error) {
	if child := new(fanout.ChildError); errors.As(why, &child) {
		return Source{Key: schema.RunKey{Tenant: key.Tenant, Run: child.Root}, Child: key.Run}, true, nil
	}
	if rs.Catalog == nil {
		return Source{}, false, nil
	}
	root, err := rs.Catalog.Parent(ctx, key.Tenant, key.Run)
	switch {
	case errors.Is(err, fanout.ErrNotFound) || err == nil && root == "":
		return Source{}, false, nil
	case err != nil:
		return Source{}, false, fmt.Errorf("root of %s: %w: %w", key, fanout.ErrUnavailable, err)
	}
	return Source{Key: schema.RunKey{Tenant: key.Tenant, Run: root}, Child: key.Run}, true, nil
}

func (rs *Runs) OpenRoot(ctx context.Context, key schema.RunKey, c dialect.Cursor) (o Opened, err error) {
	o.Src.Key = key
	if o.After, err = rs.resolve(ctx, o.Src, c); err != nil {
		return o, err
	}
	if o.Tail, err = o.Src.Follow(ctx, rs.Hub, o.After, false); err != nil {
		return o, rs.whereabouts(ctx, key, err)
	}
	head := o.Tail.sub.Head()
	o.Pos = Position{Last: head.Last, Ended: head.State.Final()}
	return o, nil
}

func (rs *Runs) openChild(ctx context.Context, src Source, c dialect.Cursor, await bool) (o Opened, err error) {
	o.Src = src
	head, err := rs.Existing(ctx, src.Key)
	if err != nil {
		return o, err
	}
	if o.Pos, err = rs.where(ctx, src, head); await && errors.Is(err, ErrNoChild) {
		o.Pos, err = Position{Ended: head.State.Final()}, nil // it was spawned, and has no event
	}
	if err != nil {
		return o, err
	}
	if o.After, err = rs.resolve(ctx, src, c); err != nil {
		return o, err
	}
	if o.After > o.Pos.Last {
		return o, &ends.PositionError{Last: o.Pos.Last, Err: fmt.Errorf("after %d: %w", o.After, fanout.ErrFuture)}
	}
	o.Tail, err = src.Follow(ctx, rs.Hub, o.After, false)
	return o, err
}

// OpenSource opens a source that is known to exist behind a position.
func (rs *Runs) OpenSource(ctx context.Context, src Source, after schema.Seq) (o Opened, err error) {
	o = Opened{Src: src, After: after}
	if o.Tail, err = src.Follow(ctx, rs.Hub, after, false); err != nil {
		return o, err
	}
	if o.Pos, err = rs.where(ctx, src, o.Tail.sub.Head()); err != nil {
		o.Tail.Close()
	}
	return o, err
}
