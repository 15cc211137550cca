package agui

import (
	"slices"
	"strconv"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/protocols/chat"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// wire is what a client of the response under way has open.
type wire struct {
	response schema.Seq // 0: none is under way
	runID    string     // of the run of AG-UI
	running  bool       // that run goes on
	pauses   int        // how often the response has waited for a person
	paused   schema.Seq // record of the last time

	texts ordered.Map[string, text]     // that are open
	calls ordered.Map[string, openCall] // whose input is open
	// Those that the end of the run of AG-UI, or of their subagent, has closed: their next piece opens them again.
	closedTexts ordered.Map[string, text]
	closedCalls ordered.Map[string, openCall]

	parts ordered.Map[string, *part]    // what subagents have opened, by lane, the newest first
	asked ordered.Map[string, struct{}] // questions without an answer, by their ids
	lanes ordered.Map[string, bool]     // subagents of the run; true: it is over
	heads ordered.Map[string, string]   // message of each lane that calls belong to
	usage []usage
}

// text is a message that is not complete.
type text struct {
	lane     string
	thinking bool
}

// openCall is one whose input is not complete.
type openCall struct {
	lane, name, parent string
	args               bool
}

// part is a text or a call that a subagent has opened. It may have ended since. It is never changed: copies share it.
type part struct {
	id   string
	call bool
	prev *part
}

// usage is what a model has used.
type usage struct {
	model   string
	in, out int64
}

func (w *wire) clone() wire {
	c := *w
	c.texts, c.calls, c.lanes, c.heads = w.texts.Clone(), w.calls.Clone(), w.lanes.Clone(), w.heads.Clone()
	c.closedTexts, c.closedCalls = w.closedTexts.Clone(), w.closedCalls.Clone()
	c.parts, c.asked = w.parts.Clone(), w.asked.Clone()
	c.usage = slices.Clone(w.usage)
	return c
}

func (w *wire) size() int {
	open := w.texts.Len() + w.calls.Len() + w.closedTexts.Len() + w.closedCalls.Len()
	return 96 * (2*open + w.asked.Len() + w.lanes.Len() + w.heads.Len() + len(w.usage))
}

// open remembers what a subagent has opened.
func (w *wire) open(lane string, p part) {
	if lane != "" {
		p.prev, _ = w.parts.Get(lane)
		w.parts.Set(lane, &p)
	}
}

// use adds what a message has used.
func (w *wire) use(model string, payload []byte) {
	f := jsonscan.Fields(nil).Read(jsonscan.Fields(nil).Read(payload).Object("usage"))
	in, out := count(f.Raw("input_tokens")), count(f.Raw("output_tokens"))
	if in == 0 && out == 0 {
		return
	}
	for i := range w.usage {
		if w.usage[i].model == model {
			w.usage[i].in = min(w.usage[i].in+in, maxCount)
			w.usage[i].out = min(w.usage[i].out+out, maxCount)
			return
		}
	}
	if len(w.usage) < dialect.MaxList {
		w.usage = append(w.usage, usage{model, in, out})
	}
}

// maxCount is the largest number that the client takes.
const maxCount = 1<<53 - 1

// count reads how many tokens were used; 0 for what is no number of them.
func count(v []byte) int64 {
	n, ok := jsonscan.WholeNumber(v)
	if !ok || n < 0 || n > maxCount {
		return 0
	}
	return n
}

// emit appends an event of the response under way. lane is the child's that it is of.
func (p *projector) emit(typ, lane string, fill func(jsonscan.Object) jsonscan.Object) *dialect.Frame {
	p.nth++
	if p.out == nil || p.now.response != p.span && !p.every {
		return nil
	}
	p.buf = append(p.buf[:0], '{').Str("type", typ)
	if fill != nil {
		p.buf = fill(p.buf)
	}
	p.buf = p.buf.OptStr("subagentRunId", lane)
	token := strconv.AppendInt(nil, int64(p.now.response), 10)
	token = strconv.AppendInt(append(token, '.'), int64(p.rec.Seq), 10)
	token = strconv.AppendInt(append(token, '.'), int64(p.nth), 10)
	p.out.Add(dialect.Frame{Data: p.out.Text(p.buf.End()), Token: token})
	return &p.out.List[len(p.out.List)-1]
}

// beginResponse begins a response.
func (p *projector) beginResponse(response schema.Seq) {
	p.now = wire{response: response}
	p.resume()
}

// resume begins a run of AG-UI, if none goes on. Its id is that which the client has given it, or that of its record.
func (p *projector) resume() {
	if p.now.running {
		return
	}
	p.now.running, p.now.lanes = true, ordered.Map[string, bool]{}
	p.now.runID = p.run + "." + p.rec.Seq.String()
	said := string(p.rec.Type) == schema.TypeCommandMessage && p.rec.Seq == p.now.response
	if id := p.text("ag_ui_run_id"); id != "" && (said || string(p.rec.Type) == "command.answer") {
		p.now.runID = id
	}
	p.emit("RUN_STARTED", "", func(o jsonscan.Object) jsonscan.Object {
		o = o.Str("threadId", p.run).Str("runId", p.now.runID).Str("protocolVersion", "1.0")
		if said {
			input := append(o.Name("input"), '{').Str("threadId", p.run).Str("runId", p.now.runID)
			input = append(input.Name("messages"), '[')
			input = append(userMessage(input, p.run, p.rec.Seq, p.chat.Field), ']')
			return append(input, `,"tools":[],"context":[]}`...)
		}
		return o
	})
}

// enter begins the subagent of a lane, and those above it. It is false for one that is over: ids begin once in a run.
func (p *projector) enter(lane string, prompt []byte) bool {
	p.resume()
	if lane == "" {
		return true
	}
	over, known := p.now.lanes.Get(lane)
	if known {
		return !over
	}
	p.now.lanes.Set(lane, false)
	parent, _ := p.above.Get(lane)
	if parent != "" {
		p.enter(parent, nil)
	}
	p.startLane(lane, prompt)
	return true
}

func (p *projector) startLane(lane string, prompt []byte) {
	parent, _ := p.above.Get(lane)
	p.emit("SUBAGENT_STARTED", lane, func(o jsonscan.Object) jsonscan.Object {
		o = o.Str("name", lane).OptStr("parentSubagentRunId", parent)
		if jsonscan.IsString(prompt) && len(prompt) <= maxPrompt {
			o = o.Raw("description", prompt)
		}
		return o
	})
}

// maxPrompt bounds the description of a subagent, in bytes.
const maxPrompt = 4 << 10

// leave ends the subagent of a lane, and what of it is open.
func (p *projector) leave(lane string, state schema.RunState, why string) {
	p.closeParts(lane)
	p.now.lanes.Set(lane, true)
	if state == schema.StateDone {
		p.emit("SUBAGENT_FINISHED", lane, nil)
		return
	}
	p.emit("SUBAGENT_ERROR", lane, func(o jsonscan.Object) jsonscan.Object { return o.Str("message", why).Str("code", string(state)) })
}

// closeParts ends the texts and then the calls of a subagent, in the order in which they were opened.
func (p *projector) closeParts(lane string) {
	var texts, calls []string
	newest, _ := p.now.parts.Delete(lane)
	for pt := newest; pt != nil; pt = pt.prev {
		if pt.call {
			calls = append(calls, pt.id)
		} else {
			texts = append(texts, pt.id)
		}
	}
	for _, id := range slices.Backward(texts) {
		p.closeText(id)
	}
	for _, id := range slices.Backward(calls) {
		p.closeCall(id)
	}
}

// closeText ends a text that is open, until its next piece.
func (p *projector) closeText(id string) {
	if t, open := p.now.texts.Delete(id); open {
		p.endText(id, t, nil)
		p.now.closedTexts.Set(id, t)
	}
}

// closeCall ends the input of a call that is open, until its next piece.
func (p *projector) closeCall(id string) {
	if c, open := p.now.calls.Delete(id); open {
		p.callWord("TOOL_CALL_END", id, c.lane, nil)
		p.now.closedCalls.Set(id, c)
	}
}

// close ends all that is open, for the end of a run of AG-UI.
func (p *projector) close() {
	for id := range p.now.texts.All() {
		p.closeText(id)
	}
	for id := range p.now.calls.All() {
		p.closeCall(id)
	}
	p.now.parts = ordered.Map[string, *part]{}
	var open []string
	for lane, over := range p.now.lanes.All() {
		if !over {
			open = append(open, lane)
		}
	}
	for _, lane := range slices.Backward(open) {
		p.now.lanes.Set(lane, true)
		p.emit("SUBAGENT_FINISHED", lane, nil)
	}
	p.now.running = false
}

// pause ends the run of AG-UI with the questions that wait.
func (p *projector) pause() {
	p.resume()
	p.close()
	p.now.pauses++
	p.now.paused = p.rec.Seq
	f := p.emit("RUN_FINISHED", "", func(o jsonscan.Object) jsonscan.Object {
		o = append(o.Str("threadId", p.run).Str("runId", p.now.runID).Name("outcome"),
			`{"type":"interrupt","interrupts":[`...)
		return append(p.interrupts(o), "]}"...)
	})
	if f != nil && !p.every && p.now.pauses > p.pass {
		f.Last = true
	}
}

// interrupts appends the questions that wait.
func (p *projector) interrupts(o jsonscan.Object) jsonscan.Object {
	for i, id := range p.waiting() {
		if i > 0 {
			o = append(o, ',')
		}
		a, _ := p.asks.Get(id)
		reason := "input_required"
		if a.call != "" {
			reason = "tool_call"
		}
		o = append(o, '{').Str("id", id).Str("reason", reason).OptRaw("message", a.prompt)
		o = o.OptStr("toolCallId", a.call).OptRaw("responseSchema", a.form).End()
	}
	return o
}

// finish ends the response with how it ended.
func (p *projector) finish(e *chat.Event) {
	p.resume()
	p.close()
	f := p.terminal(e)
	if f != nil && !p.every {
		f.Last = true
	}
	p.now = wire{}
}

func (p *projector) terminal(e *chat.Event) *dialect.Frame {
	if e.Kind == chat.Failed {
		why := e.Why
		if why == "" {
			why = "the run has ended and gave no reason"
		}
		return p.emit("RUN_ERROR", "", func(o jsonscan.Object) jsonscan.Object { return o.Str("message", why).Str("code", "error") })
	}
	outcome := "success"
	if e.Kind == chat.Aborted {
		outcome = "cancelled"
	}
	return p.emit("RUN_FINISHED", "", func(o jsonscan.Object) jsonscan.Object {
		o = o.Str("threadId", p.run).Str("runId", p.now.runID)
		o = append(o.Name("outcome"), '{').Str("type", outcome).End()
		if len(p.now.usage) == 0 {
			return o
		}
		o = append(o.Name("usage"), '[')
		for i, u := range p.now.usage {
			if i > 0 {
				o = append(o, ',')
			}
			o = append(o, '{').OptStr("model", u.model).Int("inputTokens", u.in).Int("outputTokens", u.out).End()
		}
		return append(o, ']')
	})
}

// textEvent makes the events of a text or a thought.
func (p *projector) textEvent(e *chat.Event) {
	id := p.run + "-" + e.ID
	t, open := p.now.texts.Get(id)
	known := open
	if !open {
		t, known = p.now.closedTexts.Get(id)
	}
	switch {
	case e.Kind == chat.TextStart:
		if p.enter(e.Lane, nil) {
			p.startText(id, text{lane: e.Lane, thinking: e.Thinking})
		}
	case !known || !p.enter(t.lane, nil):
	case e.Kind == chat.TextDelta:
		if !open {
			p.startText(id, t)
		}
		word := map[bool]string{false: "TEXT_MESSAGE_CONTENT", true: "REASONING_MESSAGE_CONTENT"}[t.thinking]
		p.emit(word, t.lane, func(o jsonscan.Object) jsonscan.Object { return o.Str("messageId", id).Inner("delta", low(e), e.Text) })
	default:
		if open {
			p.endText(id, t, e.Value)
		}
		p.now.texts.Delete(id)
		p.now.closedTexts.Delete(id)
	}
}

// startText opens a message.
func (p *projector) startText(id string, t text) {
	p.now.closedTexts.Delete(id)
	p.now.texts.Set(id, t)
	p.now.open(t.lane, part{id: id})
	name := func(o jsonscan.Object) jsonscan.Object { return o.Str("messageId", id) }
	if !t.thinking {
		p.now.heads.Set(t.lane, id)
		p.emit("TEXT_MESSAGE_START", t.lane, func(o jsonscan.Object) jsonscan.Object { return name(o).Str("role", "assistant") })
		return
	}
	p.emit("REASONING_START", t.lane, name)
	p.emit("REASONING_MESSAGE_START", t.lane,
		func(o jsonscan.Object) jsonscan.Object { return name(o).Str("role", "reasoning") })
}

// endText closes a message. notes are what it ends with.
func (p *projector) endText(id string, t text, notes []byte) {
	name := func(o jsonscan.Object) jsonscan.Object { return o.Str("messageId", id) }
	if !t.thinking {
		p.emit("TEXT_MESSAGE_END", t.lane, name)
		return
	}
	if sign := jsonscan.Fields(nil).Read(notes).Raw("signature"); jsonscan.IsString(sign) {
		p.emit("REASONING_ENCRYPTED_VALUE", t.lane, func(o jsonscan.Object) jsonscan.Object {
			return o.Str("subtype", "message").Str("entityId", id).Raw("encryptedValue", sign)
		})
	}
	p.emit("REASONING_MESSAGE_END", t.lane, name)
	p.emit("REASONING_END", t.lane, name)
}

// low is the half of a character that comes before a text.
func low(e *chat.Event) []byte {
	if e.Low == 0 {
		return nil
	}
	return jsonscan.AppendUnit(nil, e.Low)
}

// callID is the id of a call on the wire, where no two calls of a thread have the same.
func (p *projector) callID(lane, id string) string {
	if lane != "" {
		id = lane + ":" + id
	}
	first, known := p.used.Get(id)
	if known && first != p.now.response {
		return id + "~" + p.now.response.String()
	}
	if !known {
		p.used.Set(id, p.now.response)
		p.size += len(id)
	}
	return id
}

func (p *projector) callWord(typ, id, lane string, fill func(jsonscan.Object) jsonscan.Object) {
	p.emit(typ, lane, func(o jsonscan.Object) jsonscan.Object {
		o = o.Str("toolCallId", id)
		if fill != nil {
			o = fill(o)
		}
		return o
	})
}

func (p *projector) startCall(id string, c openCall) {
	p.now.closedCalls.Delete(id)
	p.now.calls.Set(id, c)
	p.now.open(c.lane, part{id: id, call: true})
	p.callWord("TOOL_CALL_START", id, c.lane, func(o jsonscan.Object) jsonscan.Object {
		return o.Str("toolCallName", c.name).OptStr("parentMessageId", c.parent)
	})
}

// callEvent makes the events of a call.
func (p *projector) callEvent(e *chat.Event) {
	id := p.callID(e.Lane, e.ID)
	if !p.enter(e.Lane, nil) {
		p.now.calls.Delete(id)
		p.now.closedCalls.Delete(id)
		return
	}
	c, open := p.now.calls.Get(id)
	if closed, again := p.now.closedCalls.Get(id); again && !open {
		c = closed
		p.startCall(id, c)
	}
	switch e.Kind {
	case chat.CallStart:
		parent, _ := p.now.heads.Get(e.Lane)
		p.startCall(id, openCall{lane: e.Lane, name: e.Name, parent: parent})
	case chat.CallDelta:
		c.args = true
		p.now.calls.Set(id, c)
		p.callWord("TOOL_CALL_ARGS", id, c.lane,
			func(o jsonscan.Object) jsonscan.Object { return o.Inner("delta", low(e), e.Text) })
	case chat.CallInput:
		if !c.args {
			p.callWord("TOOL_CALL_ARGS", id, e.Lane,
				func(o jsonscan.Object) jsonscan.Object { return o.Str("delta", string(e.Value)) })
		}
		p.endCall(id, e.Lane)
	case chat.CallBroken:
		p.endCall(id, e.Lane)
		p.result(id, e.Lane, failure(e.Why))
	case chat.CallResult:
		p.result(id, e.Lane, content(e.Value))
	case chat.CallFailed:
		p.result(id, e.Lane, failure(e.Why))
	case chat.CallDenied:
		p.result(id, e.Lane, failure("a person has denied the call"))
	}
}

func (p *projector) endCall(id, lane string) {
	p.callWord("TOOL_CALL_END", id, lane, nil)
	p.now.calls.Delete(id)
}

// result sends what a call has come to. content is a JSON string.
func (p *projector) result(id, lane string, content []byte) {
	p.emit("TOOL_CALL_RESULT", lane, func(o jsonscan.Object) jsonscan.Object {
		return o.Str("messageId", id+"-result").Str("toolCallId", id).Raw("content", content).Str("role", "tool")
	})
}

// content is an output as the text that a message has: a string as it is, anything else as JSON.
func content(output []byte) []byte {
	if jsonscan.IsString(output) {
		return output
	}
	return jsonscan.AppendString(nil, string(output))
}

func failure(why string) []byte {
	return jsonscan.AppendString(nil, string(jsonscan.Object("{").Str("error", why).End()))
}

// custom sends what AG-UI has no word for.
func (p *projector) custom(name, lane string, value []byte) {
	if p.enter(lane, nil) {
		p.emit("CUSTOM", lane, func(o jsonscan.Object) jsonscan.Object { return o.Str("name", name).Raw("value", value) })
	}
}

// pointer writes a name as a step of a JSON Pointer (RFC 6901).
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
