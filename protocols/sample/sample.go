package sample

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

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
		Dialect: Dialect{}, Below: []string{"/sample"}, LastWords: lastWords, Streams: streams(),
		Conversations: []protocol.Conversation{talk()},
		Ticket: protocol.Ticket{Param: "attach",
			Terms: auth.Terms{Prefix: "talk_", TTL: time.Minute, Scopes: auth.ScopeRead | auth.ScopeWrite}},
		Routes: []protocol.Route{
			{Pattern: "GET /talk/tickets/{run}", Needs: auth.ScopeRead, Serve: answer(ticket)},
			{Pattern: "POST /sample/{run}/notes", RPC: "/sample.v1.Sample/Say", MaxMessage: 1 << 10,
				Needs: auth.ScopeWrite, Writes: true, Serve: answer(note)},
			{Pattern: "GET /sample/{run}/notes", Needs: auth.ScopeRead, Serve: answer(notes)},
			{Pattern: "GET /sample/{run}/newer", Needs: auth.ScopeRead, Serve: answer(newer)},
		},
	}
}

// streams are declared here, each once.
func streams() []protocol.Stream {
	of := func(name, pattern string, t dialect.Transport) dialect.Stream {
		return dialect.Stream{Name: name, Pattern: pattern, Transport: t, Mode: dialect.ModeB, Shared: true}
	}
	feed, watch := of("feed", "GET /sample/{run}/feed", dialect.SSE), of("watch", "POST /sample.v1.Sample/Watch",
		dialect.GRPC)
	socket := of("feed.ws", "GET /sample/{run}/feed", dialect.WebSocket)
	feed.Children, watch.Children, socket.Children = true, true, true
	watch.MaxMessage, socket.Subprotocols = 1<<10, []string{"sample"}
	near, look, ask := of("near", "GET /sample/{run}/near", dialect.SSE), of("look", "POST /sample/look",
		dialect.SSE), of("ask", "POST /sample/{run}/ask", dialect.SSE)
	near.Backlog = 8
	look.Body, ask.Body = []string{"application/json"}, []string{"application/json"}
	return []protocol.Stream{
		{Stream: feed, Format: &sse.Format{Name: "sample", IDFirst: true, NoRetry: true},
			Complete: func(c *protocol.Call) error { return c.ReplyJSON(object{"complete": true}) }},
		{Stream: socket}, {Stream: watch}, {Stream: near},
		{Stream: look, Prelude: greet, CaughtUp: catchUpFrame},
		{Stream: ask, Begin: appendMessage},
		{Stream: of("notes", "GET /sample/{run}/notes", dialect.SSE),
			Asked: func(in dialect.Input) bool { return in.Query.Has("stream") || protocol.IsStreamAccepted(in) }},
	}
}

// Dialect shows the type of each record, and after a text the bytes of all texts so far.
type Dialect struct{}

func (Dialect) Info() dialect.Info { return dialect.Info{Name: "sample", Files: [][]byte{service}} }

// asked is what a client asks for, in a path, a query or a message.
type asked struct {
	Run, Only, Turn, Last, Text, Page, ID, Do string
	Newest, Await, Kept, Down                 bool
	After                                     schema.Seq
	Types                                     []string
}

// read reads a body, or a query, and the run of the path.
func read(in dialect.Input) (a asked, err error) {
	q := in.Query
	a = asked{Last: in.Header.Get("Last-Event-ID"), Only: q.Get("only"), Turn: q.Get("turn"), Page: q.Get("page"),
		Newest: q.Has("newest"), Await: q.Has("await"), Kept: q.Has("kept"), Down: q.Has("down")}
	if a.After, err = schema.ParseCursor(cmp.Or(q.Get("after"), "0")); err != nil {
		return a, err
	}
	if in.Body != nil && json.Unmarshal(in.Body, &a) != nil {
		return a, dialect.Refuse(dialect.ErrBadRequest, "not an object with fields of the right types")
	}
	a.Run = cmp.Or(in.Path["run"], a.Run)
	return a, nil
}

