package qoder

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"agentstream/schema"
)

// messages is what is remembered of messages that are open. Of those with framing that is the same however long
// they are.
type messages struct {
	lanes map[string]*lane // by child; those with something to remember
}

// lane is what is remembered of one.
type lane struct {
	open *message // nil: none is
	told []told   // oldest first
}

// message is one between its beginning and its end.
type message struct {
	id      []byte // message_id, a JSON string
	idTally tally  // of message_id
	role    role
	start   schema.Seq
	turn    string
	cause   string
	made    bool // nobody announced it
	told    bool // it has increments: the session's setting when it began

	blocks []block // the newest
	base   int     // blocks before them
	texts  int     // blocks of text so far

	announced bool // a preview has begun
	previewed int  // blocks of text that previews have named

	kept int  // bytes that blocks keep
	lost bool // it was too much: they keep nothing
}

type role uint8

const (
	roleAssistant role = iota
	roleUser
	roleSystem
	roleTool
)

// block is one content block. Its place is what increments call its index, so that it is that of the block in
// agent.message whatever the producer calls it.
type block struct {
	place    int
	index    int64 // the producer's
	kind     kind
	state    blockState
	implicit bool // nobody announced it
	seq      schema.Seq
	call     tally // of the call's id
	isCall   bool
	free     bool   // its input is free text and not JSON
	quoted   bool   // of which a piece was told
	word     string // type of a provider's own block, and its field; "" where its text is told as text
	field    string
	said     tally // of the text or input so far
	text     int   // which of the blocks of text
	thought  bool  // a preview of it has begun

	head  []byte // for the content: the object up to its text
	tail  []byte // members behind its text
	inner []byte // the text as far as it is kept
	input []byte // of a call that is complete
}

type kind uint8

const (
	kindText kind = iota
	kindThinking
	kindCall  // tool_use
	kindOther // a provider's own
	kindData
)

type blockState uint8

const (
	blockOpen  blockState = iota
	blockEnded            // its stop waits for the message's end, whose content may have more of it
	blockWhole            // its producer calls it complete: its stop waits for what is no thought
	blockStopped
)

const (
	// maxBlocks bounds the blocks that are remembered of a message; of older ones no more comes.
	maxBlocks = 256
	// maxMessageID bounds a message's id, as it is written: it stands in every increment.
	maxMessageID = 600
	// maxKept bounds what is kept of a message's content, in bytes: for messages that end without saying it.
	maxKept = 32 << 10
	// maxMade bounds a message that nobody announced. One that would be longer ends, and another begins.
	maxMade = 256 << 10
)

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
		c.lanes[child] = l.clone()
	}
	return c
}

func (l *lane) clone() *lane {
	c := &lane{told: slices.Clone(l.told)}
	if l.open != nil {
		open := *l.open
		open.blocks = slices.Clone(open.blocks)
		for i := range open.blocks { // what is behind is the other's
			open.blocks[i].inner = slices.Clip(open.blocks[i].inner)
		}
		c.open = &open
	}
	return c
}

func (m *messages) size() int {
	n := 0
	for child, l := range m.lanes {
		n += 64 + len(child) + 80*len(l.told)
		if l.open != nil {
			n += 256 + len(l.open.id) + l.open.kept + 256*len(l.open.blocks)
		}
	}
	return n
}

// forget drops a lane that has nothing to remember.
func (m *messages) forget(child string) {
	if l := m.lanes[child]; l != nil && l.open == nil && len(l.told) == 0 {
		delete(m.lanes, child)
	}
}

// before is asked about every record before it is read: what it ends ends first.
func (p *Projector) before() {
	l := p.messages.lanes[string(p.rec.Child)]
	if l == nil || l.open == nil {
		if string(p.rec.Type) == schema.TypeRunLifecycle {
			p.cutAll()
		}
		return
	}
	switch string(p.rec.Type) {
	case schema.TypeRunLifecycle:
		p.cutAll()
		if l.open != nil && l.open.made && string(field(p.rec.payload, "session")) != "true" {
			p.cut(l)
		}
	case schema.TypeToolStart, schema.TypeToolEnd, schema.TypeStepBoundary, schema.TypeChildSpawn,
		schema.TypePlanProposal, schema.TypeModelStart, schema.TypeModelEnd, schema.TypeTurnStart,
		schema.TypeTurnEnd, schema.TypeInputRequested, schema.TypeInputAnswered, schema.TypeTaskStart, schema.TypeTaskEnd:
		if l.open.made {
			p.cut(l)
		}
	}
}

