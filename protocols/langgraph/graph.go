package langgraph

import (
	"bytes"
	"slices"
	"strings"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// ownOf returns the data of the event that the record at hand was made of by adapters/langgraph: the record's own frame
// has it as it came. It is nil for all other records.
func (p *Projector) ownOf() []byte {
	if bytes.HasSuffix(p.rec.typ, []byte(".delta")) || bytes.HasPrefix(p.rec.typ, []byte("command.")) ||
		p.field("namespace") == nil {
		return nil
	}
	return p.field("data")
}

// own returns what ownOf has found, once: for the first frame that the record itself makes.
func (p *Projector) own(slot int) []byte {
	v := p.rec.own
	if v == nil || slot != slotSays && slot != slotLast {
		return nil
	}
	p.rec.own = nil
	return v
}

// showCustom shows an event of the application's own, by its name. What a LangGraph agent has sent by a method
// of the protocol is an event of that method; by another one, it has its name from the method.
func (p *Projector) showCustom(name string) {
	method, sent := strings.CutPrefix(name, "langgraph.")
	switch own := p.rec.own; {
	case sent && isObject(own) && slices.Contains(channels[:], method):
		p.showMethod(method)
	case sent && own != nil:
		p.rec.own = nil
		p.showNamed(name, own)
	default:
		p.showNamed(name, p.payloadOf())
	}
}

// showMethod shows an event of a method that the catalogue had no type for.
func (p *Projector) showMethod(method string) {
	s, c := p.from(p.lane(p.rec.child)), channel(slices.Index(channels[:], method))
	p.startRun()
	if c == custom {
		if name := text(schema.Field(p.rec.own, "name")); name != "" {
			s.lane = append(append(s.lane, nameMark), segmentOf(name)...)
		}
	}
	p.emit(c, method, s, slotSays, func(o object) object { return o })
}

// showScope shows what becomes of a namespace. The lane has it from then on.
func (p *Projector) showScope(l *lane) {
	if p.rec.own != nil {
		p.setNamespace(l)
		p.emit(lifecycle, "lifecycle", p.from(l), slotSays, func(o object) object { return o })
	}
}

// setNamespace sets the namespace of a lane to that of the record at hand.
func (p *Projector) setNamespace(l *lane) {
	p.unname(l)
	l.namespace, l.segments = p.from(l).namespace, nil
	for e := range jsonscan.Elements(l.namespace) {
		l.segments = append(l.segments, text(e))
	}
	p.noteNamespace(l)
}

// silent reports whether a piece of text has no event of its own: another one has it.
func (p *Projector) silent(m *openMessage, t *assemble.Transition) bool {
	return m.own && t.Kind == assemble.BlockText && string(p.field("silent")) == "true"
}

// finishOwn finishes a block of a LangGraph agent's message as the agent has. One that is too long to be kept
// has no finish if the agent's is not kept either: clients have its deltas.
func (p *Projector) finishOwn(m *openMessage, b *block, t *assemble.Transition, said []byte) {
	whole := schema.Field(p.rec.own, "content")
	if whole == nil && !b.parts {
		whole = b.content(said, p.rec.input, t.Block.Free)
	}
	if b.told > 0 {
		b.tail = said[min(b.told, len(said)):]
	}
	if b.state = finished; whole != nil {
		p.finish(m, b, slotSays, whole)
	}
}
