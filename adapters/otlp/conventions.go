package otlp

import (
	"cmp"
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// readMessages reads the newest convention: messages with parts, as attributes of the span or of its events of details.
// Some write an event for what was asked and another one for the answer.
func readMessages(s *Span, x *exchange) {
	from := []attributes{s.attributes}
	for _, e := range s.events {
		if e.name == "gen_ai.client.inference.operation.details" {
			from = append(from, e.attributes)
		}
	}
	for _, a := range from {
		if len(x.input) == 0 {
			x.input = messagesOf(a.list("gen_ai.input.messages", "gen_ai.prompt"), "user")
		}
		if len(x.output) == 0 {
			x.output = messagesOf(a.list("gen_ai.output.messages", "gen_ai.completion"), "assistant")
		}
	}
}

// messagesOf reads messages. role is that of one which names none.
func messagesOf(list []json.RawMessage, role string) (all []talkMessage) {
	for _, raw := range list {
		all = append(all, messageOf(raw, role))
	}
	return all
}

// choice is the event of an answer, and eventRoles are those who speak in other events.
const choice = "gen_ai.choice"

var eventRoles = map[string]string{"gen_ai.system.message": "system", "gen_ai.user.message": "user",
	"gen_ai.assistant.message": "assistant", "gen_ai.tool.message": "tool", choice: "assistant"}

// readEvents reads the convention that has an event for each message. Some write the events into one attribute.
func readEvents(s *Span, x *exchange) {
	for _, e := range s.events {
		switch e.name {
		case "gen_ai.content.prompt":
			x.input = append(x.input, messagesOf(e.attributes.list("gen_ai.prompt"), "user")...)
		case "gen_ai.content.completion":
			x.output = append(x.output, messagesOf(e.attributes.list("gen_ai.completion"), "assistant")...)
		}
		var p provider.Fields
		for _, name := range []string{"role", "content", "message", "finish_reason", "tool_calls", "id", "name"} {
			if v := e.attributes.value(name); v != nil {
				p = append(p, provider.Field{Name: name, Value: v})
			}
		}
		x.event(e.name, p)
	}
	for _, raw := range s.attributes.list("events") {
		p, _ := provider.Parse(raw)
		x.event(p.Str("event.name"), p)
	}
}

// event adds one message.
func (x *exchange) event(name string, p provider.Fields) {
	role := eventRoles[name]
	if role == "" {
		return
	}
	m := messageOf(p.Encode(), role)
	if name == choice {
		x.output = append(x.output, m)
		return
	}
	x.input = append(x.input, m)
}

// readNumbered reads the convention of OpenLLMetry: an attribute for each member of each message.
func readNumbered(s *Span, x *exchange) {
	for _, n := range s.attributes.tree("gen_ai.prompt").each() {
		x.input = append(x.input, readNumber(n, "user"))
	}
	for _, n := range s.attributes.tree("gen_ai.completion").each() {
		x.output = append(x.output, readNumber(n, "assistant"))
	}
}

// readNumber reads a message whose members stand below a node.
func readNumber(n *attributeNode, role string) talkMessage {
	var p provider.Fields
	for _, name := range []string{"role", "content", "finish_reason", "tool_call_id", "name", "reasoning"} {
		if v := n.get(name); v != nil {
			p = append(p, provider.Field{Name: name, Value: v})
		}
	}
	m := messageOf(p.Encode(), role)
	for _, c := range n.at("tool_calls").each() {
		m.parts = append(m.parts, talkPart{kind: callPart, id: c.str("id"), name: c.str("name"),
			value: c.get("arguments")})
	}
	return m
}

// readOpenInference reads the convention of OpenInference.
func readOpenInference(s *Span, x *exchange) {
	for _, n := range s.attributes.tree("llm.input_messages").each() {
		x.input = append(x.input, openInference(n.at("message"), "user"))
	}
	for _, n := range s.attributes.tree("llm.output_messages").each() {
		x.output = append(x.output, openInference(n.at("message"), "assistant"))
	}
}

// openInference reads a message whose members stand below a node.
func openInference(n *attributeNode, role string) talkMessage {
	m := talkMessage{role: roleOf(cmp.Or(n.str("role"), role))}
	id := n.str("tool_call_id")
	if m.role == "tool" || id != "" && m.role != "assistant" {
		m.parts = append(m.parts, talkPart{kind: resultPart, id: id, name: n.str("name"), value: n.get("content")})
		return m
	}
	for _, c := range n.at("contents").each() {
		m.parts = append(m.parts, openInferencePart(c.at("message_content")))
	}
	if len(m.parts) == 0 {
		m.add(n.get("content"))
	}
	for _, c := range n.at("tool_calls").each() {
		c = c.at("tool_call")
		m.parts = append(m.parts, talkPart{kind: callPart, id: c.str("id"), name: c.str("function", "name"),
			value: c.get("function", "arguments")})
	}
	return m
}

// openInferencePart reads one of several pieces of content.
func openInferencePart(n *attributeNode) talkPart {
	word := n.str("type")
	switch {
	case word == "reasoning" || word == "thinking":
		return talkPart{kind: thoughtPart, text: textOf(n.get("text"))}
	case n.get("text") != nil:
		return talkPart{kind: textPart, text: textOf(n.get("text"))}
	default:
		url := n.str("image", "image", "url")
		raw := provider.Fields{{Name: "type", Value: provider.Quote(word)}, {Name: "url", Value: provider.Quote(url)}}
		return talkPart{kind: otherPart, name: word, raw: raw.Encode()}
	}
}

// readAISDK reads the spans of the AI SDK.
func readAISDK(s *Span, x *exchange) {
	a := s.attributes
	x.input = messagesOf(a.list("ai.prompt.messages"), "user")
	m := talkMessage{role: "assistant"}
	if v := a.first("ai.response.reasoning"); jsonscan.IsString(v) {
		m.parts = append(m.parts, talkPart{kind: thoughtPart, text: v})
	}
	if v := a.first("ai.response.text", "ai.result.text"); v != nil {
		m.parts = append(m.parts, talkPart{kind: textPart, text: textOf(v)})
	}
	m.addCalls(a.list("ai.response.toolCalls", "ai.result.toolCalls"))
	if len(m.parts) > 0 {
		x.output = []talkMessage{m}
	}
	x.finish = strings.ReplaceAll(x.finish, "-", "_")
}
