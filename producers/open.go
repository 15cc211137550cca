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
// said so far, tool calls, tasks and children. It is a state machine over the run's events, whoever
// wrote them, and knows by [Open.Close] how to end all that honestly: when the agent is cancelled, when
// it fails, and when it is gone and somebody else has to.
//
// Its size is that of what is open, and at most about maxKept for each open message. The zero value is
// a run without events. An Open belongs to one goroutine at a time.
type Open struct {
	lanes map[string]*openLane
	order []*openLane // as they began
}

type openLane struct {
	id     string // "" is the run itself
	path   []string
	parent string // id of the lane that spawned it
	state  schema.RunState
	turn   string // id of the open turn
	model  string // id of the open model call
	msg    *openMessage
	calls  []openCall // without an end, as they began
	tasks  []string   // the same
	asks   []string   // input requests without an answer
}

type openCall struct {
	id, tool string
	input    json.RawMessage
}

// openMessage is a message between its start and its end.
type openMessage struct {
	id     string
	blocks []*openBlock
	usage  json.RawMessage
	size   int // bytes kept of its blocks
	lost   int // bytes that were not kept any more
}

type openBlock struct {
	index      int
	kind       string
	call, tool string
	text       []byte          // inside of the JSON string
	raw        json.RawMessage // "block" of block.start
	input      json.RawMessage
	signature  json.RawMessage
	media      string // of data
	closed     bool
	complete   bool
}

// maxKept bounds what is kept of one open message, in bytes: more would not fit the event that ends it.
const maxKept = 384 << 10

// State is the lane's newest state, "" before it has one. child "" is the run itself.
func (o *Open) State(child string) schema.RunState {
	if l := o.lanes[child]; l != nil {
		return l.state
	}
	return ""
}

// Any says whether anything is open in a lane or in those below it, its state aside.
func (o *Open) Any(child string) bool {
	l := o.lanes[child]
	return l != nil && (l.turn != "" || o.inTurn(child))
}

// inTurn says whether anything is open that belongs to a turn, and must end before it.
func (o *Open) inTurn(child string) bool {
	l := o.lanes[child]
	if l == nil {
		return false
	}
	if l.model != "" || l.msg != nil || len(l.calls) > 0 || len(l.tasks) > 0 {
		return true
	}
	return slices.ContainsFunc(o.order, func(c *openLane) bool { return c.parent == child && c != l && !c.state.Final() })
}

// lane gives a lane, which its first event brings about.
func (o *Open) lane(id string, path []string) *openLane {
	if l := o.lanes[id]; l != nil {
		return l
	}
	if o.lanes == nil {
		o.lanes = make(map[string]*openLane)
	}
	l := &openLane{id: id, path: path}
	if n := len(path); n > 2 { // path[0] is the root run
		l.parent = path[n-2]
	}
	o.lanes[id] = l
	o.order = append(o.order, l)
	return l
}

// openFields are the members of payloads that decide what is open.
type openFields struct {
	ChildID   string          `json:"child_id"`
	CallID    string          `json:"call_id"`
	Tool      string          `json:"tool"`
	TurnID    string          `json:"turn_id"`
	MessageID string          `json:"message_id"`
	TaskID    string          `json:"task_id"`
	RequestID string          `json:"request_id"`
	Kind      string          `json:"kind"`
	MediaType string          `json:"media_type"`
	Index     *int            `json:"index"`
	Complete  *bool           `json:"complete"`
	Block     json.RawMessage `json:"block"`
	Input     json.RawMessage `json:"input"`
	Signature json.RawMessage `json:"signature"`
	Usage     json.RawMessage `json:"usage"`
	Text      json.RawMessage `json:"text"`
}

