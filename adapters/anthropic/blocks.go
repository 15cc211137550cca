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

// beginBlock begins a block with what it begins with. A text begins with its first piece: services announce one and go
// on with the thought before.
func (d *machine) beginBlock(index int, source json.RawMessage) *provider.Block {
	if d.Msg == nil {
		d.startMessage(nil) // the provider did not announce it
	}
	base, _ := provider.Parse(source)
	kind := base.Str("type")
	b := &provider.Block{Index: d.Next(), Kind: kind, Base: base, Field: "text", Place: index, Source: source}
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
		b.Ended = func() { d.result(b) }
	}
	if !plain(kind, base) {
		b.Raw = source
	}
	d.blocks.Add("", index, b)
	if kind == "text" {
		d.Msg.Announce(b)
	} else {
		d.Msg.Begin(b)
	}
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

// rows are the deltas: the member that has the piece, and the field of the blocks that it belongs into.
var rows = map[string]struct{ member, field string }{
	"text_delta":           {"text", "text"},
	"thinking_delta":       {"thinking", "thinking"},
	"connector_text_delta": {"connector_text", "connector_text"},
	"input_json_delta":     {"partial_json", ""},
	"signature_delta":      {"signature", "thinking"},
	"citations_delta":      {"citation", "text"},
}

// delta takes a piece of a block. One of another kind than the block of its index belongs to the newest that is of its
// kind, or begins one.
func (d *machine) delta(all provider.Fields) {
	delta := all.Object("delta")
	typ := delta.Str("type")
	row, known := rows[typ]
	b := d.find(all.Place("index"), func(b *provider.Block) bool {
		takes := b.Field == row.field && (row.field == "" || b.Base.Str("type") == row.field || b.Base.Get(row.field) != nil)
		return b.Open() && (!known || takes && b.ToolUse == (row.field == ""))
	})
	v := delta.Get(row.member)
	text := provider.IsString(v)
	if b == nil && text && (typ == "text_delta" || typ == "thinking_delta") {
		b = d.beginBlock(all.Place("index"), provider.Fields{{Name: "type", Value: provider.Quote(row.field)}}.Encode())
	}
	switch {
	case b == nil:
		d.Out.Custom("content_block_delta", all)
	case typ == "citations_delta" && v != nil && len(b.Late.Get("citations")) < maxCitations:
		b.Late = b.Late.Set("citations", provider.Append(b.Late.Get("citations"), v))
	case typ == "signature_delta" && text:
		b.Late = b.Late.Set(row.member, bytes.Clone(v))
		d.rest(all, delta, row.member)
	case known && text:
		b.Text(v)
		d.rest(all, delta, row.member)
	default:
		d.other(b, typ, all, delta)
	}
}

// other takes a delta of a kind to come, or one whose content is no text.
func (d *machine) other(b *provider.Block, typ string, all, delta provider.Fields) {
	if typ == "compaction_delta" { // content, and encrypted_content to be sent back as it is
		for _, f := range delta.Without("type") {
			b.Late = b.Late.Set(f.Name, bytes.Clone(f.Value))
		}
	}
	if typ == "" {
		typ = "content_block_delta"
	}
	d.Out.Custom(typ, all)
}

// maxCitations bounds the list of a block's citations, in bytes. More do not fit an event; they are kept one by one.
const maxCitations = schema.MaxEventBytes

// rest keeps what a delta has beside the member that events have, such as the estimated_tokens of
// thoughts that are not shown. null is left out.
func (d *machine) rest(all, delta provider.Fields, member string) {
	more := slices.ContainsFunc(delta, func(f provider.Field) bool {
		return f.Name != "type" && f.Name != member && !provider.IsNull(f.Value)
	})
	if !more {
		return
	}
	d.Out.Custom(delta.Str("type"), slices.Clone(all).Set("delta", delta.Without(member).Encode()))
}

// result emits what a block answers to a call, behind its end.
func (d *machine) result(b *provider.Block) {
	content := provider.OrNull(b.Base.Get("content"))
	inner, _ := provider.Parse(content)
	failed := string(b.Base.Get("is_error")) == "true" || strings.HasSuffix(inner.Str("type"), "_error")
	d.Out.Result(b.Base.Str("tool_use_id"), failed, content, b.Base.Str("type"))
}
