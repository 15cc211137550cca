package sample

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
)

//go:embed sample.binpb
var service []byte // sample.proto, compiled

// Protocol returns what an edge mounts.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Dialect: Dialect{}, Below: []string{"/sample"}, Coding: protocol.StringValues(), LastWords: lastWords,
		Ticket: protocol.Ticket{Param: "attach", Terms: auth.Terms{Prefix: "talk_", TTL: time.Minute, Scopes: auth.ScopeRead | auth.ScopeWrite}},
		Streams: map[string]protocol.Stream{
			"feed": {Format: &sse.Format{Name: "sample", Tight: true, IDFirst: true, NoRetry: true},
				Complete: func(c *protocol.Call) error { return c.ReplyJSON(object{"complete": true}) }},
			"near": {KeepAlive: 5 * time.Second, Heartbeat: &dialect.Frame{Event: []byte("beat"), Data: []byte("{}")}},
			"ask":  {Begin: ask},
			"look": {Missed: func(n schema.Seq) string { return fmt.Sprintf("%d are gone", n) },
				Replayed: func(at schema.Seq) string { return fmt.Sprintf("up to %d", at) }},
		},
		Routes: []protocol.Route{
			{Pattern: "GET /talk/tickets/{run}", Needs: auth.ScopeRead, Serve: protocol.Answer(ticket)},
			{Pattern: "POST /sample/{run}/notes", RPC: "/sample.v1.Sample/Say", MaxMessage: 1 << 10, Needs: auth.ScopeWrite, Writes: true, Serve: protocol.Answer(note)},
			{Pattern: "GET /sample/{run}/notes", Needs: auth.ScopeRead, Serve: protocol.Answer(notes)},
		},
		Conversations: []protocol.Conversation{{
			Stream: dialect.Stream{Name: "talk", Pattern: "GET /talk/{room}", Mode: dialect.ModeB, Shared: true, Subprotocols: []string{"talk"}, MaxMessage: 4 << 10},
			Needs:  auth.ScopeRead, Late: true, Subscriptions: 2, Patience: time.Minute, TimedOut: protocol.Close{Code: 4008, Reason: "say something"},
			Heartbeat: protocol.Heartbeat{Every: time.Minute, Misses: 2, Strict: true, Lost: protocol.Close{Code: 4001, Reason: "are you there?"},
				Send: func(t *protocol.Talk) error { return t.SendJSON(object{"re": "beat", "id": "", "at": t.Beats}) }},
			Opened:   func(t *protocol.Talk) error { return t.SendJSON(object{"re": "hello", "id": t.Path("room"), "at": 0}) },
			Received: protocol.Exchange(received),
			Malformed: func(_ *protocol.Talk, bad *protocol.Close) error {
				return &protocol.Close{Code: 3000 + bad.Code, Reason: "text is read"}
			},
			Ended: ended,
		}},
	}
}

// Dialect shows the type of each record, and behind a text the bytes of all texts so far.
type Dialect struct{}

func (Dialect) Info() dialect.Info {
	const mode, json = dialect.ModeB, "application/json"
	return dialect.Info{Name: "sample", Files: [][]byte{service}, Streams: []dialect.Stream{
		{Name: "feed", Pattern: "GET /sample/{run}/feed", Transport: dialect.SSE, Mode: mode, Shared: true, Children: true},
		{Name: "feed.ws", Pattern: "GET /sample/{run}/feed", Transport: dialect.WebSocket, Mode: mode, Shared: true, Children: true, Subprotocols: []string{"sample"}},
		{Name: "watch", Pattern: "POST /sample.v1.Sample/Watch", Transport: dialect.GRPC, Mode: mode, Shared: true, Children: true, MaxMessage: 1 << 10},
		{Name: "near", Pattern: "GET /sample/{run}/near", Transport: dialect.SSE, Mode: mode, Shared: true, Backlog: 8},
		{Name: "look", Pattern: "POST /sample/look", Transport: dialect.SSE, Mode: mode, Shared: true, Body: []string{json}},
		{Name: "ask", Pattern: "POST /sample/{run}/ask", Transport: dialect.SSE, Mode: mode, Shared: true, Body: []string{json}},
	}}
}

