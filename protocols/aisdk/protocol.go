package aisdk

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Base is the beginning of the paths: the api of a transport.
const Base = "/v1/ai-sdk/chat"

// Names of the streams: of a POST and its answer, and of the newest response.
const (
	streamChat   = "chat"
	streamResume = "resume"
)

// Headers for WorkflowChatTransport: the run in the answer to a POST, and from which a client that asks for the newest
// chunks counts the others.
const (
	headerRun  = "X-Workflow-Run-Id"
	headerTail = "X-Workflow-Stream-Tail-Index"
)

// format has the header by which tools know the stream.
var format = &sse.Format{Name: "ai-sdk", NoRetry: true, Header: http.Header{"X-Vercel-Ai-Ui-Message-Stream": {"v1"}}}

// Protocol returns what an edge mounts.
func Protocol() protocol.Protocol {
	chat := dialect.Stream{Name: streamChat, Pattern: "POST " + Base, Body: []string{"application/json", "text/plain"}}
	resume := dialect.Stream{Name: streamResume, Pattern: "GET " + Base + "/{run}/stream"}
	for _, st := range []*dialect.Stream{&chat, &resume} {
		st.Transport, st.Mode, st.Shared = dialect.SSE, dialect.ModeB, true
	}
	return protocol.Protocol{
		Dialect: Dialect{}, Below: []string{"/v1/ai-sdk"}, LastWords: lastWords,
		Allow: []string{"User-Agent"}, Expose: []string{headerRun, headerTail, "X-Vercel-Ai-Ui-Message-Stream"},
		Streams: []protocol.Stream{
			{Stream: chat, Needs: auth.ScopeRead | auth.ScopeCommand, Begin: beginResponse, Prelude: goOn, Format: format},
			{Stream: resume, Admit: admit, Format: format},
		},
		Routes: []protocol.Route{
			{Pattern: "POST " + Base + "/{run}/stop", Needs: auth.ScopeCommand, Serve: protocol.WithLogTimeout(stop)},
			{Pattern: "GET " + Base + "/{run}/messages", Needs: auth.ScopeRead, Serve: protocol.WithLogTimeout(messages)},
		},
	}
}

// Dialect is the translation.
type Dialect struct{}

// Info names the protocol.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "ai-sdk"} }

// AppendError writes {"error":{…}}. The page shows the text of the body.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte { return p.AppendJSON(dst) }

// lastWords leaves the body broken where the response is not over: no chunk tells that, and a clean end means the
// opposite.
func lastWords(_ dialect.Stream, _ dialect.Problem, _ bool, end *transport.End) {
	if !end.Clean {
		end.Last = nil
	}
}

// Open reads a request for the newest response, from its beginning or after so many chunks as a client has seen
// (startIndex). Less than 0 are so many of the newest ones: admit finds the place.
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	req = dialect.Request{Run: in.Path["run"], Stream: in.Stream, Span: dialect.SpanNewest}
	if err = schema.ValidRunID(req.Run); err != nil {
		return req, err
	}
	seen := in.Query["startIndex"]
	if len(seen) == 0 {
		return req, nil
	}
	n, err := strconv.ParseInt(seen[0], 10, 32)
	if err != nil || len(seen) > 1 || strconv.FormatInt(n, 10) != seen[0] {
		return req, dialect.Refuse(dialect.ErrBadRequest,
			"startIndex is not one whole number: of chunks from the beginning, or, below 0, from the end")
	}
	req.Cursor.Frames = int(n)
	return req, nil
}

// request is the request for a response of a run, as it stands in p.
func request(run string, first schema.Seq, p *projector) dialect.Request {
	answered := strconv.Itoa(p.chat.CountAnswers(first))
	return dialect.Request{Run: run, Stream: streamResume, Span: first.String(), Form: answered}
}

// admit finds the newest response. A page that asks for a run that is not there, or has none, has nothing to resume;
// with ?over=204 also one that asks for a response that is over.
func admit(c *protocol.Call, req *dialect.Request) error {
	ctx, cancel := c.LogContext()
	defer cancel()
	q, err := c.Query()
	if err != nil {
		return err
	}
	over, err := q.Choice("over", "replay", "204")
	if err != nil {
		return err
	}
	head, p, err := protocol.Newest[*projector](ctx, c, dialect.Request{Run: req.Run})
	if errors.Is(err, fanout.ErrNotFound) {
		return dialect.ErrComplete
	}
	if err != nil {
		return err
	}
	span := p.Span(*req)
	if span.First == 0 || over == "204" && span.Last > 0 {
		return dialect.ErrComplete
	}
	at := req.Cursor
	*req = request(req.Run, span.First, p)
	req.Cursor = at
	if at.Frames < 0 {
		last := head.Last
		if span.Last > 0 {
			last = span.Last
		}
		req.Cursor.Frames, err = fromEnd(ctx, c, *req, span.First, last)
	}
	return err
}

// fromEnd returns how many chunks of a response come before the newest ones that a request asks for, or, where these
// begin inside of a text or a call, before that: no client knows what to do with the rest of a part. The client adds
// what it has asked for to the header, and so goes on after a cut with the chunk that it has not.
func fromEnd(ctx context.Context, c *protocol.Call, req dialect.Request, first, last schema.Seq) (int, error) {
	want := -req.Cursor.Frames
	req.Cursor = dialect.Cursor{}
	p := Dialect{}.Projector(req).(*projector)
	if first > 1 {
		var err error
		p, err = protocol.StateAt[*projector](ctx, c, first-1, req)
		if err != nil {
			return 0, err
		}
	}
	var frames dialect.Frames
	count, places := 0, []int{0}
	for r, err := range c.Records(ctx, req.Run, first-1, last) {
		if err != nil {
			return 0, err
		}
		if !p.chat.Open() {
			places = append(places, count)
		}
		frames.Reset()
		err = p.Project(&frames, r)
		if err != nil {
			return 0, err
		}
		count += len(frames.List)
		if n := len(frames.List); n > 0 && frames.List[n-1].Last {
			count-- // it is no chunk
			break
		}
	}
	at := len(places) - 1
	for at > 0 && places[at] > count-want {
		at--
	}
	c.Header().Set(headerTail, strconv.Itoa(places[at]+want-1))
	return places[at], nil
}

// goOn begins the body that goes on with a message of which the page has a part: the same id, and what is new.
func goOn(_ *protocol.Call, at protocol.Seam) ([]dialect.Frame, error) {
	if at.Request.Cursor.Seq == 0 {
		return nil, nil
	}
	start := jsonscan.Object("{").Str("type", "start").Str("messageId", at.Request.Run+"-"+at.Request.Span).End()
	return []dialect.Frame{{Data: start}}, nil
}

// stop commands the agent to end the response under way. A client that goes away is no command.
func stop(ctx context.Context, c *protocol.Call) error {
	run, status, word := c.Path("run"), http.StatusAccepted, "stopping"
	cancel := schema.Event{Type: "command.cancel", Payload: c.By([]byte(`{}`))}
	change := protocol.Change[*projector]{Request: dialect.Request{Run: run}, Events: []schema.Event{cancel}}
	change.Allow = func(p *projector) error {
		if p.chat.UnderWay() > 0 {
			return nil
		}
		status, word = http.StatusOK, "over"
		return protocol.ErrDone
	}
	if _, err := change.Once(ctx, c); err != nil {
		return err
	}
	c.Reply(status, jsonscan.Object("{").Str("run", run).Str("status", word).End())
	return nil
}
