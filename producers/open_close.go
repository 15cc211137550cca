package producers

import (
	"encoding/json"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// Closing holds why and how far something is ended before its time.
type Closing struct {
	// Child is the lane that is ended with all below it; "" is the run itself, with everything.
	Child string
	// TurnOnly ends what is open in the lane, and the children below it, and not the lane itself: a turn
	// is cancelled, the conversation goes on.
	TurnOnly bool
	// Failed makes it a failure (state error); else it is a cancellation (state aborted).
	Failed bool
	Reason string // for people; in every event that ends something
	Actor  string // who ends it, where known
}

// word returns the stop_reason and the type of errors.
func (c Closing) word() string {
	if c.Failed {
		return "error"
	}
	return "cancelled"
}

// code returns the error code of a call that is ended.
func (c Closing) code() string {
	if c.Failed {
		return schema.CodeToolLost
	}
	return schema.CodeToolCancelled
}

func (c Closing) state() schema.RunState {
	if c.Failed {
		return schema.StateError
	}
	return schema.StateAborted
}

// Close returns the events that end what is open, in the one order that readers of all protocols rely on.
// For each lane, those below it first:
//
//   - block.end with complete false for each open block,
//   - message.end with the content so far and stop_reason cancelled or error,
//   - model.end with ok false for each call of a model,
//   - tool.end with ok false for each call that has begun, in that order, and task.end for each task,
//   - turn.end with the same stop reason,
//   - run.lifecycle aborted or error, except for the lane of a Closing with TurnOnly.
//
// What is not open has no event, so that closing twice closes once: pass the events to See. They have
// type, lane, turn, actor and payload, and each fits the log. A reason of more than maxReason bytes is cut. A
// lane that has ended gets no second end, but what goes on in it or below it all the same does.
func (o *Open) Close(c Closing) []schema.Event {
	if o.State("").Final() {
		return nil
	}
	c.Reason = shorten(c.Reason, maxReason)
	below := map[string][]*assemble.Lane{}
	for _, l := range o.reading().Lanes() {
		if l.Child != "" {
			below[l.Parent] = append(below[l.Parent], l)
		}
	}
	return c.close(nil, o.lane(c.Child), below, !c.TurnOnly)
}

// close appends the end of what a lane has open, and before it of those below.
func (c Closing) close(out []schema.Event, l *assemble.Lane, below map[string][]*assemble.Lane,
	end bool) []schema.Event {
	for _, child := range below[l.Child] {
		out = c.close(out, child, below, true)
	}
	turn := l.Turn
	if len(turn) > maxTurnID {
		turn = ""
	}
	add := func(typ string, payload json.RawMessage) {
		out = append(out, schema.Event{Type: typ, ChildID: l.Child, Path: l.Path, TurnID: turn, Actor: c.Actor,
			Payload: payload})
	}
	if m := explicitMessage(l); m != nil {
		closeMessage(m, c, add)
	}
	why := object(nil).text("type", c.word()).str("message", c.Reason).close()
	for _, call := range items(l, assemble.ModelStart) {
		add(schema.TypeModelEnd, object(nil).text("call_id", call.ID).yes("ok", false).raw("error", why).close())
	}
	for _, call := range items(l, assemble.CallStart) {
		add(schema.TypeToolEnd, object(nil).text("call_id", call.ID).yes("ok", false).text("error",
			c.code()).raw("error_detail", why).close())
	}
	for _, task := range items(l, assemble.TaskStart) {
		add(schema.TypeTaskEnd, object(nil).text("task_id", task.ID).yes("ok", false).close())
	}
	if l.Turn != "" {
		add(schema.TypeTurnEnd, object(nil).text("turn_id", l.Turn).text("stop_reason", c.word()).str("reason",
			c.Reason).close())
	}
	if end && !l.State.Final() {
		add(schema.TypeRunLifecycle, lifecyclePayload(c.state(), c.Reason))
	}
	return out
}

func lifecyclePayload(s schema.RunState, reason string) json.RawMessage {
	o := object(nil).text("state", string(s))
	if reason == "" {
		return o.raw("reason", []byte("null")).close()
	}
	return o.text("reason", reason).close()
}
