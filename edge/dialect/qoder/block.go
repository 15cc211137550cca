package qoder

import (
	"slices"

	"agentstream/schema"
)

func (p *Projector) startBlock(m *message) {
	b := block{index: -1, seq: p.rec.Seq}
	var kind, call, tool, raw, free []byte
	for r := readObject(p.rec.payload); ; {
		name, v, ok := r.next()
		if !ok {
			break
		}
		switch string(name) {
		case "index":
			b.index = whole(v)
		case "kind":
			kind = v
		case "call_id":
			call = v
		case "tool":
			tool = v
		case "block":
			raw = v
		case "free_text":
			free = v
		}
	}
	if !isString(kind) {
		kind = []byte(`"unknown"`)
	}
	b.kind = kindOf(kind)
	b.isCall = b.kind == kindCall || isString(tool)
	b.call = tallyOf(inner(call))
	b.free = string(free) == "true"
	start := startOf(b, kind, call, tool, raw)
	if b.kind == kindOther && !b.isCall {
		b.word, b.field = wordOf(kind, start)
	}
	p.beginBlock(m, b, start)
}

// wordOf returns the type of a provider's own block, and the member of it that pieces of text fill, which is empty
// when the block begins: what clients append as the answer's text is not the text of a summary, say. Both are
// empty where nothing is known.
func wordOf(kind, start []byte) (word, field string) {
	if len(kind) > maxWord {
		return "", ""
	}
	for r := readObject(start); ; {
		name, v, ok := r.next()
		switch {
		case !ok:
			return "", ""
		case string(v) == `""` && isWord(name):
			return string(inner(kind)), string(name)
		}
	}
}

const maxWord = 64

// isWord reports whether a name needs no escapes.
func isWord(name []byte) bool {
	for _, c := range name {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return false
		}
	}
	return len(name) > 0 && len(name) <= maxWord
}

func kindOf(v []byte) kind {
	switch string(v) {
	case `"text"`:
		return kindText
	case `"reasoning"`, `"thinking"`:
		return kindThinking
	case `"tool_use"`:
		return kindCall
	}
	return kindOther
}

// startOf is the content_block that a block begins with.
func startOf(b block, kind, call, tool, raw []byte) []byte {
	switch {
	case b.kind == kindText:
		return []byte(`{"type":"text","text":""}`)
	case b.kind == kindThinking:
		return []byte(`{"type":"thinking","thinking":""}`)
	case b.kind == kindOther && len(raw) > 0 && raw[0] == '{':
		return raw
	case b.kind == kindCall:
		kind = []byte(`"tool_use"`)
	}
	o := append([]byte(`{"type":`), kind...)
	if b.isCall {
		o = append(append(o, `,"id":`...), orString(call)...)
		o = append(append(o, `,"name":`...), orString(tool)...)
		o = append(o, `,"input":{}`...)
	}
	return append(o, '}')
}

func orString(v []byte) []byte {
	if isString(v) {
		return v
	}
	return []byte(`""`)
}

// beginBlock takes a block up and tells its beginning.
func (p *Projector) beginBlock(m *message, b block, start []byte) *block {
	if last := m.newest(); last != nil && last.implicit && last.state == blockOpen {
		last.state = blockEnded
	}
	for i := range m.blocks {
		if m.blocks[i].state == blockWhole && b.kind != kindThinking {
			p.stop(m, &m.blocks[i])
		}
	}
	if len(m.blocks) >= maxBlocks {
		p.drop(m)
	}
	b.place = m.began()
	if b.index < 0 {
		b.index = int64(b.place)
	}
	if b.kind == kindText {
		b.text = m.texts
		m.texts++
	}
	if m.keep(blockCost + len(start)) {
		b.head = slices.Clone(start)
	}
	m.blocks = append(m.blocks, b)
	p.emitBlockStart(m, b.place, start)
	return m.newest()
}

// blockCost is what a remembered block takes, about, beside what it keeps.
const blockCost = 256

