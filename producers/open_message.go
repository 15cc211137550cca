package producers

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/schema"
)

// openMessage is a message between its start and its end.
type openMessage struct {
	id     string
	blocks []*openBlock
	next   int // index of the next block that has none
	usage  json.RawMessage
	spent  int // bytes of usage that was not kept
	size   int // bytes that the content takes, as far as it is kept
	lost   int // bytes that were not kept any more; with any of them there is no content
	inputs int // bytes of the inputs that are open
}

type openBlock struct {
	index       int
	kind        string
	call, tool  string
	text        []byte          // inside of the JSON string
	cut         int             // bytes of an input that were not kept
	raw         json.RawMessage // "block" of block.start
	input       json.RawMessage
	signature   json.RawMessage
	data        bool // it comes in pieces of data
	media, name string
	closed      bool
	complete    bool
}

const (
	// maxKept bounds what is kept of one open message, in bytes: more would not fit the event that ends it.
	maxKept = 384 << 10
	// maxUsage bounds the usage that is kept of one, in bytes.
	maxUsage = 16 << 10
	// maxBegun bounds the inputs of one message that are open, in bytes. One call's is at most maxKept.
	maxBegun = 4 << 20
	// blockCost is what a block takes of the content beside its own values, at most.
	blockCost = 96
	// maxLostName bounds the names of blocks whose content is not kept.
	maxLostName = 64
)

// newOpenMessage returns nil for one without an id that could be repeated.
func newOpenMessage(f openFields) *openMessage {
	m := &openMessage{id: f.id("message_id")}
	if m.id == "" {
		return nil
	}
	if m.usage = f["usage"]; len(m.usage) > maxUsage {
		m.usage, m.spent = nil, len(m.usage)
	}
	return m
}

// room counts n bytes of content. Content that does not fit an event is not kept at all.
func (m *openMessage) room(n int) bool {
	if m.lost == 0 && m.size+n <= maxKept {
		m.size += n
		return true
	}
	if m.lost == 0 {
		for _, b := range m.blocks {
			b.release()
		}
	}
	m.lost += n
	return false
}

// release forgets what only the content would have.
func (b *openBlock) release() {
	b.raw, b.signature, b.input = nil, nil, nil
	if !b.isCall() || b.closed {
		b.text = nil
	}
}

func (b *openBlock) isCall() bool { return b.tool != "" || b.kind == "tool_use" }

// begin takes a block up. index -1 is the next one.
func (m *openMessage) begin(index int, kind, call, tool string) *openBlock {
	if index < 0 {
		index = m.next
	}
	m.next = max(m.next, index+1)
	if !m.room(blockCost + escapedLen(kind) + escapedLen(call) + escapedLen(tool)) {
		kind, tool = kind[:min(len(kind), maxLostName)], tool[:min(len(tool), maxLostName)]
	}
	if len(m.blocks) >= maxOpen {
		m.forget()
	}
	b := &openBlock{index: index, kind: strings.Clone(kind), call: call, tool: strings.Clone(tool)}
	m.blocks = append(m.blocks, b)
	return b
}

// forget makes room for more blocks: the content goes, and of blocks that are still open the oldest.
func (m *openMessage) forget() {
	m.room(maxKept)
	m.blocks = slices.DeleteFunc(m.blocks, func(b *openBlock) bool { return b.closed })
	for len(m.blocks) > maxOpen/2 {
		b := m.blocks[0]
		m.closeInput(b)
		b.closed = true
		m.blocks = m.blocks[1:]
	}
	m.blocks = slices.Clone(m.blocks)
}

// add keeps a piece of a block, while there is room. An input is kept also where the content is not: the call
// is made with it.
func (m *openMessage) add(b *openBlock, text []byte) {
	kept := m.room(len(text))
	if b.isCall() && !b.closed {
		if kept = b.cut == 0 && len(b.text)+len(text) <= maxKept && m.inputs+len(text) <= maxBegun; !kept {
			m.inputs -= len(b.text)
			b.cut += len(b.text) + len(text)
			b.text = nil
			return
		}
		m.inputs += len(text)
	}
	if kept {
		b.text = append(b.text, text...)
	}
}

// closeInput ends the text of an input.
func (m *openMessage) closeInput(b *openBlock) {
	if b.isCall() && !b.closed {
		m.inputs -= len(b.text)
	}
}

// find returns the newest block with an index, or of a call, or the last one where neither is given.
func (m *openMessage) find(index int, call string) *openBlock {
	for i := len(m.blocks) - 1; i >= 0; i-- {
		b := m.blocks[i]
		if index >= 0 && b.index == index || index < 0 && (call == "" || b.call == call) {
			return b
		}
	}
	return nil
}

