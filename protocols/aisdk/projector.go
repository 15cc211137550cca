package aisdk

import (
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/protocols/chat"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// projector makes the chunks of one response of a run.
type projector struct {
	chat *chat.Reader
	run  string
	step bool // a step is open in the response under way

	req   dialect.Request
	span  schema.Seq // response of the request
	skip  int        // questions of it that were answered: they do not end the stream
	every bool       // all responses are shown
	out   *dialect.Frames
	buf   jsonscan.Object
}

// formAll is the Form of a request for the chunks of all responses, one after the other.
const formAll = "all"

// doneText is the last frame of a body.
const doneText = "[DONE]"

// Projector returns one that has seen nothing yet.
func (Dialect) Projector(req dialect.Request) dialect.Projector {
	return (&projector{chat: chat.New()}).For(req)
}

// For returns a copy for a request.
func (p *projector) For(req dialect.Request) dialect.Stateful {
	c := &projector{chat: p.chat.Clone(), run: p.run, step: p.step, req: req, every: req.Form == formAll}
	c.span, _ = schema.ParseCursor(req.Span)
	c.skip, _ = strconv.Atoi(req.Form)
	return c
}

// Size is about what is remembered, in bytes.
func (p *projector) Size() int { return 128 + p.chat.Size() }

// Admit lets everyone at a run.
func (p *projector) Admit(dialect.Request) error { return nil }

// Span finds a response.
func (p *projector) Span(req dialect.Request) dialect.Span { return p.chat.Spans.Find(req.Span) }

// Chat is what the run is.
func (p *projector) Chat() *chat.Reader { return p.chat }

// messageID is the id of a response's message.
func messageID(run string, first schema.Seq) string { return run + "-" + first.String() }

// Project makes the chunks of the next record.
func (p *projector) Project(out *dialect.Frames, r schema.Record) error {
	events, err := p.chat.Next(r)
	if err != nil {
		return err
	}
	if p.run == "" {
		_, _, run := r.Envelope()
		p.run = string(run)
	}
	for i := range events {
		e := &events[i]
		p.out = nil
		if p.every || e.Response == p.span {
			p.out = out
		}
		if e.Lane == "" || e.Kind == chat.ChildState {
			p.event(e)
		}
	}
	p.out = nil
	return nil
}

// chunk appends a chunk with the fields that fill adds.
func (p *projector) chunk(typ string, fill func(jsonscan.Object) jsonscan.Object) {
	if p.out == nil {
		return
	}
	p.buf = append(p.buf[:0], '{').Str("type", typ)
	if fill != nil {
		p.buf = fill(p.buf)
	}
	p.out.Add(dialect.Frame{Data: p.out.Text(p.buf.End())})
}

// endBody ends the body.
func (p *projector) endBody() {
	if p.out != nil {
		p.out.Add(dialect.Frame{Data: []byte(doneText), Last: true})
	}
}

// setStep begins a step, or ends the one that is open.
func (p *projector) setStep(open bool) {
	if p.step != open {
		p.step = open
		typ := "finish-step"
		if open {
			typ = "start-step"
		}
		p.chunk(typ, nil)
	}
}

// event makes the chunks of an event.
func (p *projector) event(e *chat.Event) {
	switch e.Kind {
	case chat.Begin:
		p.step = false
		p.chunk("start", func(o jsonscan.Object) jsonscan.Object { return o.Str("messageId", messageID(p.run, e.Response)) })
	case chat.Message:
		p.setStep(false)
	case chat.TextStart, chat.TextDelta, chat.TextEnd:
		p.text(e)
	case chat.Usage:
		p.chunk("message-metadata", func(o jsonscan.Object) jsonscan.Object {
			f := jsonscan.Fields(nil).Read(e.Value)
			m := append(o.Name("messageMetadata"), '{').OptStr("model", e.Name).OptRaw("usage", f.Object("usage"))
			return m.OptStr("stop_reason", f.Str("stop_reason")).End()
		})
	case chat.File:
		p.setStep(true)
		p.chunk("file", func(o jsonscan.Object) jsonscan.Object {
			o = o.Str("mediaType", e.Name).Str("url", "data:"+e.Name+";base64,")
			return append(append(o[:len(o)-1], e.Text...), '"')
		})
	case chat.Data:
		p.data(e.Name, e.ID, e.Value)
	case chat.ChildState:
		o := jsonscan.Object("{").Str("child_id", e.Lane).OptStr("parent_id", e.Call).OptStr("state", e.Name)
		p.data("child", e.Lane, o.OptRaw("prompt", e.Value).End())
	case chat.Ask:
		p.ask(e)
	case chat.Done, chat.Aborted, chat.Failed, chat.Empty:
		p.endMessage(e)
	default:
		p.call(e)
	}
}

// The chunks of texts and thoughts, in the order of the kinds.
var (
	textTypes    = [...]string{"text-start", "text-delta", "text-end"}
	thoughtTypes = [...]string{"reasoning-start", "reasoning-delta", "reasoning-end"}
)

// text makes the chunks of a text or a thought.
func (p *projector) text(e *chat.Event) {
	p.setStep(true)
	types := &textTypes
	if e.Thinking {
		types = &thoughtTypes
	}
	p.chunk(types[e.Kind-chat.TextStart], func(o jsonscan.Object) jsonscan.Object {
		o = o.Str("id", e.ID)
		switch {
		case e.Kind == chat.TextDelta:
			o = o.Inner("delta", low(e), e.Text)
		case e.Value != nil:
			o = append(append(jsonscan.Object("{"), o[1:]...).Name("providerMetadata"), '{').Raw("agentstream", e.Value).End()
		}
		return o
	})
}

// low is the half of a character that comes before a text.
func low(e *chat.Event) []byte {
	if e.Low == 0 {
		return nil
	}
	return jsonscan.AppendUnit(nil, e.Low)
}

// call makes the chunks of a call. Tools run on the agent's side, and the page does not know them.
func (p *projector) call(e *chat.Event) {
	p.setStep(true)
	id := func(o jsonscan.Object) jsonscan.Object { return o.Str("toolCallId", e.ID) }
	there := func(o jsonscan.Object) jsonscan.Object { return o.Bool("providerExecuted", true).Bool("dynamic", true) }
	tool := func(o jsonscan.Object) jsonscan.Object { return there(id(o).Str("toolName", e.Name)) }
	switch e.Kind {
	case chat.CallStart:
		p.chunk("tool-input-start", tool)
	case chat.CallDelta:
		p.chunk("tool-input-delta", func(o jsonscan.Object) jsonscan.Object { return id(o).Inner("inputTextDelta", low(e), e.Text) })
	case chat.CallInput:
		p.chunk("tool-input-available", func(o jsonscan.Object) jsonscan.Object { return tool(o).Raw("input", e.Value) })
	case chat.CallBroken:
		p.chunk("tool-input-error", func(o jsonscan.Object) jsonscan.Object { return tool(o).Raw("input", e.Value).Str("errorText", e.Why) })
	case chat.CallResult:
		p.chunk("tool-output-available", func(o jsonscan.Object) jsonscan.Object { return there(id(o).Raw("output", e.Value)) })
	case chat.CallFailed:
		p.chunk("tool-output-error", func(o jsonscan.Object) jsonscan.Object { return there(id(o).Str("errorText", e.Why)) })
	case chat.CallDenied:
		p.chunk("tool-output-denied", id)
	}
}

// data makes a part of the page's own, in the place of the one with this id. Without an id it is passed on to the
// page, and is no part.
func (p *projector) data(name, id string, payload []byte) {
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' {
			return c
		}
		return '-'
	}, name)
	p.chunk("data-"+name, func(o jsonscan.Object) jsonscan.Object {
		o = o.OptStr("id", id).Raw("data", payload)
		if id == "" {
			o = o.Bool("transient", true)
		}
		return o
	})
}

