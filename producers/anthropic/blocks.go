package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
)

// startMessage opens a message. Blocks that came whole with it are told at once.
func (d *Decoder) startMessage(m fields) {
	d.abandon("another message began")
	d.msg = &message{id: bounded(m.str("id"))}
	if d.msg.id == "" {
		d.unnamed++
		d.msg.id = fmt.Sprintf("msg_unnamed_%d", d.unnamed)
	}
	role := m.str("role")
	if !slices.Contains([]string{"user", "assistant", "system", "tool"}, role) {
		role = "assistant"
	}
	start := fields{{"message_id", quote(d.msg.id)}, {"role", quote(role)}}
	if v := m.get("model"); isString(v) {
		start = append(start, field{"model", v})
	}
	start = append(start, field{"provider", quote(Provider)})
	if v := m.get("usage"); isObject(v) {
		start = append(start, field{"usage", v})
		d.msg.usage = d.msg.usage.overlay(m.object("usage"))
	}
	for _, f := range m {
		switch f.name {
		case "id", "type", "role", "model", "content", "usage":
		default:
			d.msg.keep(f)
		}
	}
	d.add(schema.TypeMessageStart, start)
	for i, raw := range elements(m.get("content")) {
		if isObject(raw) {
			d.endBlock(d.beginBlock(i, raw), true)
		}
	}
}

// keep stores a member of the message for its end, unless it would take the name of a canonical one.
func (m *message) keep(f field) {
	switch f.name {
	case "message_id", "content", "usage", "error", "incomplete", "omitted", "omitted_bytes":
		return
	case "stop_reason", "stop_sequence":
		if !isString(f.value) && !isNull(f.value) {
			return
		}
	}
	m.end = m.end.overlay(fields{f})
}

func (d *Decoder) messageDelta(all fields) {
	if d.msg == nil {
		d.custom("message_delta", all)
		return
	}
	d.msg.usage = d.msg.usage.overlay(all.object("usage"))
	for _, f := range all.object("delta") {
		d.msg.keep(f)
	}
	for _, f := range all {
		if f.name != "type" && f.name != "delta" && f.name != "usage" {
			d.msg.keep(f)
		}
	}
}

// endMessage closes the open blocks and the message. more are members beside the usual ones.
func (d *Decoder) endMessage(more fields) {
	m := d.msg
	for _, b := range m.blocks {
		if !b.closed {
			d.endBlock(b, false)
		}
	}
	end := fields{
		{"message_id", quote(m.id)}, {"content", m.content()},
		{"stop_reason", orNull(m.end.get("stop_reason"))}, {"stop_sequence", orNull(m.end.get("stop_sequence"))},
	}
	if m.usage != nil {
		end = append(end, field{"usage", m.usage.encode()})
	}
	end = append(end, more...)
	for _, f := range m.end {
		if f.name != "stop_reason" && f.name != "stop_sequence" {
			end = append(end, f)
		}
	}
	d.msg = nil
	d.add(schema.TypeMessageEnd, end)
}

// openMessage gives the open message, or begins one that the provider did not announce.
func (d *Decoder) openMessage() *message {
	if d.msg == nil {
		d.startMessage(nil)
	}
	return d.msg
}

// openBlock gives the block at index if it has begun and not ended.
func (d *Decoder) openBlock(index int) *block {
	if d.msg == nil {
		return nil
	}
	if b := d.msg.at(index); b != nil && !b.closed {
		return b
	}
	return nil
}

func (d *Decoder) startBlock(all fields) {
	m := d.openMessage()
	index := all.index()
	if index < 0 {
		index = len(m.blocks)
	}
	if b := d.openBlock(index); b != nil {
		d.endBlock(b, false)
	}
	d.beginBlock(index, all.get("content_block"))
}

// beginBlock tells a block's start and the text that it began with.
func (d *Decoder) beginBlock(index int, source json.RawMessage) *block {
	m := d.openMessage()
	b := &block{index: index, source: bytes.Clone(source)}
	if !isObject(b.source) {
		b.source = json.RawMessage("{}")
	}
	b.raw, _ = parse(b.source)
	raw := b.raw
	if b.kind = bounded(raw.str("type")); b.kind == "" {
		b.kind = "unknown"
	}
	m.blocks = append(m.blocks, b)
	start := fields{{"index", number(index)}, {"kind", quote(b.canonicalKind())}, {"message_id", quote(m.id)}}
	if b.toolUse() {
		if b.call = bounded(raw.str("id")); b.call == "" {
			b.call = fmt.Sprintf("call_%s_%d", m.id, index)
		}
		if b.tool = bounded(raw.str("name")); b.tool == "" {
			b.tool = "unnamed"
		}
		start = append(start, field{"call_id", quote(b.call)}, field{"tool", quote(b.tool)})
	}
	if call := bounded(raw.str("tool_use_id")); b.toolResult() && call != "" {
		start = append(start, field{"call_id", quote(call)})
	}
	if !b.plain() {
		start = append(start, field{"block", b.source})
	}
	d.add(schema.TypeBlockStart, start)
	if v := raw.get("text"); b.kind == "text" && isString(v) {
		d.text(b, schema.TypeTextDelta, v)
	}
	if v := raw.get("thinking"); b.kind == "thinking" && isString(v) {
		d.text(b, schema.TypeReasoningDelta, v)
	}
	if v := raw.get("signature"); isString(v) && len(v) > 2 {
		b.signature = v
	}
	b.citations = elements(raw.get("citations"))
	return b
}

