package otlp

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// agentLane is the run itself or one child, and what was said in it.
type agentLane struct {
	child string
	path  []string // of a child: from the run to itself
	open  bool
	calls []*laneCall
	asked map[sum]bool // the beginnings of conversations that a model was asked with
}

// sum identifies a beginning of a conversation.
type sum [16]byte

// laneCall is a call of a tool.
type laneCall struct {
	id, name string
	input    string
	span     *treeSpan // that does it; nil: none so far
	done     bool
}

// newLane returns a lane in which nothing was said.
func newLane(child string, path []string) *agentLane {
	return &agentLane{child: child, path: path, asked: make(map[sum]bool)}
}

// writer returns a writer of the lane's events.
func (l *agentLane) writer(name, unnamed string) *provider.Writer {
	return provider.NewWriter(name, provider.Config{ChildID: l.child, Path: l.path, Unnamed: unnamed})
}

// beginLane emits that a lane works, unless it is open.
func (t *Translator) beginLane(l *agentLane, at uint64) {
	if !l.open {
		l.open = true
		t.write(l, at, schema.TypeRunLifecycle, provider.StateFields(schema.StateRunning, ""))
	}
}

// endLane ends the calls of a lane that have no end, and the lane, as a span did.
func (t *Translator) endLane(l *agentLane, s *Span) {
	if l == nil || !l.open {
		return
	}
	for _, c := range l.calls {
		if !c.done {
			c.done = true
			why := provider.ErrorOf("no_result", "no span holds a result of this call")
			t.write(l, s.End, schema.TypeToolEnd,
				append(toolEnd(c.id, false), provider.FailureFields(schema.CodeToolLost, why)...))
		}
	}
	l.open = false
	state, reason := schema.StateDone, ""
	if s.Failed {
		state, reason = schema.StateError, s.fault()
	}
	t.write(l, s.End, schema.TypeRunLifecycle, provider.StateFields(state, reason))
}

// toolEnd returns the fields that every tool.end has.
func toolEnd(id string, ok bool) provider.Fields {
	return provider.Fields{{Name: "call_id", Value: provider.Quote(id)}, {Name: "ok", Value: provider.Bool(ok)}}
}

// childID returns the id of an agent's lane.
func (t *Translator) childID(s *treeSpan) string { return t.run + "_" + s.ID }

// laneOf returns the lane in which a span stands.
func (t *Translator) laneOf(s *treeSpan) *agentLane {
	l := t.lanes[""]
	if up := s.agentAbove(); up != nil && up != t.top {
		l = t.laneOfAgent(up)
	}
	t.beginLane(l, s.start)
	return l
}

// laneOfAgent returns the lane of an agent that is a child.
func (t *Translator) laneOfAgent(s *treeSpan) *agentLane {
	id := t.childID(s)
	l := t.lanes[id]
	if l == nil {
		path := []string{t.run}
		if up := s.agentAbove(); up != nil && up != t.top {
			path = slices.Clone(t.laneOfAgent(up).path)
		}
		l = newLane(id, append(path, id))
		t.lanes[id] = l
	}
	return l
}

// spawn emits the beginning of a child.
func (t *Translator) spawn(s *treeSpan) {
	l := t.laneOfAgent(s)
	p := provider.Fields{{Name: "child_id", Value: provider.Quote(l.child)},
		{Name: "name", Value: provider.Quote(clip(agentName(s.Span)))}}
	for up := s.parent; up != nil && up.kind != agentSpan; up = up.parent {
		if c := s.lane.of(up); c != nil {
			p = append(p, provider.Field{Name: "call_id", Value: provider.Quote(c.id)})
			break
		}
	}
	t.write(s.lane, s.start, schema.TypeChildSpawn, p)
	t.beginLane(l, s.start)
}

// of returns the call that a span does.
func (l *agentLane) of(s *treeSpan) *laneCall {
	i := slices.IndexFunc(l.calls, func(c *laneCall) bool { return c.span == s })
	if i < 0 {
		return nil
	}
	return l.calls[i]
}

// find returns the call of an id that is under way; without an id the oldest of a tool.
func (l *agentLane) find(id, name, input string) *laneCall {
	for _, c := range l.calls {
		if !c.done && (id != "" && c.id == id || id == "" && c.name == name && c.span == nil &&
			(input == "" || c.input == input)) {
			return c
		}
	}
	return nil
}

