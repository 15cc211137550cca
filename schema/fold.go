package schema

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Fold sums a run's events up: messages with their blocks, tool calls, children, lifecycle, the
// open plan. Feed it every event in order with Add. The zero value is ready. It is a pure state
// machine; one goroutine at a time.
//
// Producers that emit only the eight native types frame no messages; for them a message begins
// with its first delta, a block with a change of kind or a tool call, and both end with the step.
type Fold struct {
	Last     Seq
	State    RunState
	Reason   string
	Messages []*FoldMessage
	Calls    []*FoldCall
	Children []string
	Plan     json.RawMessage // payload of the last plan.proposal

	open  map[string]*FoldMessage
	calls map[string]*FoldCall
}

// FoldMessage is one message. Open messages have no End yet.
type FoldMessage struct {
	ID         string
	Child      string
	Role       string
	Model      string
	Blocks     []*FoldBlock
	StopReason string
	Usage      json.RawMessage
	Error      json.RawMessage
	Start, End Seq // End 0: still open
	implicit   bool
}

// FoldBlock is one content block: text, reasoning, tool_use, or a provider's own kind.
type FoldBlock struct {
	Index    int
	Kind     string
	Text     strings.Builder // text, reasoning, or the raw input of a tool call
	Call     string          // call id of a tool block
	Tool     string
	Input    json.RawMessage // authoritative input of a tool block, once complete
	Complete bool            // the block was closed, and a tool's input could be parsed
	Raw      json.RawMessage // the provider's block, where it was kept
	closed   bool
}

// FoldCall is one tool call.
type FoldCall struct {
	ID     string
	Child  string
	Tool   string
	Input  json.RawMessage
	Done   bool
	OK     bool
	Output json.RawMessage
	Stream strings.Builder // tool.output.delta
}

// payloadFields is the union of what Fold reads from payloads.
type payloadFields struct {
	Text, MessageID, Role, Model, Kind, CallID, Tool, ChildID, StopReason, Reason string
	State                                                                         RunState
	Index                                                                         *int
	Input, Output, Block, Usage, Error                                            json.RawMessage
	OK                                                                            bool
	Complete                                                                      *bool
}

// read takes a payload apart. A field of an unexpected kind counts as absent: unknown fields are
// always allowed, so a name may mean something else in another type. Of two fields with one name
// the last counts, as in JavaScript.
func (p *payloadFields) read(payload []byte) error {
	return eachField(payload, func(name string, v []byte) error {
		if into := p.textField(name); into != nil {
			if s, err := unquote(v); err == nil {
				*into = s
			}
			return nil
		}
		switch name {
		case "state":
			s, _ := unquote(v)
			p.State = RunState(s)
		case "index":
			if n, err := strconv.Atoi(string(v)); err == nil {
				p.Index = &n
			}
		case "ok":
			p.OK = v[0] == 't'
		case "complete":
			b := v[0] == 't'
			p.Complete = &b
		case "input":
			p.Input = v
		case "output":
			p.Output = v
		case "block":
			p.Block = v
		case "usage":
			p.Usage = v
		case "error":
			p.Error = v
		}
		return nil
	})
}

func (p *payloadFields) textField(name string) *string {
	switch name {
	case "text":
		return &p.Text
	case "message_id":
		return &p.MessageID
	case "role":
		return &p.Role
	case "model":
		return &p.Model
	case "kind":
		return &p.Kind
	case "call_id":
		return &p.CallID
	case "tool":
		return &p.Tool
	case "child_id":
		return &p.ChildID
	case "stop_reason":
		return &p.StopReason
	case "reason":
		return &p.Reason
	}
	return nil
}

// Add takes the next event. Events that say nothing to a fold only move Last. A payload that does
// not fit its type is passed over: the log is older than any reader's opinion of it.
func (f *Fold) Add(e *Event) {
	f.Last = e.Seq
	var p payloadFields
	if p.read(e.Payload) != nil {
		return
	}
	switch e.Type {
	case TypeMessageStart:
		f.openMessage(e.ChildID, &FoldMessage{ID: p.MessageID, Child: e.ChildID, Role: p.Role, Model: p.Model, Usage: p.Usage, Start: e.Seq})
	case TypeMessageEnd:
		f.endMessage(e.ChildID, e.Seq, &p)
	case TypeBlockStart:
		m := f.message(e)
		b := &FoldBlock{Index: len(m.Blocks), Kind: p.Kind, Call: p.CallID, Tool: p.Tool, Raw: p.Block}
		if p.Index != nil {
			b.Index = *p.Index
		}
		m.Blocks = append(m.Blocks, b)
	case TypeBlockEnd:
		f.endBlock(e, &p)
	case TypeTextDelta:
		f.block(e, "text", p.Index).Text.WriteString(p.Text)
	case TypeReasoningDelta:
		f.block(e, "reasoning", p.Index).Text.WriteString(p.Text)
	case TypeToolInputDelta:
		f.inputBlock(e, &p).Text.WriteString(p.Text)
	case TypeToolStart, TypeToolEnd, TypeToolOutputDelta:
		f.tool(e, &p)
	case TypeChildSpawn:
		f.Children = append(f.Children, p.ChildID)
	case TypePlanProposal:
		f.Plan = e.Payload
	case TypeStepBoundary:
		f.endImplicit(e.ChildID, e.Seq)
	case TypeRunLifecycle:
		f.lifecycle(e, &p)
	}
}

