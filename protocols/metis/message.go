package metis

import (
	"cmp"
	"strconv"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// openMessage is one between its beginning and its end.
type openMessage struct {
	start    schema.Seq
	place    dialect.Place // message.start
	turn     schema.Seq
	ts       string
	model    string
	call     int // serial of the request whose answer it is; 0 of what is not the assistant's
	thoughts int
	tools    int
}

func (s *session) message() *openMessage {
	if s.whole != nil {
		return s.whole
	}
	return s.open
}

func (p *Projector) messageOpens(s *session, t *assemble.Transition) {
	m := &openMessage{start: t.Message.Start, turn: s.turn.seq, ts: string(p.rec.ts)}
	if p.is(schema.TypeMessageStart) {
		m.model = modelName(text(p.field("provider")), text(p.field("model")))
	}
	if p.is(schema.TypeMessageEnd) {
		s.whole = m
	} else {
		s.open = m
	}
	if t.Message.Role != "assistant" {
		return
	}
	p.work(s)
	m.turn = s.turn.seq
	serial := s.speaking()
	if serial == 0 {
		serial = p.modelStarts(s, nil).serial
	}
	call := s.modelOf(serial)
	call.spoke = false
	if m.model == "" {
		m.model = call.model
	}
	if call.model == unknown {
		call.model, s.model = m.model, m.model
	}
	m.call = serial
	at, ok := p.beginEvent(s, messageStart, agent, m.turn, call.started)
	m.place = at
	if ok {
		p.buf = p.id(m).Str("role", "assistant").Str("model", m.model)
		p.endEvent()
	}
}

// id begins a payload with the message's id.
func (p *Projector) id(m *openMessage) jsonscan.Object {
	return append(appendID(append(p.buf, `"message_id":"`...), messagePrefix, p.run, dialect.Place{Seq: m.start}), '"')
}

// block shows what happens to a block of a message of the assistant.
func (p *Projector) block(s *session, t *assemble.Transition) {
	m, b := s.message(), t.Block
	if m == nil || m.call == 0 {
		return
	}
	switch t.Kind {
	case assemble.BlockOpen:
		p.blockOpens(s, m, b, t.Value)
	case assemble.BlockText:
		p.piece(s, m, t)
	case assemble.BlockInput:
		p.rec.input = t.Value
	case assemble.BlockEnd:
		if input := schema.Field(t.Value, "input"); input != nil && b.IsCall {
			p.rec.input = input
		}
	case assemble.BlockSignature:
		if _, ok := p.beginEvent(s, thinkingDelta, agent, m.turn, m.place); ok {
			p.buf = p.at(m, b).Str("text", "").Raw("signature", t.Value)
			p.endEvent()
		}
	case assemble.BlockClose:
		if b.IsCall {
			p.toolUseEnds(s, m, b)
		}
	}
}

// at begins a payload with the message's id and the block's place.
func (p *Projector) at(m *openMessage, b *assemble.Block) jsonscan.Object {
	return strconv.AppendInt(append(p.id(m), `,"content_block_index":`...), int64(b.Place), 10)
}

// piece shows a piece of text, of a thought or of a call's input.
func (p *Projector) piece(s *session, m *openMessage, t *assemble.Transition) {
	k := textDelta
	switch {
	case t.Block.IsCall:
		k = toolUseInputDelta
	case t.Block.Kind == assemble.Thinking:
		k = thinkingDelta
	}
	if _, ok := p.beginEvent(s, k, agent, m.turn, m.place); !ok {
		return
	}
	o := p.at(m, t.Block)
	name := "text"
	if k == toolUseInputDelta {
		o, name = o.Str("tool_use_id", cmp.Or(t.Block.CallID, p.rec.call)), "partial_json"
	}
	o = append(o.Name(name), '"')
	if t.Low != 0 {
		o = append(o, `\u`...)
		o = strconv.AppendUint(o, uint64(t.Low), 16)
	}
	o = append(append(o, t.Text...), '"')
	if k == thinkingDelta {
		o = o.Raw("signature", nil)
	}
	p.buf = o
	p.endEvent()
}

// blockOpens shows the beginning of a call. A block of a provider's own that has a text begins with that.
func (p *Projector) blockOpens(s *session, m *openMessage, b *assemble.Block, start []byte) {
	part := assemble.ReadPart(start)
	p.rec.input, p.rec.call = nil, cmp.Or(b.CallID, text(part.ID))
	switch {
	case b.IsCall:
		m.tools++
		if _, ok := p.beginEvent(s, toolUseStart, agent, m.turn, m.place); ok {
			p.buf = p.at(m, b).Str("tool_use_id", p.rec.call).Str("tool_name", cmp.Or(b.Tool, text(part.Name)))
			p.endEvent()
		}
	case b.Kind == assemble.Thinking:
		m.thoughts++
	case b.Kind == assemble.Other:
		if said := otherText(&part); len(said) > 0 {
			p.piece(s, m, &assemble.Transition{Block: b, Text: said})
		}
	}
}

func (p *Projector) toolUseEnds(s *session, m *openMessage, b *assemble.Block) {
	if _, ok := p.beginEvent(s, toolUseEnd, agent, m.turn, m.place); ok {
		o := p.at(m, b).Str("tool_use_id", cmp.Or(b.CallID, p.rec.call)).Name("final_input")
		_, said, _, whole := b.Content()
		if p.rec.input == nil {
			p.rec.input = whole
		}
		p.buf = appendInput(o, p.rec.input, said, b.Free)
		p.endEvent()
	}
	p.rec.input = nil
}

// messageCloses appends that a message is complete, or how far it came.
func (p *Projector) messageCloses(s *session, t *assemble.Transition) {
	m := s.message()
	if m == nil {
		return
	}
	if s.whole != nil {
		s.whole = nil
	} else {
		s.open = nil
	}
	c := closingOf(t, string(p.rec.typ), p.rec.payload)
	p.list(s, span{m.start, p.rec.seq, m.model, t.Message.IDSum()}, func(b jsonscan.Object) jsonscan.Object {
		return appendMessage(b, p.run, s.id(p.run), t, m, &c)
	})
	if m.call == 0 {
		return
	}
	call := s.modelOf(m.call)
	if _, ok := p.beginEvent(s, messageComplete, agent, m.turn, m.place); ok {
		o := p.id(m).Str("stop_reason", c.stopOf(m))
		if c.omitted > 0 { // an empty final_content would blank what the client has
			o = o.Int("omitted_bytes", c.omitted)
		} else {
			o = appendContents(o.Name("final_content"), t.Value, t.Message, false)
		}
		p.buf = c.used.appendTo(append(o.Name("usage"), '{')).Int("latency_ms", p.since(m.ts).Milliseconds()).End()
		p.endEvent()
	}
	s.said = len(t.Value)
	if call == nil { // too many were open
		return
	}
	call.spoke, call.stop = true, c.stopOf(m)
	call.thoughts, call.tools = call.thoughts+m.thoughts, call.tools+m.tools
	if call.used == (usage{}) {
		call.used = c.used
	}
	if c.how != done && call.result == done && call.id == "" {
		call.result, call.class, call.problem = c.how, c.class, c.problem
	}
	if call.id == "" || call.over {
		p.modelCompletes(s, call, done)
	}
}
