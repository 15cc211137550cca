package qoder

import (
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Types of what clients send (qoder §1.7).
const (
	sentMessage      = "user.message"
	sentSystem       = "system.message"
	sentInterrupt    = "user.interrupt"
	sentConfirmation = "user.tool_confirmation"
	sentCustomResult = "user.custom_tool_result"
	sentResult       = "user.tool_result"
	sentOutcome      = "user.define_outcome"
)

// Types of commands that the schema has no names for.
const (
	typeCancel   = "command.cancel"
	typeAnswer   = "command.answer"
	typeRedirect = "command.redirect"
)

// IsOutcome reports whether the payload of a redirect is an outcome to reach, as Command makes it.
func IsOutcome(redirect []byte) bool {
	return text(field(redirect, "event"), "type") == sentOutcome
}

// command reads what people say to the session, and all other records: of those only what was lost is shown.
func (p *Projector) command() {
	switch string(p.rec.Type) {
	case schema.TypeCommandMessage:
		p.showMessage()
	case typeCancel:
		p.emit(emission{typ: sentInterrupt, body: appendRest(nil, p.rec.payload, "interrupt")})
		p.change(p.rec.thread, func(t *thread) { t.cancelled, t.owed = true, 0 })
		p.lapse()
	case typeAnswer:
		p.answer()
	case typeRedirect:
		p.outcome()
	case schema.TypeCommandsTaken:
		through := schema.Seq(whole(field(p.rec.payload, "through")))
		p.change(p.rec.thread, func(t *thread) {
			if t.takes = true; t.owed <= through {
				t.owed = 0
			}
		})
	case schema.TypeLoss:
		p.loss()
	}
}

// showMessage shows a message when it is sent; the agent's own message that repeats it is not shown again.
func (p *Projector) showMessage() {
	typ, content := sentMessage, field(p.rec.payload, "content")
	if text(p.rec.payload, "role") == "system" {
		typ = sentSystem
	}
	body := appendContent([]byte(`,"content":`), content)
	p.emit(emission{typ: typ, body: appendRest(body, p.rec.payload, "content", "role")})
	p.messages.noteShown(&p.rec, content, field(p.rec.payload, "message_id"))
	if typ == sentMessage {
		p.change(p.rec.thread, func(t *thread) { t.asked, t.owed = t.asked || !t.running, p.rec.Seq })
	}
}

// outcome shows a redirect that was sent as an outcome to reach. Others are shown by what comes of them.
func (p *Projector) outcome() {
	event := field(p.rec.payload, "event")
	if text(event, "type") != sentOutcome {
		return
	}
	body := appendRest(nil, event, "type")
	if field(event, "outcome_id") == nil {
		body = appendString(append(body, `,"outcome_id":`...), "outc_"+strings.TrimPrefix(p.nextID(), EventPrefix))
	}
	p.emit(emission{typ: sentOutcome, body: body})
	p.change(p.rec.thread, func(t *thread) { t.owed = p.rec.Seq }) // it is answered like a message
}

// loss emits what was let go: it is never silent.
func (p *Projector) loss() {
	b := []byte(`"`)
	names := []string{"events", "bytes"}
	for i, v := range jsonscan.Values(p.rec.payload, names) {
		of := names[i]
		if n := whole(v); n > 0 {
			if len(b) > 1 {
				b = append(b, ", "...)
			}
			b = append(append(appendInt(b, n), ' '), of...)
		}
	}
	if len(b) == 1 {
		b = append(b, "events"...)
	}
	b = append(b, " of this session were lost"...)
	if why := field(p.rec.payload, "reason"); isString(why) {
		b = append(append(b, ": "...), inner(why)...)
	}
	p.fail(p.rec.thread, append(b, '"'), "terminal")
}
