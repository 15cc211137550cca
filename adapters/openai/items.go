package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"

	"agentstream/adapters/provider"
)

// item is one item of a response's output.
type item struct {
	typ   string
	id    json.RawMessage // all its blocks have it at their end
	rest  provider.Fields // members that have no place of their own; its head has them at its end
	head  *provider.Block // of a call or of a kind of the provider's; else the newest part
	tool  *builtin
	parts map[partKey]*part
	order []*part
	// closing: nothing more comes of the item. done: nothing more is open of it.
	closing, done bool
	name          string          // its first id
	call          *provider.Block // of a call that the client answers, also when it is done
	seen          bool            // the end of the response has it
}

// partKey is the place of a part within its item.
type partKey struct {
	kind  string // text, refusal, reasoning, raw, or "" for a kind of the provider's
	index int
}

type part struct {
	b           *provider.Block
	kind        string
	annotations []json.RawMessage
}

// Bounds of what is known at a time.
const (
	maxItems = 1 << 14
	maxParts = 1 << 12
)

// place reads a place; -1 when there is none.
func place(all provider.Fields, name string) int {
	n, err := strconv.Atoi(string(all.Get(name)))
	if err != nil || n < 0 || n > 1<<30 {
		return -1
	}
	return n
}

// find returns the open item of an event, which is of a type, or of any: by its id, else by its place, else the newest that
// is open. Where no items are announced, an event with an id and a place that are both new is of another one.
func (d *responses) find(all provider.Fields, id, typ string) *item {
	n := place(all, "output_index")
	fits := func(it *item) bool { return !it.done && (typ == "" || it.typ == typ) }
	it, ok := d.found.Find(id, n, fits)
	if other, taken := d.found.Find(id, n, func(*item) bool { return true }); ok || n >= 0 && (id != "" && !taken && !d.announced || taken && !other.done && typ != "") {
		return it
	}
	for i := len(d.items) - 1; i >= max(0, len(d.items)-maxShape); i-- {
		if fits(d.items[i]) {
			return d.items[i]
		}
	}
	return nil
}

// maxShape bounds the items among which one is looked for by its shape.
const maxShape = 64

// match returns the item that one in the end of a response is: by its id, its call, its place, or its type.
func (d *responses) match(i int, src provider.Fields) *item {
	id, call, typ := src.Str("id"), provider.Bounded(src.Str("call_id")), src.Str("type")
	if i < len(d.items) && d.items[i].typ == typ && d.items[i].name == id && !d.items[i].seen {
		d.items[i].seen = true
		return d.items[i]
	}
	for _, fits := range []func(at int, it *item) bool{
		func(_ int, it *item) bool { return id != "" && it.name == id },
		func(_ int, it *item) bool { return call != "" && it.call != nil && it.call.Call == call },
		func(at int, it *item) bool { return at == i },
		func(int, *item) bool { return true },
	} {
		for at, it := range d.items {
			if !it.seen && it.typ == typ && fits(at, it) {
				it.seen = true
				return it
			}
		}
	}
	return nil
}

// added begins an item.
func (d *responses) added(typ string, all provider.Fields) {
	src, ok := provider.Parse(all.Get("item"))
	if !ok {
		d.out.Custom(typ, all)
		return
	}
	d.announced = true
	n, id := place(all, "output_index"), src.Str("id")
	old, taken := d.found.Find("", n, func(*item) bool { return true })
	if n < 0 {
		old, taken = d.found.Find(id, n, func(*item) bool { return true })
	}
	twice := taken && old.typ == src.Str("type") && (!old.done || id == "" || old.name == id)
	if call := src.Str("call_id"); twice && call != "" && old.call != nil && old.call.Call != provider.Bounded(call) {
		twice = false
	}
	if twice || d.begin(n, src) == nil { // another item in the same place is one more
		d.out.Custom(typ, all)
	}
}

// begin begins an item with what is known of it; nil when there are too many.
func (d *responses) begin(n int, src provider.Fields) *item {
	if d.msg == nil {
		d.open(nil)
	}
	if len(d.items) >= maxItems || len(src) > maxMembers {
		return nil
	}
	it := &item{typ: src.Str("type"), name: src.Str("id"), parts: make(map[partKey]*part)}
	d.items = append(d.items, it)
	d.found.Put(it.name, n, it)
	if it.name != "" {
		it.id = provider.Quote(provider.Bounded(it.name))
	}
	switch {
	case it.typ == "message":
		it.keep(src, "id", "type", "role", "status", "content")
	case it.typ == "reasoning":
		it.keep(src, "id", "type", "status", "summary", "content")
		d.beginPart(it, partKey{"reasoning", 0}, nil)
	case it.typ == "function_call" || it.typ == "custom_tool_call":
		d.calls = true
		it.keep(src, "id", "type", "status", "call_id", "name", "arguments", "input")
		it.head = d.msg.Begin(&provider.Block{
			Index: d.next(), Kind: "tool_use", ToolUse: true, Call: callID(src), Tool: src.Str("name"), CallKind: it.typ, FreeText: it.typ == "custom_tool_call",
		})
		it.call = it.head
	default:
		d.beginBuiltin(it, src)
	}
	return it
}

