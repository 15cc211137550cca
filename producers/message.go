package producers

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// MessageInfo describes a message that begins. All of it may be left out.
type MessageInfo struct {
	ID       string // made up when empty
	Role     string // user, assistant (default), system or tool
	Model    string
	Provider string
}

// Message is a message that is being written: text, thoughts and tool calls in blocks. Text and reasoning
// open a block of their kind when none is open, and end the one that is of another. Input of several
// tool calls may stream side by side.
type Message struct {
	turn  *Turn
	id    string
	state *assemble.Message // of the run's Open
	text  *assemble.Block   // the open block of text or reasoning
	actor string            // "" is the agent
	over  bool
	rest  partRune // of the open block

	inputs int // bytes of the inputs of calls that stream
}

var messageRoles = []string{"user", "assistant", "system", "tool"}

// Message begins a message: message.start. ErrOpen: the turn has one already. ErrTooLarge: ids and names have at most
// maxName bytes.
func (t *Turn) Message(info MessageInfo) (*Message, error) {
	if info.Role != "assistant" && slices.Contains(messageRoles, info.Role) {
		return t.openMessage(info, info.Role) // a view without the messages' borders must not take it for the agent's
	}
	return t.openMessage(info, "")
}

// openMessage emits message.start, whose actor is actor unless that is empty.
func (t *Turn) openMessage(info MessageInfo, actor string) (*Message, error) {
	r := t.lane.run
	if info.ID == "" {
		info.ID = r.cfg.NewID("msg")
	}
	if info.Role == "" {
		info.Role = "assistant"
	}
	fail := func(err error) (*Message, error) {
		return nil, fmt.Errorf("producers: run %s: begin message %s: %w", r.cfg.RunID, shorten(info.ID, maxName), err)
	}
	if err := shortNames(info.ID, info.Model, info.Provider); err != nil {
		return fail(err)
	}
	if !slices.Contains(messageRoles, info.Role) {
		return fail(fmt.Errorf("role %q: %w", shorten(info.Role, maxName), schema.ErrMalformed))
	}
	if err := t.enter("begin message", info.ID); err != nil {
		return nil, err
	}
	defer r.leave()
	if m := r.open.message(t.lane.id); !t.over && m != nil {
		return fail(fmt.Errorf("message %s: %w", m.ID, ErrOpen))
	}
	err := t.emitAs(actor, schema.TypeMessageStart,
		object(nil).text("message_id", info.ID).text("role", info.Role).str("model", info.Model).str("provider",
			info.Provider).close())
	if err != nil {
		return nil, err
	}
	return &Message{turn: t, id: info.ID, actor: actor, state: r.open.message(t.lane.id)}, nil
}

// ID returns the message's id.
func (m *Message) ID() string { return m.id }

// alive reports whether the message may go on. Called with the run's lock held.
func (m *Message) alive(doing string) error {
	r := m.turn.lane.run
	if m.over || m.turn.over || r.open.message(m.turn.lane.id) != m.state {
		return fmt.Errorf("producers: run %s: %s message %s: %w", r.cfg.RunID, doing, m.id, ErrOver)
	}
	return nil
}

// emit emits an event. Called with the run's lock held.
func (m *Message) emit(typ string, payload json.RawMessage) error {
	return m.turn.emitAs(m.actor, typ, payload)
}

// Text emits a piece of text. A piece may end within a character: its first bytes wait for the next piece, or for the
// end of the block, where they become U+FFFD.
func (m *Message) Text(text string) error { return m.piece("text", schema.TypeTextDelta, text) }

// Reasoning emits a piece of a thought, as Text does.
func (m *Message) Reasoning(text string) error {
	return m.piece("reasoning", schema.TypeReasoningDelta, text)
}

func (m *Message) piece(kind, typ, text string) error {
	if err := m.turn.enter("go on with message", m.id); err != nil {
		return err
	}
	defer m.turn.lane.run.leave()
	if err := m.alive("speak in"); err != nil {
		return err
	}
	if m.text != nil && m.text.Word != kind {
		if err := m.endOpen(); err != nil {
			return err
		}
	}
	if m.text == nil {
		b, err := m.openBlock(kind, object(nil))
		if err != nil {
			return err
		}
		m.text = b
	}
	return m.rest.join(text, func(whole string) error { return m.delta(m.text, typ, whole) })
}

// partRune is the beginning of a character whose end has not come.
type partRune string

