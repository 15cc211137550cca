package producers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"agentstream/schema"
)

// MessageInfo describes a message that begins. All of it may be left out.
type MessageInfo struct {
	ID       string // made up when empty
	Role     string // user, assistant (default), system or tool
	Model    string
	Provider string
}

// Message is a message that is being said: text, thoughts and tool calls in blocks. Text and reasoning
// open a block of their kind when none is open, and end the one that is of another. Input of several
// tool calls may stream side by side.
type Message struct {
	turn  *Turn
	id    string
	state *openMessage // of the run's Open
	said  *openBlock   // the open block of text or reasoning
	over  bool
}

// Message begins one: message.start. ErrOpen: the turn has one already.
func (t *Turn) Message(info MessageInfo) (*Message, error) {
	r := t.lane.run
	if info.ID == "" {
		info.ID = r.cfg.NewID("msg")
	}
	if info.Role == "" {
		info.Role = "assistant"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.open.lanes[t.lane.id]; !t.over && l != nil && l.msg != nil {
		return nil, fmt.Errorf("producers: run %s: begin message %s: message %s: %w", r.cfg.RunID, info.ID, l.msg.id, ErrOpen)
	}
	err := t.say(schema.TypeMessageStart, object(nil).text("message_id", info.ID).text("role", info.Role).str("model", info.Model).str("provider", info.Provider).end())
	if err != nil {
		return nil, err
	}
	return &Message{turn: t, id: info.ID, state: r.open.lanes[t.lane.id].msg}, nil
}

// ID is the message's.
func (m *Message) ID() string { return m.id }

// alive says whether the message may go on. Called with the run's lock held.
func (m *Message) alive(doing string) error {
	r := m.turn.lane.run
	if m.over || m.turn.over || r.open.lanes[m.turn.lane.id].msg != m.state {
		return fmt.Errorf("producers: run %s: %s message %s: %w", r.cfg.RunID, doing, m.id, ErrOver)
	}
	return nil
}

// Text says a piece of text.
func (m *Message) Text(text string) error { return m.speak("text", schema.TypeTextDelta, text) }

// Reasoning says a piece of a thought.
func (m *Message) Reasoning(text string) error {
	return m.speak("reasoning", schema.TypeReasoningDelta, text)
}

func (m *Message) speak(kind, typ, text string) error {
	r := m.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := m.alive("speak in"); err != nil {
		return err
	}
	if m.said != nil && m.said.kind != kind {
		if err := m.endSaid(); err != nil {
			return err
		}
	}
	if m.said == nil {
		b, err := m.begin(kind, object(nil))
		if err != nil {
			return err
		}
		m.said = b
	}
	return r.delta(m.turn, m.state, m.said, typ, text)
}

// begin says block.start, with members behind the usual ones. Called with the run's lock held.
func (m *Message) begin(kind string, more object) (*openBlock, error) {
	index := len(m.state.blocks)
	o := object(nil).integer("index", int64(index)).text("kind", kind).text("message_id", m.id)
	if len(more) > 0 {
		o = append(append(o, ','), more[1:]...)
	}
	if err := m.turn.say(schema.TypeBlockStart, o.end()); err != nil {
		return nil, err
	}
	return m.state.blocks[index], nil
}

// endBlock says block.end. Called with the run's lock held.
func (m *Message) endBlock(b *openBlock, more object) error {
	o := object(nil).integer("index", int64(b.index)).text("message_id", m.id).yes("complete", true)
	if len(more) > 0 {
		o = append(append(o, ','), more[1:]...)
	}
	return m.turn.say(schema.TypeBlockEnd, o.end())
}

func (m *Message) endSaid() error {
	b := m.said
	if m.said = nil; b == nil {
		return nil
	}
	return m.endBlock(b, nil)
}

// maxScratch bounds the space for payloads that is kept, in bytes.
const maxScratch = 64 << 10

// delta says a piece of a block. It is the hot path: the payload is written into space that is used again,
// and the block's text is kept without reading it back. Called with the lock held.
func (r *Run) delta(t *Turn, m *openMessage, b *openBlock, typ, text string) error {
	if r.err != nil {
		return r.err
	}
	if t.ctx.Err() != nil {
		return fmt.Errorf("producers: run %s: say %s: %w", r.cfg.RunID, typ, context.Cause(t.ctx))
	}
	o := r.buf[:0]
	if typ == schema.TypeToolInputDelta {
		o = o.text("call_id", b.call)
	}
	o = append(o.name("text"), '"')
	from := len(o)
	o = appendEscaped(o, text)
	inner := o[from:]
	o = append(append(o, '"'), `,"index":`...)
	o = append(strconv.AppendInt(o, int64(b.index), 10), '}')
	if cap(o) <= maxScratch {
		r.buf = o
	}
	r.one[0] = schema.Event{Type: typ, RunID: r.cfg.RunID, ChildID: t.lane.id, Path: t.lane.path, TurnID: t.id, Actor: r.cfg.Actor,
		Payload: json.RawMessage(o)}
	err := r.cfg.Sink.Send(t.ctx, r.one[:]...)
	r.one[0] = schema.Event{}
	if err != nil {
		if t.ctx.Err() == nil {
			r.err = err
		}
		return fmt.Errorf("producers: run %s: say %s: %w", r.cfg.RunID, typ, err)
	}
	m.add(b, inner)
	return nil
}

// Signed ends the open block of reasoning with the provider's signature.
func (m *Message) Signed(signature string) error {
	r := m.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := m.alive("sign a thought of"); err != nil {
		return err
	}
	b := m.said
	if b == nil || b.kind != "reasoning" {
		return fmt.Errorf("producers: run %s: sign message %s: no thought is open", r.cfg.RunID, m.id)
	}
	m.said = nil
	return m.endBlock(b, object(nil).text("signature", signature))
}

// dataPiece is how much of an image or a file one event carries, in bytes before base64.
const dataPiece = 96 << 10

// Data says a block of bytes: kind image, audio or file, with a media type and a name that may be "".
func (m *Message) Data(kind, mediaType, name string, data []byte) error {
	r := m.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := m.alive("put data in"); err != nil {
		return err
	}
	if err := m.endSaid(); err != nil {
		return err
	}
	b, err := m.begin(kind, nil)
	if err != nil {
		return err
	}
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), dataPiece)
		payload := object(nil).text("media_type", mediaType).text("data", base64.StdEncoding.EncodeToString(data[:n])).
			integer("index", int64(b.index)).str("name", name).end()
		if err := m.turn.say(schema.TypeDataDelta, payload); err != nil {
			return err
		}
		data = data[n:]
	}
	return m.endBlock(b, nil)
}

