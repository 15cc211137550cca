package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentstream/schema"
)

// stage tells events one after the other. After the first error nothing more is told.
type stage struct {
	cfg   Config
	ctx   context.Context
	err   error
	hurry bool // the run was cancelled: wait for nothing

	open     map[string]*message // by lane
	running  []running           // calls without an end, in order
	children []string            // lanes that have not ended
	messages int
	steps    int
	turns    int
	plans    int
	said     int             // tokens of all messages so far
	actor    string          // who speaks
	now      schema.RunState // of the root

	inbox
}

type running struct{ lane, call string }

const (
	agentModel    = "scripted-1"
	agentProvider = "demo"
)

// wait lets time pass at the agent's pace, obeys commands that come meanwhile, and notices that the
// run was cancelled.
func (s *stage) wait(d time.Duration) {
	if s.err != nil || s.hurry {
		return
	}
	if s.cfg.Speed == 0 || d <= 0 {
		s.err = context.Cause(s.ctx)
		s.heedAll()
		return
	}
	for left := time.Duration(float64(d) / s.cfg.Speed); left > 0 && s.err == nil; {
		began := time.Now()
		timer := time.NewTimer(left)
		select {
		case <-timer.C:
			return
		case <-s.ctx.Done():
			s.err = context.Cause(s.ctx)
		case e, ok := <-s.commands:
			left -= time.Since(began)
			s.heed(e, ok)
		}
		timer.Stop()
	}
}

// emit publishes one event. It is never cut off by the run's cancellation, so that what has been
// published is always known; it has a deadline instead.
func (s *stage) emit(lane, typ string, pairs ...any) {
	if s.err != nil {
		return
	}
	e := schema.Event{
		TS: s.cfg.Now().UTC().Format(schema.TimeLayout), Type: typ, ChildID: lane, TurnID: fmt.Sprintf("turn_%d", s.turns),
		Actor: s.actor, Payload: object(pairs...),
	}
	if lane != "" {
		e.Path = []string{s.cfg.RunID, lane}
	}
	ctx, cancel := s.bounded()
	defer cancel()
	if err := s.cfg.Sink.Publish(ctx, e); err != nil {
		s.err = &sinkError{"publish " + typ, err}
	}
}

func (s *stage) flush() {
	if s.err != nil {
		return
	}
	ctx, cancel := s.bounded()
	defer cancel()
	if err := s.cfg.Sink.Flush(ctx); err != nil {
		s.err = &sinkError{"flush", err}
	}
}

func (s *stage) bounded() (context.Context, context.CancelFunc) {
	if s.hurry { // the whole ending has one deadline
		return context.WithCancel(s.ctx)
	}
	return context.WithTimeout(context.WithoutCancel(s.ctx), s.cfg.Grace)
}

func (s *stage) state(lane string, st schema.RunState, reason string) {
	var r any
	if reason != "" {
		r = reason
	}
	s.emit(lane, schema.TypeRunLifecycle, "state", st, "reason", r)
	if lane == "" && s.err == nil {
		s.now = st
	}
	if s.err == nil && st.Final() {
		s.children = slices.DeleteFunc(s.children, func(c string) bool { return c == lane })
	}
}

func (s *stage) step(kind string) {
	s.emit("", schema.TypeStepBoundary, "step_index", s.steps, "step_kind", kind, "checkpoint_id", nil)
	s.steps++
}

// spawn announces a child and lets it begin. The announcement must be stored first.
func (s *stage) spawn(child, prompt string, tools ...string) {
	s.emit("", schema.TypeChildSpawn, "child_id", child, "prompt", prompt, "tools_allowed", tools)
	s.flush()
	if s.err == nil {
		s.children = append(s.children, child)
	}
	s.state(child, schema.StateRunning, "")
}

// message is an open message of one lane.
type message struct {
	s       *stage
	lane    string
	id      string
	content []json.RawMessage
	block   *block // the open one
	tokens  int
}

type block struct {
	kind, call, tool string
	text             strings.Builder
}

func (s *stage) message(lane, role string) *message {
	s.messages++
	m := &message{s: s, lane: lane, id: fmt.Sprintf("msg_%d", s.messages)}
	pairs := []any{"message_id", m.id, "role", role}
	if role == "assistant" {
		pairs = append(pairs, "model", agentModel, "provider", agentProvider)
	}
	s.emit(lane, schema.TypeMessageStart, pairs...)
	if s.err == nil {
		s.open[lane] = m
	}
	return m
}

// Pace of what the agent says: a thought runs faster than speech, a tool's input faster still.
const (
	thoughtPace = 38 * time.Millisecond
	textPace    = 66 * time.Millisecond
	inputPace   = 26 * time.Millisecond
)

func (m *message) reasoning(text string) {
	m.say("reasoning", schema.TypeReasoningDelta, thoughtPace, text)
}

func (m *message) text(text string) { m.say("text", schema.TypeTextDelta, textPace, text) }