func (d *responses) next() int {
	d.blocks++
	return d.blocks - 1
}

// callID returns the id that the answer to a call has to name.
func callID(src provider.Fields) string {
	if id := src.Str("call_id"); id != "" {
		return id
	}
	return src.Str("id")
}

// keep takes the members of an item that have no place of their own.
func (it *item) keep(src provider.Fields, but ...string) {
next:
	for _, f := range src {
		if !provider.Filled(f.Value) {
			continue
		}
		for _, n := range but {
			if f.Name == n {
				continue next
			}
		}
		it.rest = it.rest.Set(f.Name, bytes.Clone(f.Value))
	}
}

// beginPart begins a block of an item. raw is the part, for kinds of the provider's.
func (d *responses) beginPart(it *item, key partKey, raw json.RawMessage) *part {
	if len(it.parts) >= maxParts {
		return nil
	}
	var b *provider.Block
	switch key.kind {
	case "raw":
		mark := provider.Fields{{Name: "type", Value: provider.Quote("reasoning_text")}}
		b = &provider.Block{Index: d.next(), Kind: "reasoning", Field: "text", Raw: mark.Encode(),
			Base: append(mark, provider.Field{Name: "text", Value: provider.Quote("")})}
	case "":
		base, _ := provider.Parse(bytes.Clone(raw))
		b = &provider.Block{Index: d.next(), Kind: base.Str("type"), Base: base, Raw: base.Encode()}
	default:
		b = plainBlock(d.next(), key.kind)
	}
	for _, old := range it.order {
		if old.kind == key.kind {
			it.end(old, true)
		}
	}
	p := &part{b: d.msg.Begin(b), kind: key.kind}
	it.parts[key] = p
	it.order = append(slices.DeleteFunc(it.order, func(p *part) bool { return !p.b.Open() }), p)
	if key.kind == "reasoning" || it.typ != "reasoning" {
		it.head = p.b
	}
	return p
}

// end ends a part. The head of an item is open as long as the item, and emits what else is known of it.
func (it *item) end(p *part, finished bool) {
	p.b.Late = it.tail(p.b, provider.Fields{})
	if p.annotations != nil {
		p.b.Late = append(p.b.Late, provider.Field{Name: "annotations", Value: provider.List(p.annotations)})
	}
	p.b.End(finished)
}

// tail returns the members that a block of the item has at its end.
func (it *item) tail(b *provider.Block, list provider.Fields) provider.Fields {
	if it.id != nil {
		list = append(list, provider.Field{Name: "item_id", Value: it.id})
	}
	if b == it.head && it.closing {
		list = append(list, it.rest...)
	}
	return list
}

// done ends an item.
func (d *responses) done(typ string, all provider.Fields) {
	src, ok := provider.Parse(all.Get("item"))
	if !ok {
		d.out.Custom(typ, all)
		return
	}
	it, n, sum := d.find(all, src.Str("id"), src.Str("type")), place(all, "output_index"), sha256.Sum256(all.Get("item"))
	if d.ended[sum] {
		return // sent twice
	}
	old, taken := d.found.Find("", n, func(*item) bool { return true })
	if it == nil && (!taken || old.typ != src.Str("type") && (src.Str("id") != "" || callID(src) != "")) {
		it = d.begin(n, src)
	}
	if it == nil {
		d.out.Custom(typ, all)
		return
	}
	if d.ended == nil {
		d.ended = make(map[[sha256.Size]byte]bool)
	}
	d.ended[sum] = true
	d.complete(it, src, typ, all)
}

