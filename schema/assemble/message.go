package assemble

import (
	"bytes"
	"slices"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Message is a message between its beginning and its end.
type Message struct {
	ID       string // "" when it has none, or one of more than 1 KiB
	Role     string // assistant, user, system or tool
	Start    schema.Seq
	Implicit bool     // nobody announced it
	Blocks   []*Block // the newest, in the order of their beginning
	Base     int      // number of blocks before those
	Next     int64    // index behind the greatest one so far
	Usage    []byte   // of the message.start, an object; nil when there is none, or one of more than 16 KiB
	Unkept   int      // bytes of a longer one

	key   jsonscan.Sum // of message_id
	texts int          // blocks of text so far
	ready int          // blocks whose close waits for what is no thought
	size  int          // bytes of its content
	kept  int          // of those that are kept
	lost  bool         // it was too much: nothing is kept
	held  *Block       // what begins at the index of a block that has ended: the same again, unless something comes for it
	said  uint64       // sum of its texts and calls; 0 while it is open, and when not all is remembered
}

const (
	// maxBlocks bounds the blocks of a message that nobody announced, and those that are remembered of another one unless
	// the Limits say more. The oldest close then.
	maxBlocks = 256
	// maxImplicit bounds a message that nobody announced, in bytes. One that would be longer ends, and another begins.
	maxImplicit = 256 << 10
	maxUsage    = 16 << 10
)

func (m *Message) clone() *Message {
	c := *m
	c.Blocks = make([]*Block, len(m.Blocks))
	copies := make([]Block, len(m.Blocks))
	for i, b := range m.Blocks {
		copies[i] = *b
		copies[i].text, copies[i].part = slices.Clip(b.text), slices.Clip(b.part) // what is behind is the other's
		c.Blocks[i] = &copies[i]
	}
	if m.held != nil {
		held := *m.held
		c.held = &held
	}
	return &c
}

// IDSum is the function IDSum of the message's id, also of one that is too long for ID.
func (m *Message) IDSum() uint64 { return m.key.Hash() }

// IDSum returns a sum of a message_id as JSON, by which ids are told apart; 0 of what names no message.
func IDSum(id []byte) uint64 {
	if !isName(id) {
		return 0
	}
	return keyOf(id).Hash()
}

// Size returns how many bytes the message's content has, about, and whether they are kept.
func (m *Message) Size() (size int, kept bool) { return m.size, !m.lost }

// At returns the block at a place, nil when it is not remembered.
func (m *Message) At(place int) *Block {
	if i := place - m.Base; i >= 0 && i < len(m.Blocks) {
		return m.Blocks[i]
	}
	return nil
}

// CountBlocks returns the number of blocks so far.
func (m *Message) CountBlocks() int { return m.Base + len(m.Blocks) }

// Newest returns the last block, nil when there is none.
func (m *Message) Newest() *Block { return m.At(m.CountBlocks() - 1) }

// search returns the newest block for which fn returns true, nil when there is none.
func (m *Message) search(fn func(b *Block) bool) *Block {
	for i := len(m.Blocks) - 1; i >= 0; i-- {
		if fn(m.Blocks[i]) {
			return m.Blocks[i]
		}
	}
	return nil
}

// keep counts bytes of a message's content and reports whether they may be kept.
func (a *Run) keep(m *Message, n int) bool {
	if m.size += n; m.lost {
		return false
	}
	if most := a.limits.Message; most == 0 || !m.Implicit && m.size > most || a.kept+n > a.limits.All {
		a.lose(m)
		return false
	}
	m.kept += n
	a.kept += n
	return true
}

// lose lets go of what is kept of a message's content.
func (a *Run) lose(m *Message) {
	a.kept -= m.kept
	m.lost, m.kept = true, 0
	for _, b := range m.Blocks {
		b.head, b.tail, b.text, b.input = nil, nil, nil, nil
	}
}

func (a *Run) startMessage(l *Lane) {
	p := a.read()
	id := p.Raw("message_id")
	if m := l.Message; m != nil && !m.Implicit && m.ID != "" && m.key == keyOf(id) {
		return // it is the same start again
	}
	ended, ok := l.findEnd(id)
	again := ok && ended >= l.reuseSeq()
	if again && l.Message != nil {
		return
	}
	if l.Message != nil {
		a.cut(l)
	}
	m := &Message{Role: roleOf(p.Raw("role")), Start: a.seq, key: keyOf(id)}
	m.ID = nameOf(id)
	if u := p.Object("usage"); len(u) <= maxUsage {
		m.Usage = bytes.Clone(u)
	} else {
		m.Unkept = len(u)
	}
	if again {
		l.held = m
	} else {
		a.openMessage(l, m, false)
	}
}

// openMessage makes a message the open one of its lane.
func (a *Run) openMessage(l *Lane, m *Message, repaired bool) {
	l.Message, l.held = m, nil
	a.add(Transition{Kind: MessageOpen, Lane: l, Message: m, Repaired: repaired})
}

// again returns the message that something with an id may be for, or without one: a message.start with the id of one
// that has ended has said that it begins. It returns nil when none has, and when ids may be used again since.
func (l *Lane) again(id []byte) *Message {
	m := l.held
	if m == nil || l.Message != nil || m.Start < l.reuseSeq() || isName(id) && m.key != keyOf(id) {
		return nil
	}
	return m
}

func roleOf(v []byte) string {
	switch string(v) {
	case `"user"`:
		return "user"
	case `"system"`:
		return "system"
	case `"tool"`:
		return "tool"
	}
	return "assistant"
}

// openOrBegin returns the open message of the lane, or begins one that no event announced. One of those that
// has become long ends before.
func (a *Run) openOrBegin(l *Lane) *Message {
	if m := l.Message; m != nil && m.Implicit && (m.size > maxImplicit || m.CountBlocks() >= maxBlocks) {
		a.cut(l)
	}
	if m := l.again(nil); m != nil {
		a.openMessage(l, m, false)
	}
	if l.Message == nil {
		a.openMessage(l, &Message{Role: "assistant", Start: a.seq, Implicit: true}, true)
	}
	return l.Message
}

// endMessage ends the message that is named, or that nobody announced. One that has not begun here, because the
// beginning of the run is gone or its producer sends ends alone, begins and ends.
func (a *Run) endMessage(l *Lane) {
	p := a.read()
	id, content, usage := p.Raw("message_id"), p.Raw("content"), p.Object("usage")
	if len(content) == 0 || content[0] != '[' && content[0] != '"' {
		content = nil
	}
	omitted := p.Raw("omitted") != nil
	if m := l.again(id); m != nil {
		if a.isEndRepeat(l, m, content) {
			l.held = nil
			return
		}
		a.openMessage(l, m, false)
	}
	m := l.Message
	if m == nil && l.gone != (jsonscan.Sum{}) && l.gone == keyOf(id) {
		return
	}
	_, was := l.findEnd(id)
	own := m != nil && (m.Implicit && !l.isOver(id) || !isName(id) || m.key == keyOf(id))
	if was && !own {
		return
	}
	if own {
		m.name(id)
		a.conclude(l, m, content, omitted, false)
		l.Message = nil
	} else {
		m = &Message{Role: "assistant", Start: a.seq}
		if a.head.Actor == "user" {
			m.Role = "user"
		}
		m.ID = nameOf(id)
		a.add(Transition{Kind: MessageOpen, Lane: l, Message: m, Repaired: true})
		l.held = nil
		a.conclude(l, m, content, omitted, false)
	}
	a.noteClose(l, id, m.said)
	if usage != nil {
		a.add(Transition{Kind: UsageAdd, Lane: l, Message: m, Value: usage})
	}
}

// Cut ends the message of a lane, for a reader in whose protocol it cannot go on. When its producer ends it later,
// that is passed over. The transitions are valid as long as those of Next, which they follow.
func (a *Run) Cut(child string) []Transition {
	l, n := a.lane([]byte(child)), len(a.out)
	if l.Message == nil {
		return nil
	}
	l.gone = l.Message.key
	a.cut(l)
	return a.out[n:]
}

// cutImplicit ends a message that nobody announced at a record that is no part of one.
func (a *Run) cutImplicit(l *Lane) {
	if m := l.Message; m != nil && m.Implicit {
		a.cut(l)
	}
}

// isNext reports whether the start of a block begins the message that it names, although another one is open that was
// announced: nothing is known of the named one, or it has ended before a person has said something, or a turn has
// started, which the open one was open through. So the end of the one and the start of the other are missing or late.
func (l *Lane) isNext(id []byte) bool {
	m := l.Message
	if m == nil || m.key.Units == 0 || m.key == keyOf(id) || !isName(id) {
		return false
	}
	ended, ok := l.findEnd(id)
	return !ok || m.Start < l.heard && ended < l.heard
}

// isOver reports whether an id is that of a message that has ended, and that nothing begins again.
func (l *Lane) isOver(id []byte) bool {
	ended, ok := l.findEnd(id)
	return ok && ended >= l.reuseSeq() && l.again(id) == nil
}

// name lets a message that nobody announced be the one that a record of a message or a block names: its start is
// missing.
func (m *Message) name(id []byte) {
	if m.Implicit && isName(id) {
		m.ID, m.key, m.Implicit = nameOf(id), keyOf(id), false
	}
}

// cut ends a lane's message that its producer will not end, or that nobody announced, with what there is of it.
func (a *Run) cut(l *Lane) {
	m := l.Message
	a.conclude(l, m, nil, false, true)
	if m.key.Units > 0 {
		a.noteEnd(l, itemKey{MessageClose, m.key}, past{said: m.said, ended: a.seq})
	}
	l.Message = nil
}

// noteClose notes that a message with an id has ended.
func (a *Run) noteClose(l *Lane, id []byte, said uint64) {
	if isName(id) {
		a.noteEnd(l, itemKey{MessageClose, keyOf(id)}, past{said: said, ended: a.seq})
	}
}

// isEndRepeat reports whether an end of a message that has ended, and that has begun again, says nothing else
// than the first one.
func (a *Run) isEndRepeat(l *Lane, m *Message, content []byte) bool {
	var now Message
	for part := range jsonscan.Elements(content) {
		c := ReadPart(part)
		b := &Block{Kind: kindOf(c.Type), call: keyOf(c.ID)}
		b.IsCall = b.Kind == Call
		b.Sum.Add(c.Text)
		now.Blocks = append(now.Blocks, b)
	}
	first, _ := l.past.Get(itemKey{MessageClose, m.key})
	said := now.sum()
	return said == noWords || first.said == 0 || first.said == said
}

const noWords = 1

// sum returns a sum of a message's texts and calls; 0 when not all of its blocks are remembered.
func (m *Message) sum() uint64 {
	if m.Base > 0 {
		return 0
	}
	sum := uint64(noWords)
	for _, b := range m.Blocks {
		switch {
		case b.Kind == Text && b.Sum.Units > 0:
			sum = sum*31 + b.Sum.Hash()
		case b.IsCall:
			sum = sum*31 + b.call.Hash() + 1
		}
	}
	return sum
}

// conclude ends a message: its content has what the producer did not stream.
func (a *Run) conclude(l *Lane, m *Message, content []byte, omitted, repaired bool) {
	if content == nil && !m.lost && (!omitted || len(m.Blocks) > 0) {
		content = m.Content()
	}
	place := 0
	for part := range jsonscan.Elements(content) {
		if place >= m.CountBlocks() {
			if place >= maxBlocks {
				break // of so many the content says enough
			}
			a.whole(l, m, part)
		} else if b := m.At(place); b != nil {
			a.rest(l, m, b, part)
		}
		place++
	}
	for _, b := range m.Blocks {
		a.stop(l, m, b)
	}
	m.said = m.sum()
	a.add(Transition{Kind: MessageClose, Lane: l, Message: m, Value: content, Repaired: repaired})
	a.kept -= m.kept
}

// rest adds what the content has of a block beyond what was streamed, and ends the block. What was streamed and is no
// beginning of the content stays as it is: the content is right.
func (a *Run) rest(l *Lane, m *Message, b *Block, raw []byte) {
	if b.state == blockClosed {
		return
	}
	defer a.stop(l, m, b)
	c := ReadPart(raw)
	text := c.Text
	switch {
	case b.Kind == Call || b.IsCall:
		if b.Sum.Units == 0 && c.Input != nil {
			a.add(Transition{Kind: BlockInput, Lane: l, Message: m, Block: b, Value: c.Input})
		}
		return
	case b.Kind == Text && c.IsText():
	case b.Kind == Thinking && c.IsThought():
		text = c.Reasoning()
	default:
		return
	}
	low, rest, ok := b.Sum.Rest(text)
	if !ok || low == 0 && len(rest) == 0 {
		return
	}
	if low != 0 {
		b.Sum.AddUnit(low)
	}
	a.piece(l, m, b, low, rest, false)
}

// whole makes a block of a part of the content that was not streamed at all.
func (a *Run) whole(l *Lane, m *Message, raw []byte) {
	c := ReadPart(raw)
	b := &Block{Index: -1, Seq: a.seq, Kind: kindOf(c.Type)}
	text, start := c.Text, raw
	switch {
	case c.IsThought():
		b.Kind, text = Thinking, c.Reasoning()
		start = startOf(b, nil, nil, nil, nil)
	case b.Kind == Text:
		start = startOf(b, nil, nil, nil, nil)
	case b.Kind == Call:
		b.IsCall = true
		if isName(c.ID) {
			a.noteAsk(l, c.ID, m.Start)
		}
		start = startOf(b, nil, c.ID, c.Name, nil)
	default:
		text = nil
	}
	a.beginBlock(l, m, b, start)
	switch {
	case b.IsCall && c.Input != nil:
		a.add(Transition{Kind: BlockInput, Lane: l, Message: m, Block: b, Value: c.Input})
	case b.IsCall && len(c.Partial) > 0:
		a.piece(l, m, b, 0, c.Partial, true)
	case len(text) > 0:
		a.piece(l, m, b, 0, text, false)
	}
	if b.Kind == Thinking && c.Signature != nil {
		a.add(Transition{Kind: BlockSignature, Lane: l, Message: m, Block: b, Value: c.Signature})
	}
	a.stop(l, m, b)
}

// Content returns the message as far as it is kept, as a list of blocks.
func (m *Message) Content() []byte {
	o := []byte{'['}
	for i, b := range m.Blocks {
		if i > 0 {
			o = append(o, ',')
		}
		o = b.appendContent(o)
	}
	return append(o, ']')
}
