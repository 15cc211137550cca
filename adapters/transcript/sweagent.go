package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// sweAgent decodes a trajectory file of SWE-agent: trajectory[] of what the model answered, did and saw,
// history[] of the messages, info of how it ended. The history has the roles, the trajectory what the
// model answered and the tools returned: the answers of the model are matched in order.
type sweAgent struct {
	s        *recorder
	out      *provider.Writer
	steps    [][]byte
	step     int // of the next answer
	messages int
}

// document reads a format that is one document.
func (s *recorder) document(r io.Reader, yield func(schema.Event, error) bool) error {
	most := s.cfg.MaxDocumentBytes
	doc, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	long := len(doc) > most
	a := &sweAgent{s: s, out: provider.NewWriter("swe_agent", s.cfg.lane())}
	v, ok := a.emit(doc[:min(len(doc), most)], yield)
	switch {
	case !ok:
		return errLeft
	case err != nil:
		v = verdict{state: schema.StateError, reason: "the transcript could not be read to its end"}
	case long:
		v = verdict{state: schema.StateError, reason: fmt.Sprintf("the transcript is longer than %d bytes", most)}
	}
	s.endRun(v)
	if !s.flush(yield) {
		return errLeft
	}
	if err != nil {
		return fmt.Errorf("read the transcript: %w", err)
	}
	return nil
}

// emit emits the document; ok is false when the caller left.
func (a *sweAgent) emit(doc []byte, yield func(schema.Event, error) bool) (v verdict, ok bool) {
	list, whole := members(bytes.TrimPrefix(doc, []byte("\xef\xbb\xbf")))
	if list == nil && !whole {
		a.bad(doc, "not a trajectory")
		return verdict{state: schema.StateError, reason: "this is no trajectory of SWE-agent"}, true
	}
	var history [][]byte
	var info member
	for _, m := range list {
		switch m.name {
		case "trajectory":
			a.steps, _ = items(m.value)
		case "history":
			history, _ = items(m.value)
		case "info":
			info = m
		default:
			a.keepMember(m)
		}
	}
	for _, raw := range history {
		a.message(raw)
		if a.collect(); !a.s.flush(yield) {
			return v, false
		}
	}
	a.s.aside = false
	for a.step < len(a.steps) { // a history that was cut
		a.answer(nil)
		if a.collect(); !a.s.flush(yield) {
			return v, false
		}
	}
	if info.name != "" {
		a.keepMember(info)
	}
	a.collect()
	v = a.verdict(info)
	if !whole && !v.known {
		v.reason = "the transcript was cut"
	} else if !whole {
		a.s.broken = "the transcript was cut"
	}
	return v, true
}

func (a *sweAgent) collect() { a.s.add(a.out.Drain()...) }

// keepMember emits a member that is neither history nor trajectory.
func (a *sweAgent) keepMember(m member) {
	if value, ok := a.valid(m.value); ok {
		a.out.Custom(m.name, provider.Fields{field(provider.ShortenID(m.name), value)})
	}
}

// valid returns a value as it can be carried; one that cannot be is kept as a bad frame.
func (a *sweAgent) valid(raw []byte) (json.RawMessage, bool) {
	if why := provider.Problem(raw); why != "" {
		a.bad(raw, why)
		return nil, false
	}
	return provider.OneLine(raw), true
}

// bad keeps the beginning of what cannot be read.
func (a *sweAgent) bad(raw []byte, why string) {
	a.out.Add("custom.swe_agent.bad_frame",
		provider.Fields{field("problem", provider.Quote(why)), field("bytes", provider.Number(len(raw))),
			field("text", provider.Quote(string(raw[:min(len(raw), 64<<10)])))})
}

func (a *sweAgent) object(raw []byte) provider.Fields {
	value, ok := a.valid(raw)
	if !ok {
		return nil
	}
	all, ok := provider.Parse(value)
	if !ok {
		a.bad(raw, "not an object")
	}
	return all
}

func (a *sweAgent) id() string {
	a.messages++
	return "msg_" + strconv.Itoa(a.messages)
}

// message emits one message of the history.
func (a *sweAgent) message(raw []byte) {
	h := a.object(raw)
	if h == nil {
		return
	}
	role := h.Str("role")
	a.s.aside = string(h.Get("is_demo")) == "true"
	if role == "assistant" && !a.s.aside {
		a.answer(h)
		return
	}
	m := a.out.Start(a.id(), role, nil, nil)
	if role == "tool" {
		a.toolMessage(m, h)
	} else {
		contentBlocks(m, h.Get("content"))
	}
	keepMore(m, h, "role", "content", "tool_call_ids")
	m.End(nil)
}

