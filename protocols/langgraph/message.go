package langgraph

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// openMessage is one between its start and its finish.
type openMessage struct {
	id     string
	run    string // of the model call
	own    bool   // of a LangGraph agent: its events come out as they went in
	role   string
	from   source
	model  []byte // metadata, the inside of an object
	next   int    // index of the next block of the protocol
	blocks []*block
	active *block // the one that streams
	rest   int    // no block before this place waits
	start  schema.Seq
	ts     string // of its first record
}

func (m *openMessage) clone() *openMessage {
	c := *m
	c.blocks = make([]*block, len(m.blocks))
	for i, b := range m.blocks {
		bb := *b
		bb.data, bb.carry = slices.Clip(b.data), slices.Clip(b.carry) // what is behind is the other's
		if c.blocks[i] = &bb; m.active == b {
			c.active = &bb
		}
	}
	return &c
}

// roleOf is a role in the protocol's word.
func roleOf(role string) string {
	switch role {
	case "user":
		return "human"
	case "system", "tool":
		return role
	}
	return "ai"
}

// message returns the message that a transition is of: the open one, or one that begins and ends with the record.
func (p *Projector) message(l *lane) *openMessage {
	if p.rec.whole != nil {
		return p.rec.whole
	}
	return l.open
}

func (p *Projector) messageOpens(l *lane, t *assemble.Transition) {
	m := &openMessage{id: t.Message.ID, role: roleOf(t.Message.Role), start: t.Message.Start, ts: p.rec.ts,
		run: modelRunID(p.thread, t.Lane.Child, t.Message.Start)}
	if m.id == "" {
		m.id = "msg_" + m.run
	}
	m.from = source{lane: laneOf(nil, l.segments), namespace: l.namespace}
	if p.is(schema.TypeMessageStart) || p.is(schema.TypeMessageEnd) {
		m.from = p.from(l)
	}
	if p.is(schema.TypeMessageStart) {
		o := object(nil)
		for _, name := range []string{"provider", "model"} {
			if v := p.field(name); jsonscan.IsString(v) && len(v) > 2 {
				o = o.Raw(name, v)
			}
		}
		m.model = o
		if own := p.rec.own; isObject(own) {
			m.own, m.run = true, cmp.Or(text(schema.Field(own, "run_id")), m.run)
		}
	}
	if p.is(schema.TypeMessageEnd) {
		p.rec.whole = m
	} else {
		l.open = m
	}
	p.emitMessage(m, slotOf(t, slotBegins), "message-start", func(o object) object {
		o = o.Str("role", m.role).Str("id", m.id)
		if m.role == "tool" {
			o = o.OptRaw("tool_call_id", p.field("call_id"))
		}
		o = append(o.Name("metadata"), '{').Str("run_id", p.run.id).Str("thread_id", p.thread)
		if len(m.model) > 0 {
			o = append(append(o, ','), m.model...)
		}
		return o.End()
	})
}

// emitMessage adds an event of a message.
func (p *Projector) emitMessage(m *openMessage, slot int, event string, more func(object) object) {
	own := p.own(slot)
	p.emit(messages, "messages", m.from, slot, func(o object) object {
		if own != nil && (p.older == nil || event != "content-block-finish") { // there it has more members
			o, more = o.Members(own, "run_id", "message_id"), func(o object) object { return o }
			if event == "message-start" && schema.Field(own, "role") == nil {
				o = o.Str("role", m.role)
			}
		} else {
			o = o.Str("event", event)
		}
		if o = o.Str("run_id", m.run).Str("message_id", m.id); p.older != nil && event != "message-start" {
			o = o.Str("role", m.role)
		}
		return more(o)
	})
}

// messageCloses finishes a message. One that did not come to its end, because it was cancelled or its model failed,
// ends with an error.
func (p *Projector) messageCloses(l *lane, t *assemble.Transition) {
	m := p.message(l)
	if m == nil {
		return
	}
	if p.rec.whole != nil {
		p.rec.whole = nil
	} else {
		l.open = nil
	}
	said := p.is(schema.TypeMessageEnd)
	stop, used := "", t.Message.Usage
	if said {
		stop = text(p.field("stop_reason"))
		if u := p.field("usage"); isObject(u) {
			used = u
		}
	}
	usage := usageOf(used)
	slot := slotSays
	if !said {
		slot = slotEnds
	}
	problem, code := p.problemOf(t, said, stop)
	if problem != "" {
		if usage != nil && p.rec.own == nil { // an error has none
			p.emitMessage(m, slot, "usage", func(o object) object { return o.Raw("usage", usage) })
		}
		p.emitMessage(m, slot, "error", func(o object) object { return o.Str("message", problem).OptStr("code", code) })
	} else {
		p.emitMessage(m, slot, "message-finish", func(o object) object {
			return o.OptStr("reason", finishReason(stop)).OptRaw("usage", usage)
		})
	}
	p.noteMessage(m, t, usage, stop)
}

// problemOf returns why a message did not come to its end; "" when it did.
func (p *Projector) problemOf(t *assemble.Transition, said bool, stop string) (problem, code string) {
	if !said {
		switch {
		case p.is(schema.TypeRunLifecycle) && schema.RunState(text(p.field("state"))) == schema.StateDone &&
			t.Message.Implicit:
			return "", ""
		case p.is(schema.TypeRunLifecycle):
			return cmp.Or(text(p.field("reason")), "the run ended within the message"), cmp.Or(text(p.field("state")), "aborted")
		case t.Message.Implicit:
			return "", ""
		}
		return "the message did not end", "aborted"
	}
	why := p.field("error")
	if outcomeOf(stop) == completed && !isObject(why) {
		return "", ""
	}
	code = cmp.Or(text(schema.Field(why, "type")), stop)
	return cmp.Or(text(schema.Field(why, "message")), p.run.reason, code), code
}

