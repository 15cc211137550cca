package live

import (
	"context"
	"math/rand/v2"
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/edge/transport"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// viewKey names a live view. All who watch the same one share its shaping.
type viewKey struct {
	src    runs.Source
	filter string
	shaped bool
	bundle bool
	every  time.Duration // of silence between signs of life
}

// views are the live views of this node.
type views struct {
	hub   *fanout.Hub
	hooks Hooks

	mu    sync.Mutex
	open  map[viewKey]*view
	work  sync.WaitGroup
	rings fair.Parts // the same by tenant

	replayed atomic.Int64 // bytes of what is kept of replays
	buffers  transport.Buffers
	wheel    wheel // for signs of life
}

// How much of a live view is kept for watchers that are a little behind, in bytes of lines: up to
// ringBytes, of all views together ringsBytes, of each at least minRing. Those further behind read history
// by themselves.
const (
	ringBytes  = 128 << 10
	ringsBytes = 8 << 20
	minRing    = 2 << 10
)

// view is one live view: it shapes what the log brings, and keeps the newest of it. It writes to all watchers that have
// everything and whose connections never make it wait. While nothing comes it has no goroutine.
type view struct {
	key         viewKey
	all         *views
	refs        int        // guarded by views.mu
	part        *fair.Part // of the rings
	now         atomic.Pointer[viewState]
	task        viewTask
	parkedCount atomic.Int32 // clients that are parked

	replays replays

	// mu is held while something new is published and written to those who are parked. Nothing waits for
	// a client under it.
	mu          sync.Mutex
	last        schema.Seq    // last event that was shown; the next begins behind it
	changed     chan struct{} // closed when there is a newer state; nil: nobody waits
	projections []*projection // of those who are parked
	spoke       time.Time     // when the parked last got something
}

// viewState is a view at one moment. It is never changed; the next one may share its backing array.
type viewState struct {
	items []shape.Out // each begins where the one before it ends
	bytes int
	lo    schema.Seq // position before items
	hi    schema.Seq // everything up to it is in items, or before them, or hidden
	ended bool       // the source is over, and items reach its end
	err   error
}

// stage is what turns records into those of a view.
type stage interface {
	Add(out []shape.Out, now time.Time, r schema.Record) []shape.Out
	Tick(out []shape.Out, now time.Time) []shape.Out
	Due() (at time.Time, ok bool)
	Watermark(seen schema.Seq) schema.Seq
}

var _ stage = (*shape.Pacer)(nil)

// plain shows every record that passes the filter as it comes.
type plain struct{ fold shape.Folder }

func (p *plain) Add(out []shape.Out, _ time.Time, r schema.Record) []shape.Out {
	return p.fold.Add(out, r)
}
func (p *plain) Tick(out []shape.Out, _ time.Time) []shape.Out { return out }
func (p *plain) Due() (time.Time, bool)                        { return time.Time{}, false }
func (p *plain) Watermark(seen schema.Seq) schema.Seq          { return seen }

// join returns the view that a watcher of o wants, begun at o's newest event unless it is there already.
// The caller leaves it. A view that is begun follows its source before join returns, so that the watcher
// may close its own tail at once.
func (vs *views) join(key viewKey, filter shape.Filter, o runs.Opened) (*view, error) {
	if v := vs.find(key); v != nil {
		return v, nil
	}
	at := max(o.Pos.Last, o.After)
	// The view outlives the request that begins it.
	ctx, cancel := context.WithCancel(context.Background())
	t, err := key.src.Follow(ctx, vs.hub, at, o.Await)
	if err != nil {
		t.Close()
		cancel()
		return nil, err
	}
	v := &view{key: key, all: vs, last: at, refs: 1, spoke: time.Now(), replays: replays{all: vs}}
	v.now.Store(&viewState{lo: at, hi: at, ended: o.Pos.Ended})
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if other := vs.open[key]; other != nil { // somebody was faster
		t.Close()
		cancel()
		other.refs++
		return other, nil
	}
	if vs.open == nil {
		vs.open = make(map[viewKey]*view)
	}
	v.part = vs.rings.Join(key.src.Key.Tenant)
	vs.open[key] = v
	var st stage = &plain{fold: shape.Folder{Filter: filter, Last: at}}
	if key.shaped {
		st = &shape.Pacer{Filter: filter, Bundle: key.bundle, Last: at}
	}
	vs.work.Add(1)
	v.task = viewTask{ctx: ctx, cancel: cancel, tail: t, st: st, seen: at, ended: o.Pos.Ended,
		every: key.every - rand.N(1+key.every/5)}
	v.task.wake, v.task.alarm.of = v.wake, v
	v.wake(false)
	return v, nil
}

func (vs *views) find(key viewKey) *view {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.open[key]
	if v != nil {
		v.refs++
	}
	return v
}

// leave releases a view; the last watcher ends it.
func (vs *views) leave(v *view) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	if v.refs--; v.refs == 0 {
		v.stop()
		vs.drop(v)
	}
}

// drop needs mu.
func (vs *views) drop(v *view) {
	if vs.open[v.key] == v {
		delete(vs.open, v.key)
		v.part.Leave()
	}
}

// forget lets the next watcher begin anew: this view has ended.
func (vs *views) forget(v *view) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.drop(v)
}

// close ends all views and waits for them. Watchers that are still there are woken.
func (vs *views) close() {
	vs.mu.Lock()
	for _, v := range vs.open {
		v.stop()
	}
	vs.mu.Unlock()
	vs.work.Wait()
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
	for limit := min(ringBytes, max(minRing, v.part.Share(ringsBytes))); n.bytes > limit && len(n.items) > 1; {
		n.bytes -= len(n.items[0].Line)
		n.lo = n.items[0].Seq
		n.items = n.items[1:]
	}
	v.publish(n, out)
}

// publish makes n the state, and writes what is new in it to those who are parked.
func (v *view) publish(n *viewState, out []shape.Out) {
	v.mu.Lock()
	v.now.Store(n)
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
	if len(out) > 0 {
		v.last = out[len(out)-1].Seq
		v.spoke = time.Now()
	}
	left := v.broadcast(out)
	if n.ended || n.err != nil {
		left = v.releaseAll(left)
	}
	v.mu.Unlock()
	for _, l := range left {
		l.ss.resume(l.rest, l.err)
	}
}

// wait returns a channel that is closed when s is no longer the newest state; nil: it is not any more.
func (v *view) wait(s *viewState) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.now.Load() != s {
		return nil
	}
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}

// behind returns the items that follow a position, or says up to where history must be read first,
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
