package otlp

import (
	"cmp"
	"slices"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// str returns a field of the payload at hand that is a string; "" for another.
func (t *tracer) str(name string) string {
	s, _ := jsonscan.Unquote(t.run.Field(name))
	return s
}

// beginItem begins the work of a tool, a task, or the time that a request for input waits.
func (t *tracer) beginItem(l *laneSpans, it *assemble.Item) {
	var s *openSpan
	switch it.Kind {
	case assemble.CallStart:
		s = t.open(l.parent(), l, "execute_tool "+cmp.Or(it.Tool, "unknown"), tracepb.Span_SPAN_KIND_INTERNAL)
		s.add(text("gen_ai.operation.name", "execute_tool"))
		s.addText("gen_ai.tool.name", it.Tool)
		s.addText("gen_ai.tool.call.id", it.ID)
		server, _ := jsonscan.Unquote(it.Server)
		s.addText("agentstream.mcp.server", server)
		t.addContent(s, "gen_ai.tool.call.arguments", t.run.Field("input"))
	case assemble.TaskStart:
		s = t.open(l.parent(), l, "task "+cmp.Or(t.str("name"), it.ID), tracepb.Span_SPAN_KIND_INTERNAL)
		s.addText("agentstream.task.id", it.ID)
		s.addText("agentstream.task.name", t.str("name"))
		l.tasks = append(l.tasks, keyOf(it))
	default:
		s = t.open(l.parent(), l, "wait_for_input", tracepb.Span_SPAN_KIND_INTERNAL)
		s.addText("agentstream.request.id", it.ID)
		s.addText("gen_ai.tool.call.id", t.str("call_id"))
		t.addContent(s, "agentstream.request.prompt", t.run.Field("prompt"))
	}
	l.open[keyOf(it)] = s
}

// endItem ends what beginItem has begun. A call that was asked for and has not started was none.
func (t *tracer) endItem(l *laneSpans, step *assemble.Transition) {
	it := step.Item
	key := keyOf(it)
	s := l.open[key]
	if s == nil {
		return
	}
	delete(l.open, key)
	l.tasks = slices.DeleteFunc(l.tasks, func(k itemKey) bool { return k == key })
	switch {
	case step.Repaired:
		s.add(truth("agentstream.incomplete", true)) // its producer has not said that it ended
	case it.Kind == assemble.CallStart:
		t.addResult(l, s, it)
	case it.Kind == assemble.InputRequest:
		t.addContent(s, "agentstream.request.answer", t.run.Field("answer"))
	default:
		t.addOutcome(s)
	}
	t.finish(s)
}

// addOutcome adds whether what ends has failed, and why.
func (t *tracer) addOutcome(s *openSpan) {
	if string(t.run.Field("ok")) == "false" {
		s.fail(errorType(t.run.Field("error")))
	}
}

// addResult adds what the end of a call says.
func (t *tracer) addResult(l *laneSpans, s *openSpan, it *assemble.Item) {
	t.addOutcome(s)
	output := t.run.Field("output")
	t.addContent(s, "gen_ai.tool.call.result", output)
	if t.options.Contents {
		l.heard = appendMessage(l.heard, toolMessage(it.ID, output))
	}
}

// chat is a request to a model, with the messages that are its answer. Where the producer does not say when it asks a
// model, the message alone is the request.
type chat struct {
	*openSpan
	model    itemKey // zero: it is not known when the model is asked
	waits    bool    // for the end of the request
	message  *assemble.Message
	used     tokens // by messages
	whole    tokens // by the request
	reasons  []string
	name     string // of the model
	provider string
	said     []chatMessage
}

// beginModel begins a request to a model. A message that is open is its answer.
func (t *tracer) beginModel(l *laneSpans, it *assemble.Item) {
	var c *chat
	for _, other := range l.chats {
		if other.model == (itemKey{}) && other.message != nil {
			c = other
		}
	}
	if c == nil {
		c = t.beginChat(l)
	}
	c.model, c.waits = keyOf(it), true
	c.addText("agentstream.request.id", it.ID)
}

// beginChat begins a request with the record at hand, which may name the model.
func (t *tracer) beginChat(l *laneSpans) *chat {
	c := &chat{openSpan: t.open(l.parent(), l, "chat", tracepb.Span_SPAN_KIND_CLIENT)}
	c.add(text("gen_ai.operation.name", "chat"))
	t.learn(c)
	c.provider = t.str("provider")
	c.addText("gen_ai.provider.name", c.provider)
	if len(l.heard) > 0 {
		c.add(text("gen_ai.input.messages", joinMessages(l.heard)))
		l.heard = nil
	}
	l.chats = append(l.chats, c)
	return c
}

// openMessage begins a message of a model: the answer to the newest request that has none at hand, or a request of
// its own.
func (t *tracer) openMessage(l *laneSpans, m *assemble.Message) {
	if m.Role != "assistant" {
		return
	}
	for _, c := range slices.Backward(l.chats) {
		if c.message == nil && c.waits {
			c.message = m
			t.learn(c)
			return
		}
	}
	t.beginChat(l).message = m
}

// learn adds the model that the record at hand names, where none is known of the request yet.
func (t *tracer) learn(c *chat) {
	if name := t.str("model"); name != "" && c.name == "" {
		c.name = name
		c.pb.Name = clip("chat "+name, maxName)
		c.addText("gen_ai.request.model", name)
	}
}

// closeMessage ends a message.
func (t *tracer) closeMessage(l *laneSpans, step *assemble.Transition) {
	m := step.Message
	if m.Role != "assistant" {
		if t.options.Contents {
			l.heard = appendMessage(l.heard, contentMessage(m.Role, step.Value))
		}
		return
	}
	i := slices.IndexFunc(l.chats, func(c *chat) bool { return c.message == m })
	if i < 0 {
		return
	}
	c := l.chats[i]
	c.message = nil
	t.spent[m] = c
	c.addText("gen_ai.response.id", m.ID)
	switch {
	case !step.Repaired:
		t.addStop(c)
	case !m.Implicit: // one that nobody has announced has no end either
		c.add(truth("agentstream.incomplete", true))
	}
	if t.options.Contents {
		c.said = appendMessage(c.said, contentMessage("assistant", step.Value))
	}
	t.endChat(l, c)
}

// maxReasons bounds the reasons for which the messages of one request have ended.
const maxReasons = 16

// addStop adds why a message has ended.
func (t *tracer) addStop(c *chat) {
	t.learn(c)
	c.addText("gen_ai.response.model", t.str("model"))
	if reason := t.str("stop_reason"); reason != "" && len(c.reasons) < maxReasons {
		c.reasons = append(c.reasons, clip(reason, maxName))
	}
	if v := t.run.Field("error"); len(v) > 0 && v[0] == '{' {
		c.fail(errorType(v))
	}
}

// endModel ends a request to a model.
func (t *tracer) endModel(l *laneSpans, step *assemble.Transition) {
	key := keyOf(step.Item)
	i := slices.IndexFunc(l.chats, func(c *chat) bool { return c.model == key })
	if i < 0 {
		return
	}
	c := l.chats[i]
	c.waits = false
	if step.Repaired {
		c.add(truth("agentstream.incomplete", true))
	} else {
		t.addOutcome(c.openSpan)
		t.model = c
	}
	t.endChat(l, c)
}

// endChat ends a request when neither it nor a message of it goes on.
func (t *tracer) endChat(l *laneSpans, c *chat) {
	if c.waits || c.message != nil {
		return
	}
	l.chats = slices.DeleteFunc(l.chats, func(other *chat) bool { return other == c })
	t.finish(c.openSpan)
	t.full = append(t.full, c)
}

// addUsage notes what a message or a request has used. It follows their end.
func (t *tracer) addUsage(s *assemble.Transition) {
	used := tokensOf(s.Value)
	if s.Message == nil {
		if t.model != nil {
			t.model.whole.plus(used)
		}
	} else if c := t.spent[s.Message]; c != nil {
		c.used.plus(used)
	}
}

// addTotals adds what is known of a request when its last record is read, and returns what it has used.
func (c *chat) addTotals() tokens {
	used := c.used
	if c.whole.known { // it has counted its messages too
		used = c.whole
	}
	used.addTo(c.openSpan)
	if len(c.reasons) > 0 {
		c.add(list("gen_ai.response.finish_reasons", c.reasons))
	}
	if len(c.said) > 0 {
		c.add(text("gen_ai.output.messages", joinMessages(c.said)))
	}
	return used
}
