package transcript

import (
	"bytes"
	"encoding/json"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// openHands reads the events of an OpenHands conversation.
type openHands struct {
	s        *recorder
	out      *provider.Writer
	msg      *provider.Message // of the model, while its actions come
	response string            // id of the model's response that msg is
	known    map[string]int    // how often a response was a message before; of the newest few
	status   string            // execution_status
	failure  string            // of a ConversationErrorEvent
	finished bool              // the last thing that happened was the finish tool's or a message of the agent
}

func newOpenHands(s *recorder, out *provider.Writer) *openHands {
	return &openHands{s: s, out: out, known: map[string]int{}}
}

func (o *openHands) line(all provider.Fields) {
	kind := all.Str("kind")
	if kind == "ConversationStateUpdateEvent" {
		o.state(all)
		return
	}
	if kind != "ActionEvent" || all.Str("llm_response_id") != o.response || o.response == "" {
		o.endMessage()
	}
	switch kind {
	case "ActionEvent":
		o.action(all)
	case "ObservationEvent", "AgentErrorEvent", "UserRejectObservation":
		o.result(kind, all)
	case "MessageEvent":
		o.message(all)
	case "SystemPromptEvent":
		m := o.out.Start(all.Str("id"), "system", nil, nil)
		contentBlocks(m, all.Get("system_prompt"))
		o.keep(m, all, "system_prompt")
		m.End(nil)
	case "ConversationErrorEvent":
		o.failure = provider.ErrorText(provider.Fields{field("code", provider.OrNull(all.Get("code"))),
			field("message", provider.OrNull(all.Get("detail")))}.Encode())
		o.out.Custom(kind, all)
	default:
		o.out.Custom(kind, all)
		if kind == "PauseEvent" {
			o.become("paused")
		}
	}
}

// keep stores the members of a line in the message, but for those that are emitted already.
func (o *openHands) keep(m *provider.Message, all provider.Fields, emitted ...string) {
	for _, f := range all {
		switch f.Name {
		case "id", "timestamp", "kind":
			continue
		}
		known := false
		for _, name := range emitted {
			known = known || f.Name == name
		}
		if !known && !provider.IsNull(f.Value) && string(f.Value) != "[]" {
			m.Keep(f)
		}
	}
}

// state takes an update of the conversation's state.
func (o *openHands) state(all provider.Fields) {
	o.out.Custom("ConversationStateUpdateEvent", all)
	status := ""
	switch all.Str("key") {
	case "execution_status", "agent_status":
		status = all.Str("value")
	case "full_state":
		if status = all.Object("value").Str("execution_status"); status == "" {
			status = all.Object("value").Str("agent_status")
		}
	}
	o.become(status)
}

// become takes the conversation's status. That it stands still is a state of the run, too.
func (o *openHands) become(status string) {
	before := o.status
	if status == "" || status == before {
		return
	}
	o.status = status
	o.s.add(o.out.Drain()...)
	switch {
	case status == "paused":
		o.s.lifecycle(schema.StatePaused, "")
	case before == "paused" && status == "running":
		o.s.lifecycle(schema.StateRunning, "")
	}
}

// action emits one action: a call of the message that the model's response is.
func (o *openHands) action(all provider.Fields) {
	o.finished = false
	if o.msg == nil {
		o.response = all.Str("llm_response_id")
		o.msg = o.out.Start(o.messageID(o.response, all.Str("id")), "assistant", nil, nil)
	}
	o.thoughts(o.msg, all)
	contentBlocks(o.msg, all.Get("thought"))
	call := all.Object("tool_call")
	id, name := all.Str("tool_call_id"), all.Str("tool_name")
	if id == "" {
		id = call.Str("id")
	}
	if name == "" {
		name = call.Str("name")
	}
	arguments := call.Get("arguments")
	if arguments == nil {
		arguments = all.Get("action")
	}
	raw := provider.Fields{field("type", provider.Quote("tool_use")),
		field("id", provider.Quote(provider.ShortenID(id))), field("name", provider.Quote(provider.ShortenID(name)))}
	for _, f := range all {
		switch f.Name {
		case "id":
			raw = append(raw, field("event_id", f.Value))
		case "action", "security_risk", "summary", "critic_result", "responses_reasoning_item", "llm_response_id":
			if !provider.IsNull(f.Value) {
				raw = append(raw, f)
			}
		}
	}
	b := callBlock(o.msg, id, name, "action", arguments, raw.Encode())
	o.finished = b.Tool == "finish"
}

// messageID names the message of a response. A response that goes on behind another event is another
// message.
func (o *openHands) messageID(response, event string) string {
	if response == "" {
		return event
	}
	if len(o.known) >= 64 {
		clear(o.known)
	}
	response = provider.ShortenID(response)
	o.known[response]++
	if n := o.known[response]; n > 1 {
		return response + "_part_" + string(provider.Number(n))
	}
	return response
}

// thoughts emits what the model thought: its thinking blocks, else the reasoning as text.
func (o *openHands) thoughts(m *provider.Message, all provider.Fields) {
	list := provider.Elements(all.Get("thinking_blocks"))
	for _, raw := range list {
		contentBlocks(m, provider.List([]json.RawMessage{raw}))
	}
	if len(list) == 0 {
		thinkingBlock(m, all.Get("reasoning_content"), nil)
	}
}

func (o *openHands) endMessage() {
	if o.msg != nil {
		o.msg.End(nil)
		o.msg = nil
	}
	o.s.add(o.out.Drain()...) // open calls must be known before their results come
}

// message emits a message of the user or of the agent.
func (o *openHands) message(all provider.Fields) {
	inner := all.Object("llm_message")
	role := inner.Str("role")
	if role == "" && all.Str("source") == "user" {
		role = "user"
	}
	m := o.out.Start(all.Str("id"), role, nil, nil)
	o.thoughts(m, inner)
	contentBlocks(m, inner.Get("content"))
	for _, raw := range provider.Elements(inner.Get("tool_calls")) {
		call, _ := provider.Parse(raw)
		fn := call.Object("function")
		if fn == nil {
			fn = call
		}
		callBlock(m, call.Str("id"), fn.Str("name"), "action", fn.Get("arguments"), nil)
	}
	o.keep(m, all, "llm_message")
	m.End(nil)
	o.finished = role == "assistant"
}

// result emits the result of a call.
func (o *openHands) result(kind string, all provider.Fields) {
	call := provider.ShortenID(all.Str("tool_call_id"))
	if call == "" {
		o.out.Custom(kind, all)
		return
	}
	ok, output := false, all.Get("error")
	var rest provider.Fields
	switch kind {
	case "UserRejectObservation":
		output = all.Get("rejection_reason")
	case "ObservationEvent":
		inner, isObject := provider.Parse(all.Get("observation"))
		ok, output = string(inner.Get("is_error")) != "true", inner.Get("content")
		if !isObject {
			output = all.Get("observation")
		}
		for _, f := range inner {
			if f.Name != "content" && f.Name != "is_error" {
				rest = append(rest, f)
			}
		}
	}
	payload := provider.Fields{field("call_id", provider.Quote(call)), field("ok", provider.Bool(ok))}
	switch {
	case ok:
		payload = append(payload, field("output", provider.OrNull(output)))
	case kind == "UserRejectObservation":
		payload = append(payload, provider.FailureFields(schema.CodeToolRefused, output)...)
	default:
		payload = append(payload, provider.FailureFields(schema.CodeToolFailed, output)...)
	}
	payload = append(payload, field("kind", provider.Quote(kind)))
	if took := o.s.since(call); took >= 0 {
		payload = append(payload, field("duration_ms", provider.Number(took)))
	}
	if id := all.Get("id"); id != nil {
		payload = append(payload, field("event_id", id))
	}
	if rest != nil {
		payload = append(payload, field("observation", rest.Encode()))
	}
	o.out.Add(schema.TypeToolEnd, payload)
	if !bytes.Equal(all.Get("tool_name"), []byte(`"finish"`)) {
		o.finished = false
	}
}

func (o *openHands) finish() verdict {
	o.endMessage()
	switch o.status {
	case "finished":
		return verdict{schema.StateDone, "", true}
	case "error", "stuck":
		reason := o.failure
		if reason == "" {
			reason = "the conversation's status is " + o.status
		}
		return verdict{schema.StateError, reason, true}
	case "paused", "waiting_for_confirmation":
		return verdict{schema.StateAborted, "the transcript ends while the conversation is " + o.status, true}
	}
	switch {
	case o.failure != "":
		return verdict{schema.StateError, o.failure, true}
	case o.finished && o.status != "running":
		return verdict{schema.StateDone, "", false}
	case o.status == "running":
		return verdict{schema.StateError, "the transcript ends while the conversation is running", false}
	}
	return verdict{schema.StateError, "the transcript does not say how the conversation ended", false}
}
