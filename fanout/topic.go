package fanout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/internal/fair"
	"agentstream/schema"
)

// topic is one watched run. It holds the newest packs without a hole; whatever arrives that is not
// next makes it read history, once for all its readers.
type topic struct {
	part *fair.Part // of the rings
	hub  *Hub
	key  schema.RunKey

	refs      int           // guarded by the lock of the hub's shard
	attached  chan struct{} // closed when attach has ended
	attachErr error         // readable behind attached
	stop      func()

	view  atomic.Pointer[topicView]
	heard atomic.Bool  // something has arrived since the last audit
	unfit atomic.Int64 // what follows a smaller seq does not fit into the ring

	mu      sync.Mutex // writers of view: the live side, the filler
	ready   bool       // the head is known; before that, copies only announce what to expect
	want    schema.Seq // newest seq known to be stored
	filling bool
	stood   time.Time       // when it was last asked why the stream has less than the readers
	root    string          // the run is a child of it
	back    chan struct{}   // holds one token while nobody reads what precedes the ring; nil until somebody does
	waiting []*Subscription // that have everything; each is told once
}

// topicView is a topic at one moment. It is never changed; the next one may share its backing array.
type topicView struct {
	packs  []schema.Pack // contiguous, newest last
	bytes  int
	lo, hi schema.Seq   // seq of the first and last event in packs; lo = hi+1 when there are none
	head   *schema.Head // of the newest pack, or the leader's answer; never changed
	err    error        // the topic has ended
}

func newTopic(h *Hub, key schema.RunKey) *topic {
	f := &topic{hub: h, key: key, part: h.rings.Join(key.Tenant), attached: make(chan struct{})}
	f.view.Store(&topicView{lo: 1, head: new(schema.Head)})
	return f
}

// attach makes interest known FIRST and asks the leader for the head THEN: what is stored in
// between arrives as a copy, what was stored before is history. The other order would lose what
// falls between the two.
func (f *topic) attach(ctx context.Context) (err error) {
	defer func() { f.attachErr = err }()
	stop, err := f.hub.cfg.Tail.Watch(ctx, f.key, f.offer)
	if err != nil {
		return fmt.Errorf("fanout: watch %s: %w: %w", f.key, ErrUnavailable, err)
	}
	f.stop = stop
	head, err := f.hub.Head(ctx, f.key)
	child := new(ChildError)
	if err != nil && (errors.As(err, &child) || !errors.Is(err, ErrNotFound)) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.root != "" {
		return &ChildError{Root: f.root}
	}
	if f.ready = true; !head.HasEvents() {
		f.stood = time.Now()
	}
	f.publish(&topicView{lo: head.Last + 1, hi: head.Last, head: &head}) // nobody waits before it is attached
	f.fillLocked(head.Last)
	return nil
}

func (f *topic) detach() {
	f.fail(ErrClosed)
	if f.stop != nil {
		f.stop()
	}
}

// offer takes a copy from the live side. It never blocks.
func (f *topic) offer(p schema.Pack) {
	if p.Head.Root != "" {
		f.setRoot(p.Head.Root)
		return
	}
	f.heard.Store(true)
	f.mu.Lock()
	v := f.view.Load()
	var told tells
	if f.ready && p.First <= v.hi+1 {
		told = f.appendLocked(p)
	} else {
		if f.ready && f.hub.cfg.Hooks.Gap != nil && !f.filling {
			f.hub.cfg.Hooks.Gap(f.key)
		}
		f.fillLocked(p.Last())
	}
	f.mu.Unlock()
	told.call(f.hub.cfg.Handed)
}

// early takes a pack from its writer, whose copy is on its way. Only the next one is of use: behind a hole lies what
// others have written, and the copies come in the order of the log. heard is set by what is delivered alone, so that
// the audit looks at a run whose copies are lost.
func (f *topic) early(p schema.Pack) {
	f.mu.Lock()
	var told tells
	if hi := f.view.Load().hi; f.ready && p.First <= hi+1 && p.Last() > hi {
		f.heard.Store(true)
		told = f.appendLocked(p)
	}
	f.mu.Unlock()
	told.call(true)
}

// setRoot notes that the run, for which a reader waits, is a child of root.
func (f *topic) setRoot(root string) {
	f.mu.Lock()
	begun := f.view.Load().hi > 0
	f.root = root
	ready := f.ready
	f.mu.Unlock()
	if ready && !begun {
		f.abandon(&ChildError{Root: root})
	}
}