// startTool emits that a tool works, and before that the call, where no message has asked for it.
func (t *Translator) startTool(s *treeSpan) {
	tool := s.tool
	c := s.lane.find(tool.id, tool.name, string(tool.input))
	if c == nil && tool.id == "" {
		c = s.lane.find("", tool.name, "")
	}
	if c == nil {
		id := cmp.Or(tool.id, "call_"+s.ID)
		if t.calls[id] { // of a call that has ended; or the same call in a span of another library
			return
		}
		c = t.newCall(s.lane, id, tool.name, tool.input)
		input := tool.input
		if input == nil {
			input = json.RawMessage("{}")
		}
		t.write(s.lane, s.start, schema.TypeToolStart, provider.Fields{{Name: "call_id", Value: provider.Quote(c.id)},
			{Name: "tool", Value: provider.Quote(c.name)}, {Name: "input", Value: input}})
	}
	if c.span != nil {
		return
	}
	c.span = s
	t.write(s.lane, s.start, schema.TypeToolRun, provider.Fields{{Name: "call_id", Value: provider.Quote(c.id)}})
}

// newCall notes a call.
func (t *Translator) newCall(l *agentLane, id, name string, input json.RawMessage) *laneCall {
	c := &laneCall{id: provider.ShortenID(id), name: cmp.Or(provider.ShortenID(name), "unnamed"), input: string(input)}
	t.calls[c.id] = true
	l.calls = append(l.calls, c)
	return c
}

// finishTool emits the end of a call. One whose span does not have the result waits for a message that does.
func (t *Translator) finishTool(s *treeSpan) {
	c := s.lane.of(s)
	if c == nil || c.done {
		return
	}
	output, took := s.tool.output, int((s.End-s.Start)/1e6)
	end := toolEnd(c.id, !s.Failed)
	switch {
	case s.Failed:
		end = append(end, provider.FailureFields(schema.CodeToolFailed, provider.Quote(s.fault()))...)
	case output == nil:
		return
	default:
		end = append(end, provider.Field{Name: "output", Value: output})
	}
	c.done = true
	t.write(s.lane, s.end, schema.TypeToolEnd,
		append(end, provider.Field{Name: "duration_ms", Value: provider.Number(took)}))
}

// modelCall emits what a model was asked that is new, the call, and the answer.
func (t *Translator) modelCall(s *treeSpan) {
	x, l := s.exchange, s.lane
	id := provider.Quote("model_" + s.ID)
	w := l.writer(x.provider, s.ID)
	t.say(w, l, s)
	begin := provider.Fields{{Name: "call_id", Value: id}, {Name: "provider", Value: provider.Quote(x.provider)}}
	if x.model != "" {
		begin = append(begin, provider.Field{Name: "model", Value: provider.Quote(x.model)})
	}
	w.Add(schema.TypeModelStart, begin)
	asked := w.Drain()
	speak(asked)
	t.emit(s.start, asked...)
	for i, m := range x.output {
		t.answer(w, l, s, m, i == 0)
	}
	end := provider.Fields{{Name: "call_id", Value: id}, {Name: "ok", Value: provider.Bool(!s.Failed)},
		{Name: "duration_ms", Value: provider.Number(int((s.End - s.Start) / 1e6))}}
	if x.usage != nil && len(x.output) == 0 {
		end = append(end, provider.Field{Name: "usage", Value: x.usage.Encode()})
	}
	if s.Failed {
		end = append(end, provider.Field{Name: "error", Value: provider.ErrorOf("error", s.fault())})
	}
	w.Add(schema.TypeModelEnd, end)
	t.emit(s.End, w.Drain()...)
}

// speak names who is behind the messages of a question.
func speak(events []schema.Event) {
	for i := range events {
		switch events[i].Type {
		case schema.TypeModelStart:
		case schema.TypeToolEnd:
			events[i].Actor = "tool"
		default:
			events[i].Actor = "user"
		}
	}
}

