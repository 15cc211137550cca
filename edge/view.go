package edge

import (
	"context"
	"errors"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/shape"
	"agentstream/fanout"
	"agentstream/schema"
)

// viewKey names a live view. All who watch the same one share its shaping.
type viewKey struct {
	src    source
	filter string
	bundle bool
}

// views are the live views of this node.
type views struct {
	mu   sync.Mutex
	open map[viewKey]*view
	work sync.WaitGroup
}

// ringBytes is how much of a live view is kept for watchers that are a little behind, in bytes of
// lines. Those further behind read history by themselves.
const ringBytes = 128 << 10

// view is one live view: a goroutine that paces what the log brings, and the newest of it.
type view struct {
	key    viewKey
	refs   int // guarded by views.mu
	cancel context.CancelFunc
	now    atomic.Pointer[viewState]
}

// viewState is a view at one moment. It is never changed; the next one may share its backing array.
type viewState struct {
	items   []shape.Out // each begins where the one before it ends
	bytes   int
	lo      schema.Seq // position before items
	hi      schema.Seq // everything up to it is in items, or before them, or hidden
	ended   bool       // the source is over, and items reach its end
	err     error
	changed chan struct{} // closed when there is a newer state
}

// join gives the view that a watcher of o wants, begun at o's newest event unless it is there
// already. The caller leaves it.
func (vs *views) join(hub *fanout.Hub, key viewKey, filter shape.Filter, o opened) *view {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.open[key]
	if v == nil {
		v = &view{key: key}
		at := max(o.pos.last, o.after)
		v.now.Store(&viewState{lo: at, hi: at, ended: o.pos.ended, changed: make(chan struct{})})
		// The view outlives the request that began it.
		ctx, cancel := context.WithCancel(context.Background())
		v.cancel = cancel
		if vs.open == nil {
			vs.open = make(map[viewKey]*view)
		}
		vs.open[key] = v
		pace := &shape.Pacer{Filter: filter, Bundle: key.bundle, Last: at}
		vs.work.Go(func() { v.run(ctx, hub, pace, at); vs.forget(v) })
	}
	v.refs++
	return v
}

// leave gives a view up; the last watcher ends it.
func (vs *views) leave(v *view) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v.refs--; v.refs == 0 {
		v.cancel()
		if vs.open[v.key] == v {
			delete(vs.open, v.key)
		}
	}
}

// forget lets the next watcher begin anew: this view has ended.
func (vs *views) forget(v *view) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if vs.open[v.key] == v {
		delete(vs.open, v.key)
	}
}

// close ends all views and waits for them. Watchers that are still there are told.
func (vs *views) close() {
	vs.mu.Lock()
	for _, v := range vs.open {
		v.cancel()
	}
	vs.mu.Unlock()
	vs.work.Wait()
}

// run paces what follows at until ctx ends or the log fails.
func (v *view) run(ctx context.Context, hub *fanout.Hub, pace *shape.Pacer, at schema.Seq) {
	t, err := v.key.src.follow(ctx, hub, at)
	if err == nil {
		err = v.feed(ctx, t, pace, at)
	}
	t.close()
	s := *v.now.Load()
	s.err = err
	v.publish(&s)
}

func (v *view) feed(ctx context.Context, t *tail, pace *shape.Pacer, seen schema.Seq) error {
	var out []shape.Out
	alarm := alarm{}
	defer alarm.stop()
	ended := v.now.Load().ended
	for {
		out = out[:0]
		wait := ctx
		if due, ok := pace.Due(); ok {
			wait = alarm.at(ctx, due)
		}
		over, err := t.next(wait, func(r schema.Record) error {
			seen = r.Seq
			out = pace.Add(out, time.Now(), r)
			return nil
		})
		switch {
		case err == nil:
			ended = over
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		}
		out = pace.Tick(out, time.Now())
		settled := pace.Settled(seen)
		v.add(out, settled, ended && settled == seen)
	}
}

// alarm gives contexts that end at a time. One serves for as long as the time stays.
type alarm struct {
	due    time.Time
	ctx    context.Context
	cancel context.CancelFunc
}

func (a *alarm) at(ctx context.Context, due time.Time) context.Context {
	if a.ctx != nil && a.due.Equal(due) && a.ctx.Err() == nil {
		return a.ctx
	}
	a.stop()
	a.due = due
	a.ctx, a.cancel = context.WithDeadline(ctx, due)
	return a.ctx
}

func (a *alarm) stop() {
	if a.cancel != nil {
		a.cancel()
	}
}

// add publishes what has gone out.
func (v *view) add(out []shape.Out, settled schema.Seq, ended bool) {
	old := v.now.Load()
	if len(out) == 0 && settled == old.hi && ended == old.ended {
		return
	}
	n := &viewState{items: old.items, bytes: old.bytes, lo: old.lo, hi: settled, ended: ended}
	for _, o := range out {
		n.items = append(n.items, o)
		n.bytes += len(o.Line)
	}
	for n.bytes > ringBytes && len(n.items) > 1 {
		n.bytes -= len(n.items[0].Line)
		n.lo = n.items[0].Seq
		n.items = n.items[1:]
	}
	v.publish(n)
}

func (v *view) publish(n *viewState) {
	n.changed = make(chan struct{})
	old := v.now.Swap(n)
	close(old.changed)
}

// behind gives the items that follow a position, or says up to where history must be read first,
// because they are no longer here or because the client has a part of the first one. Neither means
// that all up to hi is hidden.
func (s *viewState) behind(pos schema.Seq) (items []shape.Out, read schema.Seq) {
	if pos < s.lo {
		return nil, s.lo
	}
	i := sort.Search(len(s.items), func(i int) bool { return s.items[i].Seq > pos })
	items = s.items[i:]
	if len(items) > 0 && items[0].From <= pos {
		return nil, items[0].Seq
	}
	return items, 0
}