// ask asks the page for an approval and ends the body: the answer goes on with the same message. A question that was
// answered when the stream was opened ends nothing.
func (p *projector) ask(e *chat.Event) {
	p.chunk("tool-approval-request", func(o jsonscan.Object) jsonscan.Object { return o.Str("approvalId", e.ID).Str("toolCallId", e.Call) })
	p.setStep(false)
	if e.Nth > p.skip && !p.every {
		p.finish("tool-calls")
		p.endBody()
	}
}

func (p *projector) finish(reason string) {
	p.chunk("finish", func(o jsonscan.Object) jsonscan.Object { return o.Str("finishReason", reason) })
}

// finishReasons are those of a finish chunk, by the stop reason of the log.
var finishReasons = map[string]string{
	"": "stop", "end_turn": "stop", "stop": "stop", "stop_sequence": "stop", "max_tokens": "length", "length": "length",
	"tool_use": "tool-calls", "tool_calls": "tool-calls", "refusal": "content-filter", "content_filter": "content-filter",
}

// endMessage ends the message with how its response ended, and the body.
func (p *projector) endMessage(e *chat.Event) {
	reason, why := finishReasons[e.Why], e.Why
	if reason == "" {
		reason = "other"
	}
	if why == "" {
		why = "the run has ended and gave no reason"
	}
	if e.Kind != chat.Empty {
		p.setStep(false)
	}
	switch e.Kind {
	case chat.Aborted:
		p.chunk("abort", func(o jsonscan.Object) jsonscan.Object { return o.Str("reason", why) })
		reason = "other"
	case chat.Failed:
		p.chunk("error", func(o jsonscan.Object) jsonscan.Object { return o.Str("errorText", why) })
		reason = "error"
	}
	if e.Kind != chat.Empty {
		p.finish(reason)
	}
	p.endBody()
}
