package otlp

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema/jsonscan"
)

// spanKind is what a span stands for in a run.
type spanKind byte

const (
	otherSpan spanKind = iota
	agentSpan
	chatSpan
	toolSpan
)

// kinds are the words of all conventions for what a span stands for. An operation that is not named here makes no
// event.
var kinds = []struct {
	attribute string
	words     map[string]spanKind
}{
	{"openinference.span.kind", map[string]spanKind{"LLM": chatSpan, "AGENT": agentSpan, "TOOL": toolSpan}},
	{"gen_ai.operation.name", map[string]spanKind{"chat": chatSpan, "text_completion": chatSpan,
		"generate_content": chatSpan, "completion": chatSpan, "message": chatSpan, "invoke_agent": agentSpan,
		"execute_tool": toolSpan}},
	{"traceloop.span.kind", map[string]spanKind{"agent": agentSpan, "tool": toolSpan}},
	{"llm.request.type", map[string]spanKind{"chat": chatSpan, "completion": chatSpan}},
}

// kindOf returns what a span stands for, by the first convention that says so.
func kindOf(s *Span) spanKind {
	a := s.attributes
	if op := a.str("ai.operationId"); op != "" { // its spans have names of other conventions as well
		switch {
		case strings.HasSuffix(op, ".doGenerate"), strings.HasSuffix(op, ".doStream"):
			return chatSpan
		case op == "ai.toolCall":
			return toolSpan
		}
		return otherSpan
	}
	for _, k := range kinds {
		word := a.str(k.attribute)
		if word != "" {
			return k.words[word]
		}
	}
	switch {
	case a.first("gen_ai.tool.name", "gen_ai.tool.call.id") != nil:
		return toolSpan
	case a.first("pydantic_ai.all_messages", "all_messages_events") != nil:
		return agentSpan
	case a.first("gen_ai.prompt.0.role", "gen_ai.completion.0.role", "llm.input_messages.0.message.role") != nil:
		return chatSpan
	}
	return otherSpan
}

// exchange is one call of a model, whatever convention it was written in.
type exchange struct {
	provider, model, response string
	input, output             []talkMessage
	finish                    string
	usage                     provider.Fields
}

// talkMessage is one of an exchange. The roles are user, assistant, tool and system.
type talkMessage struct {
	role, finish string
	parts        []talkPart
}

type partKind byte

const (
	textPart partKind = iota
	thoughtPart
	callPart
	resultPart
	otherPart
)

// talkPart is a piece of a message.
type talkPart struct {
	kind     partKind
	text     json.RawMessage // a text of JSON
	id, name string          // of a call
	value    json.RawMessage // its input, or its result
	failed   bool
	raw      json.RawMessage // of what is none of the others
}

// size returns how many messages an exchange has.
func (x *exchange) size() int { return len(x.input) + len(x.output) }

// exchangeOf reads a model call.
func exchangeOf(s *Span) *exchange {
	a := s.attributes
	x := &exchange{
		model: a.str("gen_ai.response.model", "gen_ai.request.model", "llm.response.model", "llm.model_name",
			"llm.request.model", "ai.response.model", "ai.model.id"),
		provider: providerOf(a),
		response: a.str("gen_ai.response.id", "llm.response.id", "ai.response.id"),
		finish:   a.str("ai.response.finishReason", "llm.finish_reason", "llm.response.finish_reason"),
		usage:    usageOf(a),
	}
	if list := a.list("gen_ai.response.finish_reasons"); len(list) > 0 && x.finish == "" {
		x.finish = jsonscan.DecodeString(list[0])
	}
	readers := []func(*Span, *exchange){readMessages, readEvents, readNumbered, readOpenInference, readAISDK}
	for _, readOne := range readers {
		readOne(s, x)
		if x.size() > 0 {
			break
		}
	}
	for i := range x.output {
		x.finish = cmp.Or(x.finish, x.output[i].finish)
	}
	return x
}

// providerOf returns the name of the model's provider.
func providerOf(a attributes) string {
	name := strings.ToLower(a.str("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system"))
	if name == "" {
		name, _, _ = strings.Cut(strings.ToLower(a.str("ai.model.provider")), ".")
	}
	return cmp.Or(name, "unknown")
}

