package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"agentstream/producers"
	"agentstream/producers/command"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// Replies answer sessions with a script ([worker.Answer]). The text of a message decides the answer:
//
//	anything    one short sentence that quotes the message
//	"think"     a signed thought before it
//	"tool"      a call of a tool, whose input and output stream, and a second call of the model
//	"confirm"   the same, but the tool waits until it is allowed or denied
//	"delegate"  a child with a turn and a message of its own, and a second call of the model
//
// Of the last three the last one that is found counts. These count where they are words of their own:
//
//	"tools"     two tools work side by side
//	"wait"      tools work for 30 seconds, and so does the child
//	"seam"      3 seconds pass between the end of the model's message and the beginning of the tools' work
//	"long"      the last answer has 300 words, with "delegate" the child's
//	"interrupt" at its end it asks a person, and the turn ends; the answer begins the next one, which says what it was
//
// A message that came by run.start, of LangGraph's protocol, is answered as a graph does: with a task, custom events,
// checkpoints and states besides. A message that comes meanwhile is worked in.
//
// Confirmations, and cancellations of the child, are heeded; other commands are not. The zero value waits nowhere.
type Replies struct {
	// Speed multiplies the pace: 1 is natural. 0 waits nowhere, except for a person.
	Speed float64
	// Patience is how long a tool waits for its confirmation; then it is denied. Default 10 minutes.
	Patience time.Duration
}

var _ worker.Answer = Replies{}.Answer

// Answer emits the answer to one message, and the same to an outcome that is described so.
func (r Replies) Answer(ctx context.Context, q *worker.Task) (stop string, err error) {
	s := &reply{cfg: r, ctx: ctx, q: q, text: q.Text(), voice: voice{turn: q.Turn, context: systemTokens}}
	if s.cfg.Patience <= 0 {
		s.cfg.Patience = 10 * time.Minute
	}
	s.read(s.text)
	text := strings.ToLower(s.text)
	has := func(word string) bool { return strings.Contains(text, word) }
	own := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) })
	s.tools, s.waits = slices.Contains(own, "tools"), slices.Contains(own, "wait")
	s.seam, s.long = slices.Contains(own, "seam"), slices.Contains(own, "long")
	if s.graph = graphOf(q); s.graph != nil {
		if err := s.graph.emitStart(); err != nil {
			return "", err
		}
	}
	if has("think") {
		s.thought = "Somebody says " + quoteOr(s.text, "nothing") + ". A short answer is enough."
	}
	switch {
	case len(q.Answers) > 0:
		err = s.resume()
	case has("delegate"):
		err = s.delegate()
	case has("confirm"):
		err = s.confirmTools()
	case has("tool") || s.waits || s.seam:
		err = s.useTools()
	default:
		err = s.sayAnswer("You say " + quoteOr(s.text, "nothing") + ".")
	}
	if err == nil && len(q.Answers) == 0 && slices.Contains(own, "interrupt") {
		err = s.interrupt()
	}
	if err == nil && s.graph != nil {
		err = s.graph.emitEnd()
	}
	return "end_turn", err
}

// reply is one answer that is being written.
type reply struct {
	voice
	cfg     Replies
	ctx     context.Context // of the turn
	q       *worker.Task
	child   *producers.Lane // nil: none is at work
	text    string          // what is answered
	thought string          // before the first message; "" for none
	heard   *command.Command
	graph   *graph // nil: no graph answers

	tools, waits, seam, long bool // words of the message
}

// errChild reports that the child was cancelled.
var errChild = errors.New("the child was cancelled")

// pause lets a moment pass, and heeds commands meanwhile.
func (s *reply) pause(d time.Duration) error {
	if s.cfg.Speed <= 0 {
		d = 0
	} else {
		d = time.Duration(float64(d) / s.cfg.Speed)
	}
	return s.await(d, func() bool { return false })
}

