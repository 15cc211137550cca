package qoder

import "bytes"

// ending is what the end of a message says.
type ending struct {
	id             []byte // message_id
	content        []byte // list of blocks; nil when there is none
	stop, sequence []byte
	usage          []byte
	extra          []byte // further fields of the full event, each with a comma before it
	omitted        bool   // extra says what was left out
}

// endExtras are the fields of message.end that the full event says as they are, beside the usual ones.
var endExtras = [...]string{
	"stop_reason", "stop_sequence", "stop_details", "finish_reason", "usage", "error", "incomplete",
	"omitted", "omitted_bytes", "omitted_members",
}

func readEnding(payload []byte) *ending {
	e := &ending{}
	var extras [len(endExtras)][]byte
	for r := readObject(payload); ; {
		name, v, ok := r.next()
		if !ok {
			break
		}
		switch string(name) {
		case "message_id":
			e.id = v
		case "content":
			if e.content = nil; v[0] == '[' || v[0] == '"' {
				e.content = v
			}
		}
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
			e.omitted = true
		}
	}
	return e
}

// endMessage ends the message that is named, or that nobody announced. One that did not begin here, since the
// beginning of the run is gone or its producer says ends alone, is shown all the same.
func (p *Projector) endMessage(l *lane) {
	e := readEnding(p.rec.payload)
	m := l.open
	if m == nil || !m.made && m.idTally != tallyOf(inner(e.id)) {
		other := &message{id: p.messageID(e.id), start: p.rec.Seq, turn: p.rec.turn, told: p.info.incremental}
		if p.rec.actor == "user" {
			other.role = roleUser
		}
		p.emitStart(other, nil, nil)
		p.conclude(l, other, e)
		return
	}
	l.open = nil
	p.conclude(l, m, e)
}

// cut ends a message that will not be ended by its producer, or that nobody announced, with what was said.
func (p *Projector) cut(l *lane) {
	m := l.open
	l.open = nil
	e := &ending{id: m.id}
	if !m.made {
		e.extra = []byte(`,"stop_reason":null,"incomplete":true`)
	}
	p.conclude(l, m, e)
}

// conclude tells the rest of a message, and then the whole of it.
func (p *Projector) conclude(l *lane, m *message, e *ending) {
	if e.content == nil && !m.lost && (!e.omitted || len(m.blocks) > 0) {
		e.content = m.content()
	}
	if e.content == nil && !e.omitted {
		e.extra = append(e.extra, `,"omitted":["content"]`...)
	}
	switch m.role {
	case roleAssistant:
		p.complete(m, e.content)
		p.emitEnd(m, e)
		p.thoughts(m, e.content)
		p.whole(m, e)
	case roleUser, roleSystem:
		p.person(l, m, e)
	}
}

// complete tells what the content has and the producer did not stream, and the ends of blocks.
func (p *Projector) complete(m *message, content []byte) {
	list := readList(content)
	for place := 0; ; place++ {
		part, ok := list.next()
		if !ok {
			break
		}
		if place >= m.began() {
			if place >= maxBlocks {
				break // of so many the content says enough
			}
			p.untold(m, part)
		} else if b := m.at(place); b != nil {
			p.suffix(m, b, part)
		}
	}
	for i := range m.blocks {
		p.stop(m, &m.blocks[i])
	}
}

// suffix emits the rest of a block that its content has, and then its stop (seed 001). What was streamed and is no
// beginning of the content stays as it is: the content is right.
func (p *Projector) suffix(m *message, b *block, part []byte) {
	if b.state == blockStopped {
		return
	}
	defer p.stop(m, b)
	c := readPart(part)
	said := c.text
	switch {
	case b.kind == kindCall || b.isCall:
		if b.said.units == 0 && c.input != nil {
			p.emitInput(m, b, c.input)
		}
		return
	case b.kind == kindText && c.isText():
	case b.kind == kindThinking && c.isThought():
		said = c.thought()
	default:
		return
	}
	low, rest, ok := b.said.rest(said)
	if !ok || low == 0 && len(rest) == 0 {
		return
	}
	p.emitPiece(m, b, b.kind, low, rest)
}

