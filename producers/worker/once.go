package worker

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/schema"
)

// errOver reports that a run that is answered once has ended.
var errOver = errors.New("the run has ended")

// over ends the run, and takes a command and all before it in the same pack.
func (v *lease) over(ctx context.Context, c producers.Closing, by *command.Command) error {
	err := v.writer.CloseWith(ctx, c, by.CommandsTaken())
	return cmp.Or(ignoreEnded(err), errOver)
}

// ignoreEnded returns nil for the error of an ending that came too late: another process has ended the run.
func ignoreEnded(err error) error {
	if errors.Is(err, schema.ErrEnded) || errors.Is(err, producers.ErrOver) {
		return nil
	}
	return err
}

// cut ends a run of which a turn was begun by a worker that is gone: it may have asked a model, which is not asked
// again. open and last are what that worker wrote, and it writes no more: the run is ours.
func (v *lease) cut(ctx context.Context, open *producers.Open, last schema.Seq) error {
	if !open.HasTurn() {
		return nil
	}
	why := producers.Closing{Failed: true, Reason: v.d.cfg.Reasons.CutReason("the worker that answered is gone")}
	return cmp.Or(ignoreEnded(v.writer.CloseWith(ctx, why, producers.CommandsTaken("", last, ""))), errOver)
}

// endOnce ends a run with its turn: in one pack with commands.taken.
func (v *lease) endOnce(ctx context.Context, q *Task, s outcome) error {
	why := producers.Closing{Failed: true}
	switch {
	case s.err == nil:
		if s.err = q.Turn.EndRun(cmp.Or(s.stop, "end_turn"), v.mark(q).CommandsTaken()); s.err == nil {
			return v.writer.Flush(ctx)
		}
		if !errors.Is(s.err, producers.ErrOpen) {
			return ignoreEnded(s.err)
		}
		why.Reason = v.d.cfg.Reasons.CutReason(s.err.Error())
	default:
		why.Reason = s.err.Error()
	}
	if s.err != nil {
		v.d.cfg.Logger.Warn("worker: a run has failed", "run", v.key.String(), "err", s.err)
	}
	return ignoreEnded(v.writer.CloseWith(ctx, why, q.Message.CommandsTaken()))
}

// cancel ends a turn, and the run where it is the only one.
func (v *lease) cancel(ctx context.Context, turn *producers.Turn, c *command.Command) error {
	if v.once.Once {
		return ignoreEnded(v.writer.CloseWith(ctx, producers.Closing{Reason: reasonOf(c)}, c.CommandsTaken()))
	}
	return turn.Cancel(reasonOf(c))
}

// abandon ends a turn that the worker cannot go on with, and the run where it is the only one.
func (v *lease) abandon(ctx context.Context, q *Task, reason string) error {
	if v.once.Once {
		return ignoreEnded(v.writer.CloseWith(ctx,
			producers.Closing{Failed: true, Reason: v.d.cfg.Reasons.CutReason(reason)}, q.Message.CommandsTaken()))
	}
	return q.Turn.Cancel(reason)
}

// expire ends a run if its deadline has passed.
func (v *lease) expire(ctx context.Context, c *command.Command, due *alarm) error {
	why := due.reset()
	if why == "" {
		return nil
	}
	due.stop()
	return ignoreEnded(v.writer.CloseWith(ctx,
		producers.Closing{Failed: true, Reason: v.d.cfg.Reasons.TimeoutReason(why)}, c.CommandsTaken()))
}

// watched is a sink that notes when the newest piece of the answer was emitted.
type watched struct {
	producers.Sink
	delta atomic.Int64 // in nanoseconds of Unix time; 0: none yet
}

// Send accepts events.
func (s *watched) Send(ctx context.Context, events ...schema.Event) error {
	for i := range events {
		if events[i].ChildID == "" && producers.IsProgress(events[i].Type) {
			s.delta.Store(time.Now().UnixNano())
			break
		}
	}
	return s.Sink.Send(ctx, events...)
}

// alarm waits for the deadlines of a run.
type alarm struct {
	v     *lease
	timer *time.Timer // nil: there is no deadline
}

func (v *lease) alarm() *alarm {
	a := &alarm{v: v}
	if at, _ := v.due(); !at.IsZero() || v.once.Idle > 0 {
		a.timer = time.NewTimer(a.until(at))
	}
	return a
}

// due returns when the next deadline passes, and why the run ends then.
func (v *lease) due() (time.Time, string) {
	var delta time.Time
	if v.sink != nil {
		if at := v.sink.delta.Load(); at != 0 {
			delta = time.Unix(0, at)
		}
	}
	return v.once.Due(delta)
}

// channel returns a channel that receives when a deadline may have passed.
func (a *alarm) channel() <-chan time.Time {
	if a.timer == nil {
		return nil
	}
	return a.timer.C
}

// reset returns why the run ends if a deadline has passed, or else waits for the next.
func (a *alarm) reset() (why string) {
	at, why := a.v.due()
	if !at.IsZero() && !time.Now().Before(at) {
		return why
	}
	a.timer.Reset(a.until(at))
	return ""
}

// until returns how long to wait before looking again: the first delta brings a deadline of its own.
func (a *alarm) until(at time.Time) time.Duration {
	idle := a.v.once.Idle
	switch left := time.Until(at); {
	case at.IsZero():
		return idle
	case idle > 0:
		return min(left, idle)
	default:
		return left
	}
}

func (a *alarm) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}
