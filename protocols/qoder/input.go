package qoder

import (
	"bytes"
	"fmt"
	"slices"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// ask reads a request for input. One about a call of the coordinator makes that call wait. Every other one is
// shown as a custom tool: of a child's call the session has not been shown the use, which its status must name.
func (p *Projector) ask() {
	t, id := p.rec.thread, field(p.rec.payload, "request_id")
	if !isString(id) {
		return
	}
	if c := p.tools.callOfRequest(id); c != nil && p.tools.isHeld(c.key) {
		return // asked already, and not answered yet
	}
	var c *toolCall
	if t.child == "" {
		c = p.tools.call(callKey(t.child, field(p.rec.payload, "call_id")))
	}
	switch {
	case c == nil:
		c = &toolCall{child: t.child, key: requestKey(id), request: clip(id), seq: p.rec.Seq, kind: callRequest, also: true}
		c.id = p.emitCall(c, emission{also: true}, []byte(`"request_input"`), p.question(), nil, "")
		p.tools.put(c)
	case len(c.settled) > 0 && bytes.Equal(c.settled, id):
		return // the client was faster
	case bytes.Equal(c.request, id):
	default:
		p.tools.put(&toolCall{id: c.key, child: t.child, key: requestKey(id), seq: p.rec.Seq, kind: callAlias})
		next := *c
		next.request, next.answered = clip(id), false
		c = &next
		p.tools.open.Set(c.key, c)
	}
	if p.tools.isHeld(c.key) {
		return // the status has named it
	}
	p.tools.hold(c)
	p.waiting(p.rec.thread)
}

// question is the input of the tool that a request for input is shown as.
func (p *Projector) question() []byte {
	b := p.extra("prompt", "schema", "options", "call_id")
	if len(b) == 0 {
		return []byte(`{}`)
	}
	b[0] = '{' // in the place of a comma
	return append(b, '}')
}

// callOf returns the call that an answer with a request's id is for; nil when nothing of that id is open. Ids
// of calls stand for themselves.
func (p *Projector) callOf(id []byte) *toolCall {
	if !isString(id) {
		return nil
	}
	c := p.tools.callOfRequest(id)
	if c == nil {
		c = p.tools.call(callKey(p.rec.thread.child, id))
	}
	return c
}

// callOfRequest returns what a request for input waits for: a call of its own, or the one it is about.
func (t *tools) callOfRequest(id []byte) *toolCall {
	c := t.call(requestKey(id))
	if c != nil && c.kind == callAlias {
		return t.call(c.id)
	}
	return c
}

// answer reads a command.answer: what a client of this protocol has sent, exactly, or what somebody else has sent.
func (p *Projector) answer() {
	c, said := p.callOf(field(p.rec.payload, "request_id")), field(p.rec.payload, "answer")
	switch typ := text(said, "type"); typ {
	case sentConfirmation, sentCustomResult, sentResult:
		also := c != nil && c.also
		p.emit(emission{typ: typ, also: also, body: appendRest(nil, said, "type")})
		if c != nil {
			p.release(c, typ != sentConfirmation)
		}
	default:
		if c != nil {
			p.showReply(c, said)
		}
	}
}

// showReply shows an answer that was given in other words than this protocol's.
func (p *Projector) showReply(c *toolCall, said []byte) {
	if !p.tools.isHeld(c.key) && c.kind != callRequest {
		return // the first answer counts
	}
	b := append(append([]byte(`,"custom_tool_use_id":"`), c.id...), `","content":`...)
	b = append(replyContent(b, said), `,"is_error":false`...)
	p.emit(emission{typ: sentCustomResult, thread: p.threads.lanes.m[c.child], also: c.also, body: b})
	p.release(c, true)
}

func replyContent(b, said []byte) []byte {
	if isBlocks(said) {
		return append(b, said...)
	}
	return appendContent(b, asText(said))
}

// asText keeps a list that is none of blocks from being taken for one.
func asText(v []byte) []byte {
	if len(v) == 0 || v[0] != '[' {
		return v
	}
	return append(appendQuoted([]byte{'"'}, v), '"')
}

// release lets go on what has waited. result: the client has done what the tool is there for.
func (p *Projector) release(c *toolCall, result bool) {
	if p.tools.settle(c, result) {
		p.settleAll(c.child)
	}
}

// settle notes an answer to a call. It says whether the call has waited for it.
func (t *tools) settle(c *toolCall, result bool) (waited bool) {
	waited = t.release(c.key)
	if c.kind == callRequest {
		t.drop(c.key)
		return waited
	}
	if a := t.call(requestKey(c.request)); a != nil && a.kind == callAlias && a.id == c.key {
		t.drop(a.key)
	}
	next := *c
	next.answered, next.settled = c.answered || result, c.request
	t.open.Set(next.key, &next)
	return waited
}

// request emits that a model is asked.
func (p *Projector) request() {
	t := p.rec.thread
	c := &toolCall{child: t.child, key: modelKey(t.child, field(p.rec.payload, "call_id")), seq: p.rec.Seq,
		kind: callModel}
	c.id = p.emit(emission{typ: "span.model_request_start", body: p.extra("model", "provider")})
	p.tools.put(c)
	p.change(p.rec.thread, func(t *thread) { t.called = counts{} })
}

// response emits that it has answered. One that nobody asked is asked first: an end is always that of a start.
func (p *Projector) response() {
	t := p.rec.thread
	if !p.isNews(assemble.ModelEnd, "call_id") {
		return
	}
	c := p.tools.drop(modelKey(t.child, field(p.rec.payload, "call_id")))
	if c == nil {
		c = &toolCall{id: p.emit(emission{typ: "span.model_request_start"})}
	}
	n := countsOf(schema.UsageOf(p.rec.payload))
	if n == (counts{}) {
		n = t.called
	}
	failed := isFalse(field(p.rec.payload, "ok"))
	if v := field(p.rec.payload, "error"); len(v) > 0 && v[0] == '{' {
		failed = "true"
	}
	b := append(append([]byte(`,"model_request_start_id":"`), c.id...), `","is_error":`...)
	b = fmt.Appendf(append(b, failed...), `,"model_usage":{"input_tokens":%d,"output_tokens":%d,"cache_creation_input_tokens":%d,"cache_read_input_tokens":%d,"speed":null}`,
		n.input, n.output, n.cacheCreated, n.cacheRead)
	p.emit(emission{typ: "span.model_request_end", body: append(b, p.extra("error", "duration_ms")...)})
}

// extra returns fields of the record's payload as fields of an event.
func (p *Projector) extra(names ...string) (b []byte) {
	for i, v := range jsonscan.Values(p.rec.payload, names) {
		if len(v) > 0 {
			b = append(append(appendString(append(b, ','), names[i]), ':'), v...)
		}
	}
	return b
}

// Names that every event has of its own, or that no event takes from a payload.
var common = []string{
	"id", "type", "session_id", "session_thread_id", "turn_id", "created_at", "processed_at", "schema_version",
	"by", // who gave a command, as the credential says: no client sends it, and none receives it
}

// appendRest appends the fields of an object as fields of an event, each with a comma before it, as they are
// written; of those that stand twice the last. Fields that all events have, and those that are left out, are not
// among them.
func appendRest(b, object []byte, without ...string) []byte {
	var names []string
	last := map[string][]byte{}
	_ = schema.EachField(object, func(name string, v []byte) error { // what is no object has no fields
		if slices.Contains(common, name) || slices.Contains(without, name) {
			return nil
		}
		if _, twice := last[name]; !twice {
			names = append(names, name)
		}
		last[name] = v
		return nil
	})
	for _, name := range names {
		b = append(append(appendString(append(b, ','), name), ':'), last[name]...)
	}
	return b
}
