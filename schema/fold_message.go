package schema

import (
	"bytes"
	"slices"

	"agentstream/schema/jsonscan"
)

// FoldMessage is one message. Open messages have no End yet. Content of the user that came with a
// command.message is a message that begins and ends there.
type FoldMessage struct {
	ID         string
	Child      string
	Role       string
	Model      string
	Blocks     []*FoldBlock
	StopReason string
	Usage      []byte // of message.end, else of message.start; nil when neither had one
	Error      []byte
	Start, End Seq // End 0: still open

	implicit bool // nobody has named it
	shut     int  // blocks before it are closed
	// what begins at the index of a block that has ended: the same again, unless something comes for it
	held *FoldBlock
	// Finders for messages of many blocks; nil before.
	byIndex map[int64]*FoldBlock
	byCall  map[string]*FoldBlock
}

// FoldBlock is one content block: text, reasoning, tool_use, data, or a provider's own kind.
type FoldBlock struct {
	Index     int
	Kind      string
	Text      JSONText // text, reasoning, or the raw input of a tool call
	Call      string   // call id of a tool block
	Tool      string
	Input     []byte   // authoritative input of a tool block, once complete
	Complete  bool     // the producer closed it and did not report that it was cut short
	Raw       []byte   // the provider's block, where it was kept
	MediaType string   // of data
	Name      string   // of data
	Data      []string // pieces of data as they came (base64)
	closed    bool
}

// JSONText is text as it stands in JSON, with escapes: joining two texts joins their values, also
// when a surrogate pair was cut in two.
type JSONText struct{ inner []byte }

// String decodes the text. A surrogate without its other half becomes U+FFFD.
func (t *JSONText) String() string { return jsonscan.DecodeInner(t.inner) }

// Inner returns the text as it stands in JSON, which must not be changed.
func (t *JSONText) Inner() []byte { return t.inner }

// Len returns the encoded length, in bytes.
func (t *JSONText) Len() int { return len(t.inner) }

// appendText adds a delta's text and returns how long it was.
func (b *FoldBlock) appendText(p jsonscan.Fields) int {
	text := p.Inner("text")
	b.Text.inner = append(b.Text.inner, text...)
	return len(text)
}

// manyBlocks is when a message gets finders.
const manyBlocks = 16

func (f *Fold) addBlock(m *FoldMessage, b *FoldBlock) *FoldBlock {
	f.size += blockCost + len(b.Kind) + len(b.Call) + len(b.Tool)
	m.Blocks = append(m.Blocks, b)
	f.noteAsk(m, b)
	switch {
	case len(m.Blocks) < manyBlocks:
		return b
	case m.byIndex == nil:
		m.byIndex, m.byCall = make(map[int64]*FoldBlock), make(map[string]*FoldBlock)
		for _, old := range m.Blocks {
			m.byIndex[int64(old.Index)], m.byCall[old.Call] = old, old
		}
	}
	m.byIndex[int64(b.Index)], m.byCall[b.Call] = b, b
	return b
}

// noteAsk notes the call that a block asks for.
func (f *Fold) noteAsk(m *FoldMessage, b *FoldBlock) {
	if b.Call == "" {
		return
	}
	l := f.lanes[m.Child]
	if l == nil {
		return
	}
	if l.asked == nil {
		l.asked = make(map[string]asking)
	}
	l.asked[b.Call] = asking{m, b}
}

// isOf reports whether a block that began without its start is the one that a start says.
func (b *FoldBlock) isOf(start *FoldBlock) bool {
	return b.Kind == start.Kind && b.Tool == "" && b.Raw == nil && (b.Call == "" || b.Call == start.Call) &&
		(start.Tool != "" || start.Raw != nil || start.Call != b.Call)
}

// at returns the newest block with an index.
func (m *FoldMessage) at(index int64) *FoldBlock {
	if m.byIndex != nil {
		return m.byIndex[index]
	}
	for i := len(m.Blocks) - 1; i >= 0; i-- {
		if b := m.Blocks[i]; int64(b.Index) == index {
			return b
		}
	}
	return nil
}

// of returns the newest block of a call.
func (m *FoldMessage) of(call string) *FoldBlock {
	if m.byCall != nil {
		return m.byCall[call]
	}
	for i := len(m.Blocks) - 1; i >= 0; i-- {
		if b := m.Blocks[i]; b.Call == call {
			return b
		}
	}
	return nil
}

// newest returns the last block, nil when there is none.
func (m *FoldMessage) newest() *FoldBlock {
	if n := len(m.Blocks); n > 0 {
		return m.Blocks[n-1]
	}
	return nil
}