// toolMessage emits what the model was shown of a result.
func (a *sweAgent) toolMessage(m *provider.Message, h provider.Fields) {
	ids := provider.Elements(h.Get("tool_call_ids"))
	block := provider.Fields{field("type", provider.Quote("tool_result"))}
	answers := ""
	if len(ids) > 0 && jsonscan.IsString(ids[0]) {
		block = append(block, field("tool_use_id", ids[0]))
		answers = block.Str("tool_use_id")
	}
	otherBlock(m, append(block, field("content", provider.OrNull(h.Get("content")))).Encode(), answers)
	if len(ids) > 1 {
		m.Keep(field("tool_call_ids", h.Get("tool_call_ids")))
	}
}

// keepMore stores the members that are not emitted otherwise.
func keepMore(m *provider.Message, h provider.Fields, emitted ...string) {
	for _, f := range h {
		known := provider.IsNull(f.Value)
		for _, name := range emitted {
			known = known || f.Name == name
		}
		if !known {
			m.Keep(f)
		}
	}
}

// answer emits what the model answered, and what came of it. h is its message in the history, nil when
// that was cut.
func (a *sweAgent) answer(h provider.Fields) {
	var step provider.Fields
	if a.step < len(a.steps) {
		step = a.object(a.steps[a.step])
	}
	number := a.step
	a.step++
	m := a.out.Start(a.id(), "assistant", nil, nil)
	content := step.Get("response")
	if !jsonscan.IsString(content) {
		content = h.Get("content")
	} else if c := h.Get("content"); c != nil && !bytes.Equal(c, content) {
		m.Keep(field("history_content", c))
	}
	for _, raw := range provider.Elements(h.Get("thinking_blocks")) {
		contentBlocks(m, provider.List([]json.RawMessage{raw}))
	}
	contentBlocks(m, content)
	calls := a.emitCalls(m, h)
	thought := "thought"
	if t := h.Get("thought"); !bytes.Equal(t, content) && !bytes.Equal(t, step.Get("thought")) {
		thought = ""
	}
	keepMore(m, h, "role", "content", "tool_calls", "thinking_blocks", "action", thought)
	if t := step.Get("thought"); t != nil && !bytes.Equal(t, content) {
		m.Keep(field("thought", t))
	}
	m.End(nil)
	if step == nil {
		return
	}
	if len(calls) == 0 {
		calls = a.act(number, step)
	}
	if len(calls) > 0 {
		a.result(calls[len(calls)-1], step)
	}
}

// emitCalls emits the calls of a message.
func (a *sweAgent) emitCalls(m *provider.Message, h provider.Fields) (ids []string) {
	for _, raw := range provider.Elements(h.Get("tool_calls")) {
		call, _ := provider.Parse(raw)
		fn := call.Object("function")
		kind := call.Str("type")
		if kind == "" {
			kind = "function"
		}
		ids = append(ids, callBlock(m, call.Str("id"), fn.Str("name"), provider.ShortenID(kind), fn.Get("arguments"),
			nil).Call)
	}
	return ids
}

// act emits an action that the model wrote in its text.
func (a *sweAgent) act(number int, step provider.Fields) []string {
	action := step.Get("action")
	if !jsonscan.IsString(action) || len(action) <= len(`""`) {
		return nil
	}
	id := "action_" + strconv.Itoa(number)
	a.out.Add(schema.TypeToolStart, provider.Fields{
		field("call_id", provider.Quote(id)), field("tool", provider.Quote("action")),
		field("input", provider.Fields{field("action", action)}.Encode()), field("kind", provider.Quote("action")),
	})
	return []string{id}
}

// result emits the result of the step's call.
func (a *sweAgent) result(call string, step provider.Fields) {
	payload := provider.Fields{field("call_id", provider.Quote(call)), field("ok", provider.Bool(true)),
		field("output", provider.OrNull(step.Get("observation")))}
	if took, err := strconv.ParseFloat(string(step.Get("execution_time")), 64); err == nil && took >= 0 && took < 1e9 {
		payload = append(payload, field("duration_ms", strconv.AppendFloat(nil, took*1000, 'f', 3, 64)))
	}
	for _, f := range step {
		switch f.Name {
		case "state", "extra_info":
			if !provider.IsNull(f.Value) && string(f.Value) != "{}" {
				payload = append(payload, f)
			}
		}
	}
	a.out.Add(schema.TypeToolEnd, payload)
}

// verdict reads how the run ended (exit_status: submitted, exit_cost, exit_error, …).
func (a *sweAgent) verdict(info member) verdict {
	if !info.whole || provider.Problem(info.value) != "" {
		return verdict{schema.StateError, "the transcript does not say how the run ended", false}
	}
	all, _ := provider.Parse(info.value)
	switch status := all.Str("exit_status"); {
	case status == "":
		return verdict{schema.StateError, "the transcript has no exit status", false}
	case strings.HasPrefix(status, "submitted"):
		return verdict{schema.StateDone, "", true}
	case status == "skipped", status == "early_exit", strings.HasPrefix(status, "exit_forfeit"):
		return verdict{schema.StateAborted, status, true}
	default:
		return verdict{schema.StateError, status, true}
	}
}