// cutAll ends what is open when a run or a child is: a child's own message, or those of all.
func (p *Projector) cutAll() {
	if len(p.messages.lanes) == 0 || string(field(p.rec.payload, "session")) == "true" ||
		!schema.RunState(text(p.rec.payload, "state")).Final() {
		return
	}
	children := []string{string(p.rec.Child)}
	if children[0] == "" {
		children = slices.Sorted(maps.Keys(p.messages.lanes))
	}
	own := p.rec.thread
	for _, child := range children {
		if l := p.messages.lanes[child]; l != nil && l.open != nil {
			p.rec.thread = p.threads.of(p, child)
			p.cut(l)
			p.messages.forget(child)
		}
	}
	p.rec.thread = own
}

// message reads messages, their blocks and deltas.
func (p *Projector) message() {
	l := p.messages.lane(string(p.rec.Child))
	switch string(p.rec.Type) {
	case schema.TypeMessageStart:
		p.startMessage(l)
	case schema.TypeMessageEnd:
		p.endMessage(l)
		p.messages.forget(string(p.rec.Child))
	case schema.TypeBlockStart:
		p.startBlock(p.opened(l))
	case schema.TypeBlockEnd:
		p.endBlock(l.open)
		p.messages.forget(string(p.rec.Child))
	case schema.TypeDataDelta:
		p.data(p.opened(l))
	default:
		p.delta(l)
	}
}

func (p *Projector) startMessage(l *lane) {
	if l.open != nil {
		p.cut(l)
	}
	m := &message{start: p.rec.Seq, turn: p.rec.turn, cause: p.rec.cause, told: p.info.incremental}
	var model, usage []byte
	for r := readObject(p.rec.payload); ; {
		name, v, ok := r.next()
		if !ok {
			break
		}
		switch string(name) {
		case "message_id":
			m.id = v
		case "role":
			m.role = roleOf(v)
		case "model":
			model = v
		case "usage":
			usage = v
		}
	}
	m.idTally = tallyOf(inner(m.id))
	m.id = p.messageID(m.id)
	l.open = m
	if m.role == roleAssistant {
		p.emitStart(m, model, usage)
	}
}

func roleOf(v []byte) role {
	switch string(v) {
	case `"user"`:
		return roleUser
	case `"system"`:
		return roleSystem
	case `"tool"`:
		return roleTool
	}
	return roleAssistant
}

// messageID copies the id of a message that begins with the record at hand; one that is none, or too long to be
// said again and again, is made up.
func (p *Projector) messageID(v []byte) []byte {
	if len(inner(v)) > 0 && len(v) <= maxMessageID {
		return slices.Clone(v)
	}
	h := sha256.New()
	h.Write([]byte("message\x00" + p.session + "\x00"))
	if len(inner(v)) > 0 {
		h.Write(inner(v))
	} else {
		h.Write(appendInt(nil, int64(p.rec.Seq)))
	}
	return []byte(`"asst_` + hex.EncodeToString(h.Sum(nil)[:16]) + `"`)
}

// opened returns the lane's open message, or begins one that nobody announced. One of those that has become long
// ends before.
func (p *Projector) opened(l *lane) *message {
	if m := l.open; m != nil && m.made && (m.kept > maxMade || m.began() >= maxBlocks) {
		p.cut(l)
	}
	if l.open == nil {
		l.open = &message{id: p.messageID(nil), start: p.rec.Seq, turn: p.rec.turn, made: true, told: p.info.incremental}
		p.emitStart(l.open, nil, nil)
	}
	return l.open
}

// find returns the newest block with an index of the producer, nil when there is none.
func (m *message) find(index int64) *block {
	for i := len(m.blocks) - 1; i >= 0; i-- {
		if m.blocks[i].index == index {
			return &m.blocks[i]
		}
	}
	return nil
}

// at returns the block at a place, nil when it is not remembered.
func (m *message) at(place int) *block {
	if i := place - m.base; i >= 0 && i < len(m.blocks) {
		return &m.blocks[i]
	}
	return nil
}

// newest returns the last block, nil when there is none.
func (m *message) newest() *block { return m.at(m.base + len(m.blocks) - 1) }

// began is the number of blocks so far.
func (m *message) began() int { return m.base + len(m.blocks) }

// thoughtSlot is the slot, of the record that began a block, of the agent.thinking that it becomes.
func thoughtSlot(b *block) int { return slotLater + 1 + b.place%(slotLater-1) }

// keep counts bytes that a block is to keep, and says whether it may. A message that nobody announced ends before
// it is too long, and has all of it.
func (m *message) keep(n int) bool {
	if m.lost {
		return false
	}
	if m.kept += n; m.made || m.kept <= maxKept {
		return true
	}
	m.lose()
	return false
}

// lose lets go of what is kept for the content.
func (m *message) lose() {
	m.lost, m.kept = true, 0
	for i := range m.blocks {
		b := &m.blocks[i]
		b.head, b.tail, b.inner, b.input = nil, nil, nil, nil
	}
}

// parent is the agent.tool_use that began a child's thread; "" where that is not known.
func (p *Projector) parent(t *thread) string { return t.use }