// counts are the names of what a call has used, in the words of all conventions.
var counts = []struct {
	name string
	from []string
}{
	{"input_tokens", []string{"gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
		"llm.token_count.prompt", "ai.usage.inputTokens", "ai.usage.promptTokens"}},
	{"output_tokens", []string{"gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
		"llm.usage.completion_tokens", "llm.token_count.completion", "ai.usage.outputTokens",
		"ai.usage.completionTokens"}},
	{"total_tokens", []string{"llm.usage.total_tokens", "gen_ai.usage.total_tokens", "llm.token_count.total",
		"ai.usage.totalTokens"}},
	{"cache_read_input_tokens", []string{"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
		"gen_ai.usage.details.cache_read_tokens", "llm.token_count.prompt_details.cache_read",
		"ai.usage.cachedInputTokens"}},
	{"cache_creation_input_tokens", []string{"gen_ai.usage.cache_creation.input_tokens",
		"gen_ai.usage.cache_creation_input_tokens", "gen_ai.usage.details.cache_write_tokens",
		"llm.token_count.prompt_details.cache_write"}},
	{"reasoning_tokens", []string{"gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
		"gen_ai.usage.details.reasoning_tokens", "llm.usage.reasoning_tokens",
		"llm.token_count.completion_details.reasoning", "ai.usage.reasoningTokens"}},
}

// usageOf reads what a call has used; nil when that is not said.
func usageOf(a attributes) (usage provider.Fields) {
	for _, c := range counts {
		n, ok := a.number(c.from...)
		if ok {
			usage = append(usage, provider.Field{Name: c.name, Value: provider.Number(n)})
		}
	}
	return usage
}

// spanCall is the call of a tool that a span does.
type spanCall struct {
	id, name      string
	input, output json.RawMessage
}

// toolCallOf reads a call of a tool.
func toolCallOf(s *Span) spanCall {
	a := s.attributes
	if name := a.str("ai.toolCall.name"); name != "" { // what it takes and returns is JSON in a text, whatever it is
		return spanCall{id: a.str("ai.toolCall.id"), name: name,
			input:  decodeText(a.first("ai.toolCall.args", "ai.toolCall.input")),
			output: decodeText(a.first("ai.toolCall.result", "ai.toolCall.output"))}
	}
	return spanCall{
		id:     a.str("gen_ai.tool.call.id", "tool_call.id", "tool.id"),
		name:   cmp.Or(a.str("gen_ai.tool.name", "tool.name", "traceloop.entity.name"), s.Name),
		input:  a.value("gen_ai.tool.call.arguments", "tool_arguments", "input.value", "traceloop.entity.input"),
		output: unpack(a.value("gen_ai.tool.call.result", "tool_response", "output.value", "traceloop.entity.output")),
	}
}

// unpack returns what a tool has answered, where that is in a message of LangChain: as it writes them, or as a
// constructor.
func unpack(v json.RawMessage) json.RawMessage {
	p, _ := provider.Parse(v)
	if len(p) == 2 && provider.IsObject(p.Get("output")) && provider.IsObject(p.Get("kwargs")) { // of OpenLLMetry
		p = p.Object("output")
	}
	for _, name := range []string{"data", "kwargs"} {
		inner := p.Object(name)
		if inner.Str("type") == "tool" && inner.Get("tool_call_id") != nil && inner.Get("content") != nil {
			return unwrap(inner.Get("content"))
		}
	}
	return joinTexts(v)
}

// joinTexts returns the text of a list of objects that have a text and nothing else, as Bedrock and Strands write what a
// tool has answered, and anything else as it is.
func joinTexts(v json.RawMessage) json.RawMessage {
	var all strings.Builder
	list := provider.Elements(v)
	for _, raw := range list {
		p, _ := provider.Parse(raw)
		if len(p) != 1 || !jsonscan.IsString(p.Get("text")) {
			return v
		}
		all.WriteString(p.Str("text"))
	}
	if len(list) == 0 {
		return v
	}
	return provider.Quote(all.String())
}

// agentName returns the name of an agent.
func agentName(s *Span) string {
	return cmp.Or(s.attributes.str("gen_ai.agent.name", "agent.name", "agent_name", "traceloop.entity.name"), s.Name)
}

// roles are the words of all conventions for who speaks.
var roles = map[string]string{"human": "user", "ai": "assistant", "model": "assistant", "developer": "system",
	"function": "tool"}

// roleOf returns the role that a word of any convention stands for.
func roleOf(word string) string {
	word = strings.ToLower(word)
	return cmp.Or(roles[word], word)
}

