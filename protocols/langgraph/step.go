package langgraph

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

func (p *Projector) callStarts(l *lane, t *assemble.Transition) {
	p.emit(tools, "tools", p.from(l), slotOf(t, slotBegins), func(o object) object {
		o = o.Str("event", "tool-started").Str("tool_call_id", t.Item.ID).Str("tool_name", t.Item.Tool)
		if p.is(schema.TypeToolStart) {
			o = o.OptRaw("input", p.field("input"))
		}
		return o
	})
}

// outputs shows a piece of what a tool says.
func (p *Projector) outputs() {
	call, piece := p.field("call_id"), p.field("text")
	if !jsonscan.IsString(call) || !jsonscan.IsString(piece) {
		return
	}
	p.startRun()
	p.emit(tools, "tools", p.from(p.lane(p.rec.child)), slotSays, func(o object) object {
		return o.Str("event", "tool-output-delta").Raw("tool_call_id", call).Raw("delta", piece)
	})
}

// callEnds shows the end of a call that has started.
func (p *Projector) callEnds(l *lane, t *assemble.Transition) {
	if t.Item.Kind == assemble.CallAsk {
		return
	}
	said := p.is(schema.TypeToolEnd) && !t.Repaired
	ok := said && string(p.field("ok")) != "false"
	output := p.field("output")
	if output == nil {
		output = p.field("output_preview")
	}
	if !said {
		output = nil
	}
	message, code := "the call did not end", ""
	if said && !ok {
		message, code = p.toolProblem(output)
	}
	s := p.from(l)
	p.emit(tools, "tools", s, slotOf(t, slotEnds), func(o object) object {
		if p.older != nil && said { // whose result is a message
			o = o.Str("tool_name", t.Item.Tool)
		}
		if ok {
			return o.Str("event", "tool-finished").Str("tool_call_id", t.Item.ID).Raw("output",
				output).OptRaw("blob_ref", p.field("blob_ref"))
		}
		return o.Str("event", "tool-error").Str("tool_call_id", t.Item.ID).Str("message", message).OptStr("code", code)
	})
	if said {
		p.result(t, output, ok, message)
	}
}

func (p *Projector) toolProblem(output []byte) (message, code string) {
	detail := p.field("error_detail")
	code = text(p.field("error"))
	if p.field("error") != nil && code == "" {
		detail = p.field("error")
	}
	message = cmp.Or(text(detail), text(schema.Field(detail, "message")), text(output), code, "the tool failed")
	return message, code
}

// task shows the beginning or the end of a task: the payload as it is, with the id in the protocol's word.
func (p *Projector) task(l *lane, t *assemble.Transition) {
	typ := schema.TypeTaskStart
	slot := slotOf(t, slotBegins)
	if t.Kind == assemble.TaskEnd {
		typ, slot = schema.TypeTaskEnd, slotOf(t, slotEnds)
	}
	p.emit(tasks, "tasks", p.from(l), slot, func(o object) object {
		o = o.Str("id", t.Item.ID)
		if p.is(typ) && !t.Repaired {
			o = o.Members(p.rec.payload, "task_id", "id", "namespace", "node")
		} else if t.Kind == assemble.TaskEnd {
			o = o.Str("error", "the task did not end")
		}
		return o
	})
}

// requestKey is what a request for input is found by.
type requestKey struct{ lane, id string }

// request is a request for input that nobody has answered.
type request struct {
	requestKey
	namespace []byte
	payload   []byte // null for one that is too long
}

const (
	// maxRequests bounds those that are remembered, maxAsked the payload of each in bytes.
	maxRequests = 1 << 10
	maxAsked    = 64 << 10
)

// showRequest shows a request for input. Clients read its payload under two names.
func (p *Projector) showRequest(l *lane, t *assemble.Transition) {
	s := p.from(l)
	payload := p.field("payload")
	if payload == nil {
		payload = append(object{'{'}.Members(p.rec.payload, "request_id", "namespace", "node"), '}')
	}
	p.emit(input, schema.TypeInputRequested, s, slotSays, func(o object) object {
		return o.Str("interrupt_id", t.Item.ID).Raw("payload", payload).Raw("value", payload)
	})
	if len(p.asked) >= 2*maxRequests {
		p.asked = slices.Clone(p.asked[maxRequests:])
	}
	p.asked = append(p.asked, t.Item.ID)
	if p.requests.Len() < maxRequests {
		if len(payload) > maxAsked {
			payload = []byte(`null`)
		}
		key := requestKey{t.Lane.Child, t.Item.ID}
		p.requests.Delete(key) // one whose id is too long to be known apart from others'
		p.requests.Set(key, request{requestKey: key, namespace: s.namespace, payload: bytes.Clone(payload)})
	}
}

