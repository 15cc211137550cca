package demo

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// role is one speaker of the run: the agent itself, or a child.
type role struct {
	voice
	lane      *producers.Lane
	state     schema.RunState
	call      *producers.Call // that delegates to a child
	held      bool            // a child that was paused
	since     time.Duration   // when
	heard     []string        // messages without an answer
	redirects []string        // instructions that were not followed yet
	steps     int
}

// actor runs one part of a role, beside others. After an error nothing more is emitted.
type actor struct {
	*role
	s     *stage
	err   error
	yield func(rest) bool
	next  func() (rest, bool)
	stop  func()
	rest  rest
	over  bool
}

// rest is a pause: until a time of the script, and where there is a condition, until it holds.
type rest struct {
	at    time.Duration // forever: the condition alone counts
	until func() bool
}

const forever = time.Duration(-1)

// try emits something, unless something has failed before.
func (a *actor) try(emit func() error) {
	if a.err == nil {
		a.err = emit()
	}
}

// wait lets the others run for so long.
func (a *actor) wait(d time.Duration) { a.pause(rest{at: a.s.clock + d}) }

// await waits until something holds, for so long at most, or forever.
func (a *actor) await(most time.Duration, until func() bool) {
	if most != forever {
		most += a.s.clock
	}
	a.pause(rest{most, until})
}

func (a *actor) pause(r rest) {
	if a.err == nil && !a.yield(r) {
		a.err = errLeft
	}
}

// openTurn begins a turn.
func (a *actor) openTurn() {
	a.try(func() (err error) { a.turn, err = a.lane.Turn(a.s.ctx); return err })
}

// to emits the role's state.
func (a *actor) to(st schema.RunState, reason string) {
	a.try(func() error { return a.lane.State(a.s.ctx, st, reason) })
	if a.err == nil {
		a.state = st
	}
}

// step emits the end of a part.
func (a *actor) step(kind string) {
	a.try(func() error { a.steps++; return a.lane.Step(a.s.ctx, a.steps-1, kind, "") })
}

func (a *actor) flush() { a.try(func() error { return a.s.run.Flush(a.s.ctx) }) }

// model is one call of the model. It returns the tool calls that its message asks for.
func (a *actor) model(parts ...messagePart) (asked []*producers.Call) {
	a.pauses = func(d time.Duration) error { a.wait(d); return a.err }
	a.try(func() (err error) {
		asked, err = a.message(parts)
		a.cached = a.context - a.said
		return err
	})
	return asked
}

// open begins the run with what the person asks for, and with a plan where the script has one.
func (a *actor) open() {
	sc := a.s.script
	if sc.Plan == nil {
		a.to(schema.StateRunning, "")
	} else {
		a.to(schema.StatePlanning, "")
	}
	a.openTurn()
	a.try(func() error { return a.turn.User(sc.User) })
	a.read(sc.User)
	a.wait(600 * time.Millisecond)
	if sc.Plan != nil {
		a.propose("")
		a.approval()
		a.to(schema.StateRunning, "")
	}
	a.play(sc.Acts)
	a.finish()
}

// play performs acts, and obeys between them.
func (a *actor) play(acts []act) {
	for i, c := range acts {
		if i > 0 {
			a.turnOff()
		}
		if a.err == nil && (len(c.Say)+len(c.Tools) > 0) {
			a.act(c)
		}
	}
}

// act calls the model, and runs the tools that it asks for side by side, children first.
func (a *actor) act(c act) {
	parts := slices.Clip(c.Say)
	if c.Ask != nil {
		if answer := a.ask(c.Ask.ID, c.Ask.Text, c.Ask.Options...); answer != "" {
			parts = append(parts, messagePart{Text: "Written for " + answer + ", as you said.\n"})
		}
	}
	for i := range c.Tools {
		parts = append(parts, messagePart{call: &c.Tools[i]})
	}
	calls := a.model(parts...)
	if a.err != nil || len(calls) == 0 {
		return
	}
	fan := c.Step == "fan"
	if fan {
		a.step("fan-out")
	}
	end := func(bool) error { return nil }
	if c.Task != "" {
		a.try(func() (err error) { end, err = a.turn.Task(c.Task); return err })
	}
	var others []*actor
	for i, t := range c.Tools {
		if t.Child != nil {
			others = append(others, a.delegate(calls[i], t))
		}
	}
	for i, t := range c.Tools {
		if t.Child == nil && a.err == nil {
			others = append(others, a.use(calls[i], t))
		}
	}
	a.join(others)
	a.try(func() error { return end(true) })
	switch {
	case fan:
		a.step("fan-in")
	case c.Step != "":
		a.step(c.Step)
	}
	if c.Rest > 0 {
		a.wait(c.Rest * time.Millisecond)
	}
}

// use runs a tool beside the role that asked for it.
func (a *actor) use(c *producers.Call, t tool) *actor {
	return a.s.enter(a.role, func(b *actor) {
		b.try(c.Run)
		b.wait(t.After * time.Millisecond)
		for _, line := range t.Prints {
			b.wait(t.Every * time.Millisecond)
			b.try(func() error { return c.Output(line) })
		}
		b.wait(t.Every * time.Millisecond / 2)
		if b.err != nil {
			return
		}
		b.read(t.Result + t.Fails)
		b.try(func() error {
			if t.Fails != "" {
				return c.Fail(errors.New(t.Fails))
			}
			return c.Finish(t.Result)
		})
	})
}

// join waits until others are through, or were sent off.
func (a *actor) join(others []*actor) {
	a.await(forever, func() bool {
		for _, b := range others {
			if !b.over {
				return false
			}
		}
		return true
	})
}

// delegate sends a child out, for a call of a tool.
func (a *actor) delegate(c *producers.Call, t tool) *actor {
	var in struct {
		Task string `json:"task"`
	}
	a.try(func() error { return json.Unmarshal(c.Args(), &in) })
	r := &role{call: c, state: schema.StateRunning, voice: voice{context: systemTokens + len(words(in.Task))}}
	a.try(c.Run)
	a.try(func() (err error) {
		r.lane, err = a.lane.Spawn(a.s.ctx, childID(a.s.cfg.RunID, t.Child.Name), in.Task, c.ID(), t.Child.Tools...)
		return err
	})
	if a.err != nil {
		return a
	}
	a.s.roles = append(a.s.roles, r)
	return a.s.enter(r, func(b *actor) {
		b.openTurn()
		b.play(t.Child.Acts)
		b.close()
		b.to(schema.StateDone, "")
		b.flush() // the parent goes on only when the child's end is stored
		if b.err == nil {
			a.read(t.Result)
			b.try(func() error { return c.Finish(t.Result) })
		}
	})
}

// close ends the turn well, after messages and commands to the role have been followed and answered.
func (a *actor) close() {
	a.turnOff()
	a.answerMessages()
	a.step("done")
	a.try(func() error { return a.turn.End("end_turn") })
}

// finish ends the run well.
func (a *actor) finish() {
	a.close()
	a.flush()
	a.to(schema.StateDone, "")
	a.flush()
}
