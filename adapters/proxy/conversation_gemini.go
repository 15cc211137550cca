package proxy

import (
	"encoding/json"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

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
