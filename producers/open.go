package producers

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"agentstream/schema"
)

// Open is what of a run has begun and has not ended: turns, model calls, messages with what they have
// held so far, tool calls, tasks and children. It is a state machine over the run's events, whoever
// wrote them, and its [Open.Close] ends all that: when the agent is cancelled, when
// it fails, and when it is gone and somebody else has to.
//
// Its size is that of what is open, at most about maxKept for each open message, and a little for each
// lane that there ever was. Of more than maxOpen things of a kind in one lane the oldest are forgotten, and
// what has an id of more than maxOpenID bytes is not looked at: only the end of the lane ends it. The zero
// value is a run without events. An Open belongs to one goroutine at a time.
type Open struct {
	lanes map[string]*openLane
	kept  int // bytes of the inputs of calls
	// whole keeps all of those, for who made them. Others keep maxInputs.
	whole bool
}

type openLane struct {
	id       string // "" is the run itself
	path     []string
	depth    int
	children []*openLane // as they became known
	state    schema.RunState
	turn     string   // id of the open turn
	models   []string // ids of model calls without an end, as they began
	tasks    []string // the same
	calls    []openCall
	msg      *openMessage
}

type openCall struct {
	id, tool string
	input    json.RawMessage
}

// Bounds of what is known at a time.
const (
	maxOpen   = 1 << 14  // calls, model calls and tasks of a lane, and blocks of a message
	maxOpenID = 1 << 10  // bytes of an id; adapters shorten theirs to less
	maxInputs = 16 << 20 // bytes of all inputs of calls that somebody else made
	maxNested = 32       // lanes in a path, as everywhere
	maxTurnID = 256      // bytes of a turn's id that an envelope holds
)

// State returns the lane's newest state, "" before it has one. child "" is the run itself.
func (o *Open) State(child string) schema.RunState {
	if l := o.lanes[child]; l != nil {
		return l.state
	}
	return ""
}

// Any reports whether anything is open in a lane or in those below it, its state aside.
func (o *Open) Any(child string) bool {
	l := o.lanes[child]
	return l != nil && (l.turn != "" || o.inTurn(child))
}

// Idle reports whether nothing is open in any lane, whatever states the lanes are in.
func (o *Open) Idle() bool {
	for _, l := range o.lanes {
		if l.turn != "" || l.msg != nil || len(l.models) > 0 || len(l.calls) > 0 || len(l.tasks) > 0 {
			return false
		}
	}
	return true
}

// inTurn reports whether anything is open that belongs to a turn, and must end before it.
func (o *Open) inTurn(child string) bool {
	l := o.lanes[child]
	if l == nil {
		return false
	}
	if len(l.models) > 0 || l.msg != nil || len(l.calls) > 0 || len(l.tasks) > 0 {
		return true
	}
	return slices.ContainsFunc(l.children, func(c *openLane) bool { return !c.state.Final() || o.Any(c.id) })
}

// lane returns a lane, which its first event brings about, and its ancestors with it.
func (o *Open) lane(id, run string, path []string) *openLane {
	if l := o.lanes[id]; l != nil {
		return l
	}
	parent := o.root()
	if id == "" {
		return parent
	}
	if n := len(path); n > 1 && path[n-1] == id { // path[0] is the root run
		for i, up := range path[1 : n-1] {
			if up == run || up == path[0] || up == id {
				continue
			}
			l := o.lanes[up]
			if l == nil {
				l = o.below(parent, up, path[:i+2])
			}
			parent = l
		}
	}
	return o.below(parent, id, path)
}

func (o *Open) root() *openLane {
	if o.lanes == nil {
		o.lanes = map[string]*openLane{"": {}}
	}
	return o.lanes[""]
}

// below makes a lane known. A parent is known before its children, so that there are no circles.
func (o *Open) below(parent *openLane, id string, path []string) *openLane {
	if parent.depth > maxNested {
		parent = o.root()
	}
	l := &openLane{id: id, path: path, depth: parent.depth + 1}
	parent.children = append(parent.children, l)
	o.lanes[id] = l
	return l
}

// openFields are the members of a payload. One that has another type counts as absent.
type openFields map[string]json.RawMessage

func (f openFields) str(name string) (s string) {
	_ = json.Unmarshal(f[name], &s)
	return s
}

// id returns a name that things are known by; "" when it is too long to be one.
func (f openFields) id(name string) string {
	if s := f.str(name); len(s) <= maxOpenID {
		return s
	}
	return ""
}

// index is -1 where there is none.
func (f openFields) index() int {
	var n float64
	if json.Unmarshal(f["index"], &n) != nil || len(f["index"]) == 0 || f["index"][0] == 'n' || n < 0 || n > 1<<30 || n != float64(int(n)) {
		return -1
	}
	return int(n)
}

// See takes the run's next event. Its payload is not kept.
func (o *Open) See(e *schema.Event) {
	l := o.lane(e.ChildID, e.RunID, e.Path)
	switch e.Type {
	case schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta:
		o.delta(l, e)
		return
	case schema.TypeToolOutputDelta:
		return
	case schema.TypeRunLifecycle:
		o.lifecycle(l, e)
		return
	case schema.TypeCommandMessage:
		if l.state.Final() && schema.Reopens(e.Type, l.id, e.Payload) {
			l.state = schema.StatePlanning
		}
		return
	}
	if strings.HasPrefix(e.Type, "custom.") || strings.HasPrefix(e.Type, "command") {
		return
	}
	var f openFields
	if json.Unmarshal(e.Payload, &f) == nil { // else no reader understands it
		o.control(l, e, f)
	}
}

