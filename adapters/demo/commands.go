package demo

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"agentstream/schema"
)

type verdict struct {
	approved bool
	reason   string
}

// errCancelled is the reason of what a command has ended; errDeaf of a run that waits for a command when
// none can come any more.
var (
	errCancelled = errors.New("cancelled by the user")
	errDeaf      = errors.New("commands have ended while one was awaited")
)

// order is what the agent reads of commands.
type order struct {
	Reason      string          `json:"reason"`
	Instruction string          `json:"instruction"`
	PlanID      string          `json:"plan_id"`
	RequestID   string          `json:"request_id"`
	Answer      json.RawMessage `json:"answer"`
	Content     json.RawMessage `json:"content"`
}

// heed takes a command, for whichever role it is. One for an unknown role, or without content, is not obeyed. An error
// ends the part that is being run.
func (s *stage) heed(e schema.Event, ok bool) error {
	if !ok {
		s.commands = nil
		return nil
	}
	var o order
	if err := json.Unmarshal(e.Payload, &o); err != nil {
		return nil // checked before it was stored
	}
	for _, r := range s.roles {
		if r.lane.ID() == e.ChildID {
			return s.obey(r, e.Type, o)
		}
	}
	return nil
}

func (s *stage) obey(r *role, typ string, o order) error {
	agent := r == s.roles[0]
	over := r.state.Final()
	switch {
	case typ == schema.TypeCommandMessage && (agent || !over):
		r.heard = append(r.heard, plainText(o.Content))
	case over:
	case typ == "command.cancel" && agent:
		return errCancelled
	case typ == "command.cancel":
		return s.endChild(r, func() error { return r.lane.Cancel(s.ctx, errCancelled.Error()) }, errCancelled)
	case typ == "command.pause":
		return s.pause(r)
	case typ == "command.resume":
		return s.resume(r)
	case typ == "command.redirect":
		r.redirects = append(r.redirects, o.Instruction)
	case typ == "command.answer":
		if o.Answer == nil {
			o.Answer = json.RawMessage("null")
		}
		s.answers[o.RequestID] = o.Answer
	case agent && (typ == "command.approve_plan" || typ == "command.reject_plan") &&
		(o.PlanID == "" || o.PlanID == s.planID()):
		s.verdict = &verdict{typ == "command.approve_plan", o.Reason}
	}
	return nil
}

// pause makes a role wait, wherever it is, until a command resumes it; the agent with all others.
func (s *stage) pause(r *role) error {
	if r.state != schema.StateRunning && r.state != schema.StatePlanning {
		return nil
	}
	if r == s.roles[0] {
		s.back = r.state
	} else {
		r.held, r.since = true, s.clock
	}
	r.state = schema.StatePaused
	if err := r.lane.State(s.ctx, schema.StatePaused, "paused by the user"); err != nil {
		return err
	}
	return s.run.Flush(s.ctx)
}

func (s *stage) resume(r *role) error {
	if r.state != schema.StatePaused {
		return nil
	}
	r.state = schema.StateRunning
	if r == s.roles[0] {
		r.state, s.back = s.back, ""
	}
	if r.held {
		r.held = false
		for _, a := range s.cast {
			if a.role == r && a.rest.at != forever {
				a.rest.at += s.clock - r.since // it has the rest of its pause before it
			}
		}
	}
	return r.lane.State(s.ctx, r.state, "")
}

// turnOff obeys, between two parts of the script, what cannot be obeyed in the middle of one.
func (a *actor) turnOff() {
	a.wait(0)
	for a.err == nil && len(a.redirects) > 0 {
		a.to(schema.StateRedirecting, a.redirects[0])
		a.model(messagePart{Text: "I change my course: " + quoteOr(a.popRedirect(), "as you wish") + "."})
		a.to(schema.StateRunning, "")
	}
	if v := a.s.verdict; a.err == nil && v != nil && a.role == a.s.roles[0] {
		a.s.verdict = nil
		if !v.approved && a.s.plans > 0 { // of a plan that was only shown
			a.to(schema.StatePlanning, v.reason)
			a.propose(because(v.reason))
			a.to(schema.StateRunning, "")
		}
	}
}

// popRedirect takes the oldest redirection.
func (r *role) popRedirect() string {
	to := r.redirects[0]
	r.redirects = r.redirects[1:]
	return to
}

// approval waits until the plan is approved, if it must be. A rejection, or another direction, is a
// reason for another plan.
func (a *actor) approval() {
	s := a.s
	if s.cfg.PlanningGate != gateRequired {
		return
	}
	for a.err == nil {
		s.verdict = nil
		a.to(schema.StateAwaitingApproval, "plan "+s.planID())
		a.flush()
		a.await(forever, func() bool { return s.verdict != nil || len(a.redirects) > 0 })
		v := s.verdict
		switch s.verdict = nil; {
		case a.err != nil || v != nil && v.approved:
			return
		case v != nil:
			a.to(schema.StatePlanning, v.reason)
			a.propose(because(v.reason))
		default:
			to := a.popRedirect()
			a.to(schema.StateRedirecting, to)
			a.propose(because(to))
		}
	}
}

// patience is how long the agent waits for an answer.
const patience = 20 * time.Second

// ask puts a question to a person and returns the answer. Without one in time the agent goes on.
func (a *actor) ask(id, question string, options ...string) string {
	s := a.s
	if s.commands == nil || a.err != nil {
		return ""
	}
	a.try(func() error { return a.lane.Ask(s.ctx, id, question, options, json.RawMessage(`{"type":"string"}`)) })
	a.flush()
	a.await(patience, func() bool { return s.answers[id] != nil })
	answer := s.answers[id]
	a.try(func() error { return a.lane.Answer(s.ctx, id, answer) })
	if a.err != nil || answer == nil {
		return ""
	}
	return plainText(answer)
}

// idle waits, behind the end, for a message. false: none can come.
func (s *stage) idle() bool {
	for s.commands != nil && len(s.roles[0].heard) == 0 {
		if _, err := s.listen(forever); err != nil {
			return false // the context's: behind the end there is nothing to cancel, and nothing is written
		}
	}
	return len(s.roles[0].heard) > 0 && s.ctx.Err() == nil
}

// followUp takes the run up again.
func followUp(a *actor) {
	a.to(schema.StateRunning, "")
	a.openTurn()
	a.finish()
}

// answerMessages answers the messages that have come.
func (a *actor) answerMessages() {
	for a.err == nil && len(a.heard) > 0 {
		said := a.heard[0]
		a.heard = a.heard[1:]
		a.model(messagePart{Text: "You say " + quoteOr(said, "nothing") +
			". I have only one script, so my advice is the same: take the log."})
		a.wait(0)
	}
}

// plainText returns the text of content: a string, or the texts of its blocks. What is neither is given
// as it is.
func plainText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var blocks []struct{ Text string }
	if json.Unmarshal(content, &blocks) == nil {
		var parts []string
		for _, b := range blocks {
			parts = append(parts, b.Text)
		}
		return strings.TrimSpace(strings.Join(parts, " "))
	}
	return string(content)
}

// maxEcho bounds what the agent repeats of a person's text, in runes.
const maxEcho = 200

func quoteOr(text, otherwise string) string {
	if text = strings.TrimSpace(text); text == "" {
		return otherwise
	}
	if r := []rune(text); len(r) > maxEcho {
		text = string(r[:maxEcho]) + "…"
	}
	return "“" + text + "”"
}

func because(reason string) string {
	if reason = strings.TrimSpace(reason); reason == "" {
		return ""
	}
	return ": " + quoteOr(reason, "")
}