func (f *Fold) lifecycle(e *Event, p *payloadFields) {
	if p.State.Final() {
		f.endImplicit(e.ChildID, e.Seq)
	}
	if e.ChildID == "" {
		f.State, f.Reason = p.State, p.Reason
	}
}

func (f *Fold) openMessage(child string, m *FoldMessage) {
	if f.open == nil {
		f.open = make(map[string]*FoldMessage)
	}
	f.open[child] = m
	f.Messages = append(f.Messages, m)
}

// message gives the lane's open message, or begins one that nobody announced.
func (f *Fold) message(e *Event) *FoldMessage {
	if m := f.open[e.ChildID]; m != nil {
		return m
	}
	m := &FoldMessage{Child: e.ChildID, Role: "assistant", Start: e.Seq, implicit: true}
	f.openMessage(e.ChildID, m)
	return m
}

// block gives the block that a delta belongs to: the one with its index, or else the last one of
// its kind that is open.
func (f *Fold) block(e *Event, kind string, index *int) *FoldBlock {
	m := f.message(e)
	for i := len(m.Blocks) - 1; i >= 0; i-- {
		b := m.Blocks[i]
		if index != nil && b.Index == *index {
			return b
		}
		if index == nil && !b.closed {
			if b.Kind == kind {
				return b
			}
			break
		}
	}
	b := &FoldBlock{Index: len(m.Blocks), Kind: kind}
	if index != nil {
		b.Index = *index
	}
	m.Blocks = append(m.Blocks, b)
	return b
}

// inputBlock gives the block whose tool input streams: its call says more than its place, which
// producers of parallel calls may leave out.
func (f *Fold) inputBlock(e *Event, p *payloadFields) *FoldBlock {
	if m := f.open[e.ChildID]; m != nil && p.Index == nil {
		for _, b := range slices.Backward(m.Blocks) {
			if b.Call == p.CallID && p.CallID != "" {
				return b
			}
		}
	}
	if p.Index != nil {
		return f.block(e, "tool_use", p.Index)
	}
	m := f.message(e)
	b := &FoldBlock{Index: len(m.Blocks), Kind: "tool_use", Call: p.CallID}
	m.Blocks = append(m.Blocks, b)
	return b
}

func (f *Fold) endBlock(e *Event, p *payloadFields) {
	m := f.message(e)
	for i := len(m.Blocks) - 1; i >= 0; i-- {
		b := m.Blocks[i]
		if p.Index != nil && b.Index != *p.Index {
			continue
		}
		b.closed, b.Complete = true, p.Complete == nil || *p.Complete
		if p.Input != nil {
			b.Input = p.Input
		}
		return
	}
}

func (f *Fold) endMessage(child string, seq Seq, p *payloadFields) {
	m := f.open[child]
	if m == nil {
		return
	}
	m.End, m.StopReason = seq, p.StopReason
	if p.Usage != nil {
		m.Usage = p.Usage
	}
	m.Error = p.Error
	delete(f.open, child)
}

func (f *Fold) endImplicit(child string, seq Seq) {
	if m := f.open[child]; m != nil && m.implicit {
		m.End = seq
		delete(f.open, child)
	}
}

func (f *Fold) tool(e *Event, p *payloadFields) {
	if f.calls == nil {
		f.calls = make(map[string]*FoldCall)
	}
	c := f.calls[p.CallID]
	if c == nil {
		c = &FoldCall{ID: p.CallID, Child: e.ChildID}
		f.calls[p.CallID] = c
		f.Calls = append(f.Calls, c)
	}
	switch e.Type {
	case TypeToolStart:
		c.Tool, c.Input = p.Tool, p.Input
		if m := f.open[e.ChildID]; m != nil && m.implicit {
			for _, b := range m.Blocks {
				b.closed = true
			}
		}
	case TypeToolEnd:
		c.Done, c.OK, c.Output = true, p.OK, p.Output
	case TypeToolOutputDelta:
		c.Stream.WriteString(p.Text)
	}
}

// Text joins the blocks of one kind over all messages of a child, in order.
func (f *Fold) Text(child, kind string) string {
	var b strings.Builder
	for _, m := range f.Messages {
		if m.Child != child {
			continue
		}
		for _, bl := range m.Blocks {
			if bl.Kind == kind {
				b.WriteString(bl.Text.String())
			}
		}
	}
	return b.String()
}