// Open reads a request. Frames of a subscription name it, so subscriptions share none.
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	if in.Stream == "watch" {
		if in.Body, err = unwrap(in.Body); err != nil {
			return req, err
		}
	}
	a, err := read(in)
	if err != nil {
		return req, err
	}
	req = dialect.Request{Run: a.Run, Stream: in.Stream, Span: a.Turn, Newest: a.Newest, Await: a.Await, Kept: a.Kept,
		Form: a.ID, Cursor: dialect.Cursor{Seq: a.After}}
	if a.Turn == "newest" {
		req.Span = dialect.SpanNewest
	}
	if err = schema.ValidRunID(a.Run); err != nil {
		return req, err
	}
	if in.Stream == "talk" {
		req.Filter.Types = a.Types
	}
	kinds, ok := map[string]dialect.Selection{"": nil, "type": ofKind(kindType), "sum": ofKind(kindSum)}, false
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
		if st.Transport == dialect.GRPC {
			end.Last[0].Data = wrap(end.Last[0].Data)
		}
	}
}

// greet makes what a stream begins with out of what its client has said, and what the run has come to.
func greet(_ *protocol.Call, at protocol.Seam) (list []dialect.Frame, err error) {
	if at.Missed > 0 {
		list = append(list, dialect.Frame{Comment: true, Data: fmt.Appendf(nil, "%d are gone", at.Missed)})
	}
	a, err := read(at.Input)
	if err == nil && a.Text != "" {
		list = append(list, dialect.Frame{Event: []byte("greeting"),
			Data: fmt.Appendf(nil, `{"text":%q,"sum":%d}`, a.Text, at.State.(*projector).text)})
	}
	return list, err
}

// catchUpFrame comments that everything which there was has come.
func catchUpFrame(last schema.Seq) dialect.Frame {
	return dialect.Frame{Comment: true, Data: fmt.Appendf(nil, "up to %d", last)}
}

// Kinds of frames, which are their slots as well: the same whatever the client asks for.
const kindType, kindSum = 0, 1

// ofKind selects the frames of one kind.
type ofKind int

func (k ofKind) Key() string                 { return fmt.Sprint(int(k)) }
func (k ofKind) Match(f *dialect.Frame) bool { return f.Kind == int(k) }

type projector struct {
	req   dialect.Request
	text  int // bytes
	gone  bool
	turns dialect.Spans
	turn  string // that goes on; "": none does
	nth   int    // place of the newest record among its turn's, from 1
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
	typ, turn := string(r.Type), p.follow(r)
	p.gone = p.gone || typ == schema.TypeSessionDeleted
	if typ == schema.TypeTextDelta {
		p.text += len(r.Payload())
	}
	if out == nil || p.req.Child != "" && string(r.Child) != p.req.Child || p.req.Span != "" && p.req.Span != turn {
		return nil
	}
	if p.req.Span == "" {
		p.add(out, r, kindType, `{"seq":%d,"type":%q,"child":%q}`, r.Seq, r.Type, r.Child)
	} else {
		p.add(out, r, kindType, `{"turn":%d,"nth":%d,"type":%q}`, p.turns.Find(turn).Number, p.nth, r.Type)
	}
	out.List[0].Again = typ == schema.TypeTurnStart // who begins within a turn gets it once more
	if typ == schema.TypeTextDelta {
		p.add(out, r, kindSum, `{"seq":%d,"sum":%d}`, r.Seq, p.text)
	}
	// the run goes on
	out.List[len(out.List)-1].Last = typ == schema.TypeTurnEnd && (p.req.Stream == "ask" || p.req.Span != "")
	return nil
}

// follow returns the turn that a record is of; "" is none.
func (p *projector) follow(r schema.Record) (turn string) {
	if p.turn == "" && string(r.Type) == schema.TypeTurnStart {
		var of struct {
			ID string `json:"turn_id"`
		}
		if json.Unmarshal(r.Payload(), &of) == nil && of.ID != "" {
			p.turn, p.nth = of.ID, 0
			p.turns.Begin(p.turn, r.Seq)
		}
	}
	p.nth++
	turn = p.turn
	if turn != "" && string(r.Type) == schema.TypeTurnEnd {
		p.turns.End(turn, r.Seq)
		p.turn = ""
	}
	return turn
}

