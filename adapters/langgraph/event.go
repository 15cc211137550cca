package langgraph

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// decodeEvent makes events of a line. What the catalogue has no type for is kept as it came.
func (d *Decoder) decodeEvent(e *event) {
	take := map[string]func(*event) bool{"messages": d.message, "tools": d.tool, "lifecycle": d.lifecycle, "values": d.stateValues, "updates": d.stateUpdate,
		"checkpoints": d.checkpoint, "tasks": d.task, "input.requested": d.request, "custom": d.custom}[e.Method]
	if channel, ok := strings.CutPrefix(e.Method, "custom:"); ok {
		// all that it says is the payload of an event of that name
		e.Params.Data = fields(quoteField("name", channel), field("payload", e.Params.Data)).Encode()
		e.Method, e.data, take = "custom", fields(quoteField("name", channel)), d.custom
	}
	if take == nil || !take(e) {
		d.add(d.root, "custom.langgraph."+word(e.Method), e.with())
	}
}

func (d *Decoder) stateValues(e *event) bool {
	d.requests(e, e.data.Get("__interrupt__"))
	d.add(d.laneOf(e.Params.Namespace), schema.TypeStateValues, e.payload(field("values", e.Params.Data)))
	return true
}

func (d *Decoder) stateUpdate(e *event) bool {
	p := e.with(field("values", e.Params.Data))
	if v := e.data.Get("values"); len(e.data) == 2 && v != nil && e.data.Str("node") == e.Params.Node {
		p = e.payload(field("values", v))
	}
	d.add(d.laneOf(e.Params.Namespace), schema.TypeStateUpdate, p)
	return true
}

func (d *Decoder) checkpoint(e *event) bool {
	id := e.data.Str("id")
	if id != "" {
		d.add(d.laneOf(e.Params.Namespace), schema.TypeCheckpoint,
			e.with(quoteField("checkpoint_id", id), field("parent_id", provider.OrNull(e.data.Get("parent_id"))),
				field("step", provider.OrNull(e.data.Get("step"))), field("source", provider.OrNull(e.data.Get("source")))))
	}
	return id != ""
}

// word makes a name fit for a type.
func word(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' {
			return r
		}
		return '_'
	}, s[:min(len(s), 64)])
}

// item notes that a call or a task begins or ends, and reports whether it may: what has not begun does not end.
func (d *Decoder) item(id string, begins bool) bool {
	if was := d.open[id]; was == begins || begins && len(d.open) >= 1<<14 {
		return false
	}
	if delete(d.open, id); begins {
		d.open[id] = true
	}
	return true
}

func (d *Decoder) tool(e *event) bool {
	l, call, piece := d.owner(e.Params.Namespace), e.data.Str("tool_call_id"), e.data.Get("delta")
	id, item := quoteField("call_id", call), "call\x00"+l.id+"\x00"+call
	switch kind := e.data.Str("event"); {
	case call == "":
		return false
	case kind == "tool-started" && d.item(item, true):
		input := e.data.Get("input")
		if text := []byte(e.data.Str("input")); provider.Problem(text) == "" { // JavaScript sends it as text
			input = provider.OneLine(text)
		}
		d.add(l, schema.TypeToolStart, e.with(id, quoteField("tool", cmp.Or(e.data.Str("tool_name"), "unknown")),
			field("input", provider.OrNull(input))))
	case kind == "tool-output-delta" && d.open[item] && jsonscan.IsString(piece) && len(piece) < maxPiece:
		d.add(l, schema.TypeToolOutputDelta, e.payload(id, field("text", piece)))
	case kind == "tool-finished" && d.item(item, false):
		d.add(l, schema.TypeToolEnd, e.with(id, field("ok", provider.Bool(true)),
			field("output", outputOf(e.data.Get("output")))))
	case kind == "tool-error" && d.item(item, false):
		d.add(l, schema.TypeToolEnd, e.with(append(provider.FailureFields(schema.CodeToolFailed, e.data.Get("message")),
			id, field("ok", provider.Bool(false)))...))
	default:
		return false
	}
	return true
}

// outputOf returns what a tool has returned: the content of its message, in either of the forms in which LangChain
// writes one.
func outputOf(v json.RawMessage) json.RawMessage {
	all, _ := provider.Parse(v)
	if inner := all.Object("kwargs"); inner != nil {
		all = inner
	}
	if content := all.Get("content"); content != nil && all.Get("tool_call_id") != nil {
		return content
	}
	return provider.OrNull(v)
}

