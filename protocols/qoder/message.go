package qoder

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// messages is what is remembered of messages beside what the reading of the run has.
type messages struct {
	lanes map[string]*lane // by child; those with something to remember
}

// lane is what is remembered of one.
type lane struct {
	open  *message // nil: none is
	whole *message // one that begins and ends with the record at hand
	told  []told   // oldest first
}

// message is one between its beginning and its end.
type message struct {
	id        []byte // message_id, a JSON string
	start     schema.Seq
	turn      string
	cause     string
	told      bool // it has increments: the session's setting when it began
	previewed int  // blocks of text that previews have named; a preview has begun when there are any
}

const (
	// maxMessageID bounds a message's id, as it is written: it stands in every increment.
	maxMessageID = 600
	// maxThoughts bounds the frames that the thoughts of a message become.
	maxThoughts = 256
)

// limits bounds what is kept of messages, for those that end without their content.
var limits = assemble.Limits{Message: 32 << 10, All: 64 << 20}

func (m *messages) lane(child string) *lane {
	l := m.lanes[child]
	if l == nil {
		if m.lanes == nil {
			m.lanes = map[string]*lane{}
		}
		l = &lane{}
		m.lanes[child] = l
	}
	return l
}

func (m *messages) clone() messages {
	c := messages{lanes: maps.Clone(m.lanes)}
	for child, l := range c.lanes {
		next := &lane{told: slices.Clone(l.told)}
		if l.open != nil {
			open := *l.open
			next.open = &open
		}
		c.lanes[child] = next
	}
	return c
}

func (m *messages) size() int {
	n := 0
	for child, l := range m.lanes {
		n += 64 + len(child) + 80*len(l.told)
		if l.open != nil {
			n += 128 + len(l.open.id)
		}
	}
	return n
}

// tell shows what the record at hand means for messages.
func (p *Projector) tell() {
	own := p.rec.thread
	for i := range p.rec.steps {
		s := &p.rec.steps[i]
		if s.Message == nil || s.Kind == assemble.UsageAdd {
			continue
		}
		if p.rec.thread.child != s.Lane.Child {
			p.rec.thread = p.threads.of(p, s.Lane.Child)
		}
		p.step(p.messages.lane(s.Lane.Child), s)
	}
	p.rec.thread = own
}

func (p *Projector) step(l *lane, s *assemble.Transition) {
	m := l.open
	if l.whole != nil {
		m = l.whole
	}
	switch s.Kind {
	case assemble.MessageOpen:
		p.open(l, s)
		return
	case assemble.MessageClose:
		if l.whole = nil; m == l.open {
			l.open = nil
		}
		p.conclude(l, m, s)
		if l.open == nil && len(l.told) == 0 {
			delete(p.messages.lanes, s.Lane.Child)
		}
		return
	}
	if s.Message.Role != "assistant" {
		return
	}
	switch b := s.Block; s.Kind {
	case assemble.BlockOpen:
		p.emitBlockStart(m, b.Place, s.Value)
	case assemble.BlockText:
		p.emitPiece(m, s)
	case assemble.BlockInput:
		p.emitInput(m, b.Place, s.Value)
	case assemble.BlockSignature:
		p.emitSignature(m, b.Place, s.Value)
	case assemble.BlockCitations:
		p.emitCitations(m, b.Place, s.Value)
	case assemble.BlockClose:
		p.emitBlockStop(m, b)
	}
}

func (p *Projector) open(l *lane, s *assemble.Transition) {
	var id, model, usage []byte
	if !s.Message.Implicit {
		id = field(p.rec.payload, "message_id")
	}
	m := &message{id: p.messageID(id), start: s.Message.Start, turn: p.rec.turn, cause: p.rec.cause,
		told: p.info.incremental}
	switch {
	case string(p.rec.Type) == schema.TypeMessageEnd:
		l.whole = m
	case string(p.rec.Type) == schema.TypeMessageStart:
		model, usage = field(p.rec.payload, "model"), field(p.rec.payload, "usage")
		fallthrough
	default:
		l.open = m
	}
	if s.Message.Role == "assistant" {
		p.emitStart(m, model, usage)
	}
}

// messageID copies the id of a message that begins with the record at hand; one that is none, or too long to be
// repeated again and again, is made up.
func (p *Projector) messageID(v []byte) []byte {
	named := len(jsonscan.Inner(v)) > 0
	if named && len(v) <= maxMessageID {
		return bytes.Clone(v)
	}
	h := sha256.New()
	h.Write([]byte("message\x00" + p.session + "\x00"))
	if named {
		h.Write(jsonscan.Inner(v))
	} else {
		h.Write(appendInt(nil, int64(p.rec.Seq)))
	}
	return []byte(`"asst_` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`)
}

// reasoningSlot is the slot, of the record that began a block, of the agent.thinking that it becomes.
func reasoningSlot(b *assemble.Block) int { return slotLater + 1 + b.Place%(slotLater-1) }