// drop forgets the oldest blocks. Those that are open stop.
func (p *Projector) drop(m *message) {
	const n = maxBlocks / 4
	for i := range m.blocks[:n] {
		p.stop(m, &m.blocks[i])
	}
	m.lose()
	m.blocks = slices.Delete(m.blocks, 0, n)
	m.base += n
}

// stop emits the end of a block, unless it was emitted before. Nothing of the block follows it.
func (p *Projector) stop(m *message, b *block) {
	if b.state == blockStopped {
		return
	}
	b.state = blockStopped
	if b.quoted {
		p.emitPiece(m, b, kindCall, 0, nil)
	}
	p.emitBlockStop(m, b.place)
}

func (p *Projector) endBlock(m *message) {
	if m == nil {
		return
	}
	var call, input, signature, citations, complete []byte
	index := int64(-1)
	for r := readObject(p.rec.payload); ; {
		name, v, ok := r.next()
		if !ok {
			break
		}
		switch string(name) {
		case "index":
			index = whole(v)
		case "call_id":
			call = v
		case "complete":
			complete = v
		case "input":
			input = v
		case "signature":
			signature = v
		case "citations":
			citations = v
		}
	}
	b := m.ended(index, tallyOf(inner(call)))
	if b == nil || b.state == blockStopped {
		return
	}
	if b.isCall && input != nil {
		if b.said.units == 0 {
			p.emitInput(m, b, input)
		}
		if string(complete) != "false" && m.keep(len(input)) {
			b.input = slices.Clone(input)
		}
	}
	if b.kind == kindThinking && len(inner(signature)) > 0 {
		p.emitSignature(m, b.place, signature)
		m.tail(b, `,"signature":`, signature)
	}
	if b.kind == kindText && len(citations) > 2 && citations[0] == '[' {
		p.emitCitations(m, b.place, citations)
		m.tail(b, `,"citations":`, citations)
	}
	if b.kind == kindText || b.kind == kindThinking {
		if b.state = blockEnded; string(complete) == "true" {
			b.state = blockWhole
		}
		return
	}
	p.stop(m, b)
}

// ended returns the block that a block.end is of: that with the index, or of the call, or the newest.
func (m *message) ended(index int64, call tally) *block {
	if index < 0 && call.units == 0 {
		return m.newest()
	}
	return m.search(func(b *block) bool { return b.index == index || index < 0 && b.call == call })
}

func (m *message) search(fn func(b *block) bool) *block {
	for i := len(m.blocks) - 1; i >= 0; i-- {
		if b := &m.blocks[i]; fn(b) {
			return b
		}
	}
	return nil
}

// tail keeps a member of a block that came with its end.
func (m *message) tail(b *block, name string, v []byte) {
	if m.keep(len(name) + len(v)) {
		b.tail = append(append(slices.Clip(b.tail), name...), v...)
	}
}

// delta reads a piece of text, of a thought, or of a call's input: the path of nearly all records.
func (p *Projector) delta(l *lane) {
	var said, call []byte
	index := int64(-1)
	for r := readObject(p.rec.payload); ; {
		name, v, ok := r.next()
		if !ok {
			break
		}
		switch string(name) {
		case "text":
			said = v
		case "index":
			index = whole(v)
		case "call_id":
			call = v
		}
	}
	if !isString(said) {
		return
	}
	said = said[1 : len(said)-1]
	k := kindText
	switch string(p.rec.Type) {
	case schema.TypeReasoningDelta:
		k = kindThinking
	case schema.TypeToolInputDelta:
		k = kindCall
	}
	m := p.opened(l)
	b := p.speaking(m, k, index, call)
	if b.state != blockStopped {
		b.free = b.free || k == kindCall && b.said.units == 0 && !beginsJSON(said)
		p.emitPiece(m, b, k, 0, said)
	}
	if m.keep(len(said)) {
		b.inner = append(b.inner, said...)
	}
	if k == kindCall {
		b.said.units += int64(len(said)) // no content is compared with it
	} else {
		b.said.add(said)
	}
}

