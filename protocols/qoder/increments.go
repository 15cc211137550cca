package qoder

import (
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// Increments are what the seed's event model has: message_start, content blocks with their deltas, message_delta and
// message_stop, in the words of the provider's own stream. What is shown to nobody takes its slot all the same. A
// message has all of them or none, also when the session's setting changes in its midst.

const zeroUsage = `{"input_tokens":0,"output_tokens":0}`

// canEmit reports whether increments of the record's thread are to be written; if not, n of them take their
// slots.
func (p *Projector) canEmit(m *message, n int) bool {
	if m.told && p.rec.out != nil && p.isShown(emission{thread: p.rec.thread}) {
		return true
	}
	p.rec.slot += n
	return false
}

// envelope begins the fields of an increment, in space that is used again.
func (p *Projector) envelope(m *message) []byte {
	o := append(append(p.body[:0], `,"message_id":`...), m.id...)
	o = append(o, `,"parent_tool_use_id":`...)
	if id := p.rec.thread.use; id != "" {
		return append(append(append(o, '"'), id...), '"')
	}
	return append(o, `null`...)
}

func (p *Projector) emitIncrement(m *message, typ string, body []byte) {
	p.body = body
	p.emit(emission{typ: typ, turn: m.turn, body: body})
}

func (p *Projector) emitStart(m *message, model, usage []byte) {
	if !p.canEmit(m, 1) {
		return
	}
	o := append(append(p.envelope(m), `,"message":{"id":`...), m.id...)
	o = append(o, `,"type":"message","role":"assistant","model":`...)
	if isString(model) {
		o = append(o, model...)
	} else {
		o = append(o, `null`...)
	}
	o = append(o, `,"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
	p.emitIncrement(m, "agent.message_start", append(appendTokens(o, usage), '}'))
}

func appendTokens(o, usage []byte) []byte {
	if len(usage) > 0 && usage[0] == '{' {
		return append(o, usage...)
	}
	return append(o, zeroUsage...)
}

func (p *Projector) emitBlockStart(m *message, place int, start []byte) {
	if !p.canEmit(m, 1) {
		return
	}
	o := appendInt(append(p.envelope(m), `,"index":`...), int64(place))
	p.emitIncrement(m, "agent.content_block_start", append(append(o, `,"content_block":`...), start...))
}

// emitBlockStop emits the end of a block, and before it the end of the string that an input of free text is written as.
func (p *Projector) emitBlockStop(m *message, b *assemble.Block) {
	if b.Free && b.Inputs > 0 && p.canEmit(m, 1) {
		o := p.deltaOf(m, b.Place, "input_json_delta", "partial_json")
		p.emitIncrement(m, "agent.content_block_delta", append(o, `"\""}`...))
	}
	if p.canEmit(m, 1) {
		p.emitIncrement(m, "agent.content_block_stop", appendInt(append(p.envelope(m), `,"index":`...), int64(b.Place)))
	}
}

// delta begins the delta of a block, up to its value.
func (p *Projector) deltaOf(m *message, place int, typ, name string) []byte {
	o := appendInt(append(p.envelope(m), `,"index":`...), int64(place))
	o = append(append(append(o, `,"delta":{"type":"`...), typ...), `","`...)
	return append(append(o, name...), `":`...)
}

// emitPiece emits a piece of a block's text. An input that is free text is written as the JSON string that it is, which
// its first piece opens and its stop closes.
func (p *Projector) emitPiece(m *message, s *assemble.Transition) {
	b := s.Block
	if p.canEmit(m, 1) {
		var o []byte
		switch {
		case b.Kind == assemble.Thinking:
			o = p.deltaOf(m, b.Place, "thinking_delta", "thinking")
		case s.Input:
			o = p.deltaOf(m, b.Place, "input_json_delta", "partial_json")
		case b.Type != "":
			o = p.deltaOf(m, b.Place, b.Type+"_delta", b.Field)
		default:
			o = p.deltaOf(m, b.Place, "text_delta", "text")
		}
		o = append(o, '"')
		if s.Low != 0 {
			o = jsonscan.AppendUnit(o, s.Low)
		}
		if s.Input && b.Free {
			if len(s.Text) > 0 && b.Inputs == len(s.Text) {
				o = append(o, `\"`...)
			}
			o = appendQuoted(o, s.Text)
		} else {
			o = append(o, s.Text...)
		}
		p.emitIncrement(m, "agent.content_block_delta", append(o, `"}`...))
	}
	if len(s.Text) > 0 || s.Low != 0 {
		p.previewPiece(m, s)
	}
}

// emitInput emits the whole input of a call at once.
func (p *Projector) emitInput(m *message, place int, input []byte) {
	if p.canEmit(m, 1) {
		o := append(p.deltaOf(m, place, "input_json_delta", "partial_json"), '"')
		p.emitIncrement(m, "agent.content_block_delta", append(appendQuoted(o, input), `"}`...))
	}
}

func (p *Projector) emitSignature(m *message, place int, signature []byte) {
	if p.canEmit(m, 1) {
		o := p.deltaOf(m, place, "signature_delta", "signature")
		p.emitIncrement(m, "agent.content_block_delta", append(append(o, signature...), '}'))
	}
}

// maxCitations bounds the frames that one list of citations becomes. The content has them all.
const maxCitations = 256

func (p *Projector) emitCitations(m *message, place int, citations []byte) {
	n := 0
	for c := range jsonscan.Elements(citations) {
		if n++; n > maxCitations {
			return
		}
		if p.canEmit(m, 1) {
			o := p.deltaOf(m, place, "citations_delta", "citation")
			p.emitIncrement(m, "agent.content_block_delta", append(append(o, c...), '}'))
		}
	}
}

// emitEnd emits message_delta and message_stop.
func (p *Projector) emitEnd(m *message, e *ending) {
	if !p.canEmit(m, 2) {
		return
	}
	o := append(p.envelope(m), `,"delta":{"stop_reason":`...)
	o = append(append(o, orNull(e.stop)...), `,"stop_sequence":`...)
	o = append(append(o, orNull(e.sequence)...), `,"container":null},"usage":`...)
	p.emitIncrement(m, "agent.message_delta", appendTokens(o, e.usage))
	p.emitIncrement(m, "agent.message_stop", p.envelope(m))
}

func orNull(v []byte) []byte {
	if len(v) == 0 {
		return []byte("null")
	}
	return v
}