// openMessage makes m the lane's open message. One that is open still ends there.
func (f *Fold) openMessage(l *foldLane, m *FoldMessage) {
	if l.open != nil {
		f.closeMessage(l, m.Start)
	}
	l.open = m
	f.starts.Delete(l)
	f.talking.Set(l, struct{}{})
	f.addMessage(m)
	if m.Role == "assistant" {
		f.settle(l, commandMessage)
	}
}

func (f *Fold) addMessage(m *FoldMessage) {
	f.size += messageCost + len(m.ID) + len(m.Child) + len(m.Role) + len(m.Model)
	f.Messages = append(f.Messages, m)
	l := f.lanes[m.Child]
	if l == nil {
		return
	}
	if m.Role == "user" {
		l.heard = max(l.heard, m.Start)
	}
	if m.Role != "user" || m.Start != m.End {
		l.name(m)
	}
}

// name lets a message be found by its id.
func (l *foldLane) name(m *FoldMessage) {
	if m.ID == "" {
		return
	}
	if l.named == nil {
		l.named = make(map[string]*FoldMessage)
	}
	l.named[m.ID] = m
}

// closeMessage ends the lane's open message.
func (f *Fold) closeMessage(l *foldLane, seq Seq) {
	l.open.close(seq)
	l.open = nil
	f.talking.Delete(l)
}

func (m *FoldMessage) close(seq Seq) {
	m.End = seq
	m.closeBlocks()
	m.byIndex, m.byCall, m.held = nil, nil, nil
}

func (m *FoldMessage) closeBlocks() {
	for _, b := range m.Blocks[m.shut:] {
		b.closed = true
	}
	m.shut = len(m.Blocks)
}

// message returns the lane's open message, or begins one without message.start.
func (f *Fold) message(ev *foldEvent) *FoldMessage {
	if m := ev.lane.open; m != nil {
		return m
	}
	if m := f.again(ev.lane, ""); m != nil {
		f.openMessage(ev.lane, m)
		return m
	}
	m := &FoldMessage{Child: ev.lane.id(), Role: "assistant", Start: ev.first, implicit: true}
	f.openMessage(ev.lane, m)
	return m
}

// startMessage begins a message. One that is open does not begin once more. One that has ended begins when something
// comes for it: else it was a repeat.
func (f *Fold) startMessage(ev *foldEvent, p jsonscan.Fields) {
	l, id := ev.lane, p.Str("message_id")
	was := l.named[id]
	if was != nil && was.End == 0 {
		if was.Model == "" && was.Usage == nil { // it is late: a block has named the message
			was.Role, was.Model, was.Usage = p.Str("role"), f.word(p.Str("model")), f.keep(p.Object("usage"))
		}
		return
	}
	m := &FoldMessage{
		ID: id, Child: l.id(), Role: p.Str("role"), Model: p.Str("model"), Usage: f.keep(p.Object("usage")), Start: ev.seq,
	}
	switch {
	case was == nil || was.End < f.reuseSeq(l):
		f.openMessage(l, m)
	case l.open == nil:
		f.holdStart(l, m)
	}
}

// forgetStart forgets the message.start that a lane holds when ids may be used again since.
func (f *Fold) forgetStart(l *foldLane) {
	if f.again(l, "") == nil {
		f.starts.Delete(l)
	}
}

func (f *Fold) holdStart(l *foldLane, m *FoldMessage) {
	f.starts.Delete(l)
	f.starts.Set(l, m)
}

// again returns the message that something with an id may be for, or without one: a message.start with the id of one
// that has ended has said that it begins. It returns nil when none has, and when ids may be used again since.
func (f *Fold) again(l *foldLane, id string) *FoldMessage {
	m, ok := f.starts.Get(l)
	if !ok || l.open != nil || m.Start < f.reuseSeq(l) || id != "" && m.ID != id {
		return nil
	}
	return m
}

// isRepeat reports whether the content of a message.end has no other texts and calls than the message has.
func (m *FoldMessage) isRepeat(content []byte) bool {
	type word struct{ text, call string }
	var had, has []word
	for _, b := range m.Blocks {
		if b.Kind == "text" && b.Text.Len() > 0 {
			had = append(had, word{text: b.Text.String()})
		} else if b.Call != "" || b.Kind == "tool_use" {
			had = append(had, word{call: b.Call})
		}
	}
	for part := range jsonscan.Elements(content) {
		p := jsonscan.Fields(nil).Read(part)
		switch text := p.Inner("text"); p.Str("type") {
		case "text":
			if len(text) > 0 {
				has = append(has, word{text: jsonscan.DecodeInner(text)})
			}
		case "tool_use":
			has = append(has, word{call: p.Str("id")})
		}
	}
	return len(has) == 0 || slices.Equal(had, has)
}