// beginsJSON reports whether the inside of a string may begin an input as JSON: an object, a list or a string. What
// begins with nothing but space may be anything.
func beginsJSON(in []byte) bool {
	for i := 0; i < len(in); {
		u, _, n := unitsAt(in, i)
		switch u {
		case ' ', '\t', '\n', '\r':
			i += n
			continue
		}
		return u == '{' || u == '[' || u == '"'
	}
	return true
}

// speaking returns the block that a piece belongs to, or begins one: the newest with its index, or of its call, or
// else the last one if that is open and of its kind.
func (p *Projector) speaking(m *message, k kind, index int64, call []byte) *block {
	if index >= 0 {
		for i := len(m.blocks) - 1; i >= 0; i-- {
			if b := &m.blocks[i]; b.index == index && b.takes(k) {
				return b
			}
		}
	} else if k == kindCall {
		if of := tallyOf(inner(call)); of.units > 0 {
			if b := m.search(func(b *block) bool { return b.isCall && b.call == of }); b != nil {
				return b
			}
		}
	} else if b := m.newest(); b != nil && b.state == blockOpen && b.takes(k) {
		return b
	}
	b := block{index: index, kind: k, implicit: true, seq: p.rec.Seq, isCall: k == kindCall, call: tallyOf(inner(call))}
	return p.beginBlock(m, b, startOf(b, nil, call, nil, nil))
}

// takes reports whether pieces of a kind may be the block's.
func (b *block) takes(k kind) bool {
	return b.kind == k || b.kind == kindOther && (k != kindCall || b.isCall)
}

// data reads a piece of an image, of sound or of a file. Increments have no pieces of those (seed 001): a block
// says that there is some.
func (p *Projector) data(m *message) {
	var media, file []byte
	index := int64(-1)
	for r := readObject(p.rec.payload); ; {
		name, v, ok := r.next()
		if !ok {
			break
		}
		switch string(name) {
		case "media_type":
			media = v
		case "name":
			file = v
		case "index":
			index = whole(v)
		}
	}
	b := m.newest()
	if index >= 0 {
		b = m.find(index)
	}
	if b != nil && (b.kind == kindData || b.kind == kindOther) && (index >= 0 || b.state == blockOpen) {
		return
	}
	start := append([]byte(`{"type":"data","media_type":`), orString(media)...)
	if len(inner(file)) > 0 {
		start = append(append(start, `,"name":`...), file...)
	}
	start = append(start, `,"source":{"kind":"deltas"}}`...)
	p.beginBlock(m, block{index: index, kind: kindData, implicit: true, seq: p.rec.Seq}, start)
}

// content is the message as far as it is kept, as a list of blocks.
func (m *message) content() []byte {
	o := []byte{'['}
	for i := range m.blocks {
		if i > 0 {
			o = append(o, ',')
		}
		o = m.blocks[i].appendContent(o)
	}
	return append(o, ']')
}

func (b *block) appendContent(o []byte) []byte {
	cut := func(empty string) []byte { return append(o, b.head[:max(0, len(b.head)-len(empty))]...) }
	switch {
	case b.kind == kindText:
		o = append(append(append(cut(`"}`), b.inner...), '"'), b.tail...)
	case b.kind == kindThinking:
		o = append(append(append(cut(`"}`), b.inner...), '"'), b.tail...)
	case b.kind == kindCall && b.input != nil:
		o = append(cut(`{}}`), b.input...)
	case b.kind == kindCall && len(b.inner) > 0:
		o = append(append(append(cut(`"input":{}}`), `"partial_json":"`...), b.inner...), '"')
	case b.kind == kindOther && len(b.inner) > 0 && !b.isCall:
		o = append(append(append(cut(`}`), `,"text":"`...), b.inner...), '"')
	default:
		return append(o, b.head...)
	}
	return append(o, '}')
}
