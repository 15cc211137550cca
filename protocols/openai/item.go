package openai

import (
	"fmt"
	"slices"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// itemKey is what an open item is found by: a call by its id, all else by its block.
type itemKey struct {
	call  string
	start schema.Seq
	place int
}

// item is a part of a response's output that is open.
type item struct {
	kind  *kind
	index int
	id    string
	tool  string // of a call
	text  []byte // so far, the inside of a JSON string
	whole bool   // the input of a call is complete
	lost  bool   // it was too long to be kept
}

// kind is what an item is, and the words of its parts.
type kind struct {
	name, prefix, list         string
	at                         string // the index of a part within the item
	part, partEvent, textEvent string
	rest                       string // members that every text has
}

var (
	message = &kind{"message", "msg_", "content", "content_index", "output_text", "content_part", "output_text",
		`,"logprobs":[]`}
	reasoning = &kind{"reasoning", "rs_", "summary", "summary_index", "summary_text", "reasoning_summary_part",
		"reasoning_summary_text", ""}
	toolCall = &kind{name: "mcp_call", prefix: "mcp_"}
)

// serverLabel names the server of the tools, which all run on the agent's side.
const serverLabel = "agentstream"

// block reads a step of a block of a message.
func (p *projector) block(t *assemble.Transition) {
	b := t.Block
	key := itemKey{start: t.Message.Start, place: b.Place}
	switch {
	case b.IsCall:
		if b.CallID != "" {
			key = itemKey{call: b.CallID}
		}
		p.callBlock(key, t)
	case b.Kind == assemble.Text:
		p.textBlock(key, message, t)
	case b.Kind == assemble.Thinking:
		p.textBlock(key, reasoning, t)
	}
}

// textBlock reads a step of a text or a thought, which is an item from its first piece on that is not empty.
func (p *projector) textBlock(key itemKey, k *kind, t *assemble.Transition) {
	it, known := p.open.Get(key)
	switch {
	case t.Kind == assemble.BlockText && (len(t.Text) > 0 || t.Low != 0):
		if known && len(it.text)+len(t.Text) > maxText {
			p.closeItem(key, true)
			known = false
		}
		if !known {
			it = p.openItem(key, k, "")
			p.emit(k.partEvent+".added", false, func(o jsonscan.Object) jsonscan.Object { return p.appendPart(it.at(o), &it) })
		}
		p.write(key, it, t, k.textEvent+".delta", k.rest)
	case t.Kind == assemble.BlockClose && known:
		p.closeItem(key, !p.isCut())
	}
}

// isCut reports whether the record at hand ends what is open before its time.
func (p *projector) isCut() bool {
	state := p.text("state")
	return p.typ == schema.TypeRunLifecycle && (state == string(schema.StateAborted) || state == string(schema.StateError))
}

// write adds a piece to an item.
func (p *projector) write(key itemKey, it item, t *assemble.Transition, event, rest string) {
	var low []byte
	if t.Low != 0 {
		low = jsonscan.AppendUnit(nil, t.Low)
	}
	p.emit(event, false, func(o jsonscan.Object) jsonscan.Object { return append(it.at(o).Inner("delta", low, t.Text), rest...) })
	it.text = append(append(it.text, low...), t.Text...)
	if it.kind == toolCall && len(it.text) > maxText {
		it.text, it.lost = nil, true
	}
	p.open.Set(key, it)
}

// openItem begins an item.
func (p *projector) openItem(key itemKey, k *kind, tool string) item {
	if p.open.Len() >= maxOpen {
		oldest, _, _ := p.open.First()
		p.closeItem(oldest, false)
	}
	it := item{kind: k, index: p.now.items, tool: tool}
	it.id = fmt.Sprintf("%s%s_%d_%d", k.prefix, p.id, p.now.n, it.index)
	p.now.items++
	p.open.Set(key, it)
	p.emit("output_item.added", false, func(o jsonscan.Object) jsonscan.Object {
		return it.append(o.Int("output_index", int64(it.index)).Name("item"), statusNow, nil, "")
	})
	return it
}

// closeItem ends an item as far as it has come.
func (p *projector) closeItem(key itemKey, complete bool) {
	it, ok := p.open.Get(key)
	if !ok {
		return
	}
	status := "incomplete"
	if complete {
		status = "completed"
	}
	if it.kind == toolCall {
		p.closeCall(key, "incomplete", nil, "")
		return
	}
	k := it.kind
	p.emit(k.textEvent+".done", false, func(o jsonscan.Object) jsonscan.Object { return append(it.at(o).Inner("text", it.text), k.rest...) })
	p.emit(k.partEvent+".done", false, func(o jsonscan.Object) jsonscan.Object { return p.appendPart(it.at(o), &it) })
	p.endItem(key, &it, status, nil, "")
}

// endItem ends an item, and keeps it for the response's output.
func (p *projector) endItem(key itemKey, it *item, status string, output []byte, why string) {
	p.open.Delete(key)
	p.emit("output_item.done", false, func(o jsonscan.Object) jsonscan.Object {
		return it.append(o.Int("output_index", int64(it.index)).Name("item"), status, output, why)
	})
	if p.now.elided {
		return
	}
	whole := it.append(nil, status, output, why)
	if p.now.size += len(whole); p.now.size <= maxOutput {
		p.now.output.Set(it.index, slices.Clip(whole))
		return
	}
	p.now.elided, p.now.size = true, 0
	p.now.output = ordered.Map[int, []byte]{}
}

// at writes where something of an item belongs.
func (it *item) at(o jsonscan.Object) jsonscan.Object {
	o = o.Str("item_id", it.id).Int("output_index", int64(it.index))
	if it.kind.at != "" {
		o = o.Int(it.kind.at, 0)
	}
	return o
}

// appendPart writes the part of an item.
func (p *projector) appendPart(o jsonscan.Object, it *item) jsonscan.Object {
	return it.part(o.Name("part"))
}

func (it *item) part(o jsonscan.Object) jsonscan.Object {
	o = append(o, '{').Str("type", it.kind.part).Inner("text", it.text)
	if it.kind == message {
		o = append(o, `,"annotations":[],"logprobs":[]`...)
	}
	return o.End()
}

// append writes an item with a status. output is the inside of a JSON string, nil for none.
func (it *item) append(o jsonscan.Object, status string, output []byte, why string) jsonscan.Object {
	o = append(o, '{').Str("id", it.id).Str("type", it.kind.name).Str("status", status)
	if it.kind == toolCall {
		o = o.Raw("approval_request_id", nil).Str("server_label", serverLabel).Str("name", it.tool)
		o = o.Inner("arguments", it.text)
		if output == nil {
			o = o.Raw("output", nil)
		} else {
			o = o.Inner("output", output)
		}
		return o.NullStr("error", why).End()
	}
	if it.kind == message {
		o = o.Str("role", "assistant")
	}
	o = append(o.Name(it.kind.list), '[')
	if len(it.text) > 0 {
		o = it.part(o)
	}
	return append(o, `]}`...)
}

// callBlock reads a step of a block that asks for a call.
func (p *projector) callBlock(key itemKey, t *assemble.Transition) {
	it, known := p.open.Get(key)
	switch {
	case t.Kind == assemble.BlockOpen:
		p.openCall(key, t.Block.Tool)
	case !known || it.whole:
	case t.Kind == assemble.BlockText && t.Input && (len(t.Text) > 0 || t.Low != 0):
		p.write(key, it, t, "mcp_call_arguments.delta", "")
	case t.Kind == assemble.BlockInput:
		p.input(key, t.Value)
	case t.Kind == assemble.BlockClose && (len(it.text) > 0 || it.lost):
		p.input(key, nil)
	}
}

// openCall begins a call, unless it is open.
func (p *projector) openCall(key itemKey, tool string) {
	if _, known := p.open.Get(key); known {
		return
	}
	it := p.openItem(key, toolCall, tool)
	p.emit("mcp_call.in_progress", false, it.at)
}

// input completes the input of a call: what has come in pieces, or else whole, or an empty one.
func (p *projector) input(key itemKey, whole []byte) {
	it, ok := p.open.Get(key)
	if !ok || it.whole {
		return
	}
	if len(it.text) == 0 && !it.lost {
		if len(whole) == 0 {
			whole = []byte("{}")
		}
		it.text = jsonscan.Inner(jsonscan.AppendString(nil, string(whole)))
		it.lost = len(it.text) > maxText
		p.emit("mcp_call_arguments.delta", false,
			func(o jsonscan.Object) jsonscan.Object { return it.at(o).Inner("delta", it.text) })
	}
	if it.whole = true; it.lost {
		it.text = nil
	}
	p.open.Set(key, it)
	p.emit("mcp_call_arguments.done", false,
		func(o jsonscan.Object) jsonscan.Object { return it.at(o).Inner("arguments", it.text) })
}

// callStarts reads the beginning of a call.
func (p *projector) callStarts(c *assemble.Item) {
	if c.ID == "" {
		return
	}
	key := itemKey{call: c.ID}
	p.openCall(key, c.Tool)
	if p.typ == schema.TypeToolStart {
		p.input(key, p.run.Field("input"))
	}
}

// callEnds reads the result of a call, or that there is none.
func (p *projector) callEnds(t *assemble.Transition) {
	key := itemKey{call: t.Item.ID}
	output := p.run.Field("output")
	switch {
	case t.Repaired:
		p.closeCall(key, "incomplete", nil, "")
	case string(p.run.Field("ok")) != "true":
		why := jsonscan.FirstText("the tool failed", p.run.Field("error_detail"), p.run.Field("error"), output)
		p.closeCall(key, "failed", nil, why)
	case output == nil && p.run.Field("blob_ref") != nil:
		blob := jsonscan.Object("{").Raw("blob_ref", p.run.Field("blob_ref")).End()
		p.closeCall(key, "completed", innerOf(blob), "")
	default:
		p.closeCall(key, "completed", innerOf(output), "")
	}
}

// closeCall ends a call.
func (p *projector) closeCall(key itemKey, status string, output []byte, why string) {
	if _, ok := p.open.Get(key); !ok {
		return
	}
	p.input(key, nil)
	it, _ := p.open.Get(key)
	event := "mcp_call.failed"
	if status == "completed" {
		event = "mcp_call.completed"
	}
	p.emit(event, false, it.at)
	p.endItem(key, &it, status, output, why)
}

// innerOf is a value as the inside of a JSON string: a string as it is, anything else as its text.
func innerOf(v []byte) []byte {
	switch {
	case len(v) == 0:
		return []byte{}
	case jsonscan.IsString(v):
		return jsonscan.Inner(v)
	}
	return jsonscan.Inner(jsonscan.AppendString(nil, string(v)))
}
