package edge

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/schema"
)

// Runs reads the runs of a node, and their children under their own numbers. It is safe for concurrent use.
type Runs struct {
	hub     *fanout.Hub
	catalog Catalog // nil: a child is found while the log has its beginning
}

// source is what a stream shows: a run with all its children, or one child under its own numbers. In
// the latter the child is the run, and seq counts its events alone (native digest §4.4).
type source struct {
	key   schema.RunKey // of the root, whose log it is
	child string        // "": the root
}

// walk gives, in order, the records with after < seq ≤ through in the source's numbers. A child's are
// counted from the log's beginning: nothing else knows them.
func (src source) walk(ctx context.Context, hub *fanout.Hub, after, through schema.Seq) iter.Seq2[schema.Record, error] {
	return func(yield func(schema.Record, error) bool) {
		own := ownNumbers{child: src.child}
		from, to := after, through
		if src.child != "" {
			from, to = 0, schema.MaxSeq
		}
		for p, err := range hub.Packs(ctx, src.key, from, to) {
			if err != nil {
				yield(schema.Record{}, err)
				return
			}
			if src.child != "" && p.Child != src.child {
				continue // a pack is of one lane
			}
			for r, err := range p.Records(from) {
				if err != nil {
					yield(schema.Record{}, err)
					return
				}
				if src.child != "" {
					var mine bool
					if r, mine = own.take(r); !mine {
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

// ownNumbers counts a child's events and gives them as the child's own stream shows them.
type ownNumbers struct {
	child string
	n     schema.Seq // events so far
	ended bool       // the child's last lifecycle is final
}

func (o *ownNumbers) take(r schema.Record) (schema.Record, bool) {
	if string(r.Child) != o.child {
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

// tail is a source's live side.
type tail struct {
	sub  *fanout.Subscription
	own  *ownNumbers // nil for a root
	skip schema.Seq  // own numbers up to it are passed over
}

// errNoChild reports that a run has no such child.
var errNoChild = fmt.Errorf("no events of this child: %w", fanout.ErrNotFound)

// follow opens the live side behind after, in the source's numbers. It refuses what
// fanout.Hub.Subscribe refuses.
func (src source) follow(ctx context.Context, hub *fanout.Hub, after schema.Seq) (*tail, error) {
	if src.child == "" {
		sub, err := hub.Subscribe(ctx, src.key, after)
		return &tail{sub: sub}, err
	}
	sub, err := hub.Subscribe(ctx, src.key, 0)
	return &tail{sub: sub, own: &ownNumbers{child: src.child}, skip: after}, err
}

// next waits for more records. ended says that the source is over and that these reach its end; of a
// child, that its own lifecycle is final or that the root's is.
func (t *tail) next(ctx context.Context, yield func(schema.Record) error) (ended bool, err error) {
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
				if r, mine = t.own.take(r); !mine || r.Seq <= t.skip {
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

func (t *tail) close() {
	if t.sub != nil {
		t.sub.Close()
	}
}

// position is what is known of a source before it is read.
type position struct {
	last  schema.Seq // newest event
	ended bool       // nothing will follow
}

// where says where a source stands. The head is the root's.
func (src source) where(ctx context.Context, hub *fanout.Hub, head schema.Head) (position, error) {
	if src.child == "" {
		return position{last: head.Last, ended: head.State.Final()}, nil
	}
	own := ownNumbers{child: src.child}
	for p, err := range hub.Packs(ctx, src.key, 0, head.Last) {
		if err != nil {
			return position{}, err
		}
		if p.Child != src.child {
			continue
		}
		for r, err := range p.Records(0) {
			if err != nil {
				return position{}, err
			}
			own.take(r)
		}
	}
	if own.n == 0 {
		return position{}, errNoChild
	}
	return position{last: own.n, ended: own.ended || head.State.Final()}, nil
}

// whereIs says what an id of the path names, a run or else a child of one that has spoken, and where it stands. The error
// wraps fanout.ErrNotFound for what is neither.
func (rs *Runs) whereIs(ctx context.Context, key schema.RunKey) (source, position, error) {
	src, head, err := rs.locate(ctx, key)
	if err != nil {
		return src, position{}, err
	}
	pos, err := src.where(ctx, rs.hub, head)
	return src, pos, err
}

// opened is a source with a live side at a cursor.
type opened struct {
	src   source
	tail  *tail
	after schema.Seq // what the client has
	pos   position
}

// open finds what an id of the path names, a run or else a child of one, and opens it behind a
// cursor. The caller closes the tail.
func (rs *Runs) open(ctx context.Context, key schema.RunKey, c dialect.Cursor) (opened, error) {
	o, err := rs.openRoot(ctx, key, c)
	if !errors.Is(err, fanout.ErrNotFound) {
		return o, err
	}
	src, ok, perr := rs.childOf(ctx, key, err)
	if perr != nil {
		return o, perr
	}
	if !ok {
		return o, err
	}
	return rs.openChild(ctx, src, c)
}

// childOf returns the source that an id names which is no run, for the reason why; ok is false when it is no child either.
// The log knows the children that were spawned within its window, the catalog those that have spoken.
func (rs *Runs) childOf(ctx context.Context, key schema.RunKey, why error) (src source, ok bool, err error) {
	if child := new(fanout.ChildError); errors.As(why, &child) {
		return source{key: schema.RunKey{Tenant: key.Tenant, Run: child.Root}, child: key.Run}, true, nil
	}
	if rs.catalog == nil {
		return source{}, false, nil
	}
	root, err := rs.catalog.Parent(ctx, key.Tenant, key.Run)
	switch {
	case errors.Is(err, fanout.ErrNotFound) || err == nil && root == "":
		return source{}, false, nil
	case err != nil:
		return source{}, false, fmt.Errorf("root of %s: %w: %w", key, fanout.ErrUnavailable, err)
	}
	return source{key: schema.RunKey{Tenant: key.Tenant, Run: root}, child: key.Run}, true, nil
}

func (rs *Runs) openRoot(ctx context.Context, key schema.RunKey, c dialect.Cursor) (o opened, err error) {
	o.src.key = key
	if o.after, err = rs.resolve(ctx, o.src, c); err != nil {
		return o, err
	}
	if o.tail, err = o.src.follow(ctx, rs.hub, o.after); err != nil {
		return o, rs.whereabouts(ctx, key, err)
	}
	head := o.tail.sub.Head()
	o.pos = position{last: head.Last, ended: head.State.Final()}
	return o, nil
}

func (rs *Runs) openChild(ctx context.Context, src source, c dialect.Cursor) (o opened, err error) {
	o.src = src
	head, err := rs.existing(ctx, src.key)
	if err != nil {
		return o, err
	}
	if o.pos, err = src.where(ctx, rs.hub, head); err != nil {
		return o, err
	}
	if o.after, err = rs.resolve(ctx, src, c); err != nil {
		return o, err
	}
	if o.after > o.pos.last {
		return o, &positionError{last: o.pos.last, err: fmt.Errorf("after %d: %w", o.after, fanout.ErrFuture)}
	}
	o.tail, err = src.follow(ctx, rs.hub, o.after)
	return o, err
}

// openSource opens a source that is known to exist behind a position.
func (rs *Runs) openSource(ctx context.Context, src source, after schema.Seq) (o opened, err error) {
	o = opened{src: src, after: after}
	if o.tail, err = src.follow(ctx, rs.hub, after); err != nil {
		return o, err
	}
	if o.pos, err = src.where(ctx, rs.hub, o.tail.sub.Head()); err != nil {
		o.tail.close()
	}
	return o, err
}
