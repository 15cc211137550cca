package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"agentstream/schema"
)

// Sink takes the agent's events. They are in the order of the story; ChildID names the lane.
type Sink interface {
	// Publish accepts events for the log. It may return before they are stored.
	Publish(ctx context.Context, events ...schema.Event) error
	// Flush returns when all that was published is stored. The agent calls it wherever one lane must
	// not overtake another, and at the end.
	Flush(ctx context.Context) error
}

// Config of an Agent. Only Sink must be given.
type Config struct {
	Sink Sink
	// RunID is the run's own id. It makes the child's id, and the path of the child's events.
	// Default "run_demo".
	RunID string
	// Speed multiplies the pace: 1 is natural (about half a minute), 2 twice as fast. 0 waits
	// nowhere.
	Speed float64
	// Now gives the time of events. Default time.Now.
	Now func() time.Time
	// Commands gives the run's commands as they are stored, in order: events of type command.*. nil:
	// the agent obeys its context alone, and Run ends with the story. With commands it also asks a
	// question, and after the end it answers messages until its context ends or the channel is closed.
	Commands <-chan schema.Event
	// PlanningGate is preview (default), or required: the agent waits until its plan is approved. That
	// needs Commands.
	PlanningGate string
	// Grace bounds each call of the sink, and all of them together once the run was cancelled.
	// Default 10 seconds.
	Grace time.Duration
}

func (c Config) withDefaults() Config {
	if c.RunID == "" {
		c.RunID = "run_demo"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.PlanningGate == "" {
		c.PlanningGate = gatePreview
	}
	if c.Grace <= 0 {
		c.Grace = 10 * time.Second
	}
	return c
}

// The planning gates (native §3.8).
const (
	gatePreview  = "preview"
	gateRequired = "required"
)

func (c Config) validate() error {
	switch {
	case c.Sink == nil:
		return errors.New("demo: no sink")
	case c.Speed < 0 || c.Speed != c.Speed:
		return fmt.Errorf("demo: speed %v is negative", c.Speed)
	case c.PlanningGate != gatePreview && c.PlanningGate != gateRequired:
		return fmt.Errorf("demo: planning gate %q is neither preview nor required", c.PlanningGate)
	case c.PlanningGate == gateRequired && c.Commands == nil:
		return errors.New("demo: a plan that must be approved needs commands")
	}
	if err := schema.ValidRunID(c.RunID); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// Agent tells the scripted run.
type Agent struct{ cfg Config }

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Agent, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg}, nil
}

// ChildID is the run id of the child that the agent will spawn.
func (a *Agent) ChildID() string {
	const suffix = "_review"
	return a.cfg.RunID[:min(len(a.cfg.RunID), schema.MaxRunID-len(suffix))] + suffix
}

// Run tells the whole run. When ctx is cancelled it ends the run as aborted and returns the cause, or
// nil when the run has ended before; when the sink fails it returns that error, and the run stays open
// for whoever takes it over. A command.cancel ends the run and not Run.
func (a *Agent) Run(ctx context.Context) error {
	s := &stage{cfg: a.cfg, open: make(map[string]*message)}
	s.commands, s.answers = a.cfg.Commands, make(map[string]json.RawMessage)
	if err := s.turn(ctx, func() { s.story(a.ChildID()) }); err != nil {
		return fmt.Errorf("demo run %s: %w", a.cfg.RunID, err)
	}
	for s.idle(ctx) {
		if err := s.turn(ctx, s.followUp); err != nil {
			return fmt.Errorf("demo run %s: %w", a.cfg.RunID, err)
		}
	}
	return nil
}

// turn tells one part of the run, from its first state to a final one.
func (s *stage) turn(ctx context.Context, tell func()) error {
	s.ctx, s.err, s.hurry, s.actor = ctx, nil, false, "agent"
	s.turns++
	tell()
	var failed *sinkError
	if s.err == nil || errors.As(s.err, &failed) {
		return s.err
	}
	cause := s.err
	if err := s.abort(cause); err != nil {
		return fmt.Errorf("end as aborted: %w", err)
	}
	if errors.Is(cause, errCancelled) {
		return nil
	}
	return cause
}

// sinkError tells a failing sink from a cancelled run.
type sinkError struct {
	doing string
	err   error
}

func (e *sinkError) Error() string { return e.doing + ": " + e.err.Error() }
func (e *sinkError) Unwrap() error { return e.err }

// abort closes what is open, children first, and ends the run. The run's own context is over, so
// this has a deadline of its own.
func (s *stage) abort(cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), s.cfg.Grace)
	defer cancel()
	s.ctx, s.err, s.hurry, s.actor = ctx, nil, true, "agent"
	for _, lane := range slices.Backward(slices.Sorted(maps.Keys(s.open))) {
		if m := s.open[lane]; m != nil {
			m.cut()
		}
	}
	for _, c := range slices.Clone(s.running) {
		s.fail(c, "cancelled")
	}
	for _, lane := range slices.Clone(s.children) {
		s.state(lane, schema.StateAborted, "the parent was cancelled")
	}
	s.flush() // a child's end comes before its parent's
	s.state("", schema.StateAborted, cause.Error())
	s.flush()
	return s.err
}
