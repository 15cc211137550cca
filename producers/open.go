package producers

import (
	"bytes"
	"encoding/json"
	"slices"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// Open is what of a run has begun and has not ended: turns, model calls, messages with what they have
// held so far, tool calls, tasks and children. It reads the run's events, whoever
// wrote them, and its [Open.Close] ends all that: when the agent is cancelled, when
// it fails, and when it is gone and somebody else has to.
//
// Its size is that of what is open, within the bounds of package assemble: at most about 768 KiB for each open message.
// What has an id of more than 1 KiB is not ended by itself: only the end of the lane ends it. The zero value is a run
// without events. An Open belongs to one goroutine at a time.
type Open struct {
	run *assemble.Run
	// inputs are those of the calls that have started, for who made them; nil for others.
	inputs map[*assemble.Item]json.RawMessage
	begun  bool // a turn was begun
}

// HasTurn reports whether what ReadOpen has read begins a turn.
func (o *Open) HasTurn() bool { return o.begun }

// kept bounds what is kept for the content of the messages that are open. The input of a call may be there twice: in
// pieces and as a whole.
var kept = assemble.Limits{Message: 2 * maxKept, All: 1 << 30, Blocks: 1 << 14}

// maxTurnID bounds a turn's id that an envelope holds, in bytes.
const maxTurnID = 256

func (o *Open) reading() *assemble.Run {
	if o.run == nil {
		o.run = assemble.New(kept)
	}
	return o.run
}

// lane returns what is known of a lane; one without anything when nothing is.
func (o *Open) lane(child string) *assemble.Lane {
	if l := o.reading().Lane(child); l != nil {
		return l
	}
	return &assemble.Lane{Child: child}
}

// message returns the open message of a lane; nil when there is none that was announced with an id.
func (o *Open) message(child string) *assemble.Message { return explicitMessage(o.lane(child)) }

// explicitMessage returns the open message of a lane that an event announced, nil if there is none.
func explicitMessage(l *assemble.Lane) *assemble.Message {
	if m := l.Message; m != nil && !m.Implicit && m.ID != "" {
		return m
	}
	return nil
}

// items returns the ids of what a lane has open of a kind, as they began.
func items(l *assemble.Lane, kind assemble.Kind) (all []*assemble.Item) {
	for it := range l.Items() {
		if it.Kind == kind && it.ID != "" {
			all = append(all, it)
		}
	}
	return all
}

// ended are the kinds of items that an ending ends.
var ended = [...]assemble.Kind{assemble.ModelStart, assemble.CallStart, assemble.TaskStart}

// working reports whether a lane has something open that belongs to a turn.
func working(l *assemble.Lane) bool {
	if explicitMessage(l) != nil {
		return true
	}
	for it := range l.Items() {
		if it.ID != "" && slices.Contains(ended[:], it.Kind) {
			return true
		}
	}
	return false
}

// Requests returns the requests for input of a lane that have no input.answered, with their seqs.
func (o *Open) Requests(child string) map[string]schema.Seq {
	all := map[string]schema.Seq{}
	for _, it := range items(o.lane(child), assemble.InputRequest) {
		all[it.ID] = it.Seq
	}
	return all
}

// State returns the lane's newest state, "" before it has one. child "" is the run itself.
func (o *Open) State(child string) schema.RunState { return o.lane(child).State }

// Any reports whether anything is open in a lane or in those below it, its state aside.
func (o *Open) Any(child string) bool { return o.lane(child).Turn != "" || o.inTurn(child) }

// Idle reports whether nothing is open in any lane, whatever states the lanes are in.
func (o *Open) Idle() bool {
	return !slices.ContainsFunc(o.reading().Lanes(), func(l *assemble.Lane) bool { return l.Turn != "" || working(l) })
}

// inTurn reports whether anything is open that belongs to a turn, and must end before it.
func (o *Open) inTurn(child string) bool {
	below := map[string]bool{}
	for _, l := range o.reading().Lanes() { // a parent stands before its children
		switch {
		case l.Child == child:
			below[child] = true
			if working(l) {
				return true
			}
		case l.Child != "" && below[l.Parent]:
			below[l.Child] = true
			if !l.State.Final() || l.Turn != "" || working(l) {
				return true
			}
		}
	}
	return false
}

// See takes the run's next event. Its payload is not kept.
func (o *Open) See(e *schema.Event) {
	steps := o.reading().NextEvent(e)
	if o.inputs == nil {
		return
	}
	var input []byte
	if e.Type == schema.TypeToolStart {
		input = schema.Field(e.Payload, "input")
	}
	for i := range steps {
		switch s := &steps[i]; {
		case s.Kind == assemble.CallStart && !s.Repaired:
			o.inputs[s.Item] = bytes.Clone(input)
		case s.Kind == assemble.CallEnd:
			delete(o.inputs, s.Item)
		}
	}
}
