package fair

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Cores are the processors on which work computes that goes on for longer than a slice: all but one, of which short
// work finds the last one free. Reads and commands have their own. Work that computed on every processor would let
// nothing short begin: Go's scheduler looks at the network when it has nothing else to do, and else every 10 ms.
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
	now, was *epoch
}

// epoch is short work that began in a moment.
type epoch struct {
	pending atomic.Int64 // what has not ended
	ended   atomic.Bool  // whether some has, and was short
}

// moment is for how long work counts as short at least; twice as long at most.
const moment = 20 * time.Millisecond

// Mark is work that has begun, and counts as short until it ends, a moment has passed, or it computes for longer than a
// slice. It is the context of the work, too: it comes with each request, which is to cost no more than this.
type Mark struct {
	context.Context
	epoch atomic.Pointer[epoch]
}

// Value finds the mark, beside the values of the context that it was begun with.
func (m *Mark) Value(key any) any {
	if _, ok := key.(markKey); ok {
		return m
	}
	return m.Context.Value(key)
}

// Begin counts work with a mark, in a context.
func (c *Cores) Begin(ctx context.Context, m *Mark) {
	m.Context = ctx
	e := c.epochs().now
	e.pending.Add(1)
	m.epoch.Store(e)
}

// End ends what Begin began. It may be called more than once.
func (m *Mark) End() {
	if e := m.drop(); e != nil && !e.ended.Load() {
		e.ended.Store(true)
	}
}

// drop ends the counting of work that goes on. It returns where it was counted; nil when it no longer was.
func (m *Mark) drop() *epoch {
	e := m.epoch.Swap(nil)
	if e != nil {
		e.pending.Add(-1)
	}
	return e
}

// markKey is the key of a context's *Mark.
type markKey struct{}

// epochs returns those of now.
func (c *Cores) epochs() *epochs {
	now := time.Now()
	for {
		e := c.brief.Load()
		if e != nil && now.Sub(e.begun) < moment {
			return e
		}
		next := &epochs{begun: now, now: new(epoch), was: new(epoch)}
		if e != nil && now.Sub(e.begun) < 2*moment {
			next.was = e.now
		}
		if c.brief.CompareAndSwap(e, next) {
			return next
		}
	}
}

// isCrowded reports whether there is short work for every second processor.
func (c *Cores) isCrowded() bool {
	e := c.epochs()
	return int(e.now.pending.Load()+e.was.pending.Load())*2 >= c.processors
}

// lively reports whether there is short work, or was within the last moments. More of it is to be expected then: a
// client asks again when it has its answer.
func (c *Cores) lively() bool {
	e := c.epochs()
	return e.now.ended.Load() || e.was.ended.Load() || c.isCrowded()
}

// After each slice, long work makes room for between leastPauses and pauses milliseconds while there is short work: it
// goes on, slowly, however much of that there is. With two of four, the p99 of a neighbour's requests stays within
// twice that of a quiet node on two processors (TestNeighbours); with one of four it is 2.2 times, and long reads are a
// third faster.
const (
	leastPauses = 2
	pauses      = 4
)

// pause makes room for short work.
func (c *Cores) pause(ctx context.Context) {
	if !c.lively() {
		return
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; n < pauses && (n < leastPauses || c.isCrowded()); n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Compute is Tick for work that waits for nobody but the log. When it has gone on for longer than a slice it needs a
// core, which others may have after each other one, and makes room for short work. The error is the cause of ctx, and
// the slot is released then.
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
			m.drop()
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
