package qoder

import (
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// ending is what the end of a message says.
type ending struct {
	content        []byte // list of blocks; nil when there is none
	stop, sequence []byte
	usage          []byte
	extra          []byte // further fields of the full event, each with a comma before it
}

// endExtras are the fields of message.end that the full event says as they are, beside the usual ones.
var endExtras = [...]string{
	"stop_reason", "stop_sequence", "stop_details", "finish_reason", "usage", "error", "incomplete",
	"omitted", "omitted_bytes", "omitted_members",
}

// endingOf reads how a message ends. One that is cut will not be ended by its producer; one that nobody announced
// ends with the text so far.
func (p *Projector) endingOf(s *assemble.Transition) *ending {
	e := &ending{content: s.Value}
	omitted := false
	switch {
	case s.Repaired && !s.Message.Implicit:
		e.extra = []byte(`,"stop_reason":null,"incomplete":true`)
	case !s.Repaired:
		omitted = e.read(p.rec.payload)
	}
	if e.content == nil && !omitted {
		e.extra = append(e.extra, `,"omitted":["content"]`...)
	}
	return e
}

// read reads a message.end. It reports whether that says what was left out.
func (e *ending) read(payload []byte) (omitted bool) {
	var extras [len(endExtras)][]byte
	for name, v := range jsonscan.Members(payload) {
		for i, n := range endExtras {
			if string(name) == n {
				extras[i] = v
			}
		}
	}
	for i, v := range extras {
		if v == nil {
			continue
		}
		e.extra = append(append(append(append(e.extra, `,"`...), endExtras[i]...), `":`...), v...)
		switch endExtras[i] {
		case "stop_reason":
			e.stop = v
		case "stop_sequence":
			e.sequence = v
		case "usage":
			e.usage = v
		case "omitted":
			omitted = true
		}
	}
	return omitted
}

// conclude emits the end of a message, and then the whole of it.
func (p *Projector) conclude(l *lane, m *message, s *assemble.Transition) {
	switch s.Message.Role {
	case "assistant":
		e := p.endingOf(s)
		p.emitEnd(m, e)
		p.thoughts(m, s.Message, e.content)
		p.whole(m, e)
	case "user", "system":
		p.person(l, m, s)
	}
}

// thoughts emits agent.thinking for each thought of the content; those beyond a bound are emitted together.
func (p *Projector) thoughts(m *message, of *assemble.Message, content []byte) {
	var more []byte
	n, place := 0, -1
	for raw := range jsonscan.Elements(content) {
		place++
		c := assemble.ReadPart(raw)
		if !c.IsThought() {
			continue
		}
		if n++; n > maxThoughts {
			more = append(more, c.Reasoning()...)
			continue
		}
		id := ""
		if b := of.At(place); b != nil && b.Kind == assemble.Thinking && b.Sum.Units > 0 { // its preview has begun
			id = eventID(p.session, b.Seq, reasoningSlot(b))
		}
		p.emitThought(m, id, c.Reasoning())
	}
	if n > maxThoughts {
		p.emitThought(m, "", more)
	}
}

// emitThought emits a thought of a message.
func (p *Projector) emitThought(m *message, id string, said []byte) {
	o := append(append(p.body[:0], `,"thinking":"`...), said...)
	p.body = append(append(o, `","message_id":`...), m.id...)
	p.emit(emission{typ: "agent.thinking", id: id, turn: m.turn, body: p.body})
}

// whole emits agent.message: with increments all blocks, so that each stands where they announced it; without them what
// there is to read, and nothing where there is nothing.
func (p *Projector) whole(m *message, e *ending) {
	body, said, first := []byte(`,"content":[`), m.previewed > 0 || e.content == nil, true
	for raw := range jsonscan.Elements(e.content) {
		from := len(body)
		if !first {
			body = append(body, ',')
		}
		if c := assemble.ReadPart(raw); m.told {
			body = appendFull(body, &c)
		} else if t := appendPlain(body, &c); t != nil {
			body, said = t, said || len(c.Text) > 0 || len(c.Refusal) > 0
		} else {
			body = body[:from]
			continue
		}
		first = false
	}
	if !said && !m.told {
		p.rec.slot++
		return
	}
	body = append(append(append(body, `],"message_id":`...), m.id...), e.extra...)
	p.emit(emission{typ: "agent.message", id: eventID(p.session, m.start, slotLater), turn: m.turn, body: body})
}

// appendFull appends a block as it is; a thought under the one name that it has here.
func appendFull(o []byte, c *assemble.Part) []byte {
	if !c.IsThought() || c.IsNamedThinking() {
		return append(o, c.Raw...)
	}
	o = append(append(append(o, `{"type":"thinking","thinking":"`...), c.Reasoning()...), '"')
	for name, v := range jsonscan.Members(c.Raw) {
		switch string(name) {
		case "type", "thinking", "text":
		default:
			o = append(append(appendString(append(o, ','), string(name)), ':'), v...)
		}
	}
	return append(o, '}')
}

// appendPlain appends what there is to read in a block as a block of text; nil: there is nothing.
func appendPlain(o []byte, c *assemble.Part) []byte {
	switch {
	case c.IsText():
		return append(o, c.Raw...)
	case c.Refusal != nil:
		return append(append(append(o, `{"type":"text","text":"`...), c.Refusal...), `"}`...)
	}
	return nil
}

// person emits a message of somebody else than the model, unless it was shown when it was sent.
func (p *Projector) person(l *lane, m *message, s *assemble.Transition) {
	cause, id := p.rec.cause, []byte(nil)
	if cause == "" {
		cause = m.cause
	}
	if s.Repaired {
		id = m.id
	} else {
		id = field(p.rec.payload, "message_id")
	}
	e := p.endingOf(s)
	if l.isRepeat(cause, id, e.content) {
		return
	}
	body, n, results := []byte(`,"content":[`), 0, 0
	if isString(e.content) {
		body = append(append(append(body, `{"type":"text","text":`...), e.content...), '}')
		n = 1
	}
	for raw := range jsonscan.Elements(e.content) {
		if c := assemble.ReadPart(raw); string(c.Type) == `"tool_result"` {
			results++ // emitted as such
			continue
		}
		if n++; n > 1 {
			body = append(body, ',')
		}
		body = append(body, raw...)
	}
	if n == 0 && results > 0 {
		return
	}
	body = append(append(append(body, `],"message_id":`...), m.id...), e.extra...)
	typ := "user.message"
	if s.Message.Role == "system" {
		typ = "system.message"
	}
	p.emit(emission{typ: typ, turn: m.turn, body: body})
}
