package live

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/schema"
)

// viewTask is the work of a view: it shapes what its source brings. It is done by a goroutine that begins when
// there is something, or when something is due, and ends when there is nothing more, so that a view which waits
// is nothing but its memory. There is one at a time.
type viewTask struct {
	state  atomic.Int32
	ctx    context.Context // of the view
	cancel context.CancelFunc
	wake   func(here bool) // the view's, made once

	// One goroutine at a time uses what follows.
	tail  *runs.Tail
	st    stage
	seen  schema.Seq    // everything up to it is in st
	ended bool          // the source is over at seen
	every time.Duration // of silence, between signs of life
	alarm alarm         // for those
	timer *time.Timer   // of the stage; nil: nothing was held back yet
	due   time.Time     // when the timer fires
}

// States of a viewTask.
const (
	resting int32 = iota
	working
	woken // working, and woken meanwhile
	over
)

// inlineLimit is how many clients may be parked in a view whose task is run by the writer's goroutine.
const inlineLimit = 8

// wake starts the task, or lets the one that is under way look again. It never blocks. here: a task with little to do
// may be run before wake returns. That saves a goroutine and the change to it, which cost as much as a write to a
// client.
func (v *view) wake(here bool) {
	for {
		switch state := v.task.state.Load(); state {
		case resting:
			if !v.task.state.CompareAndSwap(resting, working) {
				continue
			}
			if !here || v.parkedCount.Load() > inlineLimit || !v.task.tail.Live() || !v.once() {
				go v.work()
			}
			return
		case working:
			if v.task.state.CompareAndSwap(working, woken) {
				return
			}
		default:
			return
		}
	}
}

// once runs the task on the goroutine of a writer. It reports false when another one must go on with it.
func (v *view) once() (done bool) {
	defer func() {
		if p := recover(); p != nil { // it is none of the writer's
			v.finishFollow(fmt.Errorf("%w: %v\n%s", ends.ErrPanic, p, debug.Stack()))
			done = true
		}
	}()
	if err := v.follow(); err != nil {
		v.finishFollow(err)
		return true
	}
	if v.task.state.CompareAndSwap(working, resting) {
		return true
	}
	v.task.state.Store(working)
	return false
}

// stop ends the view.
func (v *view) stop() {
	v.task.cancel()
	v.wake(false)
}

// work runs the task.
func (v *view) work() {
	t := &v.task
	for {
		if err := v.follow(); err != nil {
			v.finishFollow(err)
			return
		}
		if t.state.CompareAndSwap(working, resting) {
			return
		}
		t.state.Store(working)
	}
}

// finishFollow ends what follow has begun. The watchers learn why.
func (v *view) finishFollow(err error) {
	t := &v.task
	t.state.Store(over)
	if t.timer != nil {
		t.timer.Stop()
	}
	v.all.wheel.remove(&t.alarm)
	t.tail.Close()
	s := *v.now.Load()
	s.err = err
	v.publish(&s, nil)
	v.all.forget(v)
	v.all.work.Done()
}

// outs is memory for what a view shows at once, of up to keptOuts records.
var outs = sync.Pool{New: func() any { return new([]shape.Out) }}

const keptOuts = 256

// follow shows what there is, until there is nothing more. Then the view will be woken.
func (v *view) follow() error {
	t := &v.task
	out := outs.Get().(*[]shape.Out)
	defer func() {
		clear(*out)
		if *out = (*out)[:0]; cap(*out) <= keptOuts {
			outs.Put(out)
		}
	}()
	for {
		if err := t.ctx.Err(); err != nil {
			return err
		}
		if t.tail.Notify(t.wake) {
			if err := t.read(out); err != nil {
				return err
			}
			v.show(out)
			continue
		}
		v.show(out) // what was held back until now
		if time.Since(v.spoke) >= t.every {
			v.keepAlive()
		}
		t.arm()
		v.all.wheel.put(&t.alarm, v.spoke.Add(t.every))
		return nil
	}
}

// read takes what the source has.
func (t *viewTask) read(out *[]shape.Out) error {
	now := time.Time{}
	ended, err := t.tail.Next(t.ctx, func(r schema.Record) error {
		if now.IsZero() {
			now = time.Now()
		}
		t.seen = r.Seq
		*out = t.st.Add(*out, now, r)
		return nil
	})
	if err == nil {
		t.ended = ended
	}
	return err
}

// arm lets the view be woken when the stage has something due. A timer that fires too early serves as well, and is not
// set anew for every event.
func (t *viewTask) arm() {
	at, ok := t.st.Due()
	if !ok {
		return
	}
	now := time.Now()
	if t.timer == nil {
		t.due, t.timer = at, time.AfterFunc(at.Sub(now), func() { t.wake(false) })
	} else if !now.Before(t.due) || at.Before(t.due) {
		t.due = at
		t.timer.Reset(at.Sub(now))
	}
}

// show publishes what was shaped.
func (v *view) show(out *[]shape.Out) {
	t := &v.task
	list := t.st.Tick(*out, time.Now())
	settled := t.st.Watermark(t.seen)
	v.add(list, settled, t.ended && settled == t.seen)
	clear(list)
	*out = list[:0]
}
