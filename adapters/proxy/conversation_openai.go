package proxy

import (
	"encoding/json"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// readChat reads a request of Chat Completions.
func readChat(all provider.Fields) (c conversation) {
	for _, raw := range provider.Elements(all.Get("messages")) {
		m, _ := provider.Parse(raw)
		switch m.Str("role") {
		case "user":
			c.say(contentOf(m.Get("content")))
		case "assistant":
			c.answer(textsOf(m.Get("content")), chatCalls(m))
		case "tool":
			c.result(toolResult{id: m.Str("tool_call_id"), tool: m.Str("name"), output: m.Get("content"), typ: "tool"})
		case "function": // before there were ids
			c.result(toolResult{tool: m.Str("name"), output: m.Get("content"), typ: "function"})
		}
	}
	return c
}

func chatCalls(m provider.Fields) (calls []requestCall) {
	for _, raw := range provider.Elements(m.Get("tool_calls")) {
		k, _ := provider.Parse(raw)
		if f := k.Object("custom"); f != nil {
			calls = append(calls, requestCall{k.Str("id"), f.Str("name"), f.Get("input")})
			continue
		}
		f := k.Object("function")
		calls = append(calls, requestCall{k.Str("id"), f.Str("name"), f.Get("arguments")})
	}
	if f := m.Object("function_call"); f != nil {
		calls = append(calls, requestCall{"", f.Str("name"), f.Get("arguments")})
	}
	return calls
}

// readResponses reads a request of the Responses API, which may hold only what is new.
func readResponses(all provider.Fields) (c conversation) {
	c.scope = all.Str("previous_response_id")
	if v := all.Get("conversation"); c.scope == "" && v != nil && !provider.IsNull(v) {
		c.scope, c.rolling = all.Str("conversation"), true
		if c.scope == "" {
			c.scope = all.Object("conversation").Str("id")
		}
	}
	input := all.Get("input")
	if jsonscan.IsString(input) {
		c.say([]part{{text: input}})
		return c
	}
	for _, raw := range provider.Elements(input) {
		m, _ := provider.Parse(raw)
		c.inputItem(m)
	}
	return c
}

// inputItem takes one item of a request's input.
func (c *conversation) inputItem(m provider.Fields) {
	typ := m.Str("type")
	switch {
	case strings.HasSuffix(typ, "_output"):
		c.result(toolResult{id: m.Str("call_id"), output: m.Get("output"), typ: typ})
	case strings.HasSuffix(typ, "_call") && m.Get("call_id") != nil:
		input := m.Get("arguments")
		for _, name := range []string{"input", "action", "operation"} {
			if input == nil {
				input = m.Get(name)
			}
		}
		c.answer(nil, []requestCall{{m.Str("call_id"), m.Str("name"), input}})
	case m.Str("role") == "user":
		c.say(contentOf(m.Get("content")))
	case m.Str("role") == "assistant":
		c.answer(textsOf(m.Get("content")), nil)
	case typ == "item_reference":
		c.answer([]json.RawMessage{provider.Quote("")}, nil)
	}
}