// expect notes that the stream has seq, which the audit has found.
func (f *topic) expect(seq schema.Seq) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ready && seq > f.view.Load().hi && seq > f.want {
		if f.hub.cfg.Hooks.Gap != nil {
			f.hub.cfg.Hooks.Gap(f.key)
		}
		f.fillLocked(seq)
	}
}

// quiet reports whether nothing has arrived since the last call.
func (f *topic) quiet() bool { return !f.heard.Swap(false) }

// missingEvery is how often a run whose newest events have left the stream is asked for by name.
const missingEvery = time.Minute

// checkAhead reports whether readers have more than the stream, where newest is its last, or wait for a run
// that it does not have. It reports that at most once in missingEvery: then it is time to ask why.
func (f *topic) checkAhead(newest schema.Seq) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.view.Load(); !f.ready || v.err != nil || newest >= max(v.hi, 1) || time.Since(f.stood) < missingEvery {
		return false
	}
	f.stood = time.Now()
	return true
}

// appendLocked adds a pack that is next; one that has been seen is passed over.
func (f *topic) appendLocked(p schema.Pack) tells {
	v := f.view.Load()
	if v.err != nil || p.Last() <= v.hi || p.First > v.hi+1 {
		return tells{}
	}
	p = p.Trim(v.hi) // packs of the ring never overlap
	packs := v.packs
	if len(packs) == cap(packs) { // as the ring moves on, a copy for half as many packs as it holds
		packs = append(make([]schema.Pack, 0, len(packs)+len(packs)/2+1), packs...)
	}
	packs = append(packs, p)
	n := &topicView{packs: packs, bytes: v.bytes + ringBytes(&p), lo: v.lo, hi: p.Last(), head: &packs[len(packs)-1].Head}
	if len(v.packs) == 0 {
		n.lo = p.First
	}
	for limit := f.ringLimit(); n.bytes > limit && len(n.packs) > 1; {
		n.bytes -= ringBytes(&n.packs[0])
		n.packs = n.packs[1:]
		n.lo = n.packs[0].First
	}
	return f.publish(n)
}

// ringBytes returns the bytes that a pack takes in the ring, with its description and the headers that its body shares
// memory with: a run whose packs hold one short event each must not take several times of what it was given.
func ringBytes(p *schema.Pack) int { return len(p.Body) + packOverhead }

// extendEvents is how far behind the ring a reader may begin and still be served by it.
const extendEvents = 2048

// fewEvents are read into the ring and not kept as a page of history too: a page of one event is mostly its own
// description.
const fewEvents = 16

// extend reads what lies between after and the ring into it, once for all who want it: clients that
// come back together ask for nearly the same. It reports whether the ring now begins at or before
// after+1; it does not when that is too much to keep.
func (f *topic) extend(ctx context.Context, after schema.Seq) bool {
	if after < schema.Seq(f.unfit.Load()) {
		return false
	}
	f.mu.Lock()
	if f.back == nil {
		f.back = make(chan struct{}, 1)
		f.back <- struct{}{}
	}
	f.mu.Unlock()
	if until(ctx, f.back) != nil {
		return false
	}
	defer func() { f.back <- struct{}{} }()
	f.mu.Lock()
	v, ready := f.view.Load(), f.ready
	f.mu.Unlock()
	if after+1 >= v.lo {
		return true
	}
	if !ready || v.err != nil || v.lo-1-after > extendEvents {
		return false
	}
	var packs []schema.Pack
	bytes, hi := 0, after
	read := f.hub.history
	if v.lo-1-after <= fewEvents {
		read = f.hub.walkUncached
	}
	_, err := read(ctx, f.key, after, v.lo-1, func(p schema.Pack, err error) bool {
		packs, bytes, hi = append(packs, p), bytes+ringBytes(&p), p.Last()
		fits := v.bytes+bytes <= f.ringLimit()
		if !fits { // nor will it ever: the ring only moves on
			f.unfit.Store(int64(after) + 1)
		}
		return fits
	})
	if err != nil || hi < v.lo-1 {
		return false
	}
	f.mu.Lock()
	now := f.view.Load()
	if now.lo != v.lo || now.err != nil {
		f.mu.Unlock()
		return false // the ring has moved on
	}
	for i := range packs {
		if packs[i].Last() >= now.lo { // a pack that the ring holds the rest of
			packs, now = packs[:i+1], f.without(now, packs[i].Last())
			break
		}
	}
	n := *now
	n.packs = append(packs, now.packs...)
	n.bytes, n.lo = now.bytes+bytes, after+1
	told := f.publish(&n)
	f.mu.Unlock()
	told.call(false)
	return true
}