// say emits what people and tools have said since the newest answer, and was not said before.
func (t *Translator) say(w *provider.Writer, l *agentLane, s *treeSpan) {
	input := s.exchange.input
	var all sum
	fresh := 0 // where what is new begins
	for i, m := range input {
		all = m.sum(all)
		if l.asked[all] || m.role == "assistant" && i < len(input)-1 {
			fresh = i + 1
		}
		l.asked[all] = true
	}
	said := 0
	for _, m := range input[fresh:] {
		if m.role == "user" || m.role == "tool" {
			said += t.sayOne(w, l, s, m, said)
		}
	}
}

// sayOne emits a message of the user with the results that it holds, and returns how many messages these are.
func (t *Translator) sayOne(w *provider.Writer, l *agentLane, s *treeSpan, m talkMessage, said int) int {
	var rest []talkPart
	for _, p := range m.parts {
		if p.kind != resultPart {
			rest = append(rest, p)
			continue
		}
		if c := l.find(p.id, p.name, ""); c != nil {
			c.done = true
			w.Result(c.id, p.failed, joinTexts(unwrap(p.value)), "tool_result")
		}
	}
	if len(rest) == 0 || m.role == "tool" {
		return 0
	}
	id := "user_" + s.ID
	if said > 0 {
		id = fmt.Sprintf("%s_%d", id, said+1)
	}
	out := w.Start(id, "user", nil, nil)
	t.blocks(l, out, rest)
	out.End(nil)
	return 1
}

// sum continues the sum of a conversation with a message.
func (m talkMessage) sum(before sum) (s sum) {
	h := sha256.New()
	h.Write(before[:])
	h.Write([]byte(m.role))
	for _, p := range m.parts {
		for _, b := range [][]byte{{0, byte(p.kind)}, jsonscan.Unescape(jsonscan.Inner(p.text)), []byte(p.id),
			[]byte(p.name), p.value, p.raw} {
			h.Write(append(b, 0))
		}
	}
	copy(s[:], h.Sum(nil))
	return s
}

// answer emits a message of the model. The first one has the usage.
func (t *Translator) answer(w *provider.Writer, l *agentLane, s *treeSpan, m talkMessage, first bool) {
	x := s.exchange
	id := cmp.Or(x.response, "msg_"+s.ID)
	for n := 2; t.ids[id]; n++ {
		id = fmt.Sprintf("%s_%d", cmp.Or(x.response, "msg_"+s.ID), n)
	}
	t.ids[id] = true
	out := w.Start(id, "assistant", provider.Quote(x.model), nil)
	t.blocks(l, out, m.parts)
	if finish := cmp.Or(m.finish, x.finish); finish != "" {
		out.Stop = provider.Quote(finish)
	}
	if first && x.usage != nil {
		out.Usage = x.usage
	}
	if s.Failed {
		out.Fault = provider.ErrorOf("error", s.fault())
	}
	out.End(nil)
	t.emit(s.End, w.Drain()...)
}

// blocks emits the pieces of a message.
func (t *Translator) blocks(l *agentLane, out *provider.Message, parts []talkPart) {
	for i, p := range parts {
		switch p.kind {
		case textPart, thoughtPart:
			word := "text"
			if p.kind == thoughtPart {
				word = "reasoning"
			}
			b := out.Begin(provider.TextBlock(i, word))
			b.Text(p.text)
			b.End(true)
		case callPart:
			t.askFor(l, out, i, p)
		case otherPart:
			base, _ := provider.Parse(p.raw)
			word := p.name
			if provider.IsReserved(word) {
				word = "otel_" + word
			}
			out.Begin(&provider.Block{Index: i, Kind: word, Base: base, Raw: p.raw}).End(true)
		}
	}
}

// askFor emits a call that a message asks for.
func (t *Translator) askFor(l *agentLane, out *provider.Message, i int, p talkPart) {
	b := &provider.Block{Index: i, Kind: "tool_use", ToolUse: true, Call: p.id, Tool: p.name, Input: unwrap(p.value)}
	if jsonscan.IsString(b.Input) {
		b.FreeText = true
	}
	out.Begin(b)
	if b.FreeText {
		b.Text(b.Input)
	}
	if t.calls[b.Call] {
		// A call of this id was begun before: the message keeps the call, and nothing is begun anew.
		b.End(false)
		return
	}
	b.End(true)
	t.newCall(l, b.Call, b.Tool, b.Input)
}
