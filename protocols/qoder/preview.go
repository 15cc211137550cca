package qoder

import (
	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// Previews are for clients that ask for them with event_deltas[] (qoder §2): the id of an event that will come, and
// its text as it does. They are shown whatever the session's setting is, and never in the history.

// previewPiece emits a piece of a block for those who preview.
func (p *Projector) previewPiece(m *message, s *assemble.Transition) {
	switch b := s.Block; b.Kind {
	case assemble.Thinking:
		if s.First {
			p.previewStart(previewThinking, "agent.thinking", b.Seq, reasoningSlot(b))
		}
	case assemble.Text:
		if m.previewed == 0 {
			p.previewStart(previewMessage, "agent.message", m.start, slotLater)
		}
		for ; m.previewed < b.Nth; m.previewed++ { // clients want each index
			p.previewText(m, m.previewed, 0, nil)
		}
		m.previewed = max(m.previewed, b.Nth+1)
		p.previewText(m, b.Nth, s.Low, s.Text)
	}
}

// Open has no frames of its own. It lets a stream begin with what previews have shown of the message that is under way
// where this client looks, since clients put one together from its event_start on; and with the end of what is
// archived, or who waits behind it would do so for ever.
func (p *Projector) Open(out *dialect.Frames, _ schema.Seq) error {
	out.Again = p.again()
	return nil
}

func (p *Projector) again() (from schema.Seq) {
	t := p.threads.coordinator()
	if p.form.thread != "" {
		t = p.threads.byID(p.form.thread)
	}
	switch {
	case t == nil:
		return 0
	case t.closed > 0 && (p.info.closed == 0 || t.closed < p.info.closed):
		return t.closed
	case p.info.closed > 0:
		return p.info.closed
	case p.form.previews&previewMessage == 0:
		return 0
	}
	if l := p.messages.lanes[t.child]; l != nil && l.open != nil && l.open.previewed > 0 {
		return l.open.start
	}
	return 0
}

// mayPreview reports whether increments of a kind are wanted.
func (p *Projector) mayPreview(kind previews) bool {
	if p.rec.out != nil && p.form.previews&kind != 0 && p.isShown(emission{thread: p.rec.thread}) {
		return true
	}
	p.rec.slot++
	return false
}

func (p *Projector) previewStart(kind previews, typ string, seq schema.Seq, slot int) {
	if !p.mayPreview(kind) {
		return
	}
	o := append(append(p.body[:0], `,"event":{"id":"`...), eventID(p.session, seq, slot)...)
	p.body = append(append(append(o, `","type":"`...), typ...), `"}`...)
	p.emit(emission{typ: "event_start", preview: true, body: p.body})
}

func (p *Projector) previewText(m *message, index int, low uint16, said []byte) {
	if !p.mayPreview(previewMessage) {
		return
	}
	o := append(append(p.body[:0], `,"event_id":"`...), eventID(p.session, m.start, slotLater)...)
	o = appendInt(append(o, `","delta":{"type":"content_delta","index":`...), int64(index))
	o = append(o, `,"content":{"type":"text","text":"`...)
	if low != 0 {
		o = jsonscan.AppendUnit(o, low)
	}
	p.body = append(append(o, said...), `"}}`...)
	p.emit(emission{typ: "event_delta", preview: true, body: p.body})
}

// Foretold reports whether an id is that of a message, or of a thought in it, that has begun and is still being
// written.
func (p *Projector) Foretold(id string) bool {
	seq, slot, err := parseID(p.session, id)
	if err != nil || slot < slotLater {
		return false
	}
	for child, l := range p.messages.lanes {
		if l.open != nil && l.open.start == seq {
			return p.isShown(emission{thread: p.threads.of(p, child)})
		}
	}
	return false
}