// finishReason writes why a model has stopped in LangChain's words, where it has one.
func finishReason(stop string) string {
	switch stop {
	case "end_turn", "stop_sequence", "STOP", "completed":
		return "stop"
	case "max_tokens", "max_output_tokens", "MAX_TOKENS":
		return "length"
	case "tool_use", "function_call":
		return "tool_calls"
	}
	return stop
}

// human shows a message of a person, or of the system, whole.
func (p *Projector) human() {
	content := p.field("content")
	role := "human"
	if schema.OfSystem(p.rec.payload) {
		role = "system"
	}
	l := p.lane(p.rec.child)
	m := &openMessage{id: text(p.field("message_id")), role: role, from: p.from(l), start: p.rec.seq,
		run: modelRunID(p.thread, p.rec.child, p.rec.seq)}
	if m.id == "" {
		m.id = "msg_" + m.run
	}
	var parts [][]byte
	if jsonscan.IsString(content) {
		parts = [][]byte{append(object{'{'}.Str("type", "text").Raw("text", content), '}')}
	} else {
		for e := range jsonscan.Elements(content) {
			parts = append(parts, e)
		}
	}
	p.emitMessage(m, slotSays, "message-start", func(o object) object { return o.Str("role", role).Str("id", m.id) })
	for i, raw := range parts {
		part := assemble.ReadPart(raw)
		p.wholeBlock(m, i, &part)
	}
	p.emitMessage(m, slotSays, "message-finish", func(o object) object { return o })
	if p.rec.child == "" {
		p.list(contentSpan{p.rec.seq, p.rec.seq, p.rec.ts, len(content)}, func(o object) object {
			return o.Str("type", role).Str("id", m.id).Raw("content", partsOf(parts))
		})
	}
}

// wholeBlock shows a block that comes whole.
func (p *Projector) wholeBlock(m *openMessage, index int, part *assemble.Part) {
	whole := contentOf(part)
	n := []byte(strconv.Itoa(index))
	start := whole
	if part.IsText() {
		start = []byte(`{"type":"text","text":""}`)
	}
	p.emitMessage(m, slotSays, "content-block-start",
		func(o object) object { return o.Raw("index", n).Raw("content", start) })
	if part.IsText() && len(part.Text) > 0 {
		p.emitMessage(m, slotSays, "content-block-delta", func(o object) object {
			return append(o.Raw("index", n).Name("delta"), '{').Str("type", "text-delta").Inner("text", part.Text).End()
		})
	}
	p.emitMessage(m, slotSays, "content-block-finish",
		func(o object) object { return o.Raw("index", n).Raw("content", whole) })
}

func partsOf(parts [][]byte) []byte {
	o := []byte{'['}
	for i, raw := range parts {
		if i > 0 {
			o = append(o, ',')
		}
		part := assemble.ReadPart(raw)
		o = append(o, contentOf(&part)...)
	}
	return append(o, ']')
}

// usageOf writes a usage of whatever provider in LangChain's words; nil when it says nothing. input_tokens are all of
// the input, what was cached as well.
func usageOf(u []byte) []byte {
	if !isObject(u) {
		return nil
	}
	f := jsonscan.Fields(nil).Read(u)
	number := func(names ...string) (n int64, found bool) {
		for _, name := range names {
			from := f
			if outer, inner, ok := bytes.Cut([]byte(name), []byte{'.'}); ok {
				from, name = jsonscan.Fields(nil).Read(f.Object(string(outer))), string(inner)
			}
			if n, ok := jsonscan.WholeNumber(from.Raw(name)); ok {
				return n, true
			}
		}
		return 0, false
	}
	in, okIn := number("input_tokens", "prompt_tokens", "promptTokenCount")
	out, okOut := number("output_tokens", "completion_tokens", "candidatesTokenCount")
	if !okIn && !okOut {
		return nil
	}
	thought, _ := number("thoughtsTokenCount")
	toolUse, _ := number("toolUsePromptTokenCount")
	out, in = out+thought, in+toolUse
	created, hasCreated := number("cache_creation_input_tokens")
	read, hasRead := number("cache_read_input_tokens")
	in += created + read // Anthropic counts them apart
	if !hasRead {
		read, hasRead = number("input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens",
			"cachedContentTokenCount", "input_token_details.cache_read")
	}
	total, ok := number("total_tokens", "totalTokenCount")
	if !ok {
		total = in + out
	}
	o := object{'{'}.Int("input_tokens", in).Int("output_tokens", out).Int("total_tokens", total)
	if hasCreated || hasRead {
		o = append(o.Name("input_token_details"), '{').Int("cache_creation", created).Int("cache_read", read).End()
	}
	reasoned, ok := number("output_tokens_details.reasoning_tokens", "completion_tokens_details.reasoning_tokens",
		"thoughtsTokenCount", "output_token_details.reasoning")
	if ok {
		o = append(o.Name("output_token_details"), '{').Int("reasoning", reasoned).End()
	}
	return o.End()
}
