package anthropic

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// toolUse reports whether a block calls a tool: tool_use, server_tool_use, mcp_tool_use and kinds to come.
func toolUse(kind string) bool { return kind == "tool_use" || strings.HasSuffix(kind, "_tool_use") }

// toolResult reports whether a block is what a tool of the provider answered.
func toolResult(kind string) bool {
	return kind == "tool_result" || strings.HasSuffix(kind, "_tool_result")
}

// plain reports whether a block's beginning holds nothing that events do not have anyway.
func plain(kind string, base provider.Fields) bool {
	known := map[string][]string{"text": {"text", "citations"}, "thinking": {"thinking", "signature"}, "tool_use": {"id", "name", "input"}}[kind]
	return known != nil && !slices.ContainsFunc(base, func(f provider.Field) bool {
		return f.Name != "type" && !slices.Contains(known, f.Name)
	})
}

// beginBlock emits a block's start and the text that it began with.
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
	case kind == "connector_text":
		b.Field = kind
	case toolResult(kind):
		b.Answers = provider.Bounded(base.Str("tool_use_id"))
	}
	if !plain(kind, base) {
		b.Raw = source
	}
	m.Begin(b)
	if v := base.Get(kind); (kind == "text" || kind == "thinking" || kind == "connector_text") && provider.IsString(v) {
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
	if typ == "citations_delta" && delta.Get("citation") != nil && len(b.Late.Get("citations")) < maxCitations {
		b.Late = b.Late.Set("citations", cite(b.Late.Get("citations"), delta.Get("citation")))
		return
	}
	member := deltaMember(typ, b)
	if v := delta.Get(member); member != "" && provider.IsString(v) {
		if member == "signature" {
			b.Late = b.Late.Set(member, bytes.Clone(v))
		} else {
			b.Text(v)
		}
		d.rest(all, delta, member)
		return
	}
	if typ == "compaction_delta" { // content, and encrypted_content to be sent back as it is
		for _, f := range delta {
			if f.Name != "type" {
				b.Late = b.Late.Set(f.Name, bytes.Clone(f.Value))
			}
		}
	}
	if typ == "" {
		typ = "content_block_delta"
	}
	d.out.Custom(typ, all)
}

// maxCitations bounds the list of a block's citations, in bytes. More do not fit an event; they are
// kept one by one.
const maxCitations = schema.MaxEventBytes

// emitted returns the member of a delta that events of the catalogue have of such a block; "" for none.
func deltaMember(typ string, b *provider.Block) string {
	switch typ {
	case "input_json_delta":
		if b.ToolUse {
			return "partial_json"
		}
		return ""
	case "text_delta", "thinking_delta", "connector_text_delta":
		if b.ToolUse {
			return ""
		}
		return strings.TrimSuffix(typ, "_delta")
	case "signature_delta":
		return "signature"
	}
	return ""
}

// rest keeps what a delta has beside the member that events have, such as the estimated_tokens of
// thoughts that are not shown. null is left out.
func (d *machine) rest(all, delta provider.Fields, member string) {
	more := slices.ContainsFunc(delta, func(f provider.Field) bool {
		return f.Name != "type" && f.Name != member && !provider.IsNull(f.Value)
	})
	if !more {
		return
	}
	kept := slices.DeleteFunc(slices.Clone(delta), func(f provider.Field) bool { return f.Name == member })
	d.out.Custom(delta.Str("type"), slices.Clone(all).Set("delta", kept.Encode()))
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

// endBlock emits the end of a block that the provider has ended, and what follows from it: a result is
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
