package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// rows are the events with pieces of items, without "response." and what they do: delta, done.
var rows = map[string]struct {
	typ    string // of the item
	kind   string // of the part; "" is the input of a call
	index  string // member that has the place of the part
	member string // that has the whole of it
}{
	"output_text":                {"message", "text", "content_index", "text"},
	"refusal":                    {"message", "refusal", "content_index", "refusal"},
	"reasoning_text":             {"reasoning", "raw", "content_index", "text"},
	"reasoning_summary_text":     {"reasoning", "reasoning", "summary_index", "text"},
	"function_call_arguments":    {"function_call", "", "", "arguments"},
	"custom_tool_call_input":     {"custom_tool_call", "", "", "input"},
	"mcp_call_arguments":         {"mcp_call", "", "", "arguments"},
	"code_interpreter_call_code": {"code_interpreter_call", "", "", "code"},
}

// partKinds are the kinds of blocks for the types of parts.
var partKinds = map[string]string{
	"output_text": "text", "text": "text", "refusal": "refusal", "summary_text": "reasoning", "reasoning_text": "raw",
}

// piece takes an event with a part of an item. false: it has no place, and is kept as it is.
func (d *responses) piece(typ string, all provider.Fields) bool {
	name := strings.TrimPrefix(typ, "response.")
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return false
	}
	name, what := name[:dot], name[dot+1:]
	switch name {
	case "content_part":
		return d.contentPart(all, "content_index", what)
	case "reasoning_summary_part":
		return d.contentPart(all, "summary_index", what)
	case "output_text.annotation":
		return what == "added" && d.annotation(all)
	case "image_generation_call":
		return what == "partial_image" && d.partialImage(all)
	}
	row, known := rows[name]
	value := all.Get(row.member)
	if what == "delta" {
		value = all.Get(what)
	}
	if !known || what != "delta" && what != "done" || !jsonscan.IsString(value) {
		return false
	}
	b := d.blockOf(row.typ, partKey{row.kind, max(all.Index(row.index), 0)}, all, nil)
	switch {
	case b == nil || what == "delta" && !b.Open():
		return false
	case what == "done" && row.kind == "":
		return b.Settle(value)
	case what == "done":
		return d.settle(b, row.kind, all)
	}
	b.Text(value)
	d.refused = d.refused || row.kind == "refusal" && provider.HasValue(value)
	logprobs(d.Out, b.Index, all)
	return true
}

// blockOf returns the block of a piece. A part begins where nothing has announced it; the input of a call does not, for
// the end of the item has all of it. nil: the piece has no place.
func (d *responses) blockOf(typ string, key partKey, all provider.Fields, raw json.RawMessage) *provider.Block {
	n := all.Index("output_index")
	it := d.find(all, all.Str("item_id"), typ)
	if typ != "message" && typ != "reasoning" {
		if it == nil || !it.head.ToolUse {
			return nil
		}
		return it.head
	}
	if it == nil && d.items.Find("", n, anyItem) == nil {
		it = d.openItem(n, provider.Fields{
			{Name: "type", Value: provider.Quote(typ)}, {Name: "id", Value: provider.OrNull(all.Get("item_id"))},
		})
	}
	if it == nil {
		return nil
	}
	return d.partOf(it, key, raw)
}

// contentPart takes the announcement of a part, or the whole of it.
func (d *responses) contentPart(all provider.Fields, index, what string) bool {
	src := all.Object("part")
	key := partKey{partKinds[src.Str("type")], max(all.Index(index), 0)}
	if src == nil || what != "added" && what != "done" || key.kind == "" && len(src) > maxMembers {
		return false
	}
	typ := "message"
	if key.kind == "reasoning" || key.kind == "raw" {
		typ = "reasoning"
	}
	b := d.blockOf(typ, key, all, all.Get("part"))
	if b == nil {
		return false
	}
	if what == "done" {
		return d.settle(b, key.kind, src)
	}
	if text := src.Get("text"); jsonscan.IsString(text) && key.kind != "" && b.Open() && b.Len() == 0 {
		b.Text(text)
	}
	return true
}

// completeParts compares parts with what was emitted of them, and emits those that were not.
func (d *responses) completeParts(it *item, list json.RawMessage) (agrees bool) {
	agrees = true
	for i, raw := range provider.Elements(list) {
		src, ok := provider.Parse(raw)
		if !ok {
			d.Out.Custom("part", provider.Fields{{Name: "part", Value: raw}})
			continue
		}
		key := partKey{partKinds[src.Str("type")], i}
		b := d.partOf(it, key, raw)
		if b == nil {
			d.Out.Custom("part", src)
		} else {
			agrees = d.settle(b, key.kind, src) && agrees
		}
	}
	return agrees
}

// settle takes the whole of a part. It reports whether that agrees with its pieces.
func (d *responses) settle(b *provider.Block, kind string, src provider.Fields) bool {
	if !b.Open() {
		return true
	}
	if list := provider.Elements(src.Get("annotations")); len(list) > 0 {
		b.Late = b.Late.Set("annotations", provider.List(list))
	}
	if kind == "" {
		b.Base = src.Copy()
		return true
	}
	text := src.Get("text")
	if kind == "refusal" {
		text = src.Get("refusal")
		d.refused = d.refused || jsonscan.IsString(text) && provider.HasValue(text)
	}
	if b.Len() == 0 {
		logprobs(d.Out, b.Index, src)
	}
	return b.Settle(text)
}

// annotation takes a source of a text.
func (d *responses) annotation(all provider.Fields) bool {
	b, v := d.blockOf("message", partKey{"text", max(all.Index("content_index"), 0)}, all, nil), all.Get("annotation")
	if b == nil || !b.Open() || v == nil {
		return false
	}
	b.Late = b.Late.Set("annotations", provider.Append(b.Late.Get("annotations"), v))
	return true
}

// partialImage takes an image that is not finished. It is whole in itself: a block of its own.
func (d *responses) partialImage(all provider.Fields) bool {
	data := all.Get("partial_image_b64")
	if !isBase64(data) || len(all) > maxMembers {
		return false
	}
	if d.Msg == nil {
		d.open(nil)
	}
	b := d.image("partial_image_"+string(provider.Number(max(all.Index("partial_image_index"), 0))), data, all)
	own := []string{"type", "sequence_number", "output_index", "partial_image_b64", "partial_image_index"}
	for _, f := range all.Without(own...) {
		if provider.HasValue(f.Value) {
			b.Late = append(b.Late, provider.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
		}
	}
	b.End(true)
	return true
}

// image begins a block with an image that the provider made.
func (d *responses) image(name string, data json.RawMessage, src provider.Fields) *provider.Block {
	media := "image/png"
	if format := src.Str("output_format"); format != "" && len(format) < 32 {
		media = "image/" + format
	}
	rest := provider.Fields{{Name: "name", Value: provider.Quote(name)}}
	b := d.Msg.Begin(provider.DataBlock(d.Next(), media, rest))
	b.Data(data)
	return b
}