// await waits until something holds, for so long at most.
func (s *reply) await(most time.Duration, until func() bool) error {
	over := time.NewTimer(most)
	defer over.Stop()
	for !until() {
		select {
		case <-over.C:
			return nil
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case c := <-s.q.Told:
			if err := s.heed(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *reply) heed(c *command.Command) error {
	switch {
	case c.Name == "answer":
		s.heard = c
	case c.Name == "message" && s.graph != nil && s.child == nil:
		s.graph.addMessage(c)
	case c.Name == "cancel" && s.child != nil && c.Child == s.child.ID():
		if err := s.child.Cancel(s.ctx, errCancelled.Error()); err != nil {
			return err
		}
		return errChild
	}
	return nil
}

// model is one call of the model: a message.
func (s *reply) model(parts ...messagePart) ([]*producers.Call, error) {
	if s.thought != "" {
		parts = append([]messagePart{{Thought: s.thought}}, parts...)
		s.thought = ""
	}
	s.pauses = s.pause
	return s.message(parts)
}

// say emits a message that asks for nothing.
func (s *reply) say(said string) error {
	_, err := s.model(messagePart{Text: said})
	return err
}

// sayAnswer is say for the last answer.
func (s *reply) sayAnswer(said string) error {
	if s.long {
		said = strings.TrimSpace(strings.Repeat(refrain, 15))
	}
	return s.say(said)
}

// refrain has 20 words.
const refrain = "A log only grows. Whoever reads it keeps one number, and asks at any time for what comes behind it. "

const notes = "one log, many readers\nnothing is lost\nnothing comes twice\n"

var lookedFor = tool{Name: "read_file", Input: json.RawMessage(`{"path":"notes.txt","lines":3}`)}

var counted = tool{Name: "count_words", Input: json.RawMessage(`{"path":"notes.txt"}`)}

// useTools lets tools find the answer.
func (s *reply) useTools() error {
	parts := []messagePart{{Text: "I look into my notes. "}, {call: &lookedFor}}
	if s.tools {
		parts = append(parts, messagePart{call: &counted})
	}
	calls, err := s.model(parts...)
	if err != nil {
		return err
	}
	return s.runTools("My notes say: nothing is lost, and nothing comes twice.", calls...)
}

// runTools runs the tools side by side, and emits their results.
func (s *reply) runTools(answer string, calls ...*producers.Call) error {
	if err := s.startTools(calls...); err != nil {
		return err
	}
	if s.waits {
		if err := s.pause(toolWait); err != nil {
			return err
		}
	}
	for _, text := range strings.SplitAfter(strings.TrimSuffix(notes, "\n"), "\n") {
		for _, c := range calls {
			if err := s.pause(3 * textPace); err != nil {
				return err
			}
			if err := c.Output(text); err != nil {
				return err
			}
		}
	}
	for _, c := range calls {
		if err := c.Finish(notes); err != nil {
			return err
		}
		s.read(notes)
	}
	return s.sayAnswer(answer)
}

const (
	toolWait = 30 * time.Second
	seamWait = 3 * time.Second
)

// startTools lets the tools begin to work.
func (s *reply) startTools(calls ...*producers.Call) error {
	if s.seam {
		if err := s.pause(seamWait); err != nil {
			return err
		}
	}
	for _, c := range calls {
		if err := c.Run(); err != nil {
			return err
		}
	}
	return nil
}

// confirmTools is useTools, if that is allowed.
func (s *reply) confirmTools() error {
	calls, err := s.model(messagePart{Text: "I would look into my notes. "}, messagePart{call: &lookedFor, asks: "ask"})
	if err != nil {
		return err
	}
	c := calls[0]
	if err := s.q.Run.Emit(s.ctx, schema.TypeInputRequested,
		confirmation{c.ID(), c.ID(), "May I read notes.txt?", []string{"allow", "deny"}}); err != nil {
		return err
	}
	if err := s.await(s.cfg.Patience, func() bool { return s.heard != nil && s.heard.RequestID() == c.ID() }); err != nil {
		return err
	}
	var answer json.RawMessage
	why, yes := "nobody has answered", false
	if s.heard != nil && s.heard.RequestID() == c.ID() {
		answer = s.heard.Answer()
		why, yes = readPermission(answer)
	}
	if err := s.q.Run.Answer(s.ctx, c.ID(), answer); err != nil {
		return err
	}
	if !yes {
		if err := c.Fail(&producers.ToolError{Code: schema.CodeToolRefused, Err: fmt.Errorf("denied: %s", why)}); err != nil {
			return err
		}
		return s.say("Then I leave my notes closed.")
	}
	return s.runTools("You have allowed it, and my notes say: nothing is lost.", c)
}

// confirmation is the payload of input.requested about a call.
type confirmation struct {
	RequestID string   `json:"request_id"`
	CallID    string   `json:"call_id"`
	Prompt    string   `json:"prompt"`
	Options   []string `json:"options"`
}

// readPermission reads an answer: true, a string, or a tool confirmation of the sessions API. why is for
// people.
func readPermission(answer json.RawMessage) (why string, yes bool) {
	var word string
	var sent struct {
		Result   string `json:"result"`
		Decision string `json:"decision"`
		Message  string `json:"deny_message"`
	}
	switch {
	case json.Unmarshal(answer, &yes) == nil:
	case json.Unmarshal(answer, &word) == nil:
	case json.Unmarshal(answer, &sent) == nil:
		word, why = sent.Result+sent.Decision, sent.Message
	}
	switch strings.ToLower(word) {
	case "allow", "approve", "yes":
		yes = true
	}
	if why == "" {
		why = "the user says no"
	}
	return why, yes
}

// delegate lets a child find the answer.
func (s *reply) delegate() error {
	task := "Answer " + quoteOr(s.text, "nothing") + " in one sentence."
	input, err := json.Marshal(struct {
		Task string `json:"task"`
	}{task})
	if err != nil {
		return err
	}
	calls, err := s.model(messagePart{Text: "I ask somebody who knows. "},
		messagePart{call: &tool{Name: "delegate", Input: input}})
	if err != nil {
		return err
	}
	if err := s.startTools(calls...); err != nil {
		return err
	}
	answer, err := s.sendChild(task, calls[0].ID())
	switch {
	case errors.Is(err, errChild) && s.ctx.Err() == nil:
		if err := calls[0].Fail(err); err != nil {
			return err
		}
		return s.say("Nobody could answer that.")
	case err != nil:
		return err
	}
	if err := calls[0].Finish(answer); err != nil {
		return err
	}
	return s.say("I have asked, and this is the answer: " + answer)
}

// sendChild sends a child out and returns its text.
func (s *reply) sendChild(task, call string) (answer string, err error) {
	id := "child_" + strings.TrimPrefix(s.turn.ID(), "turn_")
	if s.child, err = s.q.Spawn(s.ctx, id, task, call); err != nil {
		return "", err
	}
	own := *s // the child reads what it is asked, and nothing else
	own.context, own.thought = systemTokens+len(words(task)), ""
	if own.turn, err = s.child.Turn(s.ctx); err != nil {
		return "", err
	}
	if s.waits {
		if err := own.pause(toolWait); err != nil {
			return "", err
		}
	}
	answer = "It is as it is."
	if err := own.sayAnswer(answer); err != nil {
		return "", err
	}
	if err := own.turn.End("end_turn"); err != nil {
		return "", err
	}
	return answer, s.child.Finish(s.ctx)
}
