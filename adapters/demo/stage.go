package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// stage runs actors side by side. One of them runs at a time, and whose turn it is follows
// from the script's own clock: so the order is always the same, and the speed only sets how long the
// pauses are.
//
//	tell ─▶ actor ┐                 next: who is due first
//	        actor ┼─▶ play ─────▶ listen: the pause, and commands meanwhile
//	        actor ┘                 step: the actor runs until its next pause
type stage struct {
	cfg    Config
	script script
	ctx    context.Context
	run    *producers.Run
	clock  time.Duration // of the script
	cast   []*actor      // those that have not ended, as they came
	roles  []*role       // the agent itself first, then the children, as they came
	ids    map[string]int

	commands <-chan schema.Event // nil: nothing comes (any more)
	answers  map[string]json.RawMessage
	verdict  *verdict // on the newest plan
	plans    int
	back     schema.RunState // "" or, while the run is paused, the state to go back to
}

func newStage(ctx context.Context, cfg Config, script script) (*stage, error) {
	s := &stage{cfg: cfg, script: script, ctx: ctx, commands: cfg.Commands, ids: make(map[string]int),
		answers: make(map[string]json.RawMessage)}
	var err error
	s.run, err = producers.NewRun(producers.RunConfig{Sink: cfg.Sink, RunID: cfg.RunID, Grace: cfg.Grace, NewID: s.id,
		Now: func() time.Time { return time.Unix(0, 0).Add(s.clock) }})
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	s.roles = []*role{{lane: &s.run.Lane, voice: voice{context: systemTokens}}}
	return s, nil
}

// id makes ids that are the same each time.
func (s *stage) id(word string) string {
	s.ids[word]++
	return word + "_" + strconv.Itoa(s.ids[word])
}

// scripted is a failure that the script wants.
type scripted struct{ cause error }

func (f *scripted) Error() string { return f.cause.Error() }

// errLeft is the error of an actor that was sent off.
var errLeft = errors.New("the actor has left the stage")

// enter brings an actor on the stage.
func (s *stage) enter(r *role, tell func(*actor)) *actor {
	a := &actor{role: r, s: s, rest: rest{at: s.clock}}
	a.next, a.stop = iter.Pull(func(yield func(rest) bool) {
		a.yield = yield
		tell(a)
	})
	s.cast = append(s.cast, a)
	return a
}

// leave takes actors off the stage.
func (s *stage) leave(who func(*actor) bool) {
	s.cast = slices.DeleteFunc(s.cast, func(a *actor) bool {
		if !who(a) {
			return false
		}
		a.stop()
		a.over = true
		return true
	})
}

// perform emits one part of the run, from its first state to a final one.
func (s *stage) perform(tell func(*actor)) error {
	s.back, s.verdict, s.roles[0].redirects = "", nil, nil
	s.enter(s.roles[0], tell)
	err := s.play()
	s.leave(func(*actor) bool { return true })
	var f *scripted
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errCancelled):
		return s.endRun(func() error { return s.run.Cancel(s.ctx, errCancelled.Error()) })
	case errors.As(err, &f):
		return s.endRun(func() error { return s.run.Fail(s.ctx, f.cause) })
	case s.ctx.Err() != nil:
		err = context.Cause(s.ctx)
	case !errors.Is(err, errDeaf):
		return err // the sink's; nothing more can be written
	}
	if s.roles[0].state.Final() {
		return nil
	}
	if err := s.endRun(func() error { return s.run.Cancel(s.ctx, err.Error()) }); err != nil {
		return err
	}
	return err
}

// endRun ends the run, and every child with it.
func (s *stage) endRun(close func() error) error {
	for _, r := range s.roles {
		r.state, r.heard = schema.StateAborted, nil
	}
	if err := close(); err != nil {
		return fmt.Errorf("end the run: %w", err)
	}
	return nil
}

// play goes on until all actors have ended.
func (s *stage) play() error {
	for len(s.cast) > 0 {
		a, in := s.first()
		heard, err := s.listen(in)
		if err != nil {
			return err
		}
		if heard {
			continue // it may have changed who is next
		}
		s.clock += in
		if err := s.step(a); err != nil {
			return err
		}
	}
	return nil
}

// first returns the actor that runs next, and in how long; forever when all wait for a command.
func (s *stage) first() (*actor, time.Duration) {
	if s.back != "" {
		return nil, forever
	}
	var first *actor
	at := forever
	for _, a := range s.cast {
		due := a.rest.at
		switch {
		case a.held:
			continue
		case a.rest.until != nil && a.rest.until():
			due = s.clock
		case due == forever:
			continue
		}
		if first == nil || due < at {
			first, at = a, due
		}
	}
	if first == nil {
		return nil, forever
	}
	return first, max(at-s.clock, 0)
}

// step lets an actor run until its next pause.
func (s *stage) step(a *actor) error {
	r, more := a.next()
	if more {
		a.rest = r
		return nil
	}
	s.leave(func(b *actor) bool { return b == a })
	var f *scripted
	if errors.As(a.err, &f) && a.role != s.roles[0] {
		return s.endChild(a.role, func() error { return a.lane.Fail(s.ctx, f.cause) }, f.cause)
	}
	return a.err
}

// endChild ends a child before its time: what it has open first, then the call that it was sent by.
func (s *stage) endChild(r *role, end func() error, cause error) error {
	s.leave(func(a *actor) bool { return a.role == r })
	r.state, r.held = schema.StateAborted, false
	if err := end(); err != nil {
		return err
	}
	return r.call.Fail(cause)
}

// listen lets a pause pass, or ends it when a command has come, which is heeded.
func (s *stage) listen(in time.Duration) (heard bool, err error) {
	if s.ctx.Err() != nil {
		return false, context.Cause(s.ctx)
	}
	var over <-chan time.Time
	switch {
	case in == forever && s.commands == nil:
		return false, errDeaf
	case in == forever:
	case in == 0 || s.cfg.Speed == 0:
		select {
		case e, ok := <-s.commands:
			return true, s.heed(e, ok)
		default:
			return false, nil
		}
	default:
		timer := time.NewTimer(time.Duration(float64(in) / s.cfg.Speed))
		defer timer.Stop()
		over = timer.C
	}
	began := time.Now()
	select {
	case <-over:
		return false, nil
	case <-s.ctx.Done():
		return false, context.Cause(s.ctx)
	case e, ok := <-s.commands:
		if in != forever {
			s.clock += min(in, time.Duration(float64(time.Since(began))*s.cfg.Speed))
		}
		return true, s.heed(e, ok)
	}
}