// endMessage ends the message that it names, or that nobody has named. One that has ended does not end again, and one
// that has not begun begins and ends. A message whose blocks were not sent one by one has those of its content.
func (f *Fold) endMessage(ev *foldEvent, p jsonscan.Fields) {
	l := ev.lane
	id := l.messageID(p)
	if m := f.again(l, id); m != nil && l.named[m.ID].isRepeat(p.Array("content")) {
		f.starts.Delete(l)
		return
	} else if m != nil {
		f.openMessage(l, m)
	}
	m, was := l.open, l.named[id]
	own := m != nil && (m.implicit && !f.isOver(l, id) || id == "" || m == was)
	switch {
	case own:
		f.announce(l, m, id)
	case was != nil && was.End > 0:
		return
	default:
		m = &FoldMessage{ID: id, Child: l.id(), Role: "assistant", Start: ev.seq, End: ev.seq}
		if ev.actor == "user" {
			m.Role = "user"
		}
		f.starts.Delete(l)
		f.addMessage(m)
	}
	m.StopReason = f.word(p.Str("stop_reason"))
	if u := p.Object("usage"); u != nil {
		m.Usage = f.keep(u)
	}
	m.Error = f.keep(p.Some("error"))
	if len(m.Blocks) == 0 {
		f.content(m, p.Array("content"))
	}
	if own {
		f.closeMessage(l, ev.seq)
	} else {
		m.close(ev.seq)
	}
	f.Usage.add(f, m.Model, m.Usage)
}

// content fills a message from its content as a whole: a string or a list of blocks.
func (f *Fold) content(m *FoldMessage, content []byte) {
	if len(content) >= 2 && content[0] == '"' {
		b := f.addBlock(m, &FoldBlock{Kind: "text", Complete: true, closed: true})
		b.Text.inner = f.keep(content[1 : len(content)-1])
		return
	}
	for part := range jsonscan.Elements(content) {
		p := jsonscan.Fields(nil).Read(part)
		if p == nil {
			continue
		}
		b := &FoldBlock{Index: len(m.Blocks), Kind: p.Str("type"), Complete: true, closed: true}
		b.Text.inner = f.keep(p.Inner("text"))
		switch b.Kind {
		case "text":
		case "tool_use":
			b.Call, b.Tool, b.Input = p.Str("id"), p.Str("name"), f.keep(p.Raw("input"))
		default:
			b.Raw = f.keep(part)
		}
		f.addBlock(m, b)
	}
}

// endImplicit ends a message that began without message.start.
func (f *Fold) endImplicit(l *foldLane, seq Seq) {
	if l.open != nil && l.open.implicit {
		f.closeMessage(l, seq)
	}
}

// elsewhere reports whether an event of a block names a message that is not the open one: it is late.
func (f *Fold) elsewhere(l *foldLane, id string) bool {
	if id == "" {
		return false
	}
	if m := l.open; m != nil && m.implicit {
		return f.isOver(l, id)
	} else if m != nil {
		return m.ID != "" && m.ID != id
	}
	return l.named[id] != nil && f.again(l, id) == nil
}

// isNext reports whether the start of a block begins the message that it names, although another one is open that was
// announced: nothing is known of the named one, or it has ended before a person has said something, or a turn has
// started, which the open one was open through. So the end of the one and the start of the other are missing or late.
func (l *foldLane) isNext(id string) bool {
	m, was := l.open, l.named[id]
	if id == "" || m == nil || m.ID == "" || m.ID == id {
		return false
	}
	said := max(l.heard, l.turn)
	return was == nil || m.Start < said && was.End < said
}

// isOver reports whether an id is that of a message that has ended, and that nothing begins again.
func (f *Fold) isOver(l *foldLane, id string) bool {
	was := l.named[id]
	return was != nil && was.End >= f.reuseSeq(l) && f.again(l, id) == nil
}

// announce lets a message that nobody announced be the one that an event of a message or a block names: its start is
// missing.
func (f *Fold) announce(l *foldLane, m *FoldMessage, id string) {
	if m.implicit && id != "" {
		m.ID, m.implicit = f.word(id), false
		l.name(m)
	}
}