func (d *Decoder) delta(all fields) {
	delta := all.object("delta")
	typ := delta.str("type")
	b := d.openBlock(all.index())
	if b == nil {
		if b = d.unannounced(all.index(), typ); b == nil {
			d.custom("content_block_delta", all)
			return
		}
	}
	value := func(name string) json.RawMessage {
		if v := delta.get(name); isString(v) {
			return v
		}
		return nil
	}
	switch {
	case typ == "text_delta" && value("text") != nil && !b.toolUse():
		d.text(b, schema.TypeTextDelta, value("text"))
	case typ == "thinking_delta" && value("thinking") != nil && !b.toolUse():
		d.text(b, schema.TypeReasoningDelta, value("thinking"))
	case typ == "input_json_delta" && value("partial_json") != nil && b.toolUse():
		d.text(b, schema.TypeToolInputDelta, value("partial_json"))
	case typ == "signature_delta" && value("signature") != nil:
		b.signature = bytes.Clone(value("signature"))
	case typ == "citations_delta" && delta.get("citation") != nil:
		b.citations = append(b.citations, bytes.Clone(delta.get("citation")))
	default:
		if c := delta.get("content"); typ == "compaction_delta" && c != nil {
			b.replaced = bytes.Clone(c)
		}
		if typ == "" {
			typ = "content_block_delta"
		}
		d.custom(typ, all)
	}
}

// unannounced begins a block for a delta that nothing announced: the middle of a stream, perhaps. A
// block that has ended does not begin again.
func (d *Decoder) unannounced(index int, typ string) *block {
	if d.msg != nil && d.msg.at(index) != nil || index < 0 {
		return nil
	}
	switch typ {
	case "text_delta":
		return d.beginBlock(index, json.RawMessage(`{"type":"text"}`))
	case "thinking_delta":
		return d.beginBlock(index, json.RawMessage(`{"type":"thinking"}`))
	}
	return nil
}

// maxDelta bounds the text of one delta event, in bytes as it is written.
const maxDelta = 256 << 10

// text tells a piece of text, thinking or tool input, and keeps it for the end. The provider's
// empty pieces say nothing.
func (d *Decoder) text(b *block, typ string, value json.RawMessage) {
	in := body(value)
	if len(in) == 0 {
		return
	}
	b.text = append(b.text, in...)
	for _, part := range split(in, maxDelta) {
		payload := fields{{"text", enquote(part)}, {"index", number(b.index)}}
		if typ == schema.TypeToolInputDelta {
			payload = append(fields{{"call_id", quote(b.call)}}, payload...)
		}
		d.add(typ, payload)
	}
}

// endBlock tells a block's end, and what follows from it: a tool use is now a call, a result is its
// answer. finished is false when the provider did not end it.
func (d *Decoder) endBlock(b *block, finished bool) {
	b.closed = true
	end := fields{{"index", number(b.index)}, {"message_id", quote(d.msg.id)}}
	why := ""
	if !finished {
		why = "cut short"
	}
	if b.toolUse() && finished {
		why = b.finishInput()
	}
	if why == "" {
		end = append(end, field{"complete", json.RawMessage("true")})
	} else {
		end = append(end, field{"complete", json.RawMessage("false")}, field{"problem", quote(why)})
	}
	if b.toolUse() {
		end = append(end, field{"call_id", quote(b.call)})
		if b.input != nil {
			end = append(end, field{"input", b.input})
		}
	}
	if b.signature != nil {
		end = append(end, field{"signature", b.signature})
	}
	if b.citations != nil {
		end = append(end, field{"citations", list(b.citations)})
	}
	if b.replaced != nil {
		end = append(end, field{"content", b.replaced})
	}
	d.add(schema.TypeBlockEnd, end)
	if b.toolUse() && why == "" {
		d.add(schema.TypeToolStart, fields{
			{"call_id", quote(b.call)}, {"tool", quote(b.tool)}, {"input", b.input}, {"index", number(b.index)}, {"kind", quote(b.kind)},
		})
	}
	if b.toolResult() && finished {
		d.toolEnd(b)
	}
}

// toolEnd tells what a tool of the provider answered.
func (d *Decoder) toolEnd(b *block) {
	call := bounded(b.raw.str("tool_use_id"))
	if call == "" {
		return // block.start has kept it whole
	}
	content := orNull(b.raw.get("content"))
	inner, _ := parse(content)
	failed := string(b.raw.get("is_error")) == "true" || strings.HasSuffix(inner.str("type"), "_error")
	end := fields{{"call_id", quote(call)}, {"ok", json.RawMessage("true")}, {"output", content}, {"kind", quote(b.kind)}}
	if failed {
		end[1].value, end[2].name = json.RawMessage("false"), "error"
	}
	d.add(schema.TypeToolEnd, end)
}