// without returns a view that begins behind seq.
func (f *topic) without(v *topicView, seq schema.Seq) *topicView {
	n := *v
	n.packs = append([]schema.Pack(nil), v.packs...)
	for len(n.packs) > 0 && n.packs[0].Last() <= seq {
		n.bytes -= ringBytes(&n.packs[0])
		n.packs = n.packs[1:]
	}
	if len(n.packs) > 0 {
		n.packs[0] = n.packs[0].Trim(seq)
	}
	return &n
}

// publish makes n the view. Under the lock; those who wait for it are to be told behind it.
func (f *topic) publish(n *topicView) (told tells) {
	f.view.Store(n)
	for i, s := range f.waiting {
		if i == 0 {
			told.first = s.tell
		} else {
			told.more = append(told.more, s.tell)
		}
		f.waiting[i], s.tell = nil, nil
	}
	f.waiting = f.waiting[:0]
	return told
}

// tells are those who are to be told that there is something: mostly one.
type tells struct {
	first func(here bool)
	more  []func(here bool)
}

func (t tells) call(here bool) {
	if t.first != nil {
		t.first(here)
	}
	for _, tell := range t.more {
		tell(here)
	}
}

// wait has tell called once when there is a view other than v, for s. It reports whether v is the newest.
func (f *topic) wait(s *Subscription, v *topicView, tell func(here bool)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.view.Load() != v {
		return false
	}
	if s.tell == nil {
		f.waiting = append(f.waiting, s)
	}
	s.tell = tell
	return true
}

// leave takes s from those who wait.
func (f *topic) leave(s *Subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.tell == nil {
		return
	}
	s.tell = nil
	f.waiting = slices.DeleteFunc(f.waiting, func(o *Subscription) bool { return o == s })
}

// fillLocked makes sure that events up to seq are read from history, unless they are there.
func (f *topic) fillLocked(seq schema.Seq) {
	f.want = max(f.want, seq)
	v := f.view.Load()
	if !f.ready || f.filling || f.want <= v.hi || v.err != nil {
		return
	}
	f.filling = true
	f.hub.work.Go(f.fill)
}

// fill reads what is missing until nothing is. It gives up when the stream stays silent.
func (f *topic) fill() {
	began := time.Now()
	for attempt := 0; ; attempt++ {
		f.mu.Lock()
		v := f.view.Load()
		if f.want <= v.hi || v.err != nil {
			f.filling = false
			f.mu.Unlock()
			return
		}
		from, through := v.hi, f.want
		f.mu.Unlock()
		err := f.read(from, through)
		if err == nil {
			began, attempt = time.Now(), 0
			continue
		}
		if time.Since(began) > f.hub.cfg.GiveUp || f.hub.ctx.Err() != nil {
			f.abandon(err)
			return
		}
		wait(f.hub.ctx, min(10*time.Millisecond<<min(attempt, 8), time.Second))
	}
}

// read appends what history has behind from. Reaching through is success; anything less an error.
func (f *topic) read(from, through schema.Seq) error {
	for p, err := range f.hub.packs(f.hub.ctx, f.key, from, through) {
		if err != nil {
			return err
		}
		f.mu.Lock()
		told := f.appendLocked(p)
		f.mu.Unlock()
		told.call(false)
	}
	if hi := f.view.Load().hi; hi < through {
		return fmt.Errorf("fanout: fill %s: history ends at %d before %d: %w", f.key, hi, through, ErrUnavailable)
	}
	return nil
}

// abandon ends a topic whose hole cannot be filled, and takes it out of the hub, so that the next
// subscription starts anew.
func (f *topic) abandon(err error) {
	part := f.hub.shard(f.key)
	part.mu.Lock()
	f.hub.remove(part, f)
	part.mu.Unlock()
	f.fail(err)
	f.mu.Lock()
	f.filling = false
	f.mu.Unlock()
}

func (f *topic) fail(err error) {
	f.mu.Lock()
	var told tells
	if v := *f.view.Load(); v.err == nil {
		v.err = err
		told = f.publish(&v)
	}
	f.mu.Unlock()
	told.call(false)
}

// wait pauses for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