// asked is what a client asks for, in a path, a query or a message.
type asked struct {
	Run, Only, Turn, Last, Text, Page, ID, Do string
	Newest, Await, Kept, Down                 bool
	After                                     schema.Seq
	At                                        int
	Types                                     []string
}

// Open reads a request. Frames of a subscription name it, so subscriptions share none.
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	a := asked{Last: in.Header.Get("Last-Event-ID")}
	if err = in.Decode(&a); err != nil {
		return req, err
	}
	req = dialect.Request{Run: a.Run, Stream: in.Stream, Span: a.Turn, Newest: a.Newest, Await: a.Await, Kept: a.Kept, Form: a.ID, Cursor: dialect.Cursor{Seq: a.After}}
	if err = schema.ValidRunID(a.Run); err != nil {
		return req, err
	}
	if in.Stream == "talk" {
		req.Filter.Types = a.Types
	}
	kinds, ok := map[string]dialect.Selection{"": nil, "type": dialect.OfKind(kindType), "sum": dialect.OfKind(kindSum)}, false
	if req.Select, ok = kinds[a.Only]; !ok {
		return req, dialect.Refuse(dialect.ErrBadRequest, "only is neither sum nor type")
	}
	if a.Last != "" {
		req.Cursor.Place, err = dialect.ParsePlace(a.Run, a.Last)
	}
	return req, err
}

func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte {
	body, _ := json.Marshal(object{"error": cmp.Or(p.Named, p.Code), "message": p.Message}) // texts always encode
	return append(dst, body...)
}

// lastWords ends a stream for which a node has no time with an event, and cleanly: its client comes again.
func lastWords(st dialect.Stream, why dialect.Problem, begun bool, end *transport.End) {
	if begun && st.Name != "talk" && (why.Reason == dialect.ReasonShutdown || why.Reason == dialect.ReasonOverflow) {
		end.Clean, end.Close, end.Message = true, 4000+int(why.Reason), "come again"
		end.Last = []dialect.Frame{{Event: []byte("again"), Data: fmt.Appendf(nil, `{"why":%q}`, why.Reason)}}
	}
}

// Kinds of frames, which are their slots as well: the same whatever the client asks for.
const kindType, kindSum = 0, 1

type projector struct {
	req   dialect.Request
	text  int // bytes
	gone  bool
	turns dialect.Turns
}

func (Dialect) Projector(req dialect.Request) dialect.Projector {
	if form := req.Form; req.Stream == "talk" {
		return dialect.ProjectorFunc(func(out *dialect.Frames, r schema.Record) error {
			out.Add(dialect.Frame{Data: fmt.Appendf(nil, `{"on":%q,"line":%s}`, form, r.Line)})
			return nil
		})
	}
	return (&projector{}).For(req)
}

func (p *projector) Project(out *dialect.Frames, r schema.Record) error {
	typ, turn := string(r.Type), p.turns.Add(r)
	if p.gone = p.gone || typ == schema.TypeSessionDeleted; typ == schema.TypeTextDelta {
		p.text += len(r.Payload())
	}
	if out == nil || p.req.Child != "" && string(r.Child) != p.req.Child || p.req.Span != "" && p.req.Span != turn {
		return nil
	}
	if p.req.Span == "" {
		p.add(out, r, kindType, `{"seq":%d,"type":%q,"child":%q}`, r.Seq, r.Type, r.Child)
	} else {
		p.add(out, r, kindType, `{"turn":%d,"nth":%d,"type":%q}`, p.turns.Find(turn).Number, p.turns.Nth, r.Type)
	}
	out.List[0].Again = typ == schema.TypeTurnStart // who begins within a turn gets it once more
	if typ == schema.TypeTextDelta {
		p.add(out, r, kindSum, `{"seq":%d,"sum":%d}`, r.Seq, p.text)
	}
	out.List[len(out.List)-1].Last = typ == schema.TypeTurnEnd && (p.req.Stream == "ask" || p.req.Span != "") // the run goes on
	return nil
}

// add appends a frame whose id is of the run or child that the client named.
func (p *projector) add(out *dialect.Frames, r schema.Record, kind int, format string, args ...any) {
	id := dialect.Place{Seq: r.Seq, Slot: kind}.AppendID(nil, cmp.Or(p.req.Child, p.req.Run))
	out.Add(dialect.Frame{Event: []byte("sample"), Data: fmt.Appendf(nil, format, args...), Token: id, Slot: kind, Kind: kind, Lane: r.Child})
}

