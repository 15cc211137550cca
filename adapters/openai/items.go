package openai

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// item is one item of a response's output: a block, or several parts that are blocks.
type item struct {
	typ   string
	name  string          // its first id
	id    json.RawMessage // its newest, which all its blocks have at their end
	rest  provider.Fields // members that have no place of their own; its head has them at its end
	head  *provider.Block // of a call or of a kind of the provider's; else the newest part
	call  *provider.Block // of a call that the client answers, also when it is done
	parts map[partKey]*provider.Block
	open  []*provider.Block // parts
	// closing: nothing more comes of the item. done: nothing more is open of it.
	closing, done bool
	seen          bool            // the end of the response has it
	src           provider.Fields // of a kind of the provider's, as its end has it; nil before
	output        provider.Fields // what its result has instead of what the item has
}

// partKey is the place of a part within its item.
type partKey struct {
	kind  string // text, refusal, reasoning, raw, or "" for a kind of the provider's
	index int
}

// Bounds of what is known at a time.
const (
	maxItems = 1 << 14
	maxParts = 1 << 12
)

// own are the members of items that have a place of their own, by type. An item of another type is a block of its kind,
// with all that it has.
var own = map[string][]string{
	"message":          {"id", "type", "status", "role", "content"},
	"reasoning":        {"id", "type", "status", "summary", "content"},
	"function_call":    {"id", "type", "status", "call_id", "name", "arguments", "input"},
	"custom_tool_call": {"id", "type", "status", "call_id", "name", "arguments", "input"},
}

func anyItem(*item) bool { return true }

// find returns the open item of an event, which is of a type, or of any: by its id, else by its place, else the
// newest that is open. Where no items are announced, an event with an id and a place that are both new is of another
// one.
func (d *responses) find(all provider.Fields, id, typ string) *item {
	n := all.Index("output_index")
	fits := func(it *item) bool { return !it.done && (typ == "" || it.typ == typ) }
	if it := d.items.Find(id, n, fits); it != nil {
		return it
	}
	other := d.items.Find(id, n, anyItem)
	if n >= 0 && (other == nil && id != "" && !d.announced || other != nil && !other.done && typ != "") {
		return nil
	}
	return d.items.Newest(fits)
}

// match returns the item that one in the end of a response is: by its id, its call, its place, or its type.
func (d *responses) match(i int, src provider.Fields) (found *item) {
	id, call, typ := src.Str("id"), provider.ShortenID(src.Str("call_id")), src.Str("type")
	list, best := d.items.List, 0
	if i < len(list) && list[i].typ == typ && list[i].name == id && !list[i].seen {
		list = list[i : i+1]
	}
	for at, it := range list {
		likeness := 1
		switch {
		case it.seen || it.typ != typ:
			likeness = 0
		case id != "" && it.name == id:
			likeness = 4
		case call != "" && it.call != nil && it.call.Call == call:
			likeness = 3
		case at == i:
			likeness = 2
		}
		if likeness > best {
			best, found = likeness, it
		}
	}
	if found != nil {
		found.seen = true
	}
	return found
}

// addItem begins an item.
func (d *responses) addItem(typ string, all provider.Fields) {
	src, ok := provider.Parse(all.Get("item"))
	if !ok {
		d.Out.Custom(typ, all)
		return
	}
	d.announced = true
	n, id, call := all.Index("output_index"), src.Str("id"), src.Str("call_id")
	old := d.items.Find("", n, anyItem)
	if n < 0 {
		old = d.items.Find(id, n, anyItem)
	}
	same := old != nil && old.typ == src.Str("type") && (!old.done || id == "" || old.name == id)
	otherCall := same && call != "" && old.call != nil && old.call.Call != provider.ShortenID(call)
	if same && !otherCall || d.openItem(n, src) == nil { // another item in the same place is one more
		d.Out.Custom(typ, all)
	}
}

// openItem begins an item with what is known of it; nil when there are too many.
func (d *responses) openItem(n int, src provider.Fields) *item {
	if d.Msg == nil {
		d.open(nil)
	}
	if len(d.items.List) >= maxItems || len(src) > maxMembers {
		return nil
	}
	it := &item{typ: src.Str("type"), name: src.Str("id"), parts: make(map[partKey]*provider.Block)}
	d.items.Add(it.name, n, it)
	it.keep(src)
	switch it.typ {
	case "message":
	case "reasoning":
		d.partOf(it, partKey{"reasoning", 0}, nil)
	case "function_call", "custom_tool_call":
		d.calls = true
		it.call = d.beginBlock(it, &provider.Block{
			Kind: "tool_use", ToolUse: true, Call: callID(src), Tool: src.Str("name"), CallKind: it.typ,
			FreeText: it.typ == "custom_tool_call",
		})
		it.head = it.call
	default:
		d.beginBuiltin(it, src)
	}
	return it
}

// callID returns the id that the answer to a call has to name.
func callID(src provider.Fields) string { return cmp.Or(src.Str("call_id"), src.Str("id")) }