// add appends a frame whose id is of the run or child that the client named.
func (p *projector) add(out *dialect.Frames, r schema.Record, kind int, format string, args ...any) {
	id := dialect.Place{Seq: r.Seq, Slot: kind}.AppendID(nil, cmp.Or(p.req.Child, p.req.Run))
	f := dialect.Frame{Event: []byte("sample"), Data: fmt.Appendf(nil, format, args...), Token: id, Slot: kind,
		Kind: kind, Lane: r.Child}
	out.Add(p.wrapFrame(f))
}

// wrapFrame returns a frame as its transport has it.
func (p *projector) wrapFrame(f dialect.Frame) dialect.Frame {
	if p.req.Stream == "watch" {
		f.Data = wrap(f.Data)
	}
	return f
}

// Open acknowledges the stream. One that begins at the newest event gets a snapshot.
func (p *projector) Open(out *dialect.Frames, after schema.Seq) error {
	f := dialect.Frame{Event: []byte("hello"), Data: fmt.Appendf(nil, `{"after":%d}`, after)}
	if p.req.Newest {
		f = dialect.Frame{Event: []byte("snapshot"), Data: fmt.Appendf(nil, `{"after":%d,"sum":%d}`, after, p.text)}
	}
	out.Add(p.wrapFrame(f))
	out.Again = p.turns.Find(p.turn).First
	return nil
}

func (p *projector) For(req dialect.Request) dialect.Stateful {
	return &projector{req, p.text, p.gone, p.turns.Clone(), p.turn, p.nth}
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

// wrap returns a text as a google.protobuf.StringValue.
func wrap(text []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), text)
}

func unwrap(message []byte) ([]byte, error) {
	var m wrapperspb.StringValue
	if proto.Unmarshal(message, &m) != nil {
		return nil, dialect.Refuse(dialect.ErrBadRequest, "not a StringValue")
	}
	return []byte(m.GetValue()), nil
}

// answer returns a route that reads its request and answers with what serve returns, over HTTP and gRPC.
func answer(serve func(context.Context, *protocol.Call, asked) (any, error)) func(*protocol.Call) error {
	return protocol.WithLogTimeout(func(ctx context.Context, c *protocol.Call) error {
		in := dialect.Input{Path: c.Params.Map()}
		query, err := c.Query()
		in.Query = map[string][]string(query)
		rpc := c.Transport() == dialect.GRPC
		if err == nil && (rpc || c.Request.Method == "POST") {
			in.Body, err = c.Message()
		}
		if err == nil && rpc {
			in.Body, err = unwrap(in.Body)
		}
		if err != nil {
			return err
		}
		a, err := read(in)
		if err != nil {
			return err
		}
		v, err := serve(ctx, c, a)
		if err != nil {
			return err
		}
		if !rpc {
			return c.ReplyJSON(v)
		}
		text, err := json.Marshal(v)
		c.Reply(200, wrap(text))
		return err
	})
}

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

// appendMessage appends a message and returns the stream from there on, to the end of the turn.
func appendMessage(c *protocol.Call, in dialect.Input) (dialect.Request, error) {
	req, err := Dialect{}.Open(in)
	if err != nil {
		return req, err
	}
	a, err := read(in)
	if err != nil {
		return req, err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	at, err := protocol.Change[*projector]{Request: req, Keyed: true, Running: true,
		Events: event(schema.TypeCommandMessage, "content", a.Text)}.Store(ctx, c)
	req.Cursor.Seq = at.First - 1
	return req, err
}

// note appends a text to a run, or to a child by its own id, unless there is much already.
func note(ctx context.Context, c *protocol.Call, a asked) (any, error) {
	change := protocol.Change[*projector]{Request: dialect.Request{Run: a.Run}, Children: true, Keyed: true,
		Events: event(schema.TypeTextDelta, "text", a.Text)}
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
	h := protocol.History{Call: c, Request: dialect.Request{Run: a.Run, Select: ofKind(kindType)},
		Page: protocol.Page{Limit: 2}}
	next, err := h.Read(ctx, a.Page, a.Down)
	return object{"notes": &h.Page, "next": next}, err
}

// newer answers when the run has a record after the one that the client has.
func newer(ctx context.Context, c *protocol.Call, a asked) (any, error) {
	head, err := c.Wait(ctx, a.Run, a.After)
	return object{"last": head.Last, "state": head.State}, err
}