func (d *Decoder) task(e *event) bool {
	l, id, problem := d.laneOf(e.Params.Namespace), e.data.Str("id"), e.data.Get("error")
	ended := problem != nil || e.data.Get("result") != nil
	if id == "" || !d.item("task\x00"+l.id+"\x00"+id, !ended) {
		return false
	}
	typ, p := schema.TypeTaskStart, fields(quoteField("task_id", id), quoteField("name", e.data.Str("name")))
	if ended {
		d.requests(e, e.data.Get("interrupts"))
		typ, p = schema.TypeTaskEnd, append(p, field("ok", provider.Bool(problem == nil || provider.IsNull(problem))))
	}
	d.add(l, typ, e.with(p...))
	return true
}

func (d *Decoder) request(e *event) bool {
	id := e.data.Str("interrupt_id")
	if id != "" {
		d.asked[id] = true
		d.add(d.root, schema.TypeInputRequested,
			e.with(quoteField("request_id", id), field("payload", provider.OrNull(e.data.Get("payload")))))
	}
	return id != ""
}

// requests asks for input once for each interrupt, where it is first seen. The run waits for the answer, not the lane,
// which ends.
func (d *Decoder) requests(e *event, list []byte) {
	for _, raw := range provider.Elements(list) {
		all, _ := provider.Parse(raw)
		id := all.Str("id")
		if !d.asked[id] && id != "" {
			d.asked[id] = true
			d.add(d.root, schema.TypeInputRequested,
				e.payload(quoteField("request_id", id), field("payload", provider.OrNull(all.Get("value")))))
		}
	}
}

// custom has the name that its application gave it.
func (d *Decoder) custom(e *event) bool {
	name := e.data.Str("name")
	if name == "" || word(name) != name {
		return false
	}
	d.add(d.laneOf(e.Params.Namespace), "custom."+name, e.with())
	return true
}

var states = map[string]schema.RunState{"started": schema.StateRunning, "running": schema.StateRunning,
	"completed": schema.StateDone,
	"failed":    schema.StateError, "interrupted": schema.StateAborted}

// lifecycle returns what becomes of the run, or of a namespace. A run that has asked for input waits, whatever
// LangGraph calls that.
func (d *Decoder) lifecycle(e *event) bool {
	l, state := d.laneOf(e.Params.Namespace), states[e.data.Str("event")]
	switch {
	case state == "" || l == d.root && len(e.Params.Namespace) > 0:
		return false
	case l != d.root && state.Final():
		d.cut(l.says)
		d.release(l)
	case l == d.root && state.Final():
		d.settle()
		cancelled := state == schema.StateAborted && e.data.Str("reason")+e.data.Str("error") != "" // a question gives none
		if len(d.asked) > 0 && state != schema.StateError && !cancelled {
			state = schema.StatePaused
		} else { // whoever goes on from here answers nothing
			clear(d.asked)
		}
	case l == d.root && d.cfg.Lifecycle && d.state != state:
		for _, id := range slices.Sorted(maps.Keys(d.asked)) {
			d.add(d.root, schema.TypeInputAnswered, fields(quoteField("request_id", id)))
		}
		clear(d.asked)
	}
	if l != d.root || d.cfg.Lifecycle {
		d.add(l, schema.TypeRunLifecycle, e.with(provider.StateFields(state, e.data.Str("error"))...))
	}
	if l == d.root {
		d.state = state
	}
	return true
}

// settle ends what is open in all lanes.
func (d *Decoder) settle() {
	for _, who := range slices.Sorted(maps.Keys(d.messages)) {
		d.cut(d.messages[who])
	}
	for _, l := range d.active {
		l.scope = ""
	}
	clear(d.active)
	clear(d.open)
}

// Close ends the stream and returns the last events: messages that are open are incomplete, and a run that goes on ends
// as an error, if its states are asked for.
func (d *Decoder) Close() []schema.Event {
	d.events = nil
	if d.settle(); d.cfg.Lifecycle && d.state == schema.StateRunning {
		d.state = schema.StateError
		d.add(d.root, schema.TypeRunLifecycle,
			provider.StateFields(schema.StateError, "the stream of events ended before the run"))
	}
	return d.events
}
