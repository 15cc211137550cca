package dialecttest

import (
	"encoding/json"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// talk is a conversation: clients subscribe to runs and say things, on one WebSocket.
func talk() protocol.Conversation {
	return protocol.Conversation{
		Stream: dialect.Stream{Name: "talk", Pattern: "GET /talk/{room}", Mode: dialect.ModeB, Shared: true, Subprotocols: []string{"talk"}, MaxMessage: 4 << 10},
		Needs:  auth.ScopeRead, Late: true, Subscriptions: 2, Patience: time.Minute, TimedOut: protocol.Close{Code: 4008, Reason: "say something"},
		Heartbeat: protocol.Heartbeat{Every: time.Minute, Send: beat, Misses: 2, Lost: protocol.Close{Code: 4001, Reason: "are you there?"}, Strict: true},
		Opened:    opened, Received: received, Malformed: malformed, Ended: ended,
	}
}

// talker makes one frame of each record.
type talker string

func (t talker) Project(out *dialect.Frames, r schema.Record) error {
	out.Add(dialect.Frame{Data: out.Text([]byte(t), r.Line, []byte("}"))})
	return nil
}

// reply answers a message.
func reply(t *protocol.Talk, re, id string, at schema.Seq) error {
	data, err := json.Marshal(map[string]any{"re": re, "id": id, "at": at})
	if err != nil {
		return err
	}
	return t.Send(dialect.Frame{Data: data})
}

// opened greets. The state of the connection is the number of its newest heartbeat.
func opened(t *protocol.Talk) error {
	t.State = schema.Seq(0)
	return reply(t, "hello", t.Path("room"), 0)
}

// beat sends a heartbeat, which is answered with its number.
func beat(t *protocol.Talk) error {
	n := t.State.(schema.Seq) + 1
	t.State = n
	return reply(t, "beat", "", n)
}

// malformed closes on what is too large, and refuses the rest.
func malformed(_ *protocol.Talk, bad *protocol.Close) error {
	if bad.Code == 1009 {
		return &protocol.Close{Code: 4009, Reason: "too much at once"}
	}
	return dialect.Refuse(dialect.ErrBadRequest, "only messages of text are read: %s", bad.Reason)
}

// ended sends the end of a subscription.
func ended(t *protocol.Talk, id string, err error) error {
	if err != nil {
		return err
	}
	return reply(t, "ended", id, 0)
}

func received(t *protocol.Talk, message []byte) error {
	in := dialect.Input{Stream: "talk", Body: message}
	m, err := read(in)
	if err != nil {
		t.Await(time.Minute) // for a better one
		return err
	}
	t.Await(0)
	at, ok := schema.Seq(0), false
	switch m.Do {
	case "ping":
	case "bye":
		return &protocol.Close{Code: 1000, Reason: "bye"}
	case "alive":
		if m.At != t.State {
			return dialect.Refuse(dialect.ErrBadRequest, "that is not the newest heartbeat")
		}
		t.Alive()
		return nil
	case "unsubscribe":
		if at, ok = t.Unsubscribe(m.ID); !ok {
			return dialect.Refuse(dialect.ErrNotFound, "there is no subscription %q", m.ID)
		}
	case "subscribe", "change":
		at, err = subscribe(t, in, m)
	case "say":
		err = t.With(auth.ScopeWrite, func() (err error) { at, err = say(t.Context(), t.Call, m); return err })
	default:
		return dialect.Refuse(dialect.ErrBadRequest, "nothing that can be done")
	}
	if err != nil {
		return err
	}
	return reply(t, m.Do, m.ID, at)
}

func subscribe(t *protocol.Talk, in dialect.Input, m asked) (schema.Seq, error) {
	req, err := Sample{}.Open(in)
	if err != nil {
		return 0, err
	}
	open := t.Subscribe
	if m.Do == "change" {
		open = t.Change
	}
	place, err := open(m.ID, req)
	return place.After, err
}
