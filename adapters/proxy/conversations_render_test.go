package proxy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// object is JSON to be.
type object map[string]any

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// request is the conversation in the API's words, as its client writes it this time.
func (c *talk) request() string {
	w := c.w
	list := c.edit(c.list[c.cut:])
	system := fmt.Sprintf("You are an agent. It is request %d.", w.n)
	switch w.api {
	case "chat":
		return encode(object{"model": "m", "messages": append([]any{object{"role": "system", "content": system}},
			chatHistory(w, list)...)})
	case "messages":
		return encode(object{"model": "m", "system": system, "messages": messagesHistory(list)})
	case "gemini":
		return encode(object{"systemInstruction": object{"parts": []any{object{"text": system}}},
			"contents": geminiHistory(w, list)})
	case "continued":
		body := object{"model": "m", "instructions": system, "input": inputItems(w, c.list[c.sent:])}
		if c.scope != "" {
			body["previous_response_id"] = c.scope
		}
		return encode(body)
	}
	return encode(object{"model": "m", "instructions": system, "input": inputItems(w, list)})
}

// edit returns a conversation as a client writes it that keeps no true history: what is before the newest answer of the
// model is changed, and what is behind it comes twice, or beside a result of a call that nobody made.
func (c *talk) edit(list []said) []said {
	w := c.w
	if !w.edits || w.api == "continued" {
		return list
	}
	last := 0
	for i, m := range list {
		if m.model {
			last = i
		}
	}
	head, tail := slices.Clone(list[:last]), slices.Clone(list[last:])
	for i, m := range head {
		switch {
		case !w.chance(25):
		case m.user != "":
			head[i].user = "[edited] " + m.user
		case m.model && m.text != "":
			head[i].text = "[edited] " + m.text
		case m.results != nil:
			head[i].results = nil
			for _, o := range m.results {
				head[i].results = append(head[i].results, outcome{o.of, "[cleared]", false})
			}
		}
	}
	if n := len(head); n > 2 && w.chance(40) && head[n-2].model { // an answer of before, once more
		head = append(head, head[n-2:]...)
	} else if n > 0 && w.chance(30) { // it is compacted
		head = []said{{user: fmt.Sprintf("Summary of %d messages.", n)}}
	}
	if tail[0].model && w.chance(20) {
		tail = slices.Insert(tail, 0, tail[0])
	}
	for i, m := range tail {
		if m.results == nil || !slices.Contains([]string{"unique", "rewritten"}, w.ids) {
			continue
		}
		if w.chance(30) {
			tail[i].results = append(slices.Clone(m.results), m.results...)
		}
		if w.chance(30) {
			nobody := outcome{&made{local: "call_of_nobody"}, "result 9", false}
			tail[i].results = append([]outcome{nobody}, tail[i].results...)
		}
	}
	return append(head, tail...)
}

func chatHistory(w *world, list []said) (out []any) {
	for _, m := range list {
		switch {
		case m.user != "":
			out = append(out, object{"role": "user", "content": m.user})
		case m.model:
			one := object{"role": "assistant", "content": m.text}
			if m.text == "" {
				one["content"] = nil
			}
			var calls []any
			for _, k := range m.calls {
				calls = append(calls, object{"id": k.local, "type": "function",
					"function": object{"name": "step", "arguments": again(k.input)}})
			}
			if calls != nil {
				one["tool_calls"] = calls
			}
			out = append(out, one)
		default:
			for _, o := range m.results {
				out = append(out, object{"role": "tool", "tool_call_id": o.of.local, "content": o.output})
			}
		}
	}
	return out
}

// again is an input as a client writes it that has read it.
func again(input string) string {
	var v any
	if err := json.Unmarshal([]byte(input), &v); err != nil {
		panic(err)
	}
	return strings.ReplaceAll(encode(v), ",", " , ")
}

// messagesHistory marks the newest message for the cache, as clients do.
func messagesHistory(list []said) (out []any) {
	for i, m := range list {
		var content []any
		for _, o := range m.results {
			content = append(content, object{"type": "tool_result", "tool_use_id": o.of.local, "content": o.output,
				"is_error": o.failed})
		}
		if m.user != "" {
			content = append(content, object{"type": "text", "text": m.user})
		}
		if m.text != "" {
			content = append(content, object{"type": "text", "text": m.text})
		}
		for _, k := range m.calls {
			content = append(content, object{"type": "tool_use", "id": k.local, "name": "step",
				"input": json.RawMessage(again(k.input))})
		}
		if i == len(list)-1 {
			content[len(content)-1].(object)["cache_control"] = object{"type": "ephemeral"}
		}
		role := "user"
		if m.model {
			role = "assistant"
		}
		if n := len(out); n > 0 && role == "user" && out[n-1].(object)["role"] == "user" {
			out[n-1].(object)["content"] = append(out[n-1].(object)["content"].([]any), content...)
			continue
		}
		one := object{"role": role, "content": content}
		if m.user != "" && i < len(list)-1 {
			one["content"] = content
		}
		out = append(out, one)
	}
	return out
}

