package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
)

// piece takes an event with a part of an item. false: it has no place, and is kept as it is.
func (d *responses) piece(typ string, all provider.Fields) bool {
	name, what, _ := cutLast(strings.TrimPrefix(typ, "response."))
	switch name {
	case "output_text", "refusal", "reasoning_text", "reasoning_summary_text":
		return d.text(name, what, all)
	case "content_part":
		return d.contentPart(all, "content_index", what)
	case "reasoning_summary_part":
		return d.contentPart(all, "summary_index", what)
	case "output_text.annotation":
		return what == "added" && d.annotation(all)
	case "function_call_arguments", "mcp_call_arguments", "custom_tool_call_input", "code_interpreter_call_code":
		kind, member, _ := cutLast(strings.Replace(name, "_call_", "_call.", 1))
		return d.input(kind, what, member, all)
	case "image_generation_call":
		return what == "partial_image" && d.partialImage(all)
	}
	return false
}

func cutLast(s string) (before, after string, ok bool) {
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// text takes a piece of text, or the whole of it.
func (d *responses) text(name, what string, all provider.Fields) bool {
	kind, index := "text", "content_index"
	switch name {
	case "refusal":
		kind = "refusal"
	case "reasoning_text":
		kind = "raw"
	case "reasoning_summary_text":
		kind, index = "reasoning", "summary_index"
	}
	key := partKey{kind, max(place(all, index), 0)}
	switch delta := all.Get("delta"); {
	case what == "delta" && provider.IsString(delta):
		p := d.part(all, key, nil)
		if p == nil || !p.b.Open() {
			return false
		}
		p.b.Text(delta)
		d.refused = d.refused || kind == "refusal" && provider.Filled(delta)
		if v := all.Get("logprobs"); provider.Filled(v) {
			d.logprobs(p, v)
		}
		return true
	case what == "done":
		p := d.part(all, key, nil)
		return p != nil && d.settle(p, key, all)
	}
	return false
}

// part returns a part, which begins where nothing has announced it; nil when it has no place.
func (d *responses) part(all provider.Fields, key partKey, raw json.RawMessage) *part {
	typ := "message"
	if key.kind == "reasoning" || key.kind == "raw" {
		typ = "reasoning"
	}
	it := d.find(all, all.Str("item_id"), typ)
	if old, taken := d.found.Find("", place(all, "output_index"), func(*item) bool { return true }); it == nil && taken && (old.typ != typ || old.done) {
		return nil
	}
	if it == nil {
		src := provider.Fields{{Name: "type", Value: provider.Quote(typ)}, {Name: "id", Value: provider.OrNull(all.Get("item_id"))}}
		if it = d.begin(place(all, "output_index"), src); it == nil {
			return nil
		}
	}
	if p := it.parts[key]; p != nil {
		return p
	}
	return d.beginPart(it, key, raw)
}

// contentPart takes the announcement of a part, or the whole of it.
func (d *responses) contentPart(all provider.Fields, index, what string) bool {
	src := all.Object("part")
	if src == nil || what != "added" && what != "done" {
		return false
	}
	key := partKey{partKind(src.Str("type")), max(place(all, index), 0)}
	if key.kind == "" && len(src) > maxMembers {
		return false
	}
	p := d.part(all, key, all.Get("part"))
	if p == nil {
		return false
	}
	if what == "done" {
		return d.settle(p, key, src)
	}
	if text := src.Get("text"); provider.IsString(text) && key.kind != "" && p.b.Open() && p.b.Len() == 0 {
		p.b.Text(text)
	}
	return true
}

// annotation takes a source of a text.
func (d *responses) annotation(all provider.Fields) bool {
	p := d.part(all, partKey{"text", max(place(all, "content_index"), 0)}, nil)
	if p == nil || !p.b.Open() || all.Get("annotation") == nil {
		return false
	}
	p.annotations = append(p.annotations, bytes.Clone(all.Get("annotation")))
	return true
}

// input takes a piece of a call's input, or the whole of it.
func (d *responses) input(kind, what, name string, all provider.Fields) bool {
	it := d.find(all, all.Str("item_id"), kind)
	if it == nil || it.head == nil || !it.head.ToolUse {
		return false // the end of the item has all of it
	}
	switch {
	case what == "delta" && provider.IsString(all.Get("delta")):
		it.head.Text(all.Get("delta"))
		return true
	case what == "done" && provider.IsString(all.Get(name)):
		return it.head.Settle(all.Get(name))
	}
	return false
}

// partialImage takes an image that is not finished. It is whole in itself: a block of its own.
func (d *responses) partialImage(all provider.Fields) bool {
	text := base64Text(all.Get("partial_image_b64"))
	if text == nil || len(all) > maxMembers {
		return false
	}
	if d.msg == nil {
		d.open(nil)
	}
	name := "partial_image_" + string(provider.Number(max(place(all, "partial_image_index"), 0)))
	media := mediaType(all)
	b := dataBlock(d.msg, d.next(), media, name)
	emitData(d.out, b, media, name, text)
	for _, f := range all {
		switch f.Name {
		case "type", "sequence_number", "output_index", "partial_image_b64", "partial_image_index":
		default:
			if provider.Filled(f.Value) {
				b.Late = append(b.Late, provider.Field{Name: f.Name, Value: bytes.Clone(f.Value)})
			}
		}
	}
	b.End(true)
	return true
}

// mediaType returns the type of an image that a provider made.
func mediaType(all provider.Fields) string {
	if format := all.Str("output_format"); format != "" && len(format) < 32 {
		return "image/" + format
	}
	return "image/png"
}
