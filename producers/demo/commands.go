package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentstream/schema"
)

// inbox is what the agent has been told and has not obeyed yet.
type inbox struct {
	commands  <-chan schema.Event        // nil: nothing comes (any more)
	heard     []string                   // messages without an answer
	redirects []string                   // instructions
	verdict   *verdict                   // on the newest plan
	answers   map[string]json.RawMessage // by request
}

type verdict struct {
	approved bool
	reason   string
}

// errCancelled is the reason of a run that a command has ended; errDeaf of one that waits for a
// command when none can come any more.
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

// heed takes a command. Those for a child are the child's, which here has no ears.
func (s *stage) heed(e schema.Event, ok bool) {
	if !ok {
		s.commands = nil
		return
	}
	if e.ChildID != "" {
		return
	}
	var o order
	if err := json.Unmarshal(e.Payload, &o); err != nil {
		return // checked before it was stored; what does not fit is not obeyed
	}
	switch e.Type {
	case "command.cancel":
		if !s.now.Final() {
			s.err = errCancelled
		}
	case "command.pause":
		s.pause()
	case "command.redirect":
		s.redirects = append(s.redirects, o.Instruction)
	case "command.approve_plan", "command.reject_plan":
		if o.PlanID == "" || o.PlanID == s.planID() {
			s.verdict = &verdict{e.Type == "command.approve_plan", o.Reason}
		}
	case "command.answer":
		if o.Answer == nil {
			o.Answer = json.RawMessage("null")
		}
		s.answers[o.RequestID] = o.Answer
	case schema.TypeCommandMessage:
		s.heard = append(s.heard, plainText(o.Content))
	}
}

// heedAll takes what is there.
func (s *stage) heedAll() {
	for s.err == nil {
		select {
		case e, ok := <-s.commands:
			s.heed(e, ok)
		default:
			return
		}
		if s.commands == nil {
			return
		}
	}
}

// await waits for the next command and takes it.
func (s *stage) await() (typ string) {
	if s.commands == nil {
		s.err = errDeaf
		return ""
	}
	select {
	case e, ok := <-s.commands:
		s.heed(e, ok)
		if e.ChildID != "" {
			return ""
		}
		return e.Type
	case <-s.ctx.Done():
		s.err = context.Cause(s.ctx)
		return ""
	}
}

// pause stands still, wherever the agent is, until it is told to go on.
func (s *stage) pause() {
	back, speaker := s.now, s.actor
	if back != schema.StateRunning && back != schema.StatePlanning {
		return
	}
	s.actor = "agent"
	s.state("", schema.StatePaused, "paused by the user")
	s.flush()
	for s.err == nil && s.await() != "command.resume" {
	}
	s.state("", back, "")
	s.actor = speaker
}

// turnOff obeys, between two parts of the story, what cannot be obeyed in the middle of one.
func (s *stage) turnOff() {
	s.wait(0)
	for s.err == nil && len(s.redirects) > 0 {
		to := s.redirects[0]
		s.redirects = s.redirects[1:]
		s.state("", schema.StateRedirecting, to)
		m := s.message("", "assistant")
		m.text("I change my course: " + quoteOr(to, "as you wish") + ".")
		m.end("end_turn")
		s.state("", schema.StateRunning, "")
	}
	if v := s.verdict; s.err == nil && v != nil {
		s.verdict = nil
		if !v.approved { // of a plan that was only shown
			s.state("", schema.StatePlanning, v.reason)
			s.plan(because(v.reason))
			s.state("", schema.StateRunning, "")
		}
	}
}

func (s *stage) planID() string { return fmt.Sprintf("plan_%d", s.plans) }

// approval waits until the plan is approved, if it must be. A rejection, or another direction, is a
// reason for another plan.
func (s *stage) approval() {
	if s.cfg.PlanningGate != gateRequired {
		return
	}
	for s.err == nil {
		s.verdict = nil
		s.state("", schema.StateAwaitingApproval, "plan "+s.planID())
		s.flush()
		for s.err == nil && s.verdict == nil && len(s.redirects) == 0 {
			s.await()
		}
		v := s.verdict
		s.verdict = nil
		switch {
		case s.err != nil || v != nil && v.approved:
			return
		case v != nil:
			s.state("", schema.StatePlanning, v.reason)
			s.plan(because(v.reason))
		default:
			to := s.redirects[0]
			s.redirects = s.redirects[1:]
			s.state("", schema.StateRedirecting, to)
			s.plan(because(to))
		}
	}
}

// patience is how long the agent waits for an answer.
const patience = 20 * time.Second

// ask wants to know who the answer is for. Without an answer in time it goes on.
func (s *stage) ask() string {
	if s.commands == nil || s.err != nil {
		return ""
	}
	const id = "audience"
	s.emit("", schema.TypeInputRequested, "request_id", id, "prompt", "Who is the recommendation for?",
		"options", []string{"engineers", "managers"}, "schema", json.RawMessage(`{"type":"string"}`))
	s.flush()
	s.wait(0)
	for waited := time.Duration(0); waited < patience && s.err == nil && s.answers[id] == nil; waited += patience / 100 {
		s.wait(patience / 100)
	}
	answer := s.answers[id]
	if answer == nil {
		s.emit("", schema.TypeInputAnswered, "request_id", id, "answer", nil)
		return ""
	}
	s.emit("", schema.TypeInputAnswered, "request_id", id, "answer", answer)
	return plainText(answer)
}

// idle waits, behind the end, for a message. false: none can come.
func (s *stage) idle(ctx context.Context) bool {
	s.ctx, s.err = ctx, nil
	for s.commands != nil && s.err == nil && len(s.heard) == 0 {
		s.await()
	}
	return s.err == nil && len(s.heard) > 0
}

// followUp takes the run up again.
func (s *stage) followUp() {
	s.redirects, s.verdict = nil, nil
	s.state("", schema.StateRunning, "")
	s.done()
}

// reply answers the oldest message.
func (s *stage) reply() {
	text := s.heard[0]
	s.heard = s.heard[1:]
	m := s.message("", "assistant")
	m.text("You say " + quoteOr(text, "nothing") + ". I have only one script, so my advice is the same: take the log.")
	m.end("end_turn")
	s.wait(0)
}

// plainText gives the text of content: a string, or the texts of its blocks. What is neither is given
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

// maxEcho bounds what the agent repeats of a person's words, in runes.
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
