package producers

import (
	"encoding/json"

	"agentstream/schema"
)

// Closing says why and how far something is ended before its time.
type Closing struct {
	// Child is the lane that is ended with all below it; "" is the run itself, with everything.
	Child string
	// TurnOnly ends what is open in the lane, and the children below it, and not the lane itself: a turn
	// is cancelled, the conversation goes on.
	TurnOnly bool
	// Failed makes it a failure (state error); else it is a cancellation (state aborted).
	Failed bool
	Reason string // for people; said wherever something ends
	Actor  string // who ends it, where known
}

// word is what stop_reason and error types say.
func (c Closing) word() string {
	if c.Failed {
		return "error"
	}
	return "cancelled"
}

func (c Closing) state() schema.RunState {
	if c.Failed {
		return schema.StateError
	}
	return schema.StateAborted
}

// Close gives the events that end what is open, in the one order that readers of all protocols rely on
// (metis digest §7). For each lane, those below it first:
//
//   - block.end with complete false for each open block,
//   - message.end with what was said so far and stop_reason cancelled or error,
//   - model.end with ok false,
//   - tool.end with ok false for each call that has begun, in that order, and task.end for each task,
//   - turn.end with the same stop reason,
//   - run.lifecycle aborted or error, except for the lane of a Closing with TurnOnly.
//
// What is not open has no event, so that closing twice closes once: See the events given. They have
// type, lane, turn, actor and payload.
func (o *Open) Close(c Closing) []schema.Event {
	l := o.lanes[c.Child]
	if l == nil {
		if c.TurnOnly {
			return nil
		}
		l = &openLane{id: c.Child}
	}
	return o.close(nil, l, c, !c.TurnOnly)
}

func (o *Open) close(out []schema.Event, l *openLane, c Closing, end bool) []schema.Event {
	if l.state.Final() {
		return out
	}
	for _, child := range o.order {
		if child != l && child.id != "" && child.parent == l.id {
			out = o.close(out, child, c, true)
		}
	}
	turn := l.turn
	add := func(typ string, payload json.RawMessage) {
		out = append(out, schema.Event{Type: typ, ChildID: l.id, Path: l.path, TurnID: turn, Actor: c.Actor, Payload: payload})
	}
	if l.msg != nil {
		l.msg.close(c, add)
	}
	why := object(nil).text("type", c.word()).str("message", c.Reason).end()
	if l.model != "" {
		add(schema.TypeModelEnd, object(nil).text("call_id", l.model).yes("ok", false).raw("error", why).end())
	}
	for _, call := range l.calls {
		add(schema.TypeToolEnd, object(nil).text("call_id", call.id).yes("ok", false).raw("error", why).end())
	}
	for _, task := range l.tasks {
		add(schema.TypeTaskEnd, object(nil).text("task_id", task).yes("ok", false).end())
	}
	if turn != "" {
		add(schema.TypeTurnEnd, object(nil).text("turn_id", turn).text("stop_reason", c.word()).str("reason", c.Reason).end())
	}
	if end {
		add(schema.TypeRunLifecycle, lifecyclePayload(c.state(), c.Reason))
	}
	return out
}

func lifecyclePayload(s schema.RunState, reason string) json.RawMessage {
	o := object(nil).text("state", string(s))
	if reason == "" {
		return o.raw("reason", []byte("null")).end()
	}
	return o.text("reason", reason).end()
}

// close says the end of a message that was cut short.
func (m *openMessage) close(c Closing, add func(string, json.RawMessage)) {
	for _, b := range m.blocks {
		if !b.closed {
			add(schema.TypeBlockEnd, object(nil).integer("index", int64(b.index)).text("message_id", m.id).
				yes("complete", false).text("problem", "cut short").str("call_id", b.call).end())
		}
	}
	end := object(nil).text("message_id", m.id)
	if m.lost == 0 {
		end = end.raw("content", m.content())
	}
	end = end.text("stop_reason", c.word()).raw("stop_sequence", []byte("null")).raw("usage", m.usage).yes("incomplete", true)
	if c.Failed {
		end = end.raw("error", object(nil).text("type", "error").str("message", c.Reason).end())
	}
	if m.lost > 0 {
		end = end.raw("omitted", []byte(`["content"]`)).integer("omitted_bytes", int64(m.size+m.lost))
	}
	add(schema.TypeMessageEnd, end.end())
}

// content is the message so far as a list of blocks.
func (m *openMessage) content() json.RawMessage {
	out := []byte{'['}
	for i, b := range m.blocks {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, b.content()...)
	}
	return append(out, ']')
}

// content is the block so far. A call whose input is not complete carries what there is of it as
// partial_json.
func (b *openBlock) content() json.RawMessage {
	switch {
	case b.tool != "" && b.complete:
		input := b.input
		if input == nil {
			input = json.RawMessage("{}")
		}
		return object(nil).text("type", b.kind).text("id", b.call).text("name", b.tool).raw("input", input).end()
	case b.tool != "" || b.kind == "tool_use":
		return object(nil).text("type", b.kind).text("id", b.call).text("name", b.tool).inner("partial_json", b.text).end()
	case b.kind == "reasoning":
		return object(nil).text("type", "thinking").inner("thinking", b.text).raw("signature", b.signature).end()
	case b.media != "":
		return object(nil).text("type", b.kind).text("media_type", b.media).raw("source", []byte(`{"kind":"deltas"}`)).end()
	case b.raw != nil && len(b.text) == 0:
		return b.raw
	}
	return object(nil).text("type", b.kind).inner("text", b.text).end()
}