// join emits what is whole of it with the next piece, and keeps the rest. After an error it is what it was.
func (p *partRune) join(piece string, emit func(string) error) error {
	whole, rest := cutRune(string(*p) + piece)
	if whole != "" || rest == "" {
		if err := emit(whole); err != nil {
			return err
		}
	}
	*p = partRune(rest)
	return nil
}

// flush emits it, where its end does not come any more.
func (p *partRune) flush(emit func(string) error) error {
	if *p == "" {
		return nil
	}
	if err := emit(string(*p)); err != nil {
		return err
	}
	*p = ""
	return nil
}

// cutRune cuts a text before its last character where that is not whole.
func cutRune(text string) (whole, rest string) {
	for i := len(text) - 1; i >= 0 && i > len(text)-utf8.UTFMax; i-- {
		if !utf8.RuneStart(text[i]) {
			continue
		}
		if utf8.FullRuneInString(text[i:]) {
			break
		}
		return text[:i], strings.Clone(text[i:])
	}
	return text, ""
}

// flushRest emits what waits for the end of a character, before the open block ends.
func (m *Message) flushRest() error {
	return m.rest.flush(func(part string) error {
		typ := schema.TypeTextDelta
		if m.text.Word == "reasoning" {
			typ = schema.TypeReasoningDelta
		}
		return m.delta(m.text, typ, part)
	})
}

// openBlock emits block.start, with members after the usual ones. Called with the run's lock held.
func (m *Message) openBlock(kind string, more object) (*assemble.Block, error) {
	o := object(nil).integer("index", m.state.Next).text("kind", kind).text("message_id", m.id)
	if len(more) > 0 {
		o = append(append(o, ','), more[1:]...)
	}
	if err := m.emit(schema.TypeBlockStart, o.close()); err != nil {
		return nil, err
	}
	return m.state.Newest(), nil
}

// endBlock emits block.end. Called with the run's lock held.
func (m *Message) endBlock(b *assemble.Block, more object) error {
	o := object(nil).integer("index", b.Index).text("message_id", m.id).yes("complete", true)
	if len(more) > 0 {
		o = append(append(o, ','), more[1:]...)
	}
	return m.emit(schema.TypeBlockEnd, o.close())
}

func (m *Message) endOpen() error {
	b := m.text
	if b == nil {
		return nil
	}
	if err := m.flushRest(); err != nil {
		return err
	}
	err := m.endBlock(b, nil)
	if b.Ended {
		m.text = nil
	}
	return err
}

// maxScratch bounds the space for payloads that is kept, in bytes.
const maxScratch = 64 << 10

// maxPiece is the most text of one event, in bytes before escaping: longer text takes several.
const maxPiece = 64 << 10

// delta emits a piece of a block. Called with the lock held.
func (m *Message) delta(b *assemble.Block, typ, text string) error {
	for len(text) > maxPiece {
		n := pieceOf(text)
		if err := m.deltaOne(b, typ, text[:n]); err != nil {
			return err
		}
		text = text[n:]
	}
	return m.deltaOne(b, typ, text)
}