// untold tells a whole block that was not streamed at all.
func (p *Projector) untold(m *message, part []byte) {
	c := readPart(part)
	b := block{index: -1, seq: p.rec.Seq, kind: kindOf(c.typ)}
	said, start := c.text, part
	switch {
	case c.isThought():
		b.kind, said = kindThinking, c.thought()
		start = startOf(b, nil, nil, nil, nil)
	case b.kind == kindText:
		start = startOf(b, nil, nil, nil, nil)
	case b.kind == kindCall:
		b.isCall = true
		start = startOf(b, nil, c.id, c.name, nil)
	default:
		said = nil
	}
	now := p.beginBlock(m, b, start)
	switch {
	case b.isCall && c.input != nil:
		p.emitInput(m, now, c.input)
	case b.isCall && len(c.partial) > 0:
		p.emitPiece(m, now, kindCall, 0, c.partial)
	case len(said) > 0:
		p.emitPiece(m, now, b.kind, 0, said)
	}
	if b.kind == kindThinking && c.signature != nil {
		p.emitSignature(m, now.place, c.signature)
	}
	p.stop(m, now)
}

// thoughts tells agent.thinking for each thought of the content; those beyond a bound are told together.
func (p *Projector) thoughts(m *message, content []byte) {
	var more []byte
	n := 0
	list := readList(content)
	for place := 0; ; place++ {
		part, ok := list.next()
		if !ok {
			break
		}
		c := readPart(part)
		if !c.isThought() {
			continue
		}
		if n++; n > maxBlocks {
			more = append(more, c.thought()...)
			continue
		}
		id := ""
		if b := m.at(place); b != nil && b.kind == kindThinking && b.thought {
			id = eventID(p.session, b.seq, thoughtSlot(b))
		}
		p.thought(m, id, c.thought())
	}
	if n > maxBlocks {
		p.thought(m, "", more)
	}
}

func (p *Projector) thought(m *message, id string, said []byte) {
	o := append(append(p.body[:0], `,"thinking":"`...), said...)
	p.body = append(append(o, `","message_id":`...), m.id...)
	p.emit(emission{typ: "agent.thinking", id: id, turn: m.turn, body: p.body})
}

// whole tells agent.message: with increments all blocks, so that each stands where they said; without them what
// there is to read, and nothing where there is nothing.
func (p *Projector) whole(m *message, e *ending) {
	body, said := []byte(`,"content":[`), m.announced || e.content == nil
	list := readList(e.content)
	for first := true; ; {
		part, ok := list.next()
		if !ok {
			break
		}
		from := len(body)
		if !first {
			body = append(body, ',')
		}
		if c := readPart(part); m.told {
			body = c.appendFull(body)
		} else if t := c.appendPlain(body); t != nil {
			body, said = t, said || len(c.text) > 0 || len(c.refusal) > 0
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

// person tells what somebody else than the model said, unless it was shown when it was sent.
func (p *Projector) person(l *lane, m *message, e *ending) {
	cause := p.rec.cause
	if cause == "" {
		cause = m.cause
	}
	if l.repeats(cause, e.id, e.content) {
		return
	}
	body, n, results := []byte(`,"content":[`), 0, 0
	if isString(e.content) {
		body = append(append(append(body, `{"type":"text","text":`...), e.content...), '}')
		n = 1
	}
	for list := readList(e.content); ; {
		part, ok := list.next()
		if !ok {
			break
		}
		if bytes.Equal(readPart(part).typ, []byte(`"tool_result"`)) {
			results++ // told as such
			continue
		}
		if n++; n > 1 {
			body = append(body, ',')
		}
		body = append(body, part...)
	}
	if n == 0 && results > 0 {
		return
	}
	body = append(append(append(body, `],"message_id":`...), m.id...), e.extra...)
	typ := "user.message"
	if m.role == roleSystem {
		typ = "system.message"
	}
	p.emit(emission{typ: typ, turn: m.turn, body: body})
}