func (o *Open) control(l *openLane, e *schema.Event, f openFields) {
	switch e.Type {
	case schema.TypeChildSpawn:
		o.spawn(l, e, f.str("child_id"))
	case schema.TypeTurnStart:
		l.turn = f.id("turn_id")
	case schema.TypeTurnEnd:
		l.turn = ""
	case schema.TypeModelStart:
		l.models = with(l.models, f.id("call_id"))
	case schema.TypeModelEnd:
		l.models = without(l.models, f.id("call_id"))
	case schema.TypeToolStart:
		o.begin(l, f)
	case schema.TypeToolEnd:
		o.end(l, f.id("call_id"))
	case schema.TypeTaskStart:
		l.tasks = with(l.tasks, f.id("task_id"))
	case schema.TypeTaskEnd:
		l.tasks = without(l.tasks, f.id("task_id"))
	case schema.TypeMessageStart:
		l.msg = newOpenMessage(f)
	case schema.TypeMessageEnd:
		l.msg = nil
	case schema.TypeBlockStart, schema.TypeBlockEnd, schema.TypeDataDelta:
		if l.msg != nil {
			l.msg.see(e.Type, f)
		}
	}
}

// with adds an id, as the newest. "" is none.
func with(ids []string, id string) []string {
	if id == "" {
		return ids
	}
	if ids = append(without(ids, id), id); len(ids) > maxOpen {
		ids = slices.Delete(ids, 0, maxOpen/2)
	}
	return ids
}

func without(ids []string, id string) []string {
	if len(ids) == 1 && ids[0] == id {
		return nil
	}
	return slices.DeleteFunc(ids, func(other string) bool { return other == id })
}

// begin takes a call up. One that begins again is one.
func (o *Open) begin(l *openLane, f openFields) {
	c := openCall{id: f.id("call_id"), tool: f.id("tool")}
	if c.id == "" {
		return
	}
	o.end(l, c.id)
	if in := f["input"]; o.whole || o.kept+len(in) <= maxInputs {
		c.input = in
		o.kept += len(in)
	}
	l.calls = append(l.calls, c)
	for len(l.calls) > maxOpen {
		o.end(l, l.calls[0].id)
	}
}

func (o *Open) end(l *openLane, call string) {
	for i := range l.calls {
		if l.calls[i].id == call {
			o.kept -= len(l.calls[i].input)
			l.calls = slices.Delete(l.calls, i, i+1)
			return
		}
	}
}

// lifecycle takes a lane's state. A final one ends what is open in it, and the root's in all of them.
func (o *Open) lifecycle(l *openLane, e *schema.Event) {
	s, err := schema.ParseLifecycle(e.Payload)
	if err != nil {
		return
	}
	l.state = s.State
	switch {
	case !s.State.Final():
	case l.id != "":
		o.clear(l)
	default:
		for _, other := range o.lanes {
			o.clear(other)
			if !other.state.Final() {
				other.state = s.State
			}
		}
	}
}

func (o *Open) clear(l *openLane) {
	for _, c := range l.calls {
		o.kept -= len(c.input)
	}
	l.turn, l.models, l.msg, l.calls, l.tasks = "", nil, nil, nil, nil
}

func (o *Open) spawn(parent *openLane, e *schema.Event, child string) {
	if schema.ValidRunID(child) != nil || child == e.RunID || o.lanes[child] != nil {
		return
	}
	path := e.Path
	if len(path) == 0 && e.RunID != "" {
		path = []string{e.RunID}
	}
	if path = append(slices.Clone(path), child); len(path) > maxNested {
		path = nil
	}
	o.below(parent, child, path)
}

// delta takes a piece of text. Payloads as this package and the adapters write them are not decoded.
func (o *Open) delta(l *openLane, e *schema.Event) {
	m := l.msg
	if m == nil {
		return
	}
	before, text, after, ok := schema.SplitText(e.Payload)
	if !ok {
		return
	}
	index, call, known := place(before, after)
	if !known {
		var f openFields
		if json.Unmarshal(e.Payload, &f) != nil {
			return
		}
		call, index = f.id("call_id"), f.index()
	}
	kind := kindOf(e.Type)
	b := m.find(index, call)
	if b == nil || index < 0 && call == "" && (b.closed || b.kind != kind) {
		b = m.begin(index, kind, call, "")
	}
	m.add(b, text)
}

// kindOf returns the kind of the block that a type of delta belongs to.
func kindOf(typ string) string {
	switch typ {
	case schema.TypeReasoningDelta:
		return "reasoning"
	case schema.TypeToolInputDelta:
		return "tool_use"
	}
	return "text"
}

// place reads index and call_id out of what stands around a text, where nothing else does.
func place(before, after []byte) (index int, call string, ok bool) {
	index = -1
	if rest, found := bytes.CutPrefix(before, []byte(`{"call_id":"`)); found {
		id, rest, found := bytes.Cut(rest, []byte{'"'})
		if !found || bytes.IndexByte(id, '\\') >= 0 || string(rest) != `,"text":"` {
			return 0, "", false
		}
		if len(id) > maxOpenID {
			return 0, "", false
		}
		call = string(id)
	} else if string(before) != `{"text":"` {
		return 0, "", false
	}
	switch rest, found := bytes.CutPrefix(after, []byte(`","index":`)); {
	case found && len(rest) > 1 && rest[len(rest)-1] == '}':
		n, err := strconv.Atoi(string(rest[:len(rest)-1]))
		return n, call, err == nil
	case string(after) == `"}`:
		return -1, call, true
	}
	return 0, "", false
}
