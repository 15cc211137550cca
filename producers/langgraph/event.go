package langgraph

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"agentstream/producers/provider"
	"agentstream/schema"
)

// take makes events of a line.
func (d *Decoder) take(e *event) {
	data, l := e.data, d.root
	if e.Method != "messages" && e.Method != "tools" {
		l = d.laneOf(e.Params.Namespace)
	}
	id := data.Str("id")
	switch {
	case e.Method == "messages":
		d.message(e)
	case e.Method == "tools":
		d.tool(e, d.owner(e.Params.Namespace))
	case e.Method == "lifecycle":
		d.lifecycle(e, l)
	case e.Method == "values":
		d.requests(e, data.Get("__interrupt__"))
		d.add(l, schema.TypeStateValues, e.says(field("values", e.Params.Data)))
	case e.Method == "updates" && len(data) == 2 && data.Str("node") == e.Params.Node && data.Get("values") != nil:
		d.add(l, schema.TypeStateUpdate, e.says(field("values", data.Get("values"))))
	case e.Method == "updates":
		d.add(l, schema.TypeStateUpdate, e.with(field("values", e.Params.Data)))
	case e.Method == "checkpoints" && id != "":
		p := fields(quoted("checkpoint_id", id))
		for _, f := range data {
			if f.Name == "parent_id" || f.Name == "step" || f.Name == "source" {
				p = append(p, f)
			}
		}
		d.add(l, schema.TypeCheckpoint, e.with(p...))
	case e.Method == "tasks" && id != "":
		d.task(e, l, id)
	case e.Method == "input.requested" && data.Str("interrupt_id") != "":
		d.asked[data.Str("interrupt_id")] = true
		d.add(d.root, schema.TypeInputRequested, e.with(quoted("request_id", data.Str("interrupt_id")), field("payload", provider.OrNull(data.Get("payload")))))
	case e.Method == "custom", strings.HasPrefix(e.Method, "custom:"):
		d.custom(e, l)
	default:
		d.verbatim(l, e)
	}
}

// verbatim keeps an event that the catalogue has no place for.
func (d *Decoder) verbatim(l *lane, e *event) {
	d.add(l, "custom.langgraph."+word(e.Method), e.with())
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

func (d *Decoder) tool(e *event, l *lane) {
	call := e.data.Str("tool_call_id")
	id, item := quoted("call_id", call), "call\x00"+l.id+"\x00"+call
	piece := e.data.Get("delta")
	switch kind := e.data.Str("event"); {
	case call == "":
		d.verbatim(l, e)
	case kind == "tool-started" && d.item(item, true):
		input := e.data.Get("input")
		if text := []byte(e.data.Str("input")); provider.Problem(text) == "" { // JavaScript sends it as text
			input = provider.OneLine(text)
		}
		d.add(l, schema.TypeToolStart, e.with(id, quoted("tool", cmp.Or(e.data.Str("tool_name"), "unknown")), field("input", provider.OrNull(input))))
	case kind == "tool-output-delta" && d.open[item] && provider.IsString(piece) && len(piece) < maxPiece:
		d.add(l, schema.TypeToolOutputDelta, e.says(id, field("text", piece)))
	case kind == "tool-finished" && d.item(item, false):
		d.add(l, schema.TypeToolEnd, e.with(id, field("ok", provider.Bool(true)), field("output", outputOf(e.data.Get("output")))))
	case kind == "tool-error" && d.item(item, false):
		d.add(l, schema.TypeToolEnd, e.with(append(provider.Failed(schema.CodeToolFailed, e.data.Get("message")), id, field("ok", provider.Bool(false)))...))
	default:
		d.verbatim(l, e)
	}
}

// outputOf returns what a tool has said: the content of its message, in either of the forms in which LangChain writes one.
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

func (d *Decoder) task(e *event, l *lane, id string) {
	problem := e.data.Get("error")
	ended := problem != nil || e.data.Get("result") != nil
	p := fields(quoted("task_id", id), quoted("name", e.data.Str("name")))
	switch {
	case !d.item("task\x00"+l.id+"\x00"+id, !ended):
		d.verbatim(l, e)
	case ended:
		d.requests(e, e.data.Get("interrupts"))
		d.add(l, schema.TypeTaskEnd, e.with(append(p, field("ok", provider.Bool(problem == nil || provider.IsNull(problem))))...))
	default:
		d.add(l, schema.TypeTaskStart, e.with(p...))
	}
}

// requests asks for input once for each interrupt, where it is first seen. The run waits for the answer, not the lane, which ends.
func (d *Decoder) requests(e *event, list []byte) {
	for _, raw := range provider.Elements(list) {
		all, _ := provider.Parse(raw)
		id := all.Str("id")
		if !d.asked[id] && id != "" {
			d.asked[id] = true
			d.add(d.root, schema.TypeInputRequested, e.says(quoted("request_id", id), field("payload", provider.OrNull(all.Get("value")))))
		}
	}
}

// custom has the name that its application gave it. One of a channel of its own, custom:NAME, is the payload of one of that name.
func (d *Decoder) custom(e *event, l *lane) {
	if channel, ok := strings.CutPrefix(e.Method, "custom:"); ok {
		e.Params.Data = fields(quoted("name", channel), field("payload", e.Params.Data)).Encode()
		e.Method, e.data = "custom", fields(quoted("name", channel))
	}
	if name := e.data.Str("name"); name != "" && word(name) == name {
		d.add(l, "custom."+name, e.with())
		return
	}
	d.verbatim(l, e)
}

var states = map[string]schema.RunState{"started": schema.StateRunning, "running": schema.StateRunning, "completed": schema.StateDone,
	"failed": schema.StateError, "interrupted": schema.StateAborted}

// lifecycle says what becomes of the run, or of a namespace. A run that has asked for input waits, whatever LangGraph calls that.
func (d *Decoder) lifecycle(e *event, l *lane) {
	state := states[e.data.Str("event")]
	switch {
	case state == "" || l == d.root && len(e.Params.Namespace) > 0:
		d.verbatim(l, e)
		return
	case l != d.root && state.Final():
		d.cut(l.says)
		d.release(l)
	case l == d.root && state.Final():
		d.settle()
		if len(d.asked) > 0 && state == schema.StateDone {
			state = schema.StatePaused
		}
	case l == d.root && d.cfg.Lifecycle && d.state != state:
		for _, id := range slices.Sorted(maps.Keys(d.asked)) {
			d.add(d.root, schema.TypeInputAnswered, fields(quoted("request_id", id)))
		}
		clear(d.asked)
	}
	if l != d.root || d.cfg.Lifecycle {
		d.add(l, schema.TypeRunLifecycle, e.with(stateOf(state, e.data.Str("error"))...))
	}
	if l == d.root {
		d.state = state
	}
}

func stateOf(state schema.RunState, reason string) provider.Fields {
	p := fields(quoted("state", string(state)))
	if reason != "" {
		p = append(p, field("reason", provider.Quote(provider.Clip(reason))))
	}
	return p
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

// Close ends the stream and returns the last events: messages that are open are incomplete, and a run that goes on ends as an
// error, if its states are asked for.
func (d *Decoder) Close() []schema.Event {
	d.events = nil
	if d.settle(); d.cfg.Lifecycle && d.state == schema.StateRunning {
		d.state = schema.StateError
		d.add(d.root, schema.TypeRunLifecycle, stateOf(schema.StateError, "the stream of events ended before the run"))
	}
	return d.events
}
