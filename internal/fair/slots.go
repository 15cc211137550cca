package fair

import (
	"container/heap"
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"
)

// Config sets Slots up.
type Config struct {
	Shared int           // slots beyond each tenant's first, of all tenants together
	Firsts int           // tenants that hold their first one at once
	Lease  time.Duration // without Yield, after which a slot is given to who waits; 0: never
}

// Slots bound how much work is under way.
type Slots struct {
	cfg      Config
	on       *Cores // nil: its work computes as it likes
	commands bool   // on those of commands

	mu      sync.Mutex
	tenants map[string]*holder
	idle    *holder    // the newest that has held nothing any more, which is kept: it mostly comes again
	queue   queue      // of tenants that wait
	used    int        // slots
	active  int        // tenants that hold any
	turn    uint64     // counts what was given
	leases  *list.List // of *Slot, the oldest in front; of Slots with a lease
	timer   *time.Timer
}

// holder is a tenant that holds slots or waits for one.
type holder struct {
	tenant string
	held   int
	served uint64    // turn of the last slot that it was given
	wait   list.List // of *waiter
	place  int       // in the queue; -1: it does not wait
}

// waiter is who waits for a slot.
type waiter struct {
	slot  *Slot
	given chan struct{} // closed when the slot is
}

// Slot is the right to work.
type Slot struct {
	of     *Slots
	holder *holder
	held   bool          // false also when the lease was over
	lease  *list.Element // nil: none
	since  time.Time     // when it was given, or last yielded
	begun  time.Time     // of the slice; the goroutine's own, as ticks and core are
	ticks  uint
	core   *Slot // nil: the work was short until now
}

// Of returns the configuration of total slots, 1 at least. A tenant alone may hold about half of them.
func Of(total int) Config { return Config{Shared: total / 2, Firsts: max(total-total/2, 1)} }

// New returns slots that nobody holds.
func New(cfg Config) *Slots {
	return &Slots{cfg: cfg, tenants: make(map[string]*holder), leases: list.New()}
}

// Acquire waits for a slot, which the caller releases. The error is the cause of ctx.
func (s *Slots) Acquire(ctx context.Context, tenant string) (*Slot, error) {
	slot := &Slot{of: s}
	s.mu.Lock()
	h := s.tenants[tenant]
	if h == nil {
		h = &holder{tenant: tenant, place: -1}
		s.tenants[tenant] = h
	}
	slot.holder = h
	if err := slot.wait(ctx, false); err != nil {
		return nil, err
	}
	slot.begun = time.Now()
	return slot, nil
}

// CountHeld returns how many slots a tenant holds and how many of its callers wait.
func (s *Slots) CountHeld(tenant string) (held, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.tenants[tenant]
	if h == nil {
		return 0, 0
	}
	return h.held, h.wait.Len()
}

// wait comes with the lock and goes without. first puts the slot in front of the tenant's others.
func (sl *Slot) wait(ctx context.Context, first bool) error {
	s, h := sl.of, sl.holder
	if ctx.Err() != nil {
		s.forget(h)
		s.mu.Unlock()
		return context.Cause(ctx)
	}
	if h.place < 0 && s.may(h) { // those who wait hold as many at least, and may not
		s.give(sl)
		s.mu.Unlock()
		return nil
	}
	w := &waiter{slot: sl, given: make(chan struct{})}
	at := s.enqueue(h, w, first)
	s.settle()
	s.mu.Unlock()
	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sl.held {
		s.countFree(sl)
	}
	h.wait.Remove(at)
	s.reorder(h)
	s.settle()
	s.forget(h)
	return context.Cause(ctx)
}

// Release returns the slot. It may be called more than once.
func (sl *Slot) Release() {
	if sl == nil {
		return
	}
	sl.core.Release()
	s := sl.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if !sl.held {
		return
	}
	s.countFree(sl)
	s.settle()
	s.forget(sl.holder)
}

// slice is how long work goes on before it lets others work.
const slice = time.Millisecond

// Tick is called for each small piece of long work. Now and then it yields; a nil Slot never does. The error is the
// cause of ctx, and the slot is released then.
func (sl *Slot) Tick(ctx context.Context) error {
	if sl == nil {
		return nil
	}
	sl.ticks++
	if sl.ticks%16 != 0 {
		return nil
	}
	now := time.Now()
	if now.Sub(sl.begun) < slice {
		return nil
	}
	err := sl.Yield(ctx)
	sl.begun = time.Now()
	return err
}

// Yield lets those go first who hold less, and waits for a slot again. Where nobody does, it lets other goroutines run.
// The error is the cause of ctx, and the slot is released then.
func (sl *Slot) Yield(ctx context.Context) error {
	s, h := sl.of, sl.holder
	s.mu.Lock()
	switch {
	case !sl.held: // the lease is over
		if s.tenants[h.tenant] != h { // it was forgotten meanwhile
			sl.holder = s.holder(h)
		}
	case len(s.queue) == 0 || s.queue[0] == h || s.queue[0].held >= h.held:
		s.renew(sl)
		s.mu.Unlock()
		runtime.Gosched()
		return nil
	default:
		s.countFree(sl)
		s.settle()
	}
	return sl.wait(ctx, true)
}

