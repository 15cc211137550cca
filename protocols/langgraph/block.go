package langgraph

import (
	"bytes"
	"cmp"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// block is a block of a message, which is one or, where it is long, several blocks of the protocol, one behind the
// other. A block that comes while a call of a tool streams waits until that has finished: blocks do not interleave.
type block struct {
	place int
	kind  blockKind
	state blockState
	index int    // in the protocol, of the newest
	skip  int    // bytes of its text that earlier ones have had
	sent  int    // bytes behind those that were sent as deltas
	told  int    // length of the input when it was sent last
	tail  []byte // of the input, which was not sent so
	parts bool   // the beginning of its input is no longer kept
	start []byte // the object that it began with, of a provider's own block
	id    string // of a call
	name  string
	extra []byte // members of its finish, with a comma before them
	final []byte // finish of one that waits
	data  []byte // base64 of a media block, what was sent
	carry []byte // of base64: less than four characters
	mime  string
	field string // which its text fills, of a provider's own block
}

type blockKind uint8

const (
	blockText blockKind = iota
	blockReasoning
	blockCall
	blockServer // a call that the provider itself carries out
	blockMedia
	blockOther
)

type blockState uint8

const (
	waits blockState = iota
	streams
	finished
)

func (m *openMessage) at(place int) *block {
	if len(m.blocks) == 0 {
		return nil
	}
	i := place - m.blocks[0].place // no place is left out
	if i < 0 || i >= len(m.blocks) {
		return nil
	}
	return m.blocks[i]
}

// hold makes a block wait.
func (m *openMessage) hold(b *block) {
	b.state, m.rest = waits, min(m.rest, b.place)
}

func (p *Projector) block(m *openMessage, t *assemble.Transition) {
	if t.Kind == assemble.BlockOpen {
		p.blockOpens(m, t)
		return
	}
	b := m.at(t.Block.Place)
	if b == nil {
		return
	}
	if m.own && b.state == finished || p.silent(m, t) {
		return
	}
	switch t.Kind {
	case assemble.BlockText:
		p.piece(m, b, t)
	case assemble.BlockPart:
		p.part(m, b, t)
	case assemble.BlockInput:
		p.rec.input = t.Value
	case assemble.BlockEnd:
		if v := schema.Field(t.Value, "input"); v != nil && t.Block.IsCall {
			p.rec.input = v
		}
		if m.own && (b.kind == blockText || b.kind == blockReasoning) { // others close at once
			p.finishOwn(m, b, t, t.Block.Part())
		}
	case assemble.BlockSignature:
		b.extra = append(append(append(b.extra[:len(b.extra):len(b.extra)], `,"extras":{"signature":`...), t.Value...), '}')
	case assemble.BlockCitations:
		b.extra = append(b.extra[:len(b.extra):len(b.extra)], `,"annotations":`...)
		b.extra = appendCitations(b.extra, t.Value)
	case assemble.BlockClose:
		if m.own && p.rec.own != nil && p.is(schema.TypeBlockEnd) {
			p.finishOwn(m, b, t, t.Text)
		} else {
			p.blockCloses(m, b, t)
		}
	}
}

func (p *Projector) blockOpens(m *openMessage, t *assemble.Transition) {
	part := assemble.ReadPart(t.Value)
	b := &block{place: t.Block.Place, id: cmp.Or(t.Block.CallID, text(part.ID)),
		name: cmp.Or(t.Block.Tool, text(part.Name)), field: t.Block.Field}
	p.rec.input = nil
	switch {
	case t.Block.IsCall && t.Block.Kind == assemble.Call:
		b.kind = blockCall
	case t.Block.IsCall:
		b.kind = blockServer
	case t.Block.Kind == assemble.Text:
		b.kind = blockText
	case t.Block.Kind == assemble.Thinking:
		b.kind = blockReasoning
	case t.Block.Kind == assemble.Data:
		b.kind, b.mime = blockMedia, text(schema.Field(t.Value, "media_type"))
	default:
		b.kind, b.start = blockOther, bytes.Clone(t.Value)
	}
	if len(m.blocks) > 2*maxBlocks { // what has closed is not asked for again
		m.blocks = append(m.blocks[:0:0], m.blocks[maxBlocks:]...)
	}
	m.blocks = append(m.blocks, b)
	if m.own {
		b.index = int(t.Block.Index)
		p.startBlock(m, b, slotSays)
		return
	}
	if !p.mayStream(m, t.Message, slotEnds) {
		return
	}
	p.startBlock(m, b, slotOf(t, slotBegins))
}

const maxBlocks = 256

// mayStream reports whether another block may stream. What has streamed of a text is finished for it; what
// comes of that text afterwards is a block of its own.
func (p *Projector) mayStream(m *openMessage, of *assemble.Message, slot int) bool {
	a := m.active
	if a == nil {
		return true
	}
	if a.kind == blockCall || a.kind == blockServer {
		return false
	}
	if a.kind != blockMedia {
		open := of.At(a.place)
		if open == nil || len(open.Part()) < a.skip+a.sent {
			return false // it closes with this record
		}
		part := open.Part()
		p.finish(m, a, slot, a.content(part[a.skip:], nil, false))
		a.skip, a.sent = len(part), 0
		return true
	}
	p.finish(m, a, slot, a.content(nil, nil, false))
	return true
}

// startBlock begins a block of the protocol.
func (p *Projector) startBlock(m *openMessage, b *block, slot int) {
	if b.state = streams; !m.own {
		b.index, m.active = m.next, b
		m.next++
	}
	p.emitMessage(m, slot, "content-block-start", func(o object) object {
		o = o.Int("index", int64(b.index)).Name("content")
		switch b.kind {
		case blockText:
			return append(o, `{"type":"text","text":""}`...)
		case blockReasoning:
			return append(o, `{"type":"reasoning","reasoning":""}`...)
		case blockCall, blockServer:
			return b.chunk(append(o, '{')).Inner("args").End()
		case blockMedia:
			return append(o, '{').Str("type", mediaOf(b.mime)).Str("mime_type", b.mime).End()
		}
		return append(o, b.content(nil, nil, false)...)
	})
}

func (b *block) chunk(o object) object {
	if b.kind == blockServer {
		return o.Str("type", "server_tool_call_chunk").OptStr("id", b.id).OptStr("name", b.name)
	}
	return o.Str("type", "tool_call_chunk").Str("id", b.id).Str("name", b.name)
}

// delta sends a delta of a block that streams.
func (p *Projector) delta(m *openMessage, b *block, slot int, write func(object) object) {
	p.emitMessage(m, slot, "content-block-delta", func(o object) object {
		return write(append(o.Int("index", int64(b.index)).Name("delta"), '{')).End()
	})
}

// sendPiece sends a piece of text, or all the input of a call so far.
func (p *Projector) sendPiece(m *openMessage, b *block, slot int, low uint16, piece []byte) {
	var half []byte
	if low != 0 {
		half = jsonscan.AppendUnit(nil, low)
	}
	b.sent += len(half) + len(piece)
	switch b.kind {
	case blockText:
		p.delta(m, b, slot, func(o object) object { return o.Str("type", "text-delta").Inner("text", half, piece) })
	case blockReasoning:
		p.delta(m, b, slot, func(o object) object { return o.Str("type", "reasoning-delta").Inner("reasoning", half, piece) })
	}
}

// sendInput sends the input of a call as far as it has come, when it has grown by a quarter: all of them
// together are at most five times as long as the last.
func (p *Projector) sendInput(m *openMessage, b *block, slot int, all []byte) {
	if b.parts || len(all) == 0 || 4*len(all) < 5*b.told {
		return
	}
	had := b.told
	b.told = len(all)
	p.delta(m, b, slot, func(o object) object {
		if p.older != nil {
			o = o.Inner("tail", all[had:])
		}
		return b.chunk(append(o.Str("type", "block-delta").Name("fields"), '{')).Inner("args", all).End()
	})
}

// piece shows a piece of a block.
func (p *Projector) piece(m *openMessage, b *block, t *assemble.Transition) {
	switch b.kind {
	case blockText, blockReasoning:
		if len(t.Text) == 0 && t.Low == 0 {
			return
		}
		if b.state == finished && p.mayStream(m, t.Message, slotEnds) { // it goes on as the next
			p.startBlock(m, b, slotBegins)
		}
		if b.state == streams {
			p.sendPiece(m, b, slotSays, t.Low, t.Text)
		} else {
			m.hold(b)
		}
	case blockCall, blockServer:
		if b.state == streams {
			p.sendInput(m, b, slotSays, t.Block.Part())
		}
	}
}

// part ends a block of the protocol whose text is too long to be kept any longer.
func (p *Projector) part(m *openMessage, b *block, t *assemble.Transition) {
	if m.own || b.kind != blockText && b.kind != blockReasoning {
		b.parts = true
		return
	}
	if b.state != streams && len(t.Text) > b.skip {
		p.mayStream(m, t.Message, slotEnds)
		p.startBlock(m, b, slotBegins)
	}
	if b.state == streams {
		p.catchUp(m, b, slotSays, t.Text)
		p.finish(m, b, slotSays, b.content(t.Text[b.skip:], nil, false))
	}
	b.skip, b.sent = 0, 0
}

// catchUp sends what was not sent of a text.
func (p *Projector) catchUp(m *openMessage, b *block, slot int, all []byte) {
	if rest := all[min(b.skip+b.sent, len(all)):]; len(rest) > 0 {
		p.sendPiece(m, b, slot, 0, rest)
	}
}

func (p *Projector) blockCloses(m *openMessage, b *block, t *assemble.Transition) {
	slot := slotEnds
	if !m.own && (p.is(schema.TypeMessageEnd) || p.is(schema.TypeBlockEnd)) {
		slot = slotSays
	}
	if b.state == finished && len(t.Text) > b.skip && !isCall(b) {
		m.hold(b)
	}
	whole := b.content(t.Text[min(b.skip, len(t.Text)):], p.rec.input, t.Block.Free)
	p.rec.input = nil
	switch {
	case b.state == finished:
	case b.state == waits && m.active != nil:
		b.final = whole
		if b.kind == blockText || b.kind == blockReasoning {
			b.data = bytes.Clone(t.Text[min(b.skip, len(t.Text)):])
		}
	default:
		p.completeBlock(m, b, slot, t.Text, whole)
		p.nexts(m, t, slot)
	}
}

func isCall(b *block) bool { return b.kind == blockCall || b.kind == blockServer }

// completeBlock sends what is left of a block and finishes it.
func (p *Projector) completeBlock(m *openMessage, b *block, slot int, all, whole []byte) {
	if b.state == waits {
		p.startBlock(m, b, slot)
	}
	switch b.kind {
	case blockText, blockReasoning:
		p.catchUp(m, b, slot, all)
	case blockMedia:
		data := b.carry
		b.carry = nil
		p.mediaPiece(m, b, slot, data)
		whole = b.content(nil, nil, false)
	}
	if isCall(b) && b.told > 0 {
		b.tail = all[min(b.told, len(all)):]
	}
	p.finish(m, b, slot, whole)
}

// nexts starts the blocks that have waited.
func (p *Projector) nexts(m *openMessage, t *assemble.Transition, slot int) {
	m.rest = max(m.rest, m.blocks[0].place)
	for ; m.rest < m.blocks[0].place+len(m.blocks) && m.active == nil; m.rest++ {
		b := m.at(m.rest)
		switch {
		case b.state != waits:
		case b.final != nil:
			b.skip = 0
			said := b.data
			b.data = nil
			p.completeBlock(m, b, slot, said, b.final)
			b.final = nil
		default:
			p.startBlock(m, b, slot)
			if open := t.Message.At(b.place); b.kind == blockMedia {
				data := b.carry
				b.carry = nil
				p.mediaPiece(m, b, slot, data)
			} else if open != nil && isCall(b) {
				p.sendInput(m, b, slot, open.Part())
			} else if open != nil {
				p.catchUp(m, b, slot, open.Part())
			}
		}
	}
}

func (p *Projector) finish(m *openMessage, b *block, slot int, content []byte) {
	b.state = finished
	if m.active == b {
		m.active = nil
	}
	p.emitMessage(m, slot, "content-block-finish", func(o object) object {
		if p.older != nil && isCall(b) && b.told > 0 {
			o = o.Inner("tail", b.tail)
		} else if p.older != nil && b.kind == blockReasoning {
			o = o.Int("streamed", 1)
		}
		return o.Int("index", int64(b.index)).Raw("content", content)
	})
	b.data, b.tail, b.told = nil, nil, 0
}

// media shows a piece of an image, of sound or of a file.
func (p *Projector) media() {
	m, data := p.lane(p.rec.child).open, jsonscan.Inner(p.field("data"))
	at := p.reading.Lane(p.rec.child)
	if m == nil || at == nil || at.Message == nil || len(data) == 0 {
		return
	}
	b := m.active
	if b == nil || b.kind != blockMedia {
		i := len(m.blocks) - 1
		for i >= 0 && m.blocks[i].kind != blockMedia {
			i--
		}
		if i < 0 {
			return
		}
		b = m.blocks[i]
	}
	if wait := m.active != nil && isCall(m.active); b.state != streams && wait && len(b.carry)+len(data) <= limits.Text {
		m.hold(b)
		b.carry = append(b.carry, data...)
		return
	}
	if b.state != streams {
		p.mayStream(m, at.Message, slotEnds)
		p.startBlock(m, b, slotBegins)
	}
	p.mediaPiece(m, b, slotSays, data)
}

// mediaPiece sends a piece of base64, cut so that it can be decoded alone.
func (p *Projector) mediaPiece(m *openMessage, b *block, slot int, data []byte) {
	if len(b.data)+len(data) > limits.Text && len(b.data) > 0 { // it goes on as the next
		p.finish(m, b, slot, b.content(nil, nil, false))
		p.startBlock(m, b, slot)
	}
	piece := append(b.carry[:len(b.carry):len(b.carry)], data...)
	n := len(piece) / 4 * 4
	b.carry, piece = piece[n:], piece[:n]
	if len(piece) == 0 {
		return
	}
	b.data = append(b.data, piece...)
	p.delta(m, b, slot, func(o object) object {
		return o.Str("type", "data-delta").Inner("data", piece).Str("encoding", "base64")
	})
}
