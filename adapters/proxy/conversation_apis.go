package proxy

import (
	"encoding/json"
	"strings"

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

// readContents reads a request of generateContent. Its names come in two spellings.
func readContents(all provider.Fields) (c conversation) {
	contents := all.Get("contents")
	list := provider.Elements(contents)
	if provider.IsObject(contents) {
		list = append(list, contents)
	}
	for _, raw := range list {
		m, _ := provider.Parse(raw)
		if m.Str("role") == "model" {
			c.geminiAnswer(m.Get("parts"))
			continue
		}
		var parts []part
		for _, p := range provider.Elements(m.Get("parts")) {
			f, _ := provider.Parse(p)
			r := either(f, "functionResponse", "function_response")
			if r == nil {
				parts = addGemini(parts, f, p)
				continue
			}
			failed := r.Object("response").Get("error") != nil
			c.result(toolResult{r.Str("id"), r.Str("name"), failed, r.Get("response"), "functionResponse"})
		}
		if m.Str("role") != "function" {
			c.say(parts)
		}
	}
	return c
}

func (c *conversation) geminiAnswer(parts json.RawMessage) {
	var texts []json.RawMessage
	var calls []requestCall
	for _, p := range provider.Elements(parts) {
		f, _ := provider.Parse(p)
		if k := either(f, "functionCall", "function_call"); k != nil {
			calls = append(calls, requestCall{k.Str("id"), k.Str("name"), k.Get("args")})
			continue
		}
		if v := f.Get("text"); jsonscan.IsString(v) && string(f.Get("thought")) != "true" {
			texts = append(texts, v)
		}
	}
	c.answer(texts, calls)
}

func either(f provider.Fields, a, b string) provider.Fields {
	if v := f.Object(a); v != nil {
		return v
	}
	return f.Object(b)
}

// addGemini takes a part, which is called after its member.
func addGemini(parts []part, f provider.Fields, raw []byte) []part {
	if len(f) == 0 {
		return parts
	}
	if v := f.Get("text"); jsonscan.IsString(v) {
		return append(parts, part{text: v})
	}
	typed := append(provider.Fields{{Name: "type", Value: provider.Quote(f[0].Name)}}, f...)
	return append(parts, part{kind: f[0].Name, raw: typed.Encode()})
}

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
