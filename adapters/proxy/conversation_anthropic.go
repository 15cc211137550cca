package proxy

import (
	"encoding/json"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// readMessages reads a request of the Messages API.
func readMessages(all provider.Fields) (c conversation) {
	for _, raw := range provider.Elements(all.Get("messages")) {
		m, _ := provider.Parse(raw)
		switch m.Str("role") {
		case "user":
			c.anthropicUser(m.Get("content"))
		case "assistant":
			c.anthropicAnswer(m.Get("content"))
		}
	}
	return c
}

// anthropicUser takes a user's message, which holds the results of tools as well. They stand first.
func (c *conversation) anthropicUser(content json.RawMessage) {
	if jsonscan.IsString(content) {
		c.say([]part{{text: content}})
		return
	}
	var parts []part
	for _, b := range provider.Elements(content) {
		f, _ := provider.Parse(b)
		if f.Str("type") != "tool_result" {
			parts = addPart(parts, f, b)
			continue
		}
		failed := string(f.Get("is_error")) == "true"
		c.result(toolResult{id: f.Str("tool_use_id"), failed: failed, output: f.Get("content"), typ: "tool_result"})
	}
	c.say(parts)
}

func (c *conversation) anthropicAnswer(content json.RawMessage) {
	if jsonscan.IsString(content) {
		c.answer([]json.RawMessage{content}, nil)
		return
	}
	var texts []json.RawMessage
	var calls []requestCall
	for _, b := range provider.Elements(content) {
		f, _ := provider.Parse(b)
		switch f.Str("type") {
		case "text":
			if v := f.Get("text"); jsonscan.IsString(v) {
				texts = append(texts, v)
			}
		case "tool_use":
			calls = append(calls, requestCall{f.Str("id"), f.Str("name"), f.Get("input")})
		}
	}
	c.answer(texts, calls)
}
