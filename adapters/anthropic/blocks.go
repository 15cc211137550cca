package anthropic

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// plain reports whether a block's beginning holds nothing that events do not have anyway.
func plain(kind string, base provider.Fields) bool {
	known := map[string][]string{
		"text":     {"type", "text", "citations"},
		"thinking": {"type", "thinking", "signature"},
		"tool_use": {"type", "id", "name", "input"},
	}[kind]
	return known != nil && base.Without(known...) == nil
}

// beginBlock begins a block with what it begins with. A text begins with its first piece: services announce one and go
// on with the thought before.
func (d *machine) beginBlock(index int, source json.RawMessage) *provider.Block {
	if d.Msg == nil {
		d.startMessage(nil) // the provider did not announce it
	}
	source = bytes.Clone(source)
	base, _ := provider.Parse(source)
	kind := base.Str("type")
	b := &provider.Block{Index: d.Next(), Kind: kind, Base: base, Field: "text"}
	switch {
	case strings.HasSuffix(kind, "tool_use"): // also server_tool_use, mcp_tool_use and kinds to come
		b.ToolUse, b.Field = true, ""
		b.Call, b.Tool, b.Input = base.Str("id"), base.Str("name"), base.Get("input")
	case kind == "thinking":
		b.Kind, b.Field = "reasoning", "thinking"
	case kind == "connector_text":
		b.Field = kind
	case strings.HasSuffix(kind, "tool_result"): // of a tool of the provider
		b.Answers = provider.ShortenID(base.Str("tool_use_id"))
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
	if b.Field == kind {
		b.Text(base.Get(kind))
	}
	for _, name := range []string{"signature", "citations"} {
		if v := base.Get(name); provider.HasValue(v) {
			b.Late = b.Late.Set(name, v)
		}
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
	b := d.find(all.Index("index"), func(b *provider.Block) bool {
		ofKind := row.field == "" || b.Base.Str("type") == row.field || b.Base.Get(row.field) != nil
		takes := b.Field == row.field && ofKind
		return b.Open() && (!known || takes && b.ToolUse == (row.field == ""))
	})
	v := delta.Get(row.member)
	text := jsonscan.IsString(v)
	if b == nil && text && (typ == "text_delta" || typ == "thinking_delta") {
		b = d.beginBlock(all.Index("index"), provider.Fields{{Name: "type", Value: provider.Quote(row.field)}}.Encode())
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
	default: // a kind to come, or one whose content is no text
		if typ == "compaction_delta" { // content, and encrypted_content to be sent back as it is
			b.Late = b.Late.Overlay(delta.Without("type"))
		}
		d.Out.Custom(cmp.Or(typ, "content_block_delta"), all)
	}
}

// maxCitations bounds the list of a block's citations, in bytes. More do not fit an event; they are kept one by one.
const maxCitations = schema.MaxEventBytes

// rest keeps what a delta has beside the member that events have, such as the estimated_tokens of
// thoughts that are not shown. null is left out.
func (d *machine) rest(all, delta provider.Fields, member string) {
	hasMore := func(f provider.Field) bool { return !provider.IsNull(f.Value) }
	if slices.ContainsFunc(delta.Without("type", member), hasMore) {
		d.Out.Custom(delta.Str("type"), slices.Clone(all).Set("delta", delta.Without(member).Encode()))
	}
}

// result emits what a block answers to a call, behind its end.
func (d *machine) result(b *provider.Block) {
	content := provider.OrNull(b.Base.Get("content"))
	inner, _ := provider.Parse(content)
	failed := string(b.Base.Get("is_error")) == "true" || strings.HasSuffix(inner.Str("type"), "_error")
	d.Out.Result(b.Base.Str("tool_use_id"), failed, content, b.Base.Str("type"))
}