// messageOf reads a message in any of the forms in which providers and conventions write them.
func messageOf(raw json.RawMessage, role string) talkMessage {
	p, ok := provider.Parse(raw)
	m := talkMessage{role: roleOf(cmp.Or(p.Str("role"), role)),
		finish: cmp.Or(p.Str("finish_reason"), p.Str("finishReason"))}
	if !ok {
		m.add(raw)
		return m
	}
	if inner := p.Object("message"); inner != nil && p.Get("content") == nil {
		inner = inner.Set("finish_reason", provider.Quote(m.finish))
		return messageOf(inner.Encode(), m.role)
	}
	if thought := firstOf(p, "reasoning_content", "reasoning"); jsonscan.IsString(thought) {
		m.parts = append(m.parts, talkPart{kind: thoughtPart, text: thought})
	}
	content := firstOf(p, "parts", "content")
	id := cmp.Or(p.Str("tool_call_id"), p.Str("id"))
	if m.role == "tool" && (id != "" || p.Get("name") != nil) && p.Get("parts") == nil && !isParts(content) {
		m.parts = append(m.parts, talkPart{kind: resultPart, id: id, name: p.Str("name"), value: content})
		return m
	}
	m.add(content)
	m.addCalls(provider.Elements(unwrap(p.Get("tool_calls"))))
	return m
}

// firstOf returns the first member that has a value.
func firstOf(p provider.Fields, names ...string) json.RawMessage {
	for _, name := range names {
		if v := p.Get(name); provider.HasValue(v) {
			return v
		}
	}
	return nil
}

// isParts reports whether a value is a list of pieces that are typed.
func isParts(v json.RawMessage) bool {
	list := provider.Elements(unwrap(v))
	return slices.ContainsFunc(list, func(e json.RawMessage) bool {
		p, _ := provider.Parse(e)
		return strings.Contains(p.Str("type"), "tool")
	})
}

// add adds content: a text, or a list of pieces.
func (m *talkMessage) add(content json.RawMessage) {
	if !provider.HasValue(content) {
		return
	}
	if inner := unwrap(content); len(inner) > 0 && inner[0] == '[' && areObjects(inner) {
		for _, raw := range provider.Elements(inner) {
			m.parts = append(m.parts, partOf(raw))
		}
		return
	}
	m.parts = append(m.parts, talkPart{kind: textPart, text: textOf(content)})
}

// areObjects reports whether the elements of a list are objects with a type: a text may well be a list of anything.
func areObjects(list json.RawMessage) bool {
	all := provider.Elements(list)
	return len(all) > 0 && !slices.ContainsFunc(all, func(e json.RawMessage) bool {
		p, _ := provider.Parse(e)
		return p.Str("type") == "" && p.Str("kind") == ""
	})
}

// addCalls adds the calls of a list.
func (m *talkMessage) addCalls(list []json.RawMessage) {
	for _, raw := range list {
		p, _ := provider.Parse(raw)
		m.parts = append(m.parts, callOf(p))
	}
}

// callOf reads a call as OpenAI writes it, or flat.
func callOf(p provider.Fields) talkPart {
	fn := p.Object("function")
	if fn == nil {
		fn = p
	}
	return talkPart{kind: callPart, id: cmp.Or(p.Str("id"), p.Str("toolCallId"), p.Str("tool_call_id")),
		name: cmp.Or(fn.Str("name"), fn.Str("toolName")), value: firstOf(fn, "arguments", "input", "args")}
}

// partOf reads one piece of a message.
func partOf(raw json.RawMessage) talkPart {
	p, _ := provider.Parse(raw)
	switch cmp.Or(p.Str("type"), p.Str("kind")) {
	case "text", "input_text", "output_text":
		return talkPart{kind: textPart, text: textOf(firstOf(p, "content", "text"))}
	case "reasoning", "thinking":
		return talkPart{kind: thoughtPart, text: textOf(firstOf(p, "content", "text", "thinking"))}
	case "tool_call", "tool_use", "tool-call", "function_call":
		call := callOf(p)
		call.id = cmp.Or(call.id, p.Str("call_id"))
		return call
	case "tool_call_response", "tool_result", "tool-result", "function_call_output":
		value := firstOf(p, "response", "result", "output", "content")
		if inner, ok := provider.Parse(value); ok && inner.Str("type") != "" && inner.Get("value") != nil {
			// the AI SDK's form
			value = inner.Get("value")
		}
		id := cmp.Or(p.Str("id"), p.Str("tool_use_id"), p.Str("toolCallId"), p.Str("tool_call_id"), p.Str("call_id"))
		return talkPart{kind: resultPart, value: value, failed: string(firstOf(p, "is_error", "isError")) == "true",
			id: id, name: cmp.Or(p.Str("name"), p.Str("toolName"))}
	}
	return talkPart{kind: otherPart, name: cmp.Or(p.Str("type"), p.Str("kind")), raw: raw}
}
