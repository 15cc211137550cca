package dialecttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
)

// Sample is a protocol with a state: how many bytes of text a run has said, and its turns.
type Sample struct{}

// Protocol returns what an edge mounts.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Dialect: Sample{}, Routes: routes(), Conversations: []protocol.Conversation{talk()}, Below: []string{"/sample"}, LastWords: lastWords,
		Ticket: protocol.Ticket{Param: "attach", Terms: auth.Terms{Prefix: "talk_", TTL: time.Minute, Scopes: auth.ScopeRead | auth.ScopeWrite}},
		Streams: map[string]protocol.Stream{
			"feed": {Complete: complete, Format: &sse.Format{Name: "sample", Tight: true, IDFirst: true, NoRetry: true}},
			"near": {KeepAlive: 5 * time.Second, Heartbeat: &dialect.Frame{Event: []byte("beat"), Data: []byte("{}")}},
			"ask":  {Begin: begin},
			"look": {
				Missed:   func(n schema.Seq) string { return fmt.Sprintf("%d are gone", n) },
				Replayed: func(at schema.Seq) string { return fmt.Sprintf("up to %d", at) },
			},
		},
	}
}

// Info names the streams.
func (Sample) Info() dialect.Info {
	stream := func(name, pattern string, t dialect.Transport) dialect.Stream {
		return dialect.Stream{Name: name, Pattern: pattern, Transport: t, Mode: dialect.ModeB, Shared: true, MaxMessage: 1 << 10}
	}
	feed, socket := stream("feed", "GET /sample/{run}/feed", dialect.SSE), stream("feed.ws", "GET /sample/{run}/feed", dialect.WebSocket)
	watch, near := stream("watch", "POST /sample.v1.Sample/Watch", dialect.GRPC), stream("near", "GET /sample/{run}/near", dialect.SSE)
	look, ask := stream("look", "POST /sample/look", dialect.SSE), stream("ask", "POST /sample/{run}/ask", dialect.SSE)
	feed.Children, socket.Children, watch.Children, near.Backlog = true, true, true, 8
	socket.Subprotocols, look.Body, ask.Body = []string{"sample"}, []string{"application/json"}, []string{"application/json"}
	return dialect.Info{Name: "sample", Files: [][]byte{service()}, Streams: []dialect.Stream{feed, socket, watch, near, look, ask}}
}

// asked is what a client asks for: in a query, a body, a message of gRPC or one of a conversation.
type asked struct {
	Run, Only, Turn, Last, Text string
	Newest, Await, Kept         bool
	Do, ID                      string // of a conversation: what to do, with which subscription
	After, At                   schema.Seq
	Types                       []string
}

func read(in dialect.Input) (a asked, err error) {
	q := in.Query
	a = asked{Only: q.Get("only"), Turn: q.Get("turn"), Last: in.Header.Get("Last-Event-ID"), Newest: q.Has("newest"), Await: q.Has("await")}
	if in.Stream == "watch" {
		if in.Body, err = unwrap(in.Body); err != nil {
			return a, err
		}
	}
	if in.Body != nil && json.Unmarshal(in.Body, &a) != nil {
		return a, dialect.Refuse(dialect.ErrBadRequest, "not an object with the fields that are known")
	}
	a.Run = cmp.Or(in.Path["run"], a.Run)
	return a, nil
}

// Open reads a request.
func (Sample) Open(in dialect.Input) (dialect.Request, error) {
	_, req, err := open(in)
	return req, err
}

// open reads a request. Frames of a subscription name it, so that subscriptions share none.
func open(in dialect.Input) (a asked, req dialect.Request, err error) {
	if a, err = read(in); err != nil {
		return a, req, err
	}
	req = dialect.Request{Run: a.Run, Stream: in.Stream, Span: a.Turn, Newest: a.Newest, Await: a.Await, Kept: a.Kept, Form: a.ID}
	if req.Cursor.Seq = a.After; in.Stream == "talk" {
		req.Filter.Types = a.Types
	}
	if err = schema.ValidRunID(a.Run); err != nil {
		return a, req, err
	}
	if req.Select, err = parseOnly(a.Only); err == nil && a.Last != "" {
		req.Cursor.Place, err = dialect.ParsePlace(a.Run, a.Last)
	}
	return a, req, err
}

// only selects one kind of frame.
type only int

func (o only) Key() string                 { return strconv.Itoa(int(o)) }
func (o only) Shows(f *dialect.Frame) bool { return f.Kind == int(o) }

func parseOnly(name string) (dialect.Selection, error) {
	i := slices.Index([]string{"type", "sum"}, name)
	switch {
	case name == "":
		return nil, nil
	case i < 0:
		return nil, dialect.Refuse(dialect.ErrBadRequest, "only is neither sum nor type")
	}
	return only(i), nil
}

// Projector returns one that has seen nothing yet, or one that has no state, for subscriptions.
func (Sample) Projector(req dialect.Request) dialect.Projector {
	if req.Stream == "talk" {
		return talker(fmt.Sprintf(`{"on":%q,"line":`, req.Form))
	}
	return (&projector{}).For(req)
}

// AppendError writes one object.
func (Sample) AppendError(dst []byte, p dialect.Problem) []byte {
	message, _ := json.Marshal(p.Message) // a string always encodes
	return fmt.Appendf(dst, `{"error":%q,"message":%s}`, cmp.Or(p.Named, p.Code), message)
}

// complete answers, in a body of its own, that nothing is left.
func complete(c *protocol.Call) error {
	c.Reply(200, []byte(`{"complete":true}`))
	return nil
}

// lastWords ends a stream for which a node has no time with an event, and cleanly: the client comes again by itself.
func lastWords(st dialect.Stream, why dialect.Problem, begun bool, end *transport.End) {
	if begun && st.Name != "talk" && (why.Reason == dialect.ReasonShutdown || why.Reason == dialect.ReasonOverflow) {
		end.Clean, end.Close, end.Message = true, 4000+int(why.Reason), "come again"
		end.Last = []dialect.Frame{{Event: []byte("again"), Data: fmt.Appendf(nil, `{"why":%q}`, why.Reason)}}
	}
}