// End ends the message: message.end with all that was said, the stop reason (end_turn, tool_use, …) and
// the usage, which encoding/json takes or nil. Calls whose input still streams are cut short.
func (m *Message) End(stop string, usage any) error {
	used, err := jsonOf(usage)
	if err != nil {
		return fmt.Errorf("producers: message %s: usage: %w", m.id, err)
	}
	r := m.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := m.alive("end"); err != nil {
		return err
	}
	if err := m.endSaid(); err != nil {
		return err
	}
	for _, b := range m.state.blocks {
		if b.closed {
			continue
		}
		cut := object(nil).integer("index", int64(b.index)).text("message_id", m.id).yes("complete", false).text("problem", "cut short").str("call_id", b.call)
		if err := m.turn.say(schema.TypeBlockEnd, cut.end()); err != nil {
			return err
		}
	}
	o := object(nil).text("message_id", m.id)
	if m.state.lost == 0 {
		o = o.raw("content", m.state.content())
	}
	o = o.text("stop_reason", stop).raw("stop_sequence", []byte("null")).raw("usage", used)
	if m.state.lost > 0 {
		o = o.raw("omitted", []byte(`["content"]`)).integer("omitted_bytes", int64(m.state.size+m.state.lost))
	}
	m.over = true
	return m.turn.say(schema.TypeMessageEnd, o.end())
}

// Call is one call of a tool: its input while the model says it, its output while the tool runs.
type Call struct {
	turn  *Turn
	msg   *Message   // nil when an adapter announced the call
	block *openBlock // the same
	id    string
	tool  string
	input json.RawMessage
	began time.Time
}

