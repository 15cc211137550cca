package producers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"agentstream/schema"
)

// live holds what may have to be interrupted: the open turns, and the calls that write to a lane at this moment.
// It has a lock of its own: a cancellation must find them while another call waits for space with the run's
// lock.
type live struct {
	mu    sync.Mutex
	turns map[*Turn]struct{}
	calls map[*activeCall]struct{}
}

// activeCall is one call of a lane's own.
type activeCall struct {
	lane   *Lane
	cancel context.CancelCauseFunc
}

func (l *live) add(t *Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.turns == nil {
		l.turns = make(map[*Turn]struct{})
	}
	l.turns[t] = struct{}{}
}

func (l *live) remove(t *Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.turns, t)
}

// below returns the turns of a lane and of those below it.
func (l *live) below(lane *Lane) (out []*Turn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.turns {
		if t.lane.within(lane) {
			out = append(out, t)
		}
	}
	return out
}

// register notes a call that a cancellation interrupts.
func (l *live) register(s *activeCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[*activeCall]struct{})
	}
	l.calls[s] = struct{}{}
}

// unregister undoes register.
func (l *live) unregister(s *activeCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, s)
}

// writing returns the calls that write to a lane or to those below it.
func (l *live) writing(lane *Lane) (out []*activeCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for s := range l.calls {
		if s.lane.within(lane) {
			out = append(out, s)
		}
	}
	return out
}

// within reports whether a lane is another one, or below it.
func (l *Lane) within(other *Lane) bool {
	return other.id == "" || other.id == l.id || slices.Contains(l.path, other.id)
}

// foreign holds events of others that the Run has not looked at yet.
type foreign struct {
	some   atomic.Bool
	mu     sync.Mutex
	events []schema.Event
}

func (h *foreign) add(e *schema.Event) {
	own := *e
	own.Payload = bytes.Clone(e.Payload)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, own)
	h.some.Store(true)
}

// drain returns the collected events and forgets them.
func (h *foreign) drain() []schema.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.events
	h.events = nil
	h.some.Store(false)
	return out
}

// enter takes the run's lock, or returns why ctx ended before.
func (r *Run) enter(ctx context.Context) error {
	select {
	case r.lock <- struct{}{}:
	default:
		select {
		case r.lock <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if r.foreign.some.Load() {
		for _, e := range r.foreign.drain() {
			r.open.See(&e)
		}
	}
	return nil
}

func (r *Run) leave() { <-r.lock }

// enterCall takes the run's lock for a call of the lane's own, which a cancellation of the lane interrupts.
// done releases it.
func (l *Lane) enterCall(ctx context.Context) (_ context.Context, done func(), err error) {
	r := l.run
	ctx, cancel := context.WithCancelCause(ctx)
	s := &activeCall{lane: l, cancel: cancel}
	r.live.register(s)
	if err := r.enter(ctx); err != nil {
		r.live.unregister(s)
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() {
		r.leave()
		r.live.unregister(s)
		cancel(nil)
	}, nil
}

// noteFailure looks at an error of the sink. One that is about the event, or about this moment, concerns the
// call alone; after any other nothing more is written.
func (r *Run) noteFailure(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	for _, own := range []error{schema.ErrTooLarge, schema.ErrMalformed, schema.ErrBadID, schema.ErrUnknownType,
		schema.ErrForeignRun, ErrBackpressure} {
		if errors.Is(err, own) {
			return
		}
	}
	r.err = err
}

// close emits the closing sequence. The calls that write within it are interrupted first, so that none that
// waits for space holds it up. With a turn, it is that one that is closed, and never the one after it.
func (r *Run) close(ctx context.Context, l *Lane, c Closing, of *Turn, with ...schema.Event) error {
	if !r.interrupt(l, c, of) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Grace)
	defer cancel()
	emitted, err := r.closing(ctx, l, c, of, with)
	if err != nil || !emitted {
		return err
	}
	return r.cfg.Sink.Flush(ctx)
}

// closing emits what closes. emitted is false when there was nothing to emit. What could not be emitted can be tried
// again. with are emitted together with the last events: the lane's turn.end and run.lifecycle.
func (r *Run) closing(ctx context.Context, l *Lane, c Closing, of *Turn, with []schema.Event) (emitted bool,
	err error) {
	if err := r.enter(ctx); err != nil {
		return false, fmt.Errorf("producers: run %s: end %q: %w", r.cfg.RunID, l.id, err)
	}
	defer r.leave()
	if of != nil && of.over {
		return false, nil
	}
	events := r.open.Close(c)
	single := len(events)
	if len(with) > 0 && single > 0 {
		single--
		if single > 0 && events[single-1].Type == schema.TypeTurnEnd && events[single-1].ChildID == l.id {
			single--
		}
		events = slices.Insert(events, single, l.together(with)...)
	}
	for i := range events[:single] {
		if err := r.sendOne(ctx, &events[i]); err != nil {
			return true, err
		}
		if events[i].Type == schema.TypeTurnEnd {
			r.lanes[events[i].ChildID].endTurn()
		}
	}
	if err := r.send(ctx, events[single:]...); err != nil {
		return true, err
	}
	if single < len(events) {
		l.endTurn()
	}
	return len(events) > 0, nil
}

// interrupt ends the contexts of the turns that are about to be closed. It does not take the run's lock,
// which somebody who waits for space may hold. false: the turn that was meant has ended.
func (r *Run) interrupt(l *Lane, c Closing, of *Turn) bool {
	c.Reason = shorten(c.Reason, maxReason)
	cause := fmt.Errorf("%s: %w", c.word(), ErrOver)
	if c.Reason != "" {
		cause = fmt.Errorf("%s: %s: %w", c.word(), c.Reason, ErrOver)
	}
	turns := r.live.below(l)
	if of != nil && !slices.Contains(turns, of) {
		return false
	}
	for _, t := range turns {
		t.cancel(cause)
	}
	if !c.TurnOnly {
		for _, s := range r.live.writing(l) {
			s.cancel(cause)
		}
	}
	return true
}