// keep takes the newest id of an item, which is what must go back, and the members that have no place of their own.
func (it *item) keep(src provider.Fields) {
	if id := src.Str("id"); id != "" {
		it.id = provider.Quote(provider.ShortenID(id))
	}
	known := own[it.typ]
	for _, f := range src {
		if known != nil && provider.HasValue(f.Value) && !slices.Contains(known, f.Name) {
			it.rest = it.rest.Set(f.Name, bytes.Clone(f.Value))
		}
	}
}

// beginBlock begins a block of an item. It has the item's id at its end, and the head what else is known of an item
// that has ended.
func (d *responses) beginBlock(it *item, b *provider.Block) *provider.Block {
	b.Index = d.Next()
	b.Ending = func() {
		var tail provider.Fields
		if it.id != nil {
			tail = provider.Fields{{Name: "item_id", Value: it.id}}
		}
		if b == it.head && it.closing {
			tail = append(tail, it.rest...)
		}
		b.Late = append(tail, b.Late...)
	}
	return d.Msg.Begin(b)
}

// partOf returns a part of an item. It begins where there is none, which ends the one before of its kind. raw is the
// part, for kinds of the provider's. nil: there are too many.
func (d *responses) partOf(it *item, key partKey, raw json.RawMessage) *provider.Block {
	if old := it.parts[key]; old != nil || len(it.parts) >= maxParts {
		return old
	}
	b := provider.TextBlock(0, key.kind)
	switch key.kind {
	case "raw":
		mark := provider.Fields{{Name: "type", Value: provider.Quote("reasoning_text")}}
		b = &provider.Block{Kind: "reasoning", Field: "text", Raw: mark.Encode(),
			Base: append(mark, provider.Field{Name: "text", Value: provider.Quote("")})}
	case "":
		base, _ := provider.Parse(bytes.Clone(raw))
		b = &provider.Block{Kind: base.Str("type"), Base: base, Raw: base.Encode()}
	}
	for _, old := range it.open {
		if old.Field == b.Field {
			old.End(true)
		}
	}
	d.beginBlock(it, b)
	it.parts[key] = b
	it.open = append(slices.DeleteFunc(it.open, func(b *provider.Block) bool { return !b.Open() }), b)
	if key.kind == "reasoning" || it.typ != "reasoning" {
		it.head = b
	}
	return b
}

// endItem ends an item.
func (d *responses) endItem(typ string, all provider.Fields) {
	src, ok := provider.Parse(all.Get("item"))
	sum := sha256.Sum256(all.Get("item"))
	if d.ended[sum] {
		return // sent twice
	}
	var it *item
	if ok {
		n, typ := all.Index("output_index"), src.Str("type")
		it = d.find(all, src.Str("id"), typ)
		old := d.items.Find("", n, anyItem)
		if it == nil && (old == nil || old.typ != typ && callID(src) != "") {
			it = d.openItem(n, src)
		}
	}
	if it == nil {
		d.Out.Custom(typ, all)
		return
	}
	d.ended[sum] = true
	d.complete(it, src, typ, all)
}

// complete ends an item with the whole of it. typ and all are the frame at hand, which is kept when it
// contradicts what was emitted before.
func (d *responses) complete(it *item, src provider.Fields, typ string, all provider.Fields) {
	if len(src) > maxMembers {
		d.Out.Custom("item", src)
		d.closeItem(it, true)
		return
	}
	it.keep(src)
	agrees := true
	switch {
	case own[it.typ] == nil:
		agrees = d.completeBuiltin(it, src)
	case it.call != nil:
		it.renameCall(src)
		for _, name := range []string{"arguments", "input"} {
			if v := src.Get(name); jsonscan.IsString(v) {
				agrees = it.call.Settle(v) && agrees
			}
		}
	default:
		for _, name := range []string{"summary", "content"} {
			if slices.Contains(own[it.typ], name) {
				agrees = d.completeParts(it, src.Get(name)) && agrees
			}
		}
	}
	if !agrees {
		d.Out.Custom(typ, all)
	}
	if it.head == nil {
		d.Out.Custom("item", src) // it has no part that could have it
	}
	d.closeItem(it, it.typ == "message" || src.Str("status") != "incomplete")
}

// renameCall takes the id of a call from a whole of it. It may be another than the one that the call began with, and
// it is what the client answers.
func (it *item) renameCall(src provider.Fields) {
	if id := provider.ShortenID(src.Str("call_id")); it.call != nil && id != "" && id != it.call.Call {
		it.call.Late = it.call.Late.Set("late_id", provider.Quote(id))
	}
}

// closeItem ends what is open of an item.
func (d *responses) closeItem(it *item, finished bool) {
	it.closing = true
	for _, b := range it.open {
		b.End(finished)
	}
	if it.head != nil {
		it.head.End(finished)
	}
	if own[it.typ] == nil {
		d.endBuiltin(it, finished)
	}
	*it = item{typ: it.typ, done: true, name: it.name, call: it.call, seen: it.seen}
}

// closeItems ends what is open, in order. A provider that reports success may leave out the ends.
func (d *responses) closeItems(finished bool) {
	for _, it := range d.items.List {
		if !it.done {
			d.closeItem(it, finished)
		}
	}
	d.emitHeld()
}
