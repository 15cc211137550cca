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

// live are those who may have to be interrupted: the open turns, and who speaks for a lane at this moment.
// It has a lock of its own: whoever cancels must find them while another one waits for space with the run's
// lock.
type live struct {
	mu    sync.Mutex
	turns map[*Turn]struct{}
	calls map[*speaker]struct{}
}

// speaker is one call of a lane's own.
type speaker struct {
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

func (l *live) begin(s *speaker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls == nil {
		l.calls = make(map[*speaker]struct{})
	}
	l.calls[s] = struct{}{}
}

func (l *live) end(s *speaker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, s)
}

// speakers returns those who speak for a lane or for those below it.
func (l *live) speakers(lane *Lane) (out []*speaker) {
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

// heard are events of others that the pen has not looked at yet.
type heard struct {
	some   atomic.Bool
	mu     sync.Mutex
	events []schema.Event
}

func (h *heard) add(e *schema.Event) {
	own := *e
	own.Payload = bytes.Clone(e.Payload)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, own)
	h.some.Store(true)
}

func (h *heard) take() []schema.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.events
	h.events = nil
	h.some.Store(false)
	return out
}

// enter takes the run's lock. The error is why ctx ended before.
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
	if r.heard.some.Load() {
		for _, e := range r.heard.take() {
			r.open.See(&e)
		}
	}
	return nil
}

func (r *Run) leave() { <-r.lock }

// speak takes the run's lock for a call of the lane's own, which a cancellation of the lane interrupts. done
// gives it back.
func (l *Lane) speak(ctx context.Context) (_ context.Context, done func(), err error) {
	r := l.run
	ctx, cancel := context.WithCancelCause(ctx)
	s := &speaker{lane: l, cancel: cancel}
	r.live.begin(s)
	if err := r.enter(ctx); err != nil {
		r.live.end(s)
		cancel(nil)
		return nil, nil, err
	}
	return ctx, func() {
		r.leave()
		r.live.end(s)
		cancel(nil)
	}, nil
}

// failed looks at an error of the sink. One that is about the event, or about this moment, concerns the call
// alone; after any other nothing more is said.
func (r *Run) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	for _, own := range []error{schema.ErrTooLarge, schema.ErrMalformed, schema.ErrBadID, schema.ErrUnknownType, schema.ErrForeignRun, ErrBackpressure} {
		if errors.Is(err, own) {
			return
		}
	}
	r.err = err
}

// close says the closing sequence. Everybody who speaks within it is told first, so that nobody who
// waits for space holds it up. With a turn, it is that one that is closed, and never the one behind it.
func (r *Run) close(ctx context.Context, l *Lane, c Closing, of *Turn) error {
	if !r.hush(l, c, of) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.cfg.Grace)
	defer cancel()
	said, err := r.closing(ctx, l, c, of)
	if err != nil || !said {
		return err
	}
	return r.cfg.Sink.Flush(ctx)
}

// closing says what closes. said is false when there was nothing to say. What could not be said can be tried
// again.
func (r *Run) closing(ctx context.Context, l *Lane, c Closing, of *Turn) (said bool, err error) {
	if err := r.enter(ctx); err != nil {
		return false, fmt.Errorf("producers: run %s: end %q: %w", r.cfg.RunID, l.id, err)
	}
	defer r.leave()
	if of != nil && of.over {
		return false, nil
	}
	events := r.open.Close(c)
	for i := range events {
		if err := r.sendOne(ctx, &events[i]); err != nil {
			return true, err
		}
		if events[i].Type == schema.TypeTurnEnd {
			r.lanes[events[i].ChildID].endTurn()
		}
	}
	return len(events) > 0, nil
}

// hush ends the contexts of the turns that are about to be closed. It does not take the run's lock,
// which somebody who waits for space may hold. false: the turn that was meant has ended.
func (r *Run) hush(l *Lane, c Closing, of *Turn) bool {
	c.Reason = shortened(c.Reason, maxReason)
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
		for _, s := range r.live.speakers(l) {
			s.cancel(cause)
		}
	}
	return true
}
