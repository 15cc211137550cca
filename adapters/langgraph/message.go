package langgraph

import (
	"bytes"
	"cmp"
	"maps"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// openMessage is one between its start and its finish.
type openMessage struct {
	key    string
	id     string
	lane   *namespaceLane
	spare  *event         // the start, where the lane is for this message alone
	blocks map[int]*block // open, by index
}

// block is one that has started.
type block struct {
	call, media string
	args        []byte // so far, the inside of a JSON string
	said        bool   // some of its text is in the log
}

const (
	maxPiece  = 256 << 10 // bounds the text of one event, in bytes
	maxBlocks = 1 << 12   // of a message
)

// message takes an event of a message, and reports whether the catalogue has one like it. Two messages that are open at
// the same time differ in their run_id, or else in their node.
func (d *Decoder) message(e *event) bool {
	who := cmp.Or(e.data.Str("run_id"), key(e.Params.Namespace)+"\x00"+e.Params.Node)
	m, index, kind := d.messages[who], e.data.Index("index"), e.data.Str("event")
	if kind == "message-start" {
		return d.startMessage(e, who)
	}
	if m == nil {
		return false
	}
	b := m.blocks[index]
	switch {
	case kind == "message-finish", kind == "error":
		d.finishMessage(e, m, kind == "error")
	case kind == "content-block-start" && index >= 0 && len(m.blocks) < maxBlocks:
		d.blockStarts(e, m, index)
	case kind == "content-block-delta" && b != nil:
		return d.delta(e, m, b)
	case kind == "content-block-finish" && b != nil:
		d.blockFinishes(e, m, b)
	default:
		return false
	}
	return true
}

var roles = map[string]string{"human": "user", "system": "system", "tool": "tool"}

// startMessage emits the start of a message.
func (d *Decoder) startMessage(e *event, who string) bool {
	d.cut(d.messages[who])
	m := &openMessage{key: who, id: cmp.Or(e.data.Str("id"), e.data.Str("message_id"), who),
		lane: d.owner(e.Params.Namespace), blocks: map[int]*block{}}
	if m.lane.says != nil {
		m.lane = d.laneOf(e.Params.Namespace)
	}
	if m.lane.says != nil {
		if m.lane, m.spare = d.free(e.Params.Namespace), e; m.lane == nil {
			return false
		}
	}
	d.messages[who], m.lane.says = m, m
	p := fields(quoteField("message_id", m.id), quoteField("role", cmp.Or(roles[e.data.Str("role")], "assistant")))
	for _, f := range e.data.Object("metadata") {
		if (f.Name == "provider" || f.Name == "model") && jsonscan.IsString(f.Value) {
			p = append(p, f)
		}
	}
	d.add(m.lane, schema.TypeMessageStart, e.with(p...))
	return true
}

func (d *Decoder) blockStarts(e *event, m *openMessage, index int) {
	c, b := e.data.Object("content"), &block{}
	kind := cmp.Or(c.Str("type"), "unknown")
	p := fields(field("index", provider.Number(index)))
	switch kind {
	case "tool_call", "tool_call_chunk":
		kind, b.call = "tool_use", c.Str("id")
	case "server_tool_call", "server_tool_call_chunk":
		kind, b.call = "server_tool_use", c.Str("id")
	case "image", "audio", "video", "file":
		b.media = cmp.Or(c.Str("mime_type"), c.Str("mimeType"), "application/octet-stream")
	}
	if b.call != "" {
		p = append(p, quoteField("call_id", b.call), quoteField("tool", cmp.Or(c.Str("name"), "unknown")))
	}
	m.blocks[index] = b
	d.add(m.lane, schema.TypeBlockStart, e.with(append(p, quoteField("kind", kind))...))
}

// delta adds a piece of a block, and reports whether the catalogue has one like it.
func (d *Decoder) delta(e *event, m *openMessage, b *block) bool {
	change := e.data.Object("delta")
	index := field("index", e.data.Get("index"))
	call := quoteField("call_id", b.call)
	switch change.Str("type") {
	case "text-delta":
		return d.addText(m, b, schema.TypeTextDelta, change.Get("text"), index)
	case "reasoning-delta":
		return d.addText(m, b, schema.TypeReasoningDelta, change.Get("reasoning"), index)
	case "tool-call-delta":
		return b.call != "" && d.addText(m, b, schema.TypeToolInputDelta, change.Get("args"), index, call)
	case "data-delta":
		if v := change.Get("data"); jsonscan.IsString(v) && b.media != "" && len(v) < maxPayload {
			d.add(m.lane, schema.TypeDataDelta, fields(quoteField("media_type", b.media), field("data", v), index))
			return true
		}
	case "block-delta": // all of the arguments so far, as in JavaScript, or the next piece of them, as in Python
		args := change.Object("fields").Get("args")
		if b.call == "" || !jsonscan.IsString(args) || len(args) > maxPayload {
			return false
		}
		rest := jsonscan.Inner(args)
		if more, ok := bytes.CutPrefix(rest, b.args); ok {
			rest = more
		}
		b.args = append(b.args, rest...)
		return len(rest) == 0 || d.addText(m, b, schema.TypeToolInputDelta, provider.Enquote(rest), index, call)
	}
	return false
}

// addText adds a text, in parts when it is long, and reports whether it is one.
func (d *Decoder) addText(m *openMessage, b *block, typ string, v []byte, more ...provider.Field) bool {
	if !jsonscan.IsString(v) {
		return false
	}
	b.said = true
	for _, part := range jsonscan.Split(jsonscan.Inner(v), maxPiece) {
		d.add(m.lane, typ, append(fields(field("text", provider.Enquote(part))), more...))
	}
	return true
}

// blockFinishes ends a block. A text that has not come as deltas becomes one which the thread does not show: see
// "silent" in protocols/langgraph.
func (d *Decoder) blockFinishes(e *event, m *openMessage, b *block) {
	c := e.data.Object("content")
	index := field("index", e.data.Get("index"))
	for name, typ := range map[string]string{"text": schema.TypeTextDelta, "reasoning": schema.TypeReasoningDelta} {
		if v := c.Get(name); !b.said && c.Str("type") == name && len(v) > 2 {
			d.addText(m, b, typ, v, index, field("silent", provider.Bool(true)))
		}
	}
	p := fields(index, field("complete", provider.Bool(true)))
	if v := c.Get("args"); b.call != "" && provider.IsObject(v) {
		p = append(p, quoteField("call_id", b.call), field("input", v))
	}
	delete(m.blocks, e.data.Index("index"))
	d.add(m.lane, schema.TypeBlockEnd, e.with(p...))
}

// stops are LangChain's words for why a model has stopped, in those of the catalogue.
var stops = map[string]string{"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use",
	"content_filter": "refusal"}

// finishMessage ends a message as its line says.
func (d *Decoder) finishMessage(e *event, m *openMessage, failed bool) {
	p := fields(quoteField("message_id", m.id))
	if v := e.data.Get("usage"); provider.IsObject(v) {
		p = append(p, field("usage", v))
	}
	if reason := e.data.Str("reason"); failed {
		p = append(p, quoteField("stop_reason", "error"),
			field("error", provider.ErrorOf(cmp.Or(e.data.Str("code"), "error"), e.data.Str("message"))))
	} else if reason != "" {
		p = append(p, quoteField("stop_reason", cmp.Or(stops[reason], reason)))
	}
	d.endMessage(m, e.with(p...))
}

// cut ends a message that nobody will finish.
func (d *Decoder) cut(m *openMessage) {
	if m != nil {
		d.endMessage(m, fields(quoteField("message_id", m.id), field("incomplete", provider.Bool(true)),
			field("error", provider.ErrorOf("cut", "the message did not end"))))
	}
}

// endMessage ends a message, and what is open in it, with p as the payload of message.end.
func (d *Decoder) endMessage(m *openMessage, p provider.Fields) {
	for _, index := range slices.Sorted(maps.Keys(m.blocks)) {
		d.add(m.lane, schema.TypeBlockEnd, fields(field("index", provider.Number(index)),
			field("complete", provider.Bool(false))))
	}
	d.add(m.lane, schema.TypeMessageEnd, p)
	delete(d.messages, m.key)
	if m.lane.says = nil; m.spare != nil {
		d.add(m.lane, schema.TypeRunLifecycle, m.spare.payload(quoteField("state", string(schema.StateDone))))
	}
}
