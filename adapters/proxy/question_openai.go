package proxy

import (
	"strings"

	"agentstream/adapters/provider"
)

// chat reads a request of Chat Completions.
func (q *question) chat(all provider.Fields) {
	list := provider.Elements(all.Get("messages"))
	var content []part
	at := -1
	for i, raw := range list {
		m, _ := provider.Parse(raw)
		switch m.Str("role") {
		case "user":
			if parts := contentOf(m.Get("content")); len(parts) > 0 {
				content, at = parts, i
			}
		case "tool":
			q.result(m.Str("tool_call_id"), false, m.Get("content"), "tool")
		case "function": // before there were ids
			q.result(q.c.lane.oldest(m.Str("name")), false, m.Get("content"), "function")
		}
	}
	q.message(content, at, "", at == len(list)-1)
}

// contentOf takes a text, or a list of parts.
func contentOf(v []byte) (parts []part) {
	if provider.IsString(v) {
		return []part{{text: v}}
	}
	for _, raw := range provider.Elements(v) {
		f, _ := provider.Parse(raw)
		parts = addPart(parts, f, raw)
	}
	return parts
}

// responses reads a request of the Responses API, which may hold only what is new.
func (q *question) responses(all provider.Fields) {
	scope := all.Str("previous_response_id")
	input := all.Get("input")
	if provider.IsString(input) {
		q.message([]part{{text: input}}, 0, scope, true)
		return
	}
	list := provider.Elements(input)
	var content []part
	at := -1
	for i, raw := range list {
		m, _ := provider.Parse(raw)
		typ := m.Str("type")
		switch {
		case strings.HasSuffix(typ, "_output"):
			q.result(m.Str("call_id"), false, m.Get("output"), typ)
		case m.Str("role") == "user":
			if parts := contentOf(m.Get("content")); len(parts) > 0 {
				content, at = parts, i
			}
		}
	}
	q.message(content, at, scope, at == len(list)-1)
}