// holder returns the tenant's entry, h where there is none.
func (s *Slots) holder(h *holder) *holder {
	if now := s.tenants[h.tenant]; now != nil {
		return now
	}
	s.tenants[h.tenant] = h
	return h
}

// may reports whether a tenant may have one more. What is not given to a tenant is not given to one that holds more.
func (s *Slots) may(h *holder) bool {
	if s.used >= s.cfg.Firsts+s.cfg.Shared {
		return false
	}
	return h.held == 0 || h.held-1 < s.cfg.Shared-(s.used-s.active)
}

// give counts a slot.
func (s *Slots) give(sl *Slot) {
	h := sl.holder
	if h.held == 0 {
		s.active++
	}
	h.held++
	s.used++
	s.turn++
	h.served = s.turn
	sl.held, sl.since = true, time.Now()
	if s.cfg.Lease > 0 {
		sl.lease = s.leases.PushBack(sl)
	}
	s.reorder(h)
}

// renew begins the lease anew.
func (s *Slots) renew(sl *Slot) {
	if sl.lease == nil {
		return
	}
	sl.since = time.Now()
	s.leases.MoveToBack(sl.lease)
}

// countFree counts a slot as free.
func (s *Slots) countFree(sl *Slot) {
	h := sl.holder
	sl.held = false
	h.held--
	s.used--
	if h.held == 0 {
		s.active--
	}
	if sl.lease != nil {
		s.leases.Remove(sl.lease)
		sl.lease = nil
	}
	s.reorder(h)
}

// enqueue adds who waits.
func (s *Slots) enqueue(h *holder, w *waiter, first bool) *list.Element {
	at := (*list.Element)(nil)
	if first {
		at = h.wait.PushFront(w)
	} else {
		at = h.wait.PushBack(w)
	}
	s.reorder(h)
	return at
}

// reorder puts a tenant into its place in the queue.
func (s *Slots) reorder(h *holder) {
	switch {
	case h.wait.Len() == 0 && h.place >= 0:
		heap.Remove(&s.queue, h.place)
	case h.wait.Len() > 0 && h.place < 0:
		heap.Push(&s.queue, h)
	case h.place >= 0:
		heap.Fix(&s.queue, h.place)
	}
}

// forget drops a tenant that holds nothing and does not wait, as soon as another one is such.
func (s *Slots) forget(h *holder) {
	if h == s.idle || !s.isIdle(h) {
		return
	}
	if s.idle != nil && s.isIdle(s.idle) {
		delete(s.tenants, s.idle.tenant)
	}
	s.idle = h
}

// isIdle reports whether a tenant holds nothing and does not wait.
func (s *Slots) isIdle(h *holder) bool {
	return h.held == 0 && h.wait.Len() == 0 && s.tenants[h.tenant] == h
}

// settle hands out what may be given. It is called again when a lease ends for which somebody waits.
func (s *Slots) settle() {
	for len(s.queue) > 0 {
		h := s.queue[0]
		if s.may(h) {
			w := h.wait.Remove(h.wait.Front()).(*waiter)
			s.give(w.slot)
			close(w.given)
			continue
		}
		old := s.over(h)
		if old == nil {
			break
		}
		if left := time.Until(old.since.Add(s.cfg.Lease)); left > 0 {
			s.wake(left)
			return
		}
		s.countFree(old)
		s.forget(old.holder)
	}
	if s.timer != nil {
		s.timer.Stop()
	}
}

// over returns the oldest lease that ends for a tenant that waits: one of its own, or of a tenant that holds more.
func (s *Slots) over(h *holder) *Slot {
	for at := s.leases.Front(); at != nil; at = at.Next() {
		if sl := at.Value.(*Slot); sl.holder == h || sl.holder.held > h.held {
			return sl
		}
	}
	return nil
}

// wake has settle called later.
func (s *Slots) wake(after time.Duration) {
	if s.timer != nil {
		s.timer.Reset(after)
		return
	}
	s.timer = time.AfterFunc(after, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settle()
	})
}

// queue is a heap of tenants that wait.
type queue []*holder

func (q queue) Len() int { return len(q) }

func (q queue) Less(i, j int) bool {
	if q[i].held != q[j].held {
		return q[i].held < q[j].held
	}
	return q[i].served < q[j].served
}

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push appends a *holder.
func (q *queue) Push(x any) {
	h := x.(*holder)
	h.place = len(*q)
	*q = append(*q, h)
}

// Pop removes the last.
func (q *queue) Pop() any {
	old := *q
	h := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	h.place = -1
	return h
}