// complete ends an item with the whole of it. typ and all are the frame at hand, which is kept when it
// contradicts what was emitted before.
func (d *responses) complete(it *item, src provider.Fields, typ string, all provider.Fields) {
	if len(src) > maxMembers {
		d.out.Custom("item", src)
		d.closeItem(it, true)
		return
	}
	if id := src.Str("id"); id != "" {
		it.id = provider.Quote(provider.Bounded(id)) // the newest counts: it is what must go back
	}
	agrees := true
	switch {
	case it.typ == "message":
		it.keep(src, "id", "type", "role", "status", "content")
		agrees = d.completeParts(it, src.Get("content"))
	case it.typ == "reasoning":
		it.keep(src, "id", "type", "status", "summary", "content")
		agrees = d.completeParts(it, src.Get("summary"))
		agrees = d.completeParts(it, src.Get("content")) && agrees
	case it.typ == "function_call" || it.typ == "custom_tool_call":
		it.keep(src, "id", "type", "status", "call_id", "name", "arguments", "input")
		it.answerAs(src)
		for _, name := range []string{"arguments", "input"} {
			if v := src.Get(name); provider.IsString(v) {
				agrees = it.head.Settle(v) && agrees
			}
		}
	default:
		agrees = d.completeBuiltin(it, src)
	}
	if !agrees {
		d.out.Custom(typ, all)
	}
	if it.typ == "message" && it.head == nil {
		d.out.Custom("item", src) // it has no part that could have it
	}
	d.closeItem(it, it.typ == "message" || src.Str("status") != "incomplete")
}

// answerAs takes the id of a call from a whole of it. It may be another than the one that the call began with, and it is
// what the client answers.
func (it *item) answerAs(src provider.Fields) {
	if id := callID(src); it.call != nil && id != "" && provider.Bounded(id) != it.call.Call && src.Str("call_id") != "" {
		it.call.Late = it.call.Late.Set("late_id", provider.Quote(provider.Bounded(id)))
	}
}

// completeParts compares parts with what was emitted of them, and emits those that were not.
func (d *responses) completeParts(it *item, list json.RawMessage) (agrees bool) {
	agrees = true
	for i, raw := range provider.Elements(list) {
		src, ok := provider.Parse(raw)
		if !ok {
			d.out.Custom("part", provider.Fields{{Name: "part", Value: raw}})
			continue
		}
		key := partKey{partKind(src.Str("type")), i}
		p := it.parts[key]
		if p == nil {
			if p = d.beginPart(it, key, raw); p == nil {
				d.out.Custom("part", src)
				continue
			}
		}
		agrees = d.settle(p, key, src) && agrees
	}
	return agrees
}

// partKind returns the kind of block for a type of part.
func partKind(typ string) string {
	switch typ {
	case "output_text", "text":
		return "text"
	case "refusal":
		return "refusal"
	case "summary_text":
		return "reasoning"
	case "reasoning_text":
		return "raw"
	}
	return ""
}

// settle takes the whole of a part. It reports whether that agrees with its pieces.
func (d *responses) settle(p *part, key partKey, src provider.Fields) bool {
	if !p.b.Open() {
		return true
	}
	if list := provider.Elements(src.Get("annotations")); len(list) > 0 {
		p.annotations = nil
		for _, a := range list {
			p.annotations = append(p.annotations, bytes.Clone(a))
		}
	}
	if key.kind == "" {
		p.b.Base, _ = provider.Parse(bytes.Clone(src.Encode()))
		return true
	}
	text := src.Get("text")
	if key.kind == "refusal" {
		text = src.Get("refusal")
	}
	if !provider.IsString(text) {
		return true
	}
	d.refused = d.refused || key.kind == "refusal" && provider.Filled(text)
	if v := src.Get("logprobs"); provider.Filled(v) && p.b.Len() == 0 {
		d.logprobs(p, v)
	}
	return p.b.Settle(text)
}

func (d *responses) logprobs(p *part, v json.RawMessage) {
	d.out.Custom("logprobs", provider.Fields{{Name: "index", Value: provider.Number(p.b.Index)}, {Name: "logprobs", Value: v}})
}

// closeItem ends what is open of an item.
func (d *responses) closeItem(it *item, finished bool) {
	it.closing = true
	for _, p := range it.order {
		it.end(p, finished)
	}
	switch {
	case it.tool != nil:
		d.endBuiltin(it, finished)
	case it.head != nil && it.head.Open():
		it.head.Late = it.tail(it.head, it.head.Late)
		it.head.End(finished)
	}
	*it = item{typ: it.typ, done: true, name: it.name, call: it.call, seen: it.seen}
}

// closeItems ends what is open, in order. A provider that reports success may leave out the ends.
func (d *responses) closeItems(finished bool) {
	for _, it := range d.items {
		if !it.done {
			d.closeItem(it, finished)
		}
	}
	d.emitHeld()
}
