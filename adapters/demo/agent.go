package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// Config of an Agent. Only Sink must be given.
type Config struct {
	// Sink takes the events: a [producers.Publisher], as a rule.
	Sink producers.Sink
	// RunID is the run's own id, and the beginning of its children's. Default "run_demo".
	RunID string
	// Script is what the agent runs: tour (default), plan, failure or quick. See [Scripts].
	Script string
	// Speed multiplies the pace: 1 is natural, 2 twice as fast. 0 waits nowhere.
	Speed float64
	// Commands returns the run's commands as they are stored, in order: events of type command.*, of the
	// run and of its children. nil: the agent obeys its context alone, and Run ends with the script. With
	// commands it also asks a question, and after the end it answers messages until its context ends or
	// the channel is closed.
	Commands <-chan schema.Event
	// PlanningGate is preview, or required: the agent waits until its plan is approved. That needs
	// Commands. Default is the script's own. A script without a plan has no use for it.
	PlanningGate string
	// Grace bounds what is written after the run was cancelled. Default 10 seconds.
	Grace time.Duration
}

// The planning gates (native §3.8).
const (
	gatePreview  = "preview"
	gateRequired = "required"
)

func (c Config) withDefaults() (Config, script, error) {
	c.RunID = cmp.Or(c.RunID, "run_demo")
	c.Script = cmp.Or(c.Script, "tour")
	var told script
	for _, s := range scripts() {
		if s.Name == c.Script {
			told = s
		}
	}
	if told.Name == "" {
		return c, told, fmt.Errorf("demo: there is no script %q", c.Script)
	}
	c.PlanningGate = cmp.Or(c.PlanningGate, told.Gate)
	return c, told, nil
}

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

// Agent runs a script.
type Agent struct {
	cfg    Config
	script script
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Agent, error) {
	cfg, script, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Agent{cfg: cfg, script: script}, nil
}

// Children returns the run ids of the children that the agent will spawn, unless it is interrupted.
func (a *Agent) Children() []string {
	var ids []string
	for _, act := range a.script.Acts {
		for _, t := range act.Tools {
			if t.Child != nil {
				ids = append(ids, childID(a.cfg.RunID, t.Child.Name))
			}
		}
	}
	return ids
}

func childID(run, name string) string {
	name = "_" + name
	return run[:min(len(run), schema.MaxRunID-len(name))] + name
}

// Run writes the whole run, and answers what comes behind its end. When ctx ends, it ends the run as
// aborted, or leaves it when it has ended before; the error is the cause, and nil where there was nothing
// left to write. A command that cancels ends the run and not Run, and so does a failure that is in the
// script. When the sink fails it returns that error (producers.ErrFenced: another writer has taken over)
// and the run stays open, so that another agent can go on with it.
func (a *Agent) Run(ctx context.Context) error {
	s, err := newStage(ctx, a.cfg, a.script)
	if err != nil {
		return err
	}
	err = s.perform((*actor).open)
	for err == nil && s.idle() {
		err = s.perform(followUp)
	}
	if err != nil {
		return fmt.Errorf("demo run %s: %w", a.cfg.RunID, err)
	}
	return nil
}