// See takes the run's next event. Its payload is not kept.
func (o *Open) See(e *schema.Event) {
	l := o.lane(e.ChildID, e.Path)
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
		if l.id == "" && l.state.Final() {
			l.state = schema.StatePlanning
		}
		return
	}
	if strings.HasPrefix(e.Type, "custom.") || strings.HasPrefix(e.Type, "command") {
		return
	}
	var f openFields
	if json.Unmarshal(e.Payload, &f) != nil {
		return // of a type that says nothing here, or a payload that no reader understands
	}
	switch e.Type {
	case schema.TypeChildSpawn:
		o.spawn(l, e, f.ChildID)
	case schema.TypeTurnStart:
		l.turn = f.TurnID
	case schema.TypeTurnEnd:
		l.turn = ""
	case schema.TypeModelStart:
		l.model = f.CallID
	case schema.TypeModelEnd:
		l.model = ""
	case schema.TypeToolStart:
		l.calls = append(l.calls, openCall{f.CallID, f.Tool, bytes.Clone(f.Input)})
	case schema.TypeToolEnd:
		l.calls = slices.DeleteFunc(l.calls, func(c openCall) bool { return c.id == f.CallID })
	case schema.TypeTaskStart:
		l.tasks = append(l.tasks, f.TaskID)
	case schema.TypeTaskEnd:
		l.tasks = slices.DeleteFunc(l.tasks, func(id string) bool { return id == f.TaskID })
	case schema.TypeInputRequested:
		l.asks = append(l.asks, f.RequestID)
	case schema.TypeInputAnswered:
		l.asks = slices.DeleteFunc(l.asks, func(id string) bool { return id == f.RequestID })
	case schema.TypeMessageStart:
		l.msg = &openMessage{id: f.MessageID, usage: bytes.Clone(f.Usage)}
	case schema.TypeMessageEnd:
		l.msg = nil
	case schema.TypeBlockStart, schema.TypeBlockEnd, schema.TypeDataDelta:
		if l.msg != nil {
			l.msg.see(e.Type, &f)
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
	if !s.State.Final() {
		return
	}
	for _, other := range o.order {
		if other == l || l.id == "" {
			other.turn, other.model, other.msg, other.calls, other.tasks, other.asks = "", "", nil, nil, nil, nil
			if l.id == "" && !other.state.Final() {
				other.state = s.State
			}
		}
	}
}

func (o *Open) spawn(parent *openLane, e *schema.Event, child string) {
	if child == "" || o.lanes[child] != nil {
		return
	}
	path := e.Path
	if len(path) == 0 && e.RunID != "" {
		path = []string{e.RunID}
	}
	l := o.lane(child, append(slices.Clone(path), child))
	l.parent = parent.id
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
		call = f.CallID
		if index = -1; f.Index != nil {
			index = *f.Index
		}
	}
	kind := kindOf(e.Type)
	b := m.find(index, call)
	if b == nil || index < 0 && call == "" && (b.closed || b.kind != kind) {
		b = &openBlock{index: max(index, len(m.blocks)), kind: kind, call: call}
		m.blocks = append(m.blocks, b)
	}
	m.add(b, text)
}

// kindOf is the kind of the block that a type of delta belongs to.
func kindOf(typ string) string {
	switch typ {
	case schema.TypeReasoningDelta:
		return "reasoning"
	case schema.TypeToolInputDelta:
		return "tool_use"
	}
	return "text"
}

// add keeps a piece of a block, while there is room.
func (m *openMessage) add(b *openBlock, text []byte) {
	if m.lost > 0 || m.size+len(text) > maxKept {
		m.lost += len(text)
		return
	}
	m.size += len(text)
	b.text = append(b.text, text...)
}

// place reads index and call_id out of what stands around a text, where nothing else does.
func place(before, after []byte) (index int, call string, ok bool) {
	index = -1
	if rest, found := bytes.CutPrefix(before, []byte(`{"call_id":"`)); found {
		id, rest, found := bytes.Cut(rest, []byte{'"'})
		if !found || bytes.IndexByte(id, '\\') >= 0 || string(rest) != `,"text":"` {
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

// find gives the newest block with an index, or of a call, or the last one where neither is said.
func (m *openMessage) find(index int, call string) *openBlock {
	for i := len(m.blocks) - 1; i >= 0; i-- {
		b := m.blocks[i]
		if index >= 0 && b.index == index || index < 0 && (call == "" || b.call == call) {
			return b
		}
	}
	return nil
}

func (m *openMessage) see(typ string, f *openFields) {
	index := -1
	if f.Index != nil {
		index = *f.Index
	}
	switch typ {
	case schema.TypeBlockStart:
		b := &openBlock{index: max(index, 0), kind: f.Kind, call: f.CallID, tool: f.Tool}
		if index < 0 {
			b.index = len(m.blocks)
		}
		if len(f.Block)+m.size <= maxKept {
			b.raw = bytes.Clone(f.Block)
			m.size += len(f.Block)
		} else {
			m.lost += len(f.Block)
		}
		m.blocks = append(m.blocks, b)
	case schema.TypeBlockEnd:
		if b := m.find(index, f.CallID); b != nil {
			b.closed, b.complete = true, f.Complete == nil || *f.Complete
			b.signature = bytes.Clone(f.Signature)
			if len(f.Input)+m.size <= maxKept {
				b.input = bytes.Clone(f.Input)
				m.size += len(f.Input)
			} else {
				m.lost += len(f.Input)
			}
		}
	case schema.TypeDataDelta:
		if b := m.find(index, ""); b != nil {
			b.media = f.MediaType
		}
	}
}
