package dialecttest

import (
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/schema"
)

// Talk is the protocol of a conversation: clients subscribe to runs and say things, on one WebSocket; what they say
// can be said over HTTP and gRPC as well.
type Talk struct{}

// Info names the protocol. Its services are in rpc.go.
func (Talk) Info() dialect.Info {
	return dialect.Info{Name: "talk", Files: [][]byte{declare("Rooms", "Say", structpb.File_google_protobuf_struct_proto, "Struct", false)}}
}

// asked is a client's message.
type asked struct {
	Do    string     `json:"do"`
	ID    string     `json:"id"` // of a subscription
	Run   string     `json:"run"`
	After schema.Seq `json:"after"`
	At    schema.Seq `json:"at"` // of a heartbeat
	Types []string   `json:"types"`
	Text  string     `json:"text"`
	Await bool       `json:"await"`
}

// Open reads a subscription. Its frames name it, so that subscriptions share none.
func (Talk) Open(in dialect.Input) (req dialect.Request, err error) {
	var m asked
	if err := json.Unmarshal(in.Body, &m); err != nil {
		return req, dialect.Refuse(dialect.ErrBadRequest, "not a message")
	}
	req = dialect.Request{Run: m.Run, Cursor: dialect.Cursor{Seq: m.After}, Filter: dialect.Filter{Types: m.Types}, Form: m.ID, Await: m.Await}
	return req, schema.ValidRunID(m.Run)
}

// Projector makes one frame of each record.
func (Talk) Projector(req dialect.Request) dialect.Projector {
	return talker(fmt.Sprintf(`{"on":%q,"line":`, req.Form))
}

type talker string

func (t talker) Project(out *dialect.Frames, r schema.Record) error {
	out.Add(dialect.Frame{Data: out.Text([]byte(t), r.Line, []byte("}"))})
	return nil
}

// AppendError is one object.
func (Talk) AppendError(dst []byte, p dialect.Problem) []byte {
	data, _ := json.Marshal(map[string]string{"error": p.Code, "message": p.Message}) // it never fails
	return append(dst, data...)
}

// Protocol is what an edge mounts.
func (d Talk) Protocol() protocol.Protocol {
	return protocol.Protocol{Dialect: d, Routes: d.routes(), Ticket: tickets, Conversations: []protocol.Conversation{{
		Stream: dialect.Stream{Name: "talk", Pattern: "GET /talk/{room}", Mode: dialect.ModeB, Shared: true, Subprotocols: []string{"talk"}, MaxMessage: 4 << 10},
		Needs:  auth.ScopeRead, Late: true, Subscriptions: 2, Patience: time.Minute, TimedOut: protocol.Close{Code: 4008, Reason: "say something"},
		Heartbeat: protocol.Heartbeat{Every: time.Minute, Send: beat, Misses: 2, Lost: protocol.Close{Code: 4001, Reason: "are you there?"}, Strict: true},
		Opened:    opened, Received: d.received, Malformed: malformed, Ended: ended,
	}}}
}

// tickets open the conversation for a run, and may write to it if their caller may.
var tickets = protocol.Ticket{Param: "attach", Terms: auth.Terms{Prefix: "talk_", TTL: time.Minute, Scopes: auth.ScopeRead | auth.ScopeWrite}}

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

// reply answers a message.
func reply(t *protocol.Talk, re, id string, at schema.Seq) error {
	data, err := json.Marshal(map[string]any{"re": re, "id": id, "at": at})
	if err != nil {
		return err
	}
	return t.Send(dialect.Frame{Data: data})
}

func ended(t *protocol.Talk, id string, err error) error {
	if err != nil {
		return err
	}
	return reply(t, "ended", id, 0)
}

func (d Talk) received(t *protocol.Talk, message []byte) error {
	req, err := d.Open(dialect.Input{Body: message})
	var m asked
	if json.Unmarshal(message, &m) != nil {
		t.Await(time.Minute) // for a better one
		return err
	}
	t.Await(0)
	at, ok := schema.Seq(0), false
	switch m.Do {
	case "ping":
	case "alive":
		if m.At != t.State {
			return dialect.Refuse(dialect.ErrBadRequest, "that is not the newest heartbeat")
		}
		t.Alive()
		return nil
	case "bye":
		return &protocol.Close{Code: 1000, Reason: "bye"}
	case "unsubscribe":
		if at, ok = t.Unsubscribe(m.ID); !ok {
			return dialect.Refuse(dialect.ErrNotFound, "there is no subscription %q", m.ID)
		}
	case "subscribe", "change":
		open := t.Subscribe
		if m.Do == "change" {
			open = t.Change
		}
		if err != nil {
			return err
		}
		place, err := open(m.ID, req)
		if at = place.After; err != nil {
			return err
		}
	case "say":
		err := t.With(auth.ScopeWrite, func() (err error) { at, err = say(t.Call, m.Run, m.Text); return err })
		if err != nil {
			return err
		}
	default:
		return dialect.Refuse(dialect.ErrBadRequest, "nothing that can be done")
	}
	return reply(t, m.Do, m.ID, at)
}