// pieceOf returns how much of a long text one event takes: whole characters.
func pieceOf(text string) int {
	n := min(len(text), maxPiece)
	for n < len(text) && n > maxPiece-utf8.UTFMax && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// deltaOne is the hot path: the payload is written into space that is used again, and the block's text is
// kept without reading it back.
func (m *Message) deltaOne(b *assemble.Block, typ, text string) error {
	t, r := m.turn, m.turn.lane.run
	if r.err != nil {
		return r.err
	}
	if t.ctx.Err() != nil {
		return fmt.Errorf("producers: run %s: say %s: %w", r.cfg.RunID, typ, context.Cause(t.ctx))
	}
	o := r.buf[:0]
	if typ == schema.TypeToolInputDelta {
		o = o.text("call_id", b.CallID)
	}
	o = append(o.name("text"), '"')
	from := len(o)
	o = appendEscaped(o, text)
	inner := o[from:]
	o = append(append(o, '"'), `,"index":`...)
	o = append(strconv.AppendInt(o, b.Index, 10), '}')
	if cap(o) <= maxScratch {
		r.buf = o
	}
	actor := m.actor
	if actor == "" {
		actor = r.cfg.Actor
	}
	r.one[0] = schema.Event{Type: typ, RunID: r.cfg.RunID, ChildID: t.lane.id, Path: t.lane.path, TurnID: t.id,
		Actor: actor, Payload: json.RawMessage(o)}
	err := r.cfg.Sink.Send(t.ctx, r.one[:]...)
	r.one[0] = schema.Event{}
	if err != nil {
		r.noteFailure(t.ctx, err)
		return fmt.Errorf("producers: run %s: say %s: %w", r.cfg.RunID, typ, err)
	}
	r.open.run.Write(m.state, b, inner)
	return nil
}

// Sign ends the open block of reasoning with the provider's signature.
func (m *Message) Sign(signature string) error {
	if err := m.turn.enter("go on with message", m.id); err != nil {
		return err
	}
	defer m.turn.lane.run.leave()
	if err := m.alive("sign a thought of"); err != nil {
		return err
	}
	b := m.text
	if b == nil || b.Kind != assemble.Thinking {
		return fmt.Errorf("producers: run %s: sign message %s: no thought is open", m.turn.lane.run.cfg.RunID, m.id)
	}
	if err := m.flushRest(); err != nil {
		return err
	}
	err := m.endBlock(b, object(nil).text("signature", signature))
	if b.Ended {
		m.text = nil
	}
	return err
}

// dataPiece is how much of an image or a file one event carries, in bytes before base64.
const dataPiece = 96 << 10

// Data emits a block of bytes: kind image, audio or file, with a media type and a name that may be "".
func (m *Message) Data(kind, mediaType, name string, data []byte) error {
	if err := m.turn.enter("go on with message", m.id); err != nil {
		return err
	}
	defer m.turn.lane.run.leave()
	if err := m.alive("put data in"); err != nil {
		return err
	}
	if err := shortNames(kind, mediaType, name); err != nil || kind == "" {
		return fmt.Errorf("producers: message %s: data of kind %q: %w", m.id, shorten(kind, maxName),
			cmp.Or(err, schema.ErrMalformed))
	}
	if err := m.endOpen(); err != nil {
		return err
	}
	b, err := m.openBlock(kind, nil)
	if err != nil {
		return err
	}
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), dataPiece)
		payload := object(nil).text("media_type", mediaType).text("data", base64.StdEncoding.EncodeToString(data[:n])).
			integer("index", b.Index).str("name", name).close()
		if err := m.emit(schema.TypeDataDelta, payload); err != nil {
			return err
		}
		data = data[n:]
	}
	return m.endBlock(b, nil)
}

// End ends the message: message.end with its whole content, the stop reason (end_turn, tool_use, …) and
// the usage, which encoding/json takes or nil. Calls whose input still streams are cut short.
func (m *Message) End(stop string, usage any) error {
	used, err := usageOf(usage)
	if err == nil {
		err = shortNames(stop)
	}
	if err != nil {
		return fmt.Errorf("producers: message %s: %w", m.id, err)
	}
	if err := m.turn.enter("go on with message", m.id); err != nil {
		return err
	}
	defer m.turn.lane.run.leave()
	if err := m.alive("end"); err != nil {
		return err
	}
	if err := m.endOpen(); err != nil {
		return err
	}
	for _, b := range m.state.Blocks {
		if b.Ended {
			continue
		}
		if err := m.emit(schema.TypeBlockEnd, cutBlock(m.id, b)); err != nil {
			return err
		}
	}
	o, omitted := withContent(object(nil).text("message_id", m.id), m.state, 0)
	if stop == "" {
		o = o.raw("stop_reason", []byte("null"))
	}
	o = o.str("stop_reason", stop).raw("stop_sequence", []byte("null")).raw("usage", used)
	if err := m.emit(schema.TypeMessageEnd, omitted(o).close()); err != nil {
		return err
	}
	m.over = true
	return nil
}

// Fail ends a message that the model did not: the content so far, and why there is no more. The turn can
// go on, with another try.
func (m *Message) Fail(cause error) error {
	if err := m.turn.enter("go on with message", m.id); err != nil {
		return err
	}
	defer m.turn.lane.run.leave()
	if err := m.alive("fail"); err != nil {
		return err
	}
	if err := m.flushRest(); err != nil {
		return err
	}
	var err error
	closeMessage(m.state, Closing{Failed: true, Reason: errorText(cause)}, func(typ string, payload json.RawMessage) {
		if err == nil {
			err = m.emit(typ, payload)
		}
	})
	if err == nil {
		m.over, m.text = true, nil
	}
	return err
}