func geminiHistory(w *world, list []said) (out []any) {
	named := func(o object, id string) object {
		if w.ids != "missing" {
			o["id"] = id
		}
		return o
	}
	for _, m := range list {
		var parts []any
		for _, o := range m.results {
			response := object{"output": o.output}
			if o.failed {
				response = object{"error": o.output}
			}
			parts = append(parts, object{"functionResponse": named(object{"name": "step", "response": response}, o.of.local)})
		}
		if m.user != "" {
			parts = append(parts, object{"text": m.user})
		}
		if m.text != "" {
			parts = append(parts, object{"text": m.text})
		}
		for _, k := range m.calls {
			parts = append(parts, object{"functionCall": named(object{"name": "step",
				"args": json.RawMessage(again(k.input))}, k.local)})
		}
		role := "user"
		if m.model {
			role = "model"
		}
		out = append(out, object{"role": role, "parts": parts})
	}
	return out
}

// inputItems puts results beside their calls now and then, as some clients do.
func inputItems(w *world, list []said) (out []any) {
	for _, m := range list {
		switch {
		case m.user != "":
			out = append(out, object{"role": "user", "content": []any{object{"type": "input_text", "text": m.user}}})
		case m.model:
			if m.text != "" {
				out = append(out, object{"type": "message", "role": "assistant",
					"content": []any{object{"type": "output_text", "text": m.text}}})
			}
			for _, k := range m.calls {
				out = append(out, object{"type": "function_call", "call_id": k.local, "name": "step", "arguments": again(k.input)})
			}
		default:
			for _, o := range m.results {
				out = append(out, object{"type": "function_call_output", "call_id": o.of.local, "output": o.output})
			}
		}
	}
	return out
}

// render is an answer in the API's words.
func (m said) render(w *world) string {
	switch w.api {
	case "chat":
		one := object{"role": "assistant", "content": m.text}
		var calls []any
		for _, k := range m.calls {
			calls = append(calls, object{"id": k.id, "type": "function",
				"function": object{"name": "step", "arguments": k.input}})
		}
		if calls != nil {
			one["tool_calls"] = calls
		}
		return encode(object{"id": fmt.Sprintf("c%d", w.n), "object": "chat.completion", "model": "m",
			"choices": []any{object{"index": 0, "message": one, "finish_reason": "stop"}}})
	case "messages":
		content := []any{}
		if m.text != "" {
			content = append(content, object{"type": "text", "text": m.text})
		}
		for _, k := range m.calls {
			content = append(content, object{"type": "tool_use", "id": k.id, "name": "step", "input": json.RawMessage(k.input)})
		}
		return encode(object{"id": fmt.Sprintf("msg_%d", w.n), "type": "message", "role": "assistant", "model": "m",
			"content": content, "stop_reason": "end_turn"})
	case "gemini":
		parts := []any{}
		if m.text != "" {
			parts = append(parts, object{"text": m.text})
		}
		for _, k := range m.calls {
			call := object{"name": "step", "args": json.RawMessage(k.input)}
			if w.ids != "missing" {
				call["id"] = k.id
			}
			parts = append(parts, object{"functionCall": call})
		}
		return encode(object{"candidates": []any{object{"content": object{"role": "model", "parts": parts},
			"finishReason": "STOP"}}, "modelVersion": "g"})
	}
	output := []any{}
	if m.text != "" {
		output = append(output, object{"type": "message", "id": "m", "role": "assistant", "status": "completed",
			"content": []any{object{"type": "output_text", "text": m.text, "annotations": []any{}}}})
	}
	for i, k := range m.calls {
		output = append(output, object{"type": "function_call", "id": fmt.Sprintf("fc_%d", i), "call_id": k.id,
			"name": "step", "arguments": k.input, "status": "completed"})
	}
	return encode(object{"id": fmt.Sprintf("resp_%d", w.n), "object": "response", "status": "completed", "model": "m",
		"output": output})
}