func (m *openMessage) see(typ string, f openFields) {
	switch typ {
	case schema.TypeBlockStart:
		b := m.begin(f.index(), f.str("kind"), f.id("call_id"), f.str("tool"))
		if raw := f["block"]; len(raw) > 0 && raw[0] == '{' && m.room(len(raw)) {
			b.raw = raw
		}
	case schema.TypeBlockEnd:
		if b := m.find(f.index(), f.id("call_id")); b != nil {
			m.end(b, f)
		}
	case schema.TypeDataDelta:
		m.data(f)
	}
}

// end closes a block. Its text is not kept beside the input that it makes.
func (m *openMessage) end(b *openBlock, f openFields) {
	m.closeInput(b)
	b.closed, b.complete = true, f["complete"] == nil || string(f["complete"]) == "true"
	if in := f["input"]; in != nil {
		if b.complete && b.isCall() {
			m.size -= min(m.size, len(b.text))
			b.text = nil
		}
		if m.room(len(in)) {
			b.input = in
		}
	}
	if s := f["signature"]; len(s) > 0 && s[0] == '"' && m.room(len(s)) {
		b.signature = s
	}
	if m.lost > 0 {
		b.release()
	}
}

// data takes a piece of data, of which only the fact is noted.
func (m *openMessage) data(f openFields) {
	index, media, name := f.index(), f.str("media_type"), f.str("name")
	b := m.find(index, "")
	if b == nil || index < 0 && (b.closed || b.kind != "data" || b.data && (b.media != media || b.name != name)) {
		b = m.begin(index, "data", "", "")
	}
	if b.data {
		return
	}
	if b.data = true; m.room(escapedLen(media) + len(name)) {
		b.media, b.name = media, name
	}
}

// close emits the end of a message that was cut short.
func (m *openMessage) close(c Closing, add func(string, json.RawMessage)) {
	for _, b := range m.blocks {
		if !b.closed {
			add(schema.TypeBlockEnd, object(nil).integer("index", int64(b.index)).text("message_id", m.id).
				yes("complete", false).text("problem", "cut short").str("call_id", b.call).end())
		}
	}
	end := object(nil).text("message_id", m.id)
	if m.lost == 0 {
		end = end.raw("content", m.content())
	}
	end = end.text("stop_reason", c.word()).raw("stop_sequence", []byte("null"))
	if len(m.usage) > 0 && m.usage[0] == '{' {
		end = end.raw("usage", m.usage)
	}
	end = end.yes("incomplete", true)
	if c.Failed {
		end = end.raw("error", object(nil).text("type", "error").str("message", shortened(c.Reason, maxReason)).end())
	}
	add(schema.TypeMessageEnd, m.omitted(end, m.spent).end())
}

// omitted returns what the end of a message leaves out.
func (m *openMessage) omitted(end object, spent int) object {
	var names []string
	bytes := spent
	if m.lost > 0 {
		names, bytes = append(names, `"content"`), bytes+m.size+m.lost
	}
	if spent > 0 {
		names = append(names, `"usage"`)
	}
	if names == nil {
		return end
	}
	return end.raw("omitted", []byte("["+strings.Join(names, ",")+"]")).integer("omitted_bytes", int64(bytes))
}

// content returns the message so far as a list of blocks.
func (m *openMessage) content() json.RawMessage {
	out := []byte{'['}
	for i, b := range m.blocks {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, b.content()...)
	}
	return append(out, ']')
}

// content returns the block so far. A call whose input is not complete carries what there is of it as
// partial_json.
func (b *openBlock) content() json.RawMessage {
	switch {
	case b.tool != "" && b.complete && (b.input != nil || len(b.text) == 0):
		input := b.input
		if input == nil {
			input = json.RawMessage("{}")
		}
		return object(nil).text("type", b.kind).text("id", b.call).text("name", b.tool).raw("input", input).end()
	case b.isCall():
		return object(nil).text("type", b.kind).text("id", b.call).text("name", b.tool).inner("partial_json", b.text).end()
	case b.kind == "reasoning":
		return object(nil).text("type", "thinking").inner("thinking", b.text).raw("signature", b.signature).end()
	case b.data && len(b.text) == 0:
		return object(nil).text("type", b.kind).text("media_type", b.media).raw("source", []byte(`{"kind":"deltas"}`)).end()
	case b.raw != nil && len(b.text) == 0:
		return bytes.TrimSpace(b.raw)
	}
	return object(nil).text("type", b.kind).inner("text", b.text).end()
}
