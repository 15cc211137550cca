package anthropic

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentstream/producers/provider"
)

// toolUse says that a block calls a tool: tool_use, server_tool_use, mcp_tool_use and kinds to come.
func toolUse(kind string) bool { return kind == "tool_use" || strings.HasSuffix(kind, "_tool_use") }

// toolResult says that a block is what a tool of the provider answered.
func toolResult(kind string) bool {
	return kind == "tool_result" || strings.HasSuffix(kind, "_tool_result")
}

// plain says that a block's beginning holds nothing that events do not say anyway.
func plain(kind string, base provider.Fields) bool {
	known := map[string]string{"text": "text citations", "thinking": "thinking signature", "tool_use": "id name input"}[kind]
	if known == "" {
		return false
	}
	for _, f := range base {
		if f.Name != "type" && !strings.Contains(known, f.Name) {
			return false
		}
	}
	return true
}

// beginBlock tells a block's start and the text that it began with.
func (d *machine) beginBlock(index int, source json.RawMessage) *provider.Block {
	m := d.openMessage()
	source = isObjectOrEmpty(source)
	base, _ := provider.Parse(source)
	kind := base.Str("type")
	b := &provider.Block{Index: index, Kind: kind, Base: base, Field: "text"}
	switch {
	case toolUse(kind):
		b.ToolUse, b.Field = true, ""
		b.Call, b.Tool, b.Input = base.Str("id"), base.Str("name"), base.Get("input")
	case kind == "thinking":
		b.Kind, b.Field = "reasoning", "thinking"
	case toolResult(kind):
		b.Answers = provider.Bounded(base.Str("tool_use_id"))
	}
	if !plain(kind, base) {
		b.Raw = source
	}
	m.Begin(b)
	if v := base.Get("text"); kind == "text" && provider.IsString(v) {
		b.Text(v)
	}
	if v := base.Get("thinking"); kind == "thinking" && provider.IsString(v) {
		b.Text(v)
	}
	if v := base.Get("signature"); provider.IsString(v) && len(v) > 2 {
		b.Late = b.Late.Set("signature", v)
	}
	if v := base.Get("citations"); provider.Elements(v) != nil {
		b.Late = b.Late.Set("citations", provider.List(provider.Elements(v)))
	}
	return b
}

func (d *machine) delta(all provider.Fields) {
	delta := all.Object("delta")
	typ := delta.Str("type")
	b := d.openBlock(all.Index())
	if b == nil {
		if b = d.unannounced(all.Index(), typ); b == nil {
			d.out.Custom("content_block_delta", all)
			return
		}
	}
	value := func(name string) json.RawMessage {
		if v := delta.Get(name); provider.IsString(v) {
			return v
		}
		return nil
	}
	switch {
	case typ == "text_delta" && value("text") != nil && !b.ToolUse:
		b.Text(value("text"))
	case typ == "thinking_delta" && value("thinking") != nil && !b.ToolUse:
		b.Text(value("thinking"))
	case typ == "input_json_delta" && value("partial_json") != nil && b.ToolUse:
		b.Text(value("partial_json"))
	case typ == "signature_delta" && value("signature") != nil:
		b.Late = b.Late.Set("signature", bytes.Clone(value("signature")))
	case typ == "citations_delta" && delta.Get("citation") != nil:
		b.Late = b.Late.Set("citations", cite(b.Late.Get("citations"), delta.Get("citation")))
	default:
		if c := delta.Get("content"); typ == "compaction_delta" && c != nil {
			b.Late = b.Late.Set("content", bytes.Clone(c))
		}
		if typ == "" {
			typ = "content_block_delta"
		}
		d.out.Custom(typ, all)
	}
}

// cite adds one citation to a list, in its space where there is some.
func cite(list, one json.RawMessage) json.RawMessage {
	if len(list) <= len("[]") {
		return provider.List([]json.RawMessage{one})
	}
	list = append(append(list[:len(list)-1], ','), one...)
	return append(list, ']')
}

// unannounced begins a block for a delta that nothing announced: the middle of a stream, perhaps. A
// block that has ended does not begin again.
func (d *machine) unannounced(index int, typ string) *provider.Block {
	if d.msg != nil && d.msg.At(index) != nil || index < 0 {
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

// endBlock tells the end of a block that the provider has ended, and what follows from it: a result is
// the answer of a call.
func (d *machine) endBlock(b *provider.Block) {
	b.End(true)
	kind := b.Base.Str("type")
	if !toolResult(kind) {
		return
	}
	content := provider.OrNull(b.Base.Get("content"))
	inner, _ := provider.Parse(content)
	failed := string(b.Base.Get("is_error")) == "true" || strings.HasSuffix(inner.Str("type"), "_error")
	d.out.Result(b.Base.Str("tool_use_id"), failed, content, kind)
}
