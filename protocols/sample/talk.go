package sample

import (
	"encoding/json"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// talk is the conversation of a room.
func talk() protocol.Conversation {
	return protocol.Conversation{
		Stream: dialect.Stream{Name: "talk", Pattern: "GET /talk/{room}", Mode: dialect.ModeB, Shared: true,
			Subprotocols: []string{"talk"}, MaxMessage: 4 << 10},
		Needs: auth.ScopeRead, Late: true, Subscriptions: 2, Patience: time.Minute,
		TimedOut: protocol.Close{Code: 4008, Reason: "say something"},
		Heartbeat: protocol.Heartbeat{Every: time.Minute, Misses: 2,
			Lost: protocol.Close{Code: 4001, Reason: "are you there?"},
			Send: func(t *protocol.Talk) error { return t.SendJSON(object{"re": "beat", "id": "", "at": t.Beats}) }},
		Opened:   func(t *protocol.Talk) error { return t.SendJSON(object{"re": "hello", "id": t.Path("room"), "at": 0}) },
		Received: receive,
		Malformed: func(_ *protocol.Talk, bad *protocol.Close) error {
			return &protocol.Close{Code: 3000 + bad.Code, Reason: "text is read"}
		},
		Ended: reportEnd,
	}
}

// reportEnd sends that a subscription has ended by itself.
func reportEnd(t *protocol.Talk, id string, err error) error {
	if err != nil {
		return err
	}
	return t.SendJSON(object{"re": "ended", "id": id, "at": 0})
}

// receive answers a message. After one that cannot be read the client has its time again.
func receive(t *protocol.Talk, message []byte) error {
	var m asked
	if json.Unmarshal(message, &m) != nil {
		t.Await(time.Minute)
		return dialect.Refuse(dialect.ErrBadRequest, "not an object with fields of the right types")
	}
	t.Await(0)
	v, err := reply(t, m, message)
	if err != nil || v == nil {
		return err
	}
	return t.SendJSON(v)
}

func reply(t *protocol.Talk, m asked, message []byte) (answer any, err error) {
	at, ok := schema.Seq(0), true
	switch m.Do {
	case "ping":
	case "alive":
		return nil, nil
	case "bye":
		err = &protocol.Close{Code: 1000, Reason: "bye"}
	case "subscribe", "change":
		req, err := Dialect{}.Open(dialect.Input{Stream: "talk", Body: message})
		if err != nil {
			return nil, err
		}
		open := t.Subscribe
		if m.Do == "change" {
			open = t.Change
		}
		place, err := open(m.ID, req)
		return object{"re": m.Do, "id": m.ID, "at": place.After}, err
	case "unsubscribe":
		if at, ok = t.Unsubscribe(m.ID); !ok {
			err = dialect.ErrNotFound
		}
	case "say":
		err = t.With(auth.ScopeWrite, func() (err error) { answer, err = note(t.Context(), t.Call, m); return err })
		return answer, err
	default:
		err = dialect.ErrBadRequest
	}
	return object{"re": m.Do, "id": m.ID, "at": at}, err
}