// showAnswer shows that a request for input has its answer.
func (p *Projector) showAnswer(l *lane, t *assemble.Transition) {
	s := p.from(l)
	if r, ok := p.requests.Delete(requestKey{t.Lane.Child, t.Item.ID}); ok {
		s.namespace = r.namespace
	}
	p.emit(input, schema.TypeInputAnswered, s, slotOf(t, slotEnds), func(o object) object {
		o = append(o.Name("interrupt_ids"), '[')
		return append(jsonscan.AppendString(o, t.Item.ID), ']')
	})
}

// showNamed shows what is the application's own, by a name.
func (p *Projector) showNamed(name string, payload []byte) {
	s := p.from(p.lane(p.rec.child))
	if !p.is(schema.TypeLoss) {
		p.startRun()
	}
	if name != "" {
		s.lane = append(append(s.lane, nameMark), segmentOf(name)...)
	}
	p.emit(custom, "custom", s, slotSays, func(o object) object { return o.OptStr("name", name).Raw("payload", payload) })
}

// payloadOf returns the payload of a custom event: what the producer has put under payload, as LangGraph agents do who
// name where it is from; else all of it.
func (p *Projector) payloadOf() []byte {
	if v := p.field("payload"); v != nil && (p.field("namespace") != nil || p.field("node") != nil) {
		return v
	}
	return p.rec.payload
}

// showOwn shows a record by the name of its type.
func (p *Projector) showOwn() { p.showNamed(string(p.rec.typ), p.rec.payload) }

// showValues shows a state as it was stored.
func (p *Projector) showValues() {
	v := p.field("values")
	if v == nil || p.field("omitted") != nil && string(v) == "null" {
		return // the record of a loss covers it
	}
	p.noteState()
	s := p.from(p.lane(p.rec.child))
	at, ok := p.at(slotSays)
	if !ok {
		return
	}
	if len(s.lane) == 0 {
		if whole := StateIn(v); whole != nil {
			p.newest = snapshot{at: at, ts: p.rec.ts, run: p.run.id, values: bytes.Clone(whole)}
		}
	}
	if p.isWanted() {
		p.addFrame(values, "values", s, at, func(o object) object { return append(o, v...) })
	}
}

// showUpdate shows what a node has changed.
func (p *Projector) showUpdate() {
	if p.field("omitted") != nil && string(p.field("values")) == "null" {
		return // the record of a loss covers it
	}
	p.startRun()
	p.emit(updates, "updates", p.from(p.lane(p.rec.child)), slotSays, func(o object) object {
		return o.OptRaw("node", p.field("node")).Raw("values", p.field("values"))
	})
}

// showStep shows a step that has a checkpoint.
func (p *Projector) showStep() {
	p.startRun()
	if id := text(p.field("checkpoint_id")); id != "" {
		n, _ := jsonscan.WholeNumber(p.field("step_index"))
		p.addCheckpoint(id, n)
	}
}

// noteState notes that the agent has come to a state. One that a fork or a client has stored is not its work.
func (p *Projector) noteState() {
	if p.run.active || !isForked(p.rec.payload) {
		p.startRun()
	}
}

// showCheckpoint shows a checkpoint that the agent has stored.
func (p *Projector) showCheckpoint() {
	p.noteState()
	n, err := strconv.ParseInt(string(p.field("step")), 10, 64) // the first is -1
	if err != nil {
		n = p.checkpoint.step + 1
	}
	if id := text(p.field("checkpoint_id")); id != "" {
		p.addCheckpoint(id, n)
	}
}

// addCheckpoint adds a checkpoint with its parent.
func (p *Projector) addCheckpoint(id string, step int64) {
	s := p.from(p.lane(p.rec.child))
	root := len(s.lane) == 0
	parent := text(p.field("parent_id"))
	if parent == "" && root && p.field("parent_id") == nil {
		parent = p.checkpoint.id
	}
	origin := cmp.Or(text(p.field("source")), "loop")
	p.emit(checkpoints, "checkpoints", s, slotSays, func(o object) object {
		return o.Str("id", id).OptStr("parent_id", parent).Int("step", step).Str("source", origin)
	})
	if root {
		p.checkpoint = checkpoint{id: id, parent: parent, source: origin, step: step, ts: p.rec.ts}
	}
}

// readSession reads what the session is.
func (p *Projector) readSession() {
	if p.rec.child == "" {
		p.session = schema.MergeSession(p.session, string(p.rec.typ), p.rec.ts, p.rec.payload)
	}
	if v := p.field("agent"); p.rec.child == "" && v != nil {
		p.graph = cmp.Or(text(v), text(schema.Field(v, "id")))
		if len(p.graph) > maxName {
			p.graph = ""
		}
	}
}

// noteRemoval notes that the session was deleted.
func (p *Projector) noteRemoval() { p.deleted = p.deleted || p.rec.child == "" }
