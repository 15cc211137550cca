package load

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// unit is what is published at once: count events of one run, numbered from first.
type unit struct {
	run   int
	first int64
	count int
	due   int64 // ns
}

// writer publishes units in order. One goroutine calls it.
type writer interface {
	// write hands a unit over and waits only while too many are unanswered. An error is of the writer as
	// a whole and comes again at every later call.
	write(ctx context.Context, u unit) error
	// flush sends what lies in a buffer; it does not wait for an answer.
	flush() error
	// close waits until all is answered, or ctx ends, or the writer has failed, which is its error.
	close(ctx context.Context) error
}

// answers takes what comes of units, for the writers of a load.
type answers struct {
	ledger   *ledger
	clock    *clock
	from, to int64 // latency is counted of units that were due in [from, to) ns
	refused  atomic.Int64
	first    atomic.Pointer[error] // why the first was refused
	acked    atomic.Int64          // events
	mu       sync.Mutex
	hist     Histogram
}

// noteAnswer notes the answer to a unit, and counts its events.
func (a *answers) noteAnswer(u unit, err error) {
	a.ledger.runs[u.run].noteAnswer(u, err)
	if err != nil {
		a.refused.Add(int64(u.count))
		a.first.CompareAndSwap(nil, &err)
		return
	}
	a.acked.Add(int64(u.count))
	if u.due < a.from || u.due >= a.to {
		return
	}
	took := time.Duration(a.clock.now() - u.due)
	a.mu.Lock()
	a.hist.Add(took)
	a.mu.Unlock()
}

func (a *answers) latency() *Histogram {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := &Histogram{}
	sum.Merge(&a.hist)
	return sum
}

// errAbandoned is of units whose writer failed before they were answered: the server may have stored
// them or not.
var errAbandoned = errors.New("load: no answer")

// pace drives one writer over its share of the runs.
type pace struct {
	clock  *clock
	w      writer
	runs   []int // numbers of its runs, in turns
	ledger *ledger
	batch  int
	start  int64       // ns
	end    int64       // ns; nothing is due from then on
	every  float64     // ns between two units; 0: as fast as taken
	room   func() bool // with every 0: whether watchers keep up
	limit  int64       // units in all; 0: none
	missed int64       // events that were due and not written, after run
}

// grace is how long behind its end a pace still writes what was due before it. A server that is that
// far behind its rate will not catch up.
const grace = 500 * time.Millisecond

// poll is how often a writer looks whether watchers have caught up.
const poll = 200 * time.Microsecond

// run publishes until end, the limit, an error or the end of ctx. It does not close the writer.
//
// With a rate, a unit is due at a fixed moment, whatever happened to those before: a server that makes
// its writers wait is charged for the time that the waiting units lose. The moment at which this
// process woke up counts instead when that is later, because its timers are not the server's fault.
func (p *pace) run(ctx context.Context) error {
	woke := p.start
	for i := int64(0); p.limit == 0 || i < p.limit; i++ {
		due := p.clock.now()
		if p.every > 0 {
			due = p.start + int64(float64(i)*p.every)
		}
		if due >= p.end && p.limit == 0 {
			return nil
		}
		if p.every > 0 && p.clock.now() > p.end+int64(grace) {
			p.missed = int64(math.Ceil(float64(p.end-due)/p.every)) * int64(p.batch)
			return nil
		}
		if err := p.wait(ctx, due, &woke); err != nil {
			return err
		}
		if p.every == 0 {
			due = p.clock.now()
		}
		run := p.runs[i%int64(len(p.runs))]
		b := &p.ledger.runs[run]
		u := unit{run: run, first: b.sent, count: p.batch, due: max(due, woke)}
		if err := p.w.write(ctx, u); err != nil {
			return err
		}
		b.sent += int64(p.batch)
	}
	return nil
}

// wait returns when the next unit may be written; woke is set when that took a pause.
func (p *pace) wait(ctx context.Context, due int64, woke *int64) error {
	for {
		left := due - p.clock.now()
		if p.every == 0 {
			left = 0
			if p.room != nil && !p.room() {
				left = int64(poll)
			}
		}
		if left <= 0 {
			return nil
		}
		if err := p.w.flush(); err != nil {
			return err
		}
		if err := pause(ctx, time.Duration(left)); err != nil {
			return err
		}
		*woke = p.clock.now()
		if p.every == 0 && *woke >= p.end && p.limit == 0 {
			return nil
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("load: stopped: %w", context.Cause(ctx))
	}
}