func (m *message) say(kind, typ string, pace time.Duration, text string) {
	m.begin(&block{kind: kind})
	for _, w := range words(text) {
		m.s.wait(pace)
		m.delta(typ, w)
	}
	m.endBlock(true)
}

// words cuts text into pieces that end behind their white space.
func words(text string) []string {
	var out []string
	for text != "" {
		n := strings.IndexAny(text, " \n") + 1
		if n == 0 {
			n = len(text)
		}
		out, text = append(out, text[:n]), text[n:]
	}
	return out
}

func (m *message) begin(b *block) {
	pairs := []any{"index", len(m.content), "kind", b.kind, "message_id", m.id}
	if b.call != "" {
		pairs = append(pairs, "call_id", b.call, "tool", b.tool)
	}
	m.s.emit(m.lane, schema.TypeBlockStart, pairs...)
	if m.s.err == nil {
		m.block = b
	}
}

func (m *message) delta(typ, text string) {
	pairs := []any{"text", text, "index", len(m.content)}
	if typ == schema.TypeToolInputDelta && m.block != nil {
		pairs = append([]any{"call_id", m.block.call}, pairs...)
	}
	m.s.emit(m.lane, typ, pairs...)
	if m.s.err == nil {
		m.block.text.WriteString(text)
		m.tokens++
	}
}

// endBlock closes the open block. complete is false when it was cut short.
func (m *message) endBlock(complete bool) {
	b := m.block
	if b == nil || m.s.err != nil {
		return
	}
	pairs := []any{"index", len(m.content), "message_id", m.id, "complete", complete}
	content := object("type", b.kind, "text", b.text.String())
	if b.call != "" {
		pairs = append(pairs, "call_id", b.call)
		content = object("type", b.kind, "id", b.call, "name", b.tool, "partial_json", b.text.String())
	}
	if b.call != "" && complete {
		pairs = append(pairs, "input", json.RawMessage(b.text.String()))
		content = object("type", b.kind, "id", b.call, "name", b.tool, "input", json.RawMessage(b.text.String()))
	}
	m.s.emit(m.lane, schema.TypeBlockEnd, pairs...)
	if m.s.err != nil {
		return
	}
	index := len(m.content)
	m.content, m.block = append(m.content, content), nil
	if b.call == "" || !complete {
		return
	}
	m.s.emit(m.lane, schema.TypeToolStart, "call_id", b.call, "tool", b.tool, "input", json.RawMessage(b.text.String()), "index", index)
	if m.s.err == nil {
		m.s.running = append(m.s.running, running{m.lane, b.call})
	}
}

// call tells a tool call whose input streams in.
func (m *message) call(call, tool, input string) {
	m.begin(&block{kind: "tool_use", call: call, tool: tool})
	for rest := input; rest != ""; {
		n := min(5, len(rest))
		m.s.wait(inputPace)
		m.delta(schema.TypeToolInputDelta, rest[:n])
		rest = rest[n:]
	}
	m.endBlock(true)
}

func (m *message) end(stop string) {
	m.s.emit(m.lane, schema.TypeMessageEnd, "message_id", m.id, "content", m.content, "stop_reason", stop, "stop_sequence", nil,
		"usage", object("input_tokens", m.s.said, "output_tokens", m.tokens))
	if m.s.err == nil {
		m.s.said += m.tokens
		delete(m.s.open, m.lane)
	}
}

// cut ends a message that the run's end has interrupted.
func (m *message) cut() {
	m.endBlock(false)
	if m.content == nil {
		m.content = []json.RawMessage{}
	}
	m.end("cancelled")
}

func (s *stage) output(c running, text string) {
	s.emit(c.lane, schema.TypeToolOutputDelta, "call_id", c.call, "text", text)
}

func (s *stage) finish(c running, output string, took time.Duration) {
	s.emit(c.lane, schema.TypeToolEnd, "call_id", c.call, "ok", true, "output", output, "duration_ms", took.Milliseconds())
	s.ended(c)
}

func (s *stage) fail(c running, why string) {
	s.emit(c.lane, schema.TypeToolEnd, "call_id", c.call, "ok", false, "error", why)
	s.ended(c)
}

func (s *stage) ended(c running) {
	if s.err == nil {
		s.running = slices.DeleteFunc(s.running, func(r running) bool { return r == c })
	}
}

// object writes a JSON object with its members in the given order.
func object(pairs ...any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	buf.WriteByte('{')
	for i := 0; i+1 < len(pairs); i += 2 {
		if i > 0 {
			buf.WriteByte(',')
		}
		for j, v := range pairs[i : i+2] {
			if j > 0 {
				buf.WriteByte(':')
			}
			if err := enc.Encode(v); err != nil { // a text of the script that is not JSON
				panic(fmt.Sprintf("demo: %v", err))
			}
			buf.Truncate(buf.Len() - 1) // the encoder's line feed
		}
	}
	buf.WriteByte('}')
	return buf.Bytes()
}
