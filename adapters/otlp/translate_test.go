package otlp

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// values are attributes by their names.
type values map[string]any

// one makes a span as it was kept: its number is its id.
func one(t *testing.T, n, parent, from, to int, name string, attributes values, events ...values) *Span {
	t.Helper()
	p := map[string]any{"span_id": fmt.Sprintf("%016x", n), "name": name, "start": fmt.Sprint(from),
		"end": fmt.Sprint(to), "attributes": attributes, "events": events}
	if parent > 0 {
		p["parent_id"] = fmt.Sprintf("%016x", parent)
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(b)
}

// tell writes what events say: messages with what is in them, and calls of tools.
func tell(events []schema.Event) string {
	var b strings.Builder
	roles := map[string]string{}
	for _, e := range events {
		p, _ := provider.Parse(e.Payload)
		lane := ""
		if e.ChildID != "" {
			lane = "child: "
		}
		switch e.Type {
		case schema.TypeMessageStart:
			roles[p.Str("message_id")] = p.Str("role")
		case schema.TypeMessageEnd:
			fmt.Fprintf(&b, "%s%s %s", lane, roles[p.Str("message_id")], p.Get("content"))
			if u := p.Object("usage"); u != nil {
				fmt.Fprintf(&b, " %s in %s out", u.Get("input_tokens"), u.Get("output_tokens"))
			}
			b.WriteByte('\n')
		case schema.TypeToolStart:
			fmt.Fprintf(&b, "%scall %s %s %s\n", lane, p.Str("call_id"), p.Str("tool"), p.Get("input"))
		case schema.TypeToolEnd:
			fmt.Fprintf(&b, "%sresult %s %s\n", lane, p.Str("call_id"), p.Get("output"))
		}
	}
	return b.String()
}

// weather is the conversation that all conventions are to tell.
const weather = `user [{"type":"text","text":"Weather in Oslo?"}]
call call_1 weather {"city":"Oslo"}
assistant [{"type":"tool_use","id":"call_1","name":"weather","input":{"city":"Oslo"}}] 10 in 5 out
result call_1 "rain"
assistant [{"type":"text","text":"It rains."}] 20 in 4 out
`

const args = `{"city":"Oslo"}`

// conventions are the same conversation in the words of each: two model calls, and a tool between them.
func conventions(t *testing.T) map[string][]*Span {
	usage := func(v values, in, out string, n int) values {
		v[in], v[out] = []int{10, 20}[n], []int{5, 4}[n]
		return v
	}
	genai := func(v values, n int) values {
		v["gen_ai.operation.name"], v["gen_ai.provider.name"], v["gen_ai.request.model"] = "chat", "openai", "gpt-x"
		return usage(v, "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", n)
	}
	tool := one(t, 3, 1, 20, 30, "execute_tool weather",
		values{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "call_1"})
	const (
		asked  = `{"role":"user","parts":[{"type":"text","content":"Weather in Oslo?"}]}`
		system = `{"role":"system","parts":[{"type":"text","content":"Be brief."}]},`
		called = `{"role":"assistant","parts":[{"type":"tool_call","id":"call_1","name":"weather","arguments":` +
			args + `}],"finish_reason":"tool_call"}`
		answered = `{"role":"tool","parts":[{"type":"tool_call_response","id":"call_1","response":"rain"}]}`
		said     = `{"role":"assistant","parts":[{"type":"text","content":"It rains."}],"finish_reason":"stop"}`
	)
	openai := func(role, content string) values { return values{"role": role, "content": content} }
	calls := `[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Oslo\"}"}}]`
	event := func(name string, attributes values) values { return values{"name": name, "attributes": attributes} }
	details := func(name, list string) values {
		return event("gen_ai.client.inference.operation.details", values{name: list})
	}
	llm := func(v values, n int) values {
		v["llm.request.type"], v["gen_ai.system"], v["gen_ai.request.model"] = "chat", "OpenAI", "gpt-x"
		v["gen_ai.prompt.0.role"], v["gen_ai.prompt.0.content"] = "user", "Weather in Oslo?"
		return usage(v, "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens", n)
	}
	inference := func(v values, n int) values {
		v["openinference.span.kind"], v["llm.model_name"] = "LLM", "gpt-x"
		v["llm.input_messages.0.message.role"], v["llm.input_messages.0.message.content"] = "user", "Weather in Oslo?"
		return usage(v, "llm.token_count.prompt", "llm.token_count.completion", n)
	}
	sdk := func(v values, n int) values {
		v["ai.operationId"], v["ai.model.id"], v["ai.model.provider"] = "ai.streamText.doStream", "gpt-x", "openai.responses"
		v["gen_ai.usage.input_tokens"] = 10 + 10*n
		return usage(v, "ai.usage.promptTokens", "ai.usage.completionTokens", n)
	}
	return map[string][]*Span{
		"genai": {
			one(t, 2, 1, 10, 20, "chat", genai(values{"gen_ai.input.messages": "[" + system + asked + "]",
				"gen_ai.output.messages": "[" + called + "]"}, 0)),
			one(t, 4, 1, 30, 40, "chat", genai(values{"gen_ai.input.messages": "[" + asked + "," + called + "," +
				answered + "]", "gen_ai.output.messages": "[" + said + "]"}, 1)), tool,
		},
		"genai, details in an event": {
			one(t, 2, 1, 10, 20, "chat", genai(values{}, 0), event("gen_ai.client.inference.operation.details",
				values{"gen_ai.input.messages": []any{json.RawMessage(asked)},
					"gen_ai.output.messages": []any{json.RawMessage(called)}})),
			one(t, 4, 1, 30, 40, "chat", genai(values{}, 1), event("gen_ai.client.inference.operation.details",
				values{"gen_ai.input.messages": "[" + asked + "," + called + "," + answered + "]",
					"gen_ai.output.messages": "[" + said + "]"})),
		},
		"strands, an event for what was asked and one for the answer": {
			one(t, 2, 1, 10, 20, "chat", genai(values{}, 0),
				details("gen_ai.system_instructions", `[{"type":"text","content":"Be brief."}]`),
				details("gen_ai.input.messages", "["+asked+"]"), details("gen_ai.output.messages", "["+called+"]")),
			one(t, 3, 1, 20, 30, "execute_tool weather", values{"gen_ai.operation.name": "execute_tool",
				"gen_ai.tool.name": "weather", "gen_ai.tool.call.id": "call_1",
				"gen_ai.tool.call.result": `[{"text":"ra"},{"text":"in"}]`}),
			one(t, 4, 1, 30, 40, "chat", genai(values{}, 1),
				details("gen_ai.input.messages", "["+asked+","+called+","+answered+"]"),
				details("gen_ai.output.messages", "["+said+"]")),
		},
		"genai, an event for each message": {
			one(t, 2, 1, 10, 20, "chat", genai(values{}, 0),
				event("gen_ai.system.message", openai("system", "Be brief.")),
				event("gen_ai.user.message", values{"content": "Weather in Oslo?"}),
				event("gen_ai.choice", values{"finish_reason": "tool_calls",
					"message": `{"role":"assistant","tool_calls":` + calls + `}`})),
			one(t, 4, 1, 30, 40, "chat", genai(values{}, 1),
				event("gen_ai.user.message", values{"content": "Weather in Oslo?"}),
				event("gen_ai.assistant.message", values{"tool_calls": calls}),
				event("gen_ai.tool.message", values{"id": "call_1", "content": "rain"}),
				event("gen_ai.choice", values{"message": `{"content":"It rains."}`})),
		},
		"pydantic ai, events in an attribute": {
			one(t, 2, 1, 10, 20, "chat", genai(values{"events": `[{"event.name":"gen_ai.user.message","content":"Weather in Oslo?","role":"user"},` +
				`{"event.name":"gen_ai.choice","index":0,"message":{"role":"assistant","tool_calls":` + calls + `}}]`}, 0)),
			one(t, 4, 1, 30, 40, "chat", genai(values{"events": `[{"event.name":"gen_ai.user.message","content":"Weather in Oslo?","role":"user"},` +
				`{"event.name":"gen_ai.assistant.message","role":"assistant","tool_calls":` + calls +
				`},{"event.name":"gen_ai.tool.message","content":"rain","role":"tool","id":"call_1","name":"weather"},` +
				`{"event.name":"gen_ai.choice","index":0,"message":{"role":"assistant","content":"It rains."}}]`}, 1)),
		},
		"openllmetry": {
			one(t, 2, 1, 10, 20, "openai.chat", llm(values{"gen_ai.completion.0.role": "assistant",
				"gen_ai.completion.0.finish_reason":   "tool_calls",
				"gen_ai.completion.0.tool_calls.0.id": "call_1", "gen_ai.completion.0.tool_calls.0.name": "weather",
				"gen_ai.completion.0.tool_calls.0.arguments": args}, 0)),
			one(t, 4, 1, 30, 40, "openai.chat", llm(values{"gen_ai.prompt.1.role": "assistant",
				"gen_ai.prompt.1.tool_calls.0.id": "call_1", "gen_ai.prompt.1.tool_calls.0.name": "weather",
				"gen_ai.prompt.1.tool_calls.0.arguments": args, "gen_ai.prompt.2.role": "tool",
				"gen_ai.prompt.2.content": "rain", "gen_ai.prompt.2.tool_call_id": "call_1",
				"gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "It rains."}, 1)),
			one(t, 3, 1, 20, 30, "weather.tool", values{"traceloop.span.kind": "tool",
				"traceloop.entity.name": "weather", "traceloop.entity.output": "rain", "traceloop.entity.input": args}),
		},
		"openinference": {
			one(t, 2, 1, 10, 20, "ChatCompletion",
				inference(values{"llm.output_messages.0.message.role": "assistant",
					"llm.output_messages.0.message.tool_calls.0.tool_call.id":                 "call_1",
					"llm.output_messages.0.message.tool_calls.0.tool_call.function.name":      "weather",
					"llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": args}, 0)),
			one(t, 4, 1, 30, 40, "ChatCompletion",
				inference(values{"llm.input_messages.1.message.role": "assistant",
					"llm.input_messages.1.message.tool_calls.0.tool_call.id": "call_1",
					"llm.input_messages.2.message.role":                      "tool", "llm.input_messages.2.message.content": "rain",
					"llm.input_messages.2.message.tool_call_id":                     "call_1",
					"llm.output_messages.0.message.role":                            "assistant",
					"llm.output_messages.0.message.contents.0.message_content.type": "text",
					"llm.output_messages.0.message.contents.0.message_content.text": "It rains."}, 1)),
			one(t, 3, 1, 20, 30, "weather", values{"openinference.span.kind": "TOOL", "tool.name": "weather",
				"output.value": "rain", "input.value": args}),
		},
		"ai sdk": {
			one(t, 9, 1, 5, 60, "ai.streamText", values{"ai.operationId": "ai.streamText", "ai.prompt": "x",
				"ai.response.text": "It rains.", "ai.usage.promptTokens": 30}),
			one(t, 2, 9, 10, 20, "ai.streamText.doStream",
				sdk(values{"ai.prompt.messages": `[{"role":"system","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Weather in Oslo?"}]}]`,
					"ai.response.toolCalls": `[{"toolCallType":"function","toolCallId":"call_1","toolName":"weather","args":"{\"city\":\"Oslo\"}"}]`}, 0)),
			one(t, 3, 9, 20, 30, "ai.toolCall", values{"ai.operationId": "ai.toolCall", "ai.toolCall.name": "weather",
				"ai.toolCall.id": "call_1", "ai.toolCall.args": args, "ai.toolCall.result": `"rain"`}),
			one(t, 4, 9, 30, 40, "ai.streamText.doStream",
				sdk(values{"ai.prompt.messages": `[{"role":"user","content":[{"type":"text","text":"Weather in Oslo?"}]},` +
					`{"role":"assistant","content":[{"type":"tool-call","toolCallId":"call_1","toolName":"weather","input":` + args + `}]},` +
					`{"role":"tool","content":[{"type":"tool-result","toolCallId":"call_1","toolName":"weather","output":{"type":"text","value":"rain"}}]}]`, "ai.response.text": "It rains."}, 1)),
		},
	}
}

// TestConventions: a conversation is told alike, whatever the convention in which it was written.
func TestConventions(t *testing.T) {
	for name, list := range conventions(t) {
		events := NewTranslator("otel_x").Round(list, nil)
		if got := tell(events); got != weather {
			t.Errorf("%s: got\n%swant\n%s", name, got, weather)
		}
		for i := range events {
			if err := events[i].Prepare("otel_x"); err != nil {
				t.Errorf("%s: %s %s: %v", name, events[i].Type, events[i].Payload, err)
			}
		}
	}
}

// TestNestedModelCalls has a framework and a client library that both write a span of one model call: it is told once.
func TestNestedModelCalls(t *testing.T) {
	list := conventions(t)["openinference"]
	for i, s := range list[:2] {
		outer := one(t, 20+i, 1, int(s.Start)-1, int(s.End)+1, "ChatOpenAI",
			values{"openinference.span.kind": "LLM", "llm.token_count.prompt": 10,
				"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": "from outside"})
		s.Parent = outer.ID
		list = append(list, outer)
	}
	if got := tell(NewTranslator("otel_x").Round(list, nil)); got != weather {
		t.Errorf("got\n%s", got)
	}
}

// TestModelCallsSideBySide has two spans of each model call that are not within each other, of the same answer. Which
// of them comes first does not matter; answers that have the same id at other times are others.
func TestModelCallsSideBySide(t *testing.T) {
	for _, before := range []int{0, 1} {
		list := conventions(t)["genai"]
		for i, s := range list[:2] {
			s.attributes["gen_ai.response.id"] = json.RawMessage(`"same"`)
			list = append(list, one(t, 20+i, 1, int(s.Start)+1-2*before, int(s.End)-1, "POST",
				values{"gen_ai.operation.name": "chat",
					"gen_ai.response.id": "same", "gen_ai.usage.input_tokens": 10}))
		}
		events := NewTranslator("otel_x").Round(list, nil)
		if got := tell(events); got != weather {
			t.Errorf("got\n%s", got)
		}
		n := 0
		for _, e := range events {
			if e.Type == schema.TypeModelStart {
				n++
			}
		}
		if n != 2 {
			t.Errorf("%d model calls of 2", n)
		}
	}
}

// TestUnpackResults has results in the messages of LangChain, and others that only look alike.
func TestUnpackResults(t *testing.T) {
	message := `{"content":"rain","type":"tool","name":"weather","tool_call_id":"call_1"}`
	for _, tt := range []struct{ output, want string }{
		{`{"type":"tool","data":` + message + `}`, `"rain"`},
		{`{"output":{"lc":1,"type":"constructor","kwargs":` + message + `},"kwargs":{"name":"weather"}}`, `"rain"`},
		{`{"output":{"x":1},"kwargs":{}}`, `{"output":{"x":1},"kwargs":{}}`},
		{`{"data":{"content":"rain"}}`, `{"data":{"content":"rain"}}`},
		{`rain`, `"rain"`},
	} {
		s := one(t, 1, 0, 0, 9, "weather", values{"openinference.span.kind": "TOOL", "tool_call.id": "c",
			"output.value": tt.output})
		if got, want := tell(NewTranslator("otel_x").Round([]*Span{s}, nil)),
			"call c weather {}\nresult c "+tt.want+"\n"; got != want {
			t.Errorf("%s: got %s", tt.output, got)
		}
	}
}

// TestThoughts has reasoning, a picture, and a call without an id.
func TestThoughts(t *testing.T) {
	s := one(t, 1, 0, 0, 9, "chat", values{"gen_ai.operation.name": "chat",
		"gen_ai.input.messages":  `[{"role":"user","parts":[{"type":"text","content":"What is this?"},{"type":"uri","uri":"https://x/y.png"}]}]`,
		"gen_ai.output.messages": `[{"role":"assistant","parts":[{"type":"reasoning","content":"hm"},{"type":"tool_call","name":"look","arguments":"[free"}]}]`})
	got := tell(NewTranslator("otel_x").Round([]*Span{s}, nil))
	want := `user [{"type":"text","text":"What is this?"},{"type":"uri","uri":"https://x/y.png"}]
call call_msg_0000000000000001_1 look "[free"
assistant [{"type":"thinking","thinking":"hm"},{"type":"tool_use","id":"call_msg_0000000000000001_1","name":"look","input":"[free"}]
result call_msg_0000000000000001_1 ` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// FuzzParse: whatever a payload holds, its events are such as the log takes.
func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"span_id":"1","attributes":{"gen_ai.operation.name":"chat","gen_ai.input.messages":[{"role":"user","parts":[{"type":"text"}]}]}}`))
	f.Add([]byte(`{"span_id":"2","parent_id":"2","attributes":{"openinference.span.kind":"TOOL","input.value":"{"}}`))
	f.Add([]byte(`{"span_id":"3","attributes":{"ai.operationId":"x.doStream","ai.response.toolCalls":"[{\"toolCallId\":7}]"}}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		if !json.Valid(payload) || provider.Problem(payload) != "" {
			return // the log takes no such payload
		}
		for _, e := range NewTranslator("otel_x").Round([]*Span{Parse(payload)}, nil) {
			if err := e.Prepare("otel_x"); err != nil {
				t.Errorf("%s %s: %v", e.Type, e.Payload, err)
			}
		}
	})
}
