package fair

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Cores are the processors on which work computes that goes on for longer than a slice: all but one, of which short work finds the
// last one free. Reads and commands have their own. Work that computed on every processor would let nothing short begin: Go's
// scheduler looks at the network when it has nothing else to do, and else every 10 ms.
type Cores struct {
	reads, commands *Slots
	processors      int
	brief           atomic.Pointer[epochs]
}

// NewCores returns cores that nobody computes on. Who waits for longer than lease has none.
func NewCores(lease time.Duration) *Cores {
	c := &Cores{processors: runtime.GOMAXPROCS(0)}
	cfg := Config{Shared: max(1, c.processors-1), Lease: lease}
	c.reads, c.commands = New(cfg), New(cfg)
	return c
}

// epochs count short work by when it began.
type epochs struct {
	begun    time.Time
	now, was *atomic.Int64
}

// moment is for how long work counts as short at least; twice as long at most.
const moment = 20 * time.Millisecond

// Mark is work that has begun, and counts as short until it ends, a moment has passed, or it computes for longer than a slice.
type Mark struct{ count atomic.Pointer[atomic.Int64] }

// Begin counts work with a mark.
func (c *Cores) Begin(m *Mark) {
	n := c.epochs().now
	n.Add(1)
	m.count.Store(n)
}

// End ends what Begin began. It may be called more than once.
func (m *Mark) End() {
	if n := m.count.Swap(nil); n != nil {
		n.Add(-1)
	}
}

// markKey is the key of a context's *Mark.
type markKey struct{}

// WithMark returns a context for work with a mark.
func WithMark(ctx context.Context, m *Mark) context.Context {
	return context.WithValue(ctx, markKey{}, m)
}

// epochs returns those of now.
func (c *Cores) epochs() *epochs {
	now := time.Now()
	for {
		e := c.brief.Load()
		if e != nil && now.Sub(e.begun) < moment {
			return e
		}
		next := &epochs{begun: now, now: new(atomic.Int64), was: new(atomic.Int64)}
		if e != nil && now.Sub(e.begun) < 2*moment {
			next.was = e.now
		}
		if c.brief.CompareAndSwap(e, next) {
			return next
		}
	}
}

// crowded reports whether there is short work for every second processor.
func (c *Cores) crowded() bool {
	e := c.epochs()
	return int(e.now.Load()+e.was.Load())*2 >= c.processors
}

// pauses is how many milliseconds long work makes room for short work at most, after each slice: it goes on, slowly, however much
// of that there is.
const pauses = 4

// pause makes room for short work.
func (c *Cores) pause(ctx context.Context) {
	if !c.crowded() {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; n < pauses && c.crowded(); n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Compute is Tick for work that waits for nobody but the log. When it has gone on for longer than a slice it needs a core, which
// others may have after each other one, and makes room for short work. The error is the cause of ctx, and the slot is released then.
func (sl *Slot) Compute(ctx context.Context) error {
	if sl == nil {
		return nil
	}
	begun := sl.begun
	err := sl.Tick(ctx)
	if err != nil || sl.begun == begun || sl.of.on == nil {
		return err
	}
	if sl.core == nil {
		if m, ok := ctx.Value(markKey{}).(*Mark); ok {
			m.End()
		}
		sl.core, err = sl.of.cores().Acquire(ctx, sl.holder.tenant)
	} else {
		err = sl.core.Yield(ctx)
	}
	if err != nil {
		sl.Release()
		return err
	}
	sl.of.on.pause(ctx)
	sl.begun = time.Now()
	return nil
}

// cores returns those on which the work of the slots computes.
func (s *Slots) cores() *Slots {
	if s.commands {
		return s.on.commands
	}
	return s.on.reads
}