// Call begins a tool call in the message: its input is said by Input, and Ready makes it a call. An
// empty id is made up.
func (m *Message) Call(id, tool string) (*Call, error) {
	r := m.turn.lane.run
	if id == "" {
		id = r.cfg.NewID("call")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := m.alive("call a tool in"); err != nil {
		return nil, err
	}
	if err := m.endSaid(); err != nil {
		return nil, err
	}
	b, err := m.begin("tool_use", object(nil).text("call_id", id).text("tool", tool))
	if err != nil {
		return nil, err
	}
	return &Call{turn: m.turn, msg: m, block: b, id: id, tool: tool}, nil
}

// ID is the call's.
func (c *Call) ID() string { return c.id }

// Tool is the tool's name.
func (c *Call) Tool() string { return c.tool }

// Args is the call's input, once it is complete.
func (c *Call) Args() json.RawMessage { return c.input }

// Input says a piece of the input, which is JSON when it is whole.
func (c *Call) Input(piece string) error {
	r := c.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.writable(); err != nil {
		return err
	}
	return r.delta(c.turn, c.msg.state, c.block, schema.TypeToolInputDelta, piece)
}

func (c *Call) writable() error {
	r := c.turn.lane.run
	if c.msg == nil || c.block.closed {
		return fmt.Errorf("producers: run %s: call %s: its input: %w", r.cfg.RunID, c.id, ErrOver)
	}
	return c.msg.alive("say the input of call " + c.id + " in")
}

// Ready ends the input: block.end and tool.start. input is the whole where pieces were not said, or nil.
func (c *Call) Ready(input any) error {
	whole, err := jsonOf(input)
	if err != nil {
		return fmt.Errorf("producers: call %s: input: %w", c.id, err)
	}
	r := c.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.writable(); err != nil {
		return err
	}
	if whole == nil {
		if whole, err = c.block.said(); err != nil {
			return fmt.Errorf("producers: run %s: call %s: %w", r.cfg.RunID, c.id, err)
		}
	}
	if err := c.msg.endBlock(c.block, object(nil).text("call_id", c.id).raw("input", whole)); err != nil {
		return err
	}
	c.input, c.began = whole, r.cfg.Now()
	return c.turn.say(schema.TypeToolStart, object(nil).text("call_id", c.id).text("tool", c.tool).raw("input", whole).integer("index", int64(c.block.index)).end())
}

// said is the input that the pieces make; {} when there were none.
func (b *openBlock) said() (json.RawMessage, error) {
	if len(b.text) == 0 {
		return json.RawMessage("{}"), nil
	}
	var text string
	if err := json.Unmarshal(append(append([]byte{'"'}, b.text...), '"'), &text); err != nil {
		return nil, fmt.Errorf("pieces of input: %w", err)
	}
	if !json.Valid([]byte(text)) {
		return nil, fmt.Errorf("the pieces of its input are not JSON: %w", schema.ErrMalformed)
	}
	return json.RawMessage(text), nil
}

// Output says a piece of what a running tool prints. ErrOver: it does not run, or not any more.
func (c *Call) Output(text string) error {
	r := c.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.runs("print in"); err != nil {
		return err
	}
	return c.turn.say(schema.TypeToolOutputDelta, object(nil).text("call_id", c.id).text("text", text).end())
}

// runs says whether the tool runs. Called with the run's lock held.
func (c *Call) runs(doing string) error {
	r := c.turn.lane.run
	if l := r.open.lanes[c.turn.lane.id]; l == nil || c.turn.over || !l.has(c.id) {
		return fmt.Errorf("producers: run %s: %s call %s: %w", r.cfg.RunID, doing, c.id, ErrOver)
	}
	return nil
}

// Finish ends the call well: tool.end with its output, which encoding/json takes.
func (c *Call) Finish(output any) error {
	v, err := jsonOf(output)
	if err != nil {
		return fmt.Errorf("producers: call %s: output: %w", c.id, err)
	}
	return c.end(object(nil).text("call_id", c.id).yes("ok", true).raw("output", v))
}

// Fail ends the call with the tool's error: tool.end with ok false.
func (c *Call) Fail(cause error) error {
	return c.end(object(nil).text("call_id", c.id).yes("ok", false).
		raw("error", object(nil).text("type", "error").text("message", cause.Error()).end()))
}

func (c *Call) end(o object) error {
	r := c.turn.lane.run
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := c.runs("end"); err != nil {
		return err
	}
	return c.turn.say(schema.TypeToolEnd, o.integer("duration_ms", c.turn.since(c.began)).end())
}

func (l *openLane) has(call string) bool {
	for _, c := range l.calls {
		if c.id == call {
			return true
		}
	}
	return false
}
