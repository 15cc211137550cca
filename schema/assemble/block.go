package assemble

import (
	"bytes"
	"slices"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Block is one block of a message's content.
type Block struct {
	Place    int   // its place in the content, whatever the producer's index is
	Index    int64 // the producer's; Place when it gave none
	Kind     BlockKind
	Implicit bool       // nobody announced it
	IsCall   bool       // it asks for a call of a tool
	Seq      schema.Seq // of the record that began it
	Nth      int        // number of blocks of text before it, of a block of text
	// Free reports that the input of its call is free text and not JSON, Inputs how many bytes of it were streamed.
	Free   bool
	Inputs int
	// Word, Call and Tool are what the block's begin says of it: its kind, and of a call the id and the tool. Names of
	// more than 1 KiB are "".
	Word, CallID, Tool string
	Raw                bool   // it began with a provider's own block
	Media              []byte // media type of pieces of data, JSON
	Ended, Complete    bool   // its producer has ended it, and did not report that it was cut short
	// Type is the type of a provider's own block, and Field the member that its text fills; both are "" where that
	// is not known.
	Type, Field string
	Parts       int // BlockParts so far
	// Sum is that of the text or input so far.
	Sum jsonscan.Sum

	state blockState
	call  jsonscan.Sum // of the call's id
	raw   uint64       // sum of a provider's own block; 0: it had none
	head  []byte       // for the content: the object up to its text
	tail  []byte       // members behind its text
	text  []byte       // inside of the JSON string
	input []byte       // of a call that is complete
	part  []byte       // with Limits.Text: what was streamed since the last BlockPart
}

// BlockKind is what a block holds.
type BlockKind uint8

// The kinds of blocks.
const (
	Text BlockKind = iota
	Thinking
	Call  // tool_use
	Other // a provider's own
	Data
)

var words = [...]string{Text: "text", Thinking: "reasoning", Call: "tool_use", Data: "data"}

type blockState uint8

const (
	blockOpen     blockState = iota
	blockEnded               // its close waits for the message's end, whose content may have more of it
	blockComplete            // the same, but it waits for the next block that is no thought
	blockClosed
)

// blockCost is about what a remembered block takes beside its content, in bytes.
const blockCost = 256

// canHold reports whether pieces of a kind may be the block's.
func (b *Block) canHold(k BlockKind) bool {
	return b.Kind == k || b.Kind == Other && (k != Call || b.IsCall)
}

// Content returns what is kept of the block: the object that it began with, its text, the inside of a JSON
// string, members after its text, and the input of a call that is complete.
func (b *Block) Content() (head, text, tail, input []byte) { return b.head, b.text, b.tail, b.input }

func (a *Run) startBlock(l *Lane) {
	p := a.read()
	if l.isNext(p.Raw("message_id")) {
		a.cut(l)
	} else if a.elsewhere(l, p.Raw("message_id")) {
		return
	}
	m := a.openFor(l, p.Raw("message_id"))
	m.name(p.Raw("message_id"))
	kind, call, tool, raw := p.Raw("kind"), p.Raw("call_id"), p.Raw("tool"), p.Raw("block")
	if !jsonscan.IsString(kind) {
		kind = []byte(`"unknown"`)
	}
	b := &Block{Index: indexOf(p), Seq: a.seq, Kind: kindOf(kind), call: keyOf(call), Free: p.Yes("free_text")}
	b.IsCall = b.Kind == Call || jsonscan.IsString(tool)
	b.Word, b.CallID, b.Tool = nameOf(kind), nameOf(call), nameOf(tool)
	start := startOf(b, kind, call, tool, raw)
	if len(raw) > 0 {
		b.raw = sumOf(raw)
	}
	if m.has(b) {
		if b.IsCall {
			a.ask(l, call, tool, raw)
		}
		return
	}
	b.Raw = b.Kind == Other && len(raw) > 0 && raw[0] == '{'
	if b.Kind == Other && !b.IsCall {
		b.Type, b.Field = fieldOf(kind, start)
	}
	a.beginBlock(l, m, b, start)
	if b.IsCall || ServerOf(raw) != nil {
		a.ask(l, call, tool, raw)
	}
}

// elsewhere reports whether a record of a block names a message that is not the open one: it is late.
func (a *Run) elsewhere(l *Lane, id []byte) bool {
	if !isName(id) {
		return false
	}
	if m := l.Message; m != nil && m.Implicit {
		return l.isOver(id)
	} else if m != nil {
		return m.key.Units > 0 && m.key != keyOf(id)
	}
	_, ended := l.findEnd(id)
	return ended && l.gone != keyOf(id) && l.again(id) == nil // what Cut has ended may go on
}

// openFor opens a message for a record that may name it: then the message's start is missing.
func (a *Run) openFor(l *Lane, id []byte) *Message {
	if l.Message != nil || !isName(id) {
		return a.openOrBegin(l)
	}
	m := l.again(id)
	missing := m == nil
	if missing {
		m = &Message{ID: nameOf(id), Role: "assistant", Start: a.seq, key: keyOf(id)}
	}
	a.openMessage(l, m, missing)
	return m
}

// has reports whether a block that begins with an index began already, and is open or says just what it is. One of
// text that has ended is held: it begins with the first piece of it.
func (m *Message) has(b *Block) bool {
	if b.Index < 0 || b.Index >= m.Next { // the rule: it is the next one
		return false
	}
	was := m.search(func(o *Block) bool { return o.Index == b.Index })
	if was != nil && was.Implicit && was.Kind == b.Kind && (was.CallID == "" || was.CallID == b.CallID) { // it is late
		was.Implicit, was.CallID, was.Tool, was.call, was.raw = false, b.CallID, b.Tool, b.call, b.raw
		return true
	}
	if was == nil || was.Word != b.Word || was.CallID != b.CallID || was.Tool != b.Tool || was.raw != b.raw {
		return false
	}
	if m.held = nil; was.Ended && (b.Kind == Text || b.Kind == Thinking) && b.raw == 0 {
		m.held = b
	}
	return true
}

// indexOf returns the producer's index of a block, -1 when there is none.
func indexOf(p jsonscan.Fields) int64 {
	if n, ok := p.Integer("index"); ok {
		return n
	}
	return -1
}

// fieldOf returns the type of a provider's own block, and the member of it that pieces of text fill, which is empty
// when the block begins: the text of a summary, say, is not the answer's. Both are "" where that is not known.
func fieldOf(kind, start []byte) (typ, field string) {
	const most = 64
	if len(kind) > most {
		return "", ""
	}
	for name, v := range jsonscan.Members(start) {
		if string(v) == `""` && len(name) <= most && isWord(name) {
			return string(jsonscan.Inner(kind)), string(name)
		}
	}
	return "", ""
}

// isWord reports whether a name needs no escapes.
func isWord(name []byte) bool {
	for _, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(name) > 0
}

func kindOf(v []byte) BlockKind {
	switch string(v) {
	case `"text"`:
		return Text
	case `"reasoning"`, `"thinking"`:
		return Thinking
	case `"tool_use"`:
		return Call
	}
	return Other
}

// startOf returns the object that a block begins with.
func startOf(b *Block, kind, call, tool, raw []byte) []byte {
	switch {
	case b.Kind == Text:
		return []byte(`{"type":"text","text":""}`)
	case b.Kind == Thinking:
		return []byte(`{"type":"thinking","thinking":""}`)
	case b.Kind == Other && len(raw) > 0 && raw[0] == '{':
		return raw
	case b.Kind == Call:
		kind = []byte(`"tool_use"`)
	}
	o := append([]byte(`{"type":`), kind...)
	if b.IsCall {
		o = append(append(o, `,"id":`...), orString(call)...)
		o = append(append(o, `,"name":`...), orString(tool)...)
		o = append(o, `,"input":{}`...)
	}
	return append(o, '}')
}

func orString(v []byte) []byte {
	if jsonscan.IsString(v) {
		return v
	}
	return []byte(`""`)
}

// beginBlock adds a block to a message.
func (a *Run) beginBlock(l *Lane, m *Message, b *Block, start []byte) {
	if last := m.Newest(); last != nil && last.Implicit && last.state == blockOpen {
		last.state = blockEnded
	}
	if m.ready > 0 && b.Kind != Thinking {
		m.ready = 0
		for _, other := range m.Blocks {
			if other.state == blockComplete {
				a.stop(l, m, other)
			}
		}
	}
	if len(m.Blocks) >= max(maxBlocks, a.limits.Blocks) {
		a.dropBlocks(l, m)
	}
	b.Place = m.CountBlocks()
	if b.Index < 0 {
		b.Index = int64(b.Place)
	}
	m.Next = max(m.Next, b.Index+1)
	if b.Kind == Text {
		b.Nth = m.texts
		m.texts++
	}
	if a.keep(m, blockCost+len(start)) {
		b.head = slices.Clone(start)
	}
	m.Blocks = append(m.Blocks, b)
	a.add(Transition{Kind: BlockOpen, Lane: l, Message: m, Block: b, Value: start, Repaired: b.Implicit})
}

// dropBlocks forgets the oldest blocks. Those that are open close.
func (a *Run) dropBlocks(l *Lane, m *Message) {
	n := len(m.Blocks) / 4
	for _, b := range m.Blocks[:n] {
		a.stop(l, m, b)
	}
	a.lose(m)
	m.Blocks = slices.Delete(m.Blocks, 0, n)
	m.Base += n
}

// stop closes a block, unless it is closed.
func (a *Run) stop(l *Lane, m *Message, b *Block) {
	if b.state != blockClosed {
		b.state = blockClosed
		a.add(Transition{Kind: BlockClose, Lane: l, Message: m, Block: b, Text: a.release(b)})
	}
}

// endBlock reads the end of the block with the index, or of the call, or of the newest one.
func (a *Run) endBlock(l *Lane) {
	m := l.Message
	p := a.read()
	if m == nil || a.elsewhere(l, p.Raw("message_id")) {
		return
	}
	m.name(p.Raw("message_id"))
	index, call := indexOf(p), keyOf(p.Raw("call_id"))
	b := m.Newest()
	if index >= 0 || call.Units > 0 {
		b = m.search(func(b *Block) bool { return b.Index == index || index < 0 && b.call == call })
	}
	if b == nil || b.state == blockClosed || b.Ended && b.Complete {
		return
	}
	t := Transition{Lane: l, Message: m, Block: b}
	say := func(kind Kind, value []byte) {
		t.Kind, t.Value = kind, value
		a.add(t)
	}
	if input := p.Raw("input"); b.IsCall && input != nil {
		if b.Sum.Units == 0 {
			say(BlockInput, input)
		}
		if string(p.Raw("complete")) != "false" && a.keep(m, len(input)) {
			b.input = slices.Clone(input)
		}
	}
	if v := p.Kind("signature", '"'); b.Kind == Thinking && len(v) > 2 {
		say(BlockSignature, v)
		a.tail(m, b, `,"signature":`, v)
	}
	if v := p.Array("citations"); b.Kind == Text && len(v) > 2 {
		say(BlockCitations, v)
		a.tail(m, b, `,"citations":`, v)
	}
	say(BlockEnd, a.head.Payload)
	b.Ended, b.Complete = true, p.Raw("complete") == nil || p.Yes("complete")
	switch {
	case b.Kind != Text && b.Kind != Thinking:
		a.stop(l, m, b)
	case p.Yes("complete"):
		b.state = blockComplete
		m.ready++
	default:
		b.state = blockEnded
	}
}

// tail keeps a member of a block that came with its end.
func (a *Run) tail(m *Message, b *Block, name string, v []byte) {
	if a.keep(m, len(name)+len(v)) {
		b.tail = append(append(slices.Clip(b.tail), name...), v...)
	}
}

// delta reads a piece of text, of a thought, or of a call's input: the path of nearly all records.
func (a *Run) delta(l *Lane, k BlockKind) {
	p := a.read()
	text := p.Kind("text", '"')
	if len(text) < 2 {
		return
	}
	text = text[1 : len(text)-1]
	m := a.openOrBegin(l)
	b := a.blockOf(l, m, k, indexOf(p), p)
	if b.state == blockClosed {
		if a.keep(m, len(text)) {
			b.text = append(b.text, text...)
		}
		return
	}
	b.Free = b.Free || k == Call && b.Sum.Units == 0 && !isJSONStart(text)
	a.piece(l, m, b, 0, text, k == Call)
	if a.keep(m, len(text)) {
		b.text = append(b.text, text...)
	}
}

// Write takes a piece of an open block in place of the delta that the caller has written, which need not be read back.
// text is the inside of a JSON string. The Run must have neither copies nor Limits.Text.
func (a *Run) Write(m *Message, b *Block, text []byte) {
	b.count(text, b.IsCall)
	if a.keep(m, len(text)) {
		b.text = append(b.text, text...)
	}
}

// piece adds a piece of a block.
func (a *Run) piece(l *Lane, m *Message, b *Block, low uint16, text []byte, input bool) {
	first := b.Sum.Units == 0 && len(text) > 0
	n := a.room(l, m, b, low, text)
	a.add(Transition{Kind: BlockText, Lane: l, Message: m, Block: b, Low: low, Text: text, Input: input, First: first})
	if n > 0 {
		a.hold(l, m, b, low, text)
	}
	b.count(text, input)
}

func (b *Block) count(text []byte, input bool) {
	if input {
		b.Inputs += len(text)
		b.Sum.Units += int64(len(text)) // no content is compared with it
	} else {
		b.Sum.Add(text)
	}
}

// isJSONStart reports whether the inside of a string may begin an input as JSON: an object, a list or a string.
// What begins with nothing but space may be anything.
func isJSONStart(inner []byte) bool {
	for i := 0; i < len(inner); {
		u, _, n := jsonscan.UnitsAt(inner, i)
		switch u {
		case ' ', '\t', '\n', '\r':
			i += n
			continue
		}
		return u == '{' || u == '[' || u == '"'
	}
	return true
}

// blockOf returns the block that a piece belongs to, or begins one: the newest with its index that takes its kind, or
// that of its call, or the last one if that is open and takes its kind. So two blocks with one index are distinguished.
func (a *Run) blockOf(l *Lane, m *Message, k BlockKind, index int64, p jsonscan.Fields) *Block {
	var call []byte
	if k == Call {
		call = p.Kind("call_id", '"')
	}
	key := keyOf(call)
	switch {
	case m.held != nil && m.held.Index == index && m.held.canHold(k):
		b := m.held
		m.held = nil
		a.beginBlock(l, m, b, startOf(b, nil, nil, nil, nil))
		return b
	case index >= 0:
		for i := len(m.Blocks) - 1; i >= 0; i-- {
			if b := m.Blocks[i]; b.Index == index && b.canHold(k) {
				return b
			}
		}
	case k == Call && key.Units > 0:
		if b := m.search(func(b *Block) bool { return b.IsCall && b.call == key }); b != nil {
			return b
		}
	case k != Call:
		if b := m.Newest(); b != nil && b.state == blockOpen && b.canHold(k) {
			return b
		}
	}
	b := &Block{Index: index, Kind: k, Implicit: true, Seq: a.seq, IsCall: k == Call, call: key, Word: words[k],
		CallID: nameOf(call)}
	a.beginBlock(l, m, b, startOf(b, nil, call, nil, nil))
	if b.IsCall {
		a.ask(l, call, nil, nil)
	}
	return b
}

// data reads a piece of an image, of sound or of a file. Only its block is returned: the record has the piece.
func (a *Run) data(l *Lane) {
	m := a.openOrBegin(l)
	p := a.read()
	index := indexOf(p)
	b := m.Newest()
	if index >= 0 {
		b = m.search(func(b *Block) bool { return b.Index == index })
	}
	if b != nil && (b.Kind == Data || b.Kind == Other) && (index >= 0 || b.state == blockOpen) {
		if b.Media == nil && a.keep(m, len(p.Raw("media_type"))) {
			b.Media = bytes.Clone(p.Raw("media_type"))
		}
		return
	}
	start := append([]byte(`{"type":"data","media_type":`), orString(p.Raw("media_type"))...)
	if v := p.Kind("name", '"'); len(v) > 2 {
		start = append(append(start, `,"name":`...), v...)
	}
	start = append(start, `,"source":{"kind":"deltas"}}`...)
	b = &Block{Index: index, Kind: Data, Implicit: true, Seq: a.seq, Word: words[Data],
		Media: bytes.Clone(orString(p.Raw("media_type")))}
	a.beginBlock(l, m, b, start)
}

// appendContent appends the block as far as it is kept.
func (b *Block) appendContent(o []byte) []byte {
	cut := func(empty string) []byte { return append(o, bytes.TrimSuffix(b.head, []byte(empty))...) }
	switch {
	case b.Kind == Text, b.Kind == Thinking:
		o = append(append(append(cut(`"}`), b.text...), '"'), b.tail...)
	case b.Kind == Call && b.input != nil:
		o = append(cut(`{}}`), b.input...)
	case b.Kind == Call && len(b.text) > 0:
		o = append(append(append(cut(`"input":{}}`), `"partial_json":"`...), b.text...), '"')
	case b.Kind == Other && len(b.text) > 0 && !b.IsCall:
		o = append(append(append(cut(`}`), `,"text":"`...), b.text...), '"')
	default:
		return append(o, b.head...)
	}
	return append(o, '}')
}