// Open acknowledges the stream. One that begins at the newest event gets a snapshot.
func (p *projector) Open(out *dialect.Frames, after schema.Seq) error {
	f := dialect.Frame{Event: []byte("hello"), Data: fmt.Appendf(nil, `{"after":%d}`, after)}
	if p.req.Newest {
		f = dialect.Frame{Event: []byte("snapshot"), Data: fmt.Appendf(nil, `{"after":%d,"sum":%d}`, after, p.text)}
	}
	out.Add(f)
	out.Again = p.turns.Find(p.turns.Now).First
	return nil
}

func (p *projector) Close(out *dialect.Frames) error {
	out.Add(dialect.Frame{Event: []byte("bye"), Data: fmt.Appendf(nil, `{"sum":%d}`, p.text)})
	return nil
}

func (p *projector) For(req dialect.Request) dialect.Stateful {
	return &projector{req, p.text, p.gone, p.turns.Clone()}
}

func (p *projector) Span(req dialect.Request) dialect.Span { return p.turns.Find(req.Span) }
func (p *projector) Size() int                             { return 256 + p.turns.Size() }

func (p *projector) Admit(dialect.Request) error {
	if p.gone {
		return dialect.ErrNotFound
	}
	return nil
}

type object = map[string]any

func event(typ, field, text string) []schema.Event {
	payload, _ := json.Marshal(object{field: text}) // it never fails
	return []schema.Event{{Type: typ, Payload: payload}}
}

func ticket(ctx context.Context, c *protocol.Call, a asked) (any, error) {
	if _, err := c.Head(ctx, a.Run); err != nil {
		return nil, err
	}
	text, until, err := c.Ticket(ctx, a.Run)
	return object{"attach": text, "until": until}, err
}

// ask appends a message and returns the stream from there on, to the end of the turn.
func ask(c *protocol.Call, in dialect.Input) (dialect.Request, error) {
	var a asked
	req, err := Dialect{}.Open(in)
	if err = cmp.Or(err, in.Decode(&a)); err != nil {
		return req, err
	}
	ctx, cancel := c.Bounded()
	defer cancel()
	at, err := protocol.Change[*projector]{Request: req, Keyed: true, Running: true, Events: event(schema.TypeCommandMessage, "content", a.Text)}.Store(ctx, c)
	req.Cursor.Seq = at.First - 1
	return req, err
}

// note appends a text to a run, or to a child by its own id, unless there is much already.
func note(ctx context.Context, c *protocol.Call, a asked) (any, error) {
	change := protocol.Change[*projector]{Request: dialect.Request{Run: a.Run}, Children: true, Keyed: true, Events: event(schema.TypeTextDelta, "text", a.Text)}
	change.Allow = func(p *projector) error {
		if a.Text == "" {
			return protocol.ErrDone
		}
		if p.text > 1<<10 {
			return dialect.RefuseAs("FULL", dialect.ErrGone, "there are %d bytes of text", p.text)
		}
		return nil
	}
	at, err := change.Once(ctx, c)
	return object{"re": "say", "id": a.ID, "at": at.Last}, err
}

// notes answers with a page of the types of a run's records.
func notes(ctx context.Context, c *protocol.Call, a asked) (any, error) {
	h := protocol.History{Call: c, Request: dialect.Request{Run: a.Run, Select: dialect.OfKind(kindType)}, Page: protocol.Page{Limit: 2}}
	next, err := h.Read(ctx, a.Page, a.Down)
	return object{"notes": &h.Page, "next": next}, err
}

func ended(t *protocol.Talk, id string, err error) error {
	if err != nil {
		return err
	}
	return t.SendJSON(object{"re": "ended", "id": id, "at": 0})
}

func received(t *protocol.Talk, m asked) (answer any, err error) {
	at, ok := schema.Seq(0), true
	switch t.Await(0); m.Do {
	case "ping":
	case "bye":
		err = &protocol.Close{Code: 1000, Reason: "bye"}
	case "alive":
		if m.At != t.Beats {
			return nil, dialect.Refuse(dialect.ErrBadRequest, "that is not the newest heartbeat")
		}
		t.Alive()
		return nil, nil
	case "subscribe", "change":
		place, err := t.Open(m.ID, m.Do == "change")
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
