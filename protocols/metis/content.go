package metis

import (
	"cmp"
	"encoding/json"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// closing is how a message ends.
type closing struct {
	how     outcome
	stop    string
	class   string // of the error
	problem string
	used    usage
	omitted int64 // bytes of content that nobody has
}

// closingOf reads the end of a message.
func closingOf(t *assemble.Transition, typ string, payload []byte) (c closing) {
	f := jsonscan.Fields(nil).Read(payload)
	switch state := schema.RunState(f.Str("state")); {
	case !t.Repaired:
		c.stop, c.used = f.Str("stop_reason"), usageOf(f.Object("usage"))
		c.how = outcomeOf(c.stop)
		if problem := f.Object("error"); problem != nil && c.how != cancelled {
			var m modelCall
			m.noteFailure(problem)
			c.how, c.class, c.problem = m.result, m.class, m.problem
		} else if c.how == done && f.Yes("incomplete") {
			c.how = failed
		}
	case typ == schema.TypeRunLifecycle && state.Final():
		c.how = map[schema.RunState]outcome{schema.StateAborted: cancelled, schema.StateError: failed}[state]
	case typ == schema.TypeTurnEnd:
		c.how = outcomeOf(f.Str("stop_reason"))
	case !t.Message.Implicit:
		c.how = failed
	}
	c.class = cmp.Or(c.class, classes[c.how])
	if t.Value == nil {
		size, _ := t.Message.Size()
		n, ok := f.Integer("omitted_bytes")
		if c.omitted = n; !ok {
			c.omitted = int64(size)
		}
	}
	return c
}

func (c *closing) stopOf(m *openMessage) string {
	switch c.how {
	case cancelled:
		return "cancelled"
	case failed:
		return "error"
	}
	return stopOf(c.stop, m.tools > 0)
}

// appendContents appends a message's content, a list of blocks, in the protocol's form. value is as the log has it. Of
// one that is open the pieces of an input that streams are a member partial_json of the call: what comes is added to
// them.
func appendContents(b jsonscan.Object, value []byte, m *assemble.Message, open bool) jsonscan.Object {
	if jsonscan.IsString(value) {
		return append(append(append(b, `[{"type":"text","text":`...), value...), `}]`...)
	}
	b = append(b, '[')
	place := 0
	for raw := range jsonscan.Elements(value) {
		if place > 0 {
			b = append(b, ',')
		}
		var block *assemble.Block
		if m != nil {
			block = m.At(place)
		}
		b = appendPart(b, raw, block, open)
		place++
	}
	return append(b, ']')
}

// appendPart appends a block of a content. block is what was streamed of it, nil where that is not known. A type that
// the protocol has not got is passed on as it is; clients skip it.
func appendPart(b jsonscan.Object, raw []byte, block *assemble.Block, open bool) jsonscan.Object {
	part := assemble.ReadPart(raw)
	isCall := string(part.Type) == `"tool_use"` || block != nil && block.IsCall
	switch {
	case part.IsText():
		return append(b, '{').Str("type", "text").Inner("text", part.Text).End()
	case part.IsThought():
		thought := part.Reasoning()
		if len(thought) == 0 && block != nil {
			_, thought, _, _ = block.Content()
		}
		b = append(b, '{').Str("type", "thinking").Inner("text", thought)
		if part.Signature != nil {
			b = b.Raw("signature", part.Signature)
		}
		return b.End()
	case isCall:
		id, name, free := text(part.ID), text(part.Name), false
		if block != nil {
			id, name, free = cmp.Or(block.CallID, id), cmp.Or(block.Tool, name), block.Free
		}
		b = append(b, '{').Str("type", "tool_use").Str("id", id).Str("name", name).Name("input")
		if block != nil && block.Kind == assemble.Other && len(part.Input) <= len("{}") { // kept as it began
			_, part.Partial, _, part.Input = block.Content()
		} else if len(part.Partial) > 0 {
			part.Input = nil
		}
		if b = appendInput(b, part.Input, part.Partial, free); open && len(part.Partial) > 0 && !block.Ended {
			b = b.Inner("partial_json", part.Partial)
		}
		return b.End()
	case string(part.Type) == `"image"`:
		return appendImage(b, raw)
	}
	if said := otherText(&part); said != nil {
		return append(b, '{').Str("type", "text").Inner("text", said).End()
	}
	return append(b, raw...)
}

// otherText returns the text of a block of a provider's own, the inside of a string; nil when it has none.
func otherText(c *assemble.Part) []byte {
	if c.Text != nil {
		return c.Text
	}
	return c.Refusal
}

// appendImage appends an image: {type, source:{kind, data}, media_type}.
func appendImage(b jsonscan.Object, raw []byte) jsonscan.Object {
	source := jsonscan.Fields(nil).Read(schema.Field(raw, "source"))
	kind := source.Str("type")
	data := source.Kind(map[string]string{"base64": "data", "url": "url"}[kind], '"')
	if data == nil {
		return append(b, raw...)
	}
	b = append(append(b, '{').Str("type", "image").Name("source"), '{').Str("kind", kind).Raw("data", data).End()
	return b.Str("media_type", cmp.Or(source.Str("media_type"), "image/*")).End()
}

// appendInput appends the input of a call, an object. Of one that was streamed and is not known it is what the pieces
// say, the inside of a string, or {}. An input that is no object is one's member input.
func appendInput(b jsonscan.Object, input, pieces []byte, free bool) jsonscan.Object {
	if input == nil {
		input = parseInput(pieces)
	}
	if input == nil && free && len(pieces) > 0 {
		return append(b, '{').Inner("input", pieces).End()
	}
	switch {
	case len(input) == 0 || string(input) == "null":
		return append(b, `{}`...)
	case input[0] == '{':
		return append(b, input...)
	}
	return append(b, '{').Raw("input", input).End()
}

// parseInput reads the pieces of an input, the inside of a string; nil when they are no JSON.
func parseInput(inner []byte) []byte {
	if s := jsonscan.DecodeInner(inner); len(s) > 0 && json.Valid([]byte(s)) {
		return []byte(s)
	}
	return nil
}

// Statuses of messages (canonical format).
var statuses = [...]string{done: "complete", cancelled: "cancelled", failed: "error"}

// appendHead begins a message's object; appendMetadata ends it.
func appendHead(o jsonscan.Object, run, session, role string, seq schema.Seq) jsonscan.Object {
	o = append(appendID(append(o, `{"id":"`...), messagePrefix, run, dialect.Place{Seq: seq}), '"')
	return o.Str("session_id", session).Str("role", role).Name("content")
}

// appendMetadata ends a message's object. m is nil where no model has made it.
func appendMetadata(o jsonscan.Object, m *openMessage, used usage, status string, ts []byte) jsonscan.Object {
	o = append(o.Name("metadata"), '{')
	if m != nil && m.call != 0 {
		o = used.appendTo(append(o.Str("model", m.model).NullStr("provider", providerOf(m.model)).Name("usage"), '{')).End()
	}
	o = append(o.Str("status", status).End().Name("created_at"), '"')
	return append(appendMicros(o, ts), `","schema_version":1}`...)
}

// appendMessage appends a message that is complete.
func appendMessage(o jsonscan.Object, run, session string, t *assemble.Transition, m *openMessage,
	c *closing) jsonscan.Object {
	o = appendContents(appendHead(o, run, session, t.Message.Role, m.start), t.Value, t.Message, false)
	return appendMetadata(o, m, c.used, statuses[c.how], []byte(m.ts))
}

// appendSent appends what a person, or the system, has sent to the session.
func appendSent(o jsonscan.Object, run, session string, seq schema.Seq, ts, payload []byte) jsonscan.Object {
	role := "user"
	if text(schema.Field(payload, "role")) == "system" {
		role = "system"
	}
	o = appendContents(appendHead(o, run, session, role, seq), schema.Field(payload, "content"), nil, false)
	return appendMetadata(o, nil, usage{}, statuses[done], ts)
}

// appendResult appends what a tool has answered, as a message of its own.
func appendResult(o jsonscan.Object, run, session string, seq schema.Seq, ts, payload []byte) jsonscan.Object {
	f := jsonscan.Fields(nil).Read(payload)
	o = append(appendHead(o, run, session, "tool", seq), '[', '{').Str("type", "tool_result").Str("tool_use_id",
		shortenText(f.Str("call_id"))).Name("content")
	output := f.Some("output")
	if string(f.Raw("ok")) == "false" {
		output = f.Some("error_detail")
		if v := schema.Field(output, "message"); jsonscan.IsString(v) {
			output = v
		}
		if output == nil {
			output = f.Some("error")
		}
	}
	switch {
	case output == nil:
		o = append(o, `[]`...)
	case isBlocks(output), jsonscan.IsString(output):
		o = appendContents(o, output, nil, false)
	default:
		o = append(append(o, '[', '{').Str("type", "text").Str("text", string(output)), `}]`...)
	}
	o = append(o.Bool("is_error", string(f.Raw("ok")) == "false").End(), ']')
	return appendMetadata(o, nil, usage{}, statuses[done], ts)
}

// isBlocks reports whether a value is a list of blocks.
func isBlocks(list []byte) bool {
	n := 0
	for v := range jsonscan.Elements(list) {
		if n++; text(schema.Field(v, "type")) == "" {
			return false
		}
	}
	return n > 0
}