// messageID returns the message_id of an event, which mostly is that of the open message.
func (l *foldLane) messageID(p jsonscan.Fields) string {
	if l.open == nil {
		return p.Str("message_id")
	}
	return p.Same("message_id", l.open.ID)
}

// startBlock begins a block. What began already, and is open or says just what it is, does not begin again.
func (f *Fold) startBlock(ev *foldEvent, p jsonscan.Fields) {
	l := ev.lane
	id := l.messageID(p)
	if l.isNext(id) {
		f.closeMessage(l, ev.seq)
	} else if f.elsewhere(l, id) {
		return
	}
	if l.open == nil && id != "" && f.again(l, id) == nil { // its start is missing
		f.openMessage(l, &FoldMessage{ID: id, Child: l.id(), Role: "assistant", Start: ev.first})
	}
	m := f.message(ev)
	f.announce(l, m, id)
	b := &FoldBlock{Index: len(m.Blocks), Kind: p.Str("kind"), Call: p.Str("call_id"), Tool: p.Str("tool"),
		Raw: p.Some("block")}
	if n, ok := p.Integer("index"); ok {
		b.Index = int(n)
		if was := m.at(n); was != nil && was.isOf(b) { // a delta has begun it: this is late
			was.Call, was.Tool, was.Raw = b.Call, b.Tool, f.keep(b.Raw)
			if f.noteAsk(m, was); m.byCall != nil {
				m.byCall[was.Call] = was
			}
			return
		} else if was != nil && was.Kind == b.Kind && was.Call == b.Call && was.Tool == b.Tool &&
			bytes.Equal(was.Raw, b.Raw) {
			if m.held = nil; was.closed && b.Call == "" && b.Raw == nil {
				m.held = b
			}
			return
		}
	}
	b.Raw = f.keep(b.Raw)
	f.addBlock(m, b)
}

// block returns the block that a delta belongs to: the one with its index, or else the last one if
// that is open and of its kind.
func (f *Fold) block(ev *foldEvent, kind string, p jsonscan.Fields) *FoldBlock {
	m := f.message(ev)
	n, indexed := p.Integer("index")
	if indexed {
		if b := m.held; b != nil && b.Index == int(n) {
			m.held = nil
			return f.addBlock(m, b)
		}
		if b := m.at(n); b != nil {
			return b
		}
		return f.addBlock(m, &FoldBlock{Index: int(n), Kind: kind})
	}
	if b := m.newest(); b != nil && !b.closed && b.Kind == kind {
		return b
	}
	return f.addBlock(m, &FoldBlock{Index: len(m.Blocks), Kind: kind})
}

// inputBlock returns the block whose tool input streams: its call identifies it better than its place, which
// producers of parallel calls may leave out.
func (f *Fold) inputBlock(ev *foldEvent, p jsonscan.Fields) *FoldBlock {
	if _, indexed := p.Integer("index"); indexed {
		return f.block(ev, "tool_use", p)
	}
	m := f.message(ev)
	call := p.Str("call_id")
	if call != "" {
		if b := m.of(call); b != nil {
			return b
		}
	}
	return f.addBlock(m, &FoldBlock{Index: len(m.Blocks), Kind: "tool_use", Call: call})
}

// data adds a piece of data, which is encoded by itself: pieces are not joined.
func (f *Fold) data(ev *foldEvent, p jsonscan.Fields) {
	media, name := p.Str("media_type"), p.Str("name")
	_, indexed := p.Integer("index")
	if b := f.message(ev).newest(); !indexed && b != nil && b.Kind == "data" && (b.MediaType != media || b.Name != name) {
		b.closed = true
	}
	b := f.block(ev, "data", p)
	if b.Data == nil {
		b.MediaType, b.Name = f.word(media), f.word(name)
	}
	b.Data = append(b.Data, f.word(p.Str("data")))
	f.size += 32
}

// endBlock closes the block with the index, or the last one. Its first end that says that it is complete counts.
func (f *Fold) endBlock(ev *foldEvent, p jsonscan.Fields) {
	m, id := ev.lane.open, ev.lane.messageID(p)
	if m == nil || f.elsewhere(ev.lane, id) {
		return
	}
	f.announce(ev.lane, m, id)
	b := m.newest()
	if n, ok := p.Integer("index"); ok {
		b = m.at(n)
	}
	if b == nil || b.closed && b.Complete {
		return
	}
	b.closed, b.Complete = true, p.Raw("complete") == nil || p.Yes("complete")
	if v := p.Raw("input"); v != nil {
		b.Input = f.keep(v)
	}
}
