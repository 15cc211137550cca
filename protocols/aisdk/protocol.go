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
)

// Base is the beginning of the paths: the api of a transport.
const Base = "/v1/ai-sdk/chat"

// Names of the streams: of a POST and its answer, and of the newest response.
const (
	streamChat   = "chat"
	streamResume = "resume"
)

// headerRun names the run in the answer to a POST, for WorkflowChatTransport.
const headerRun = "X-Workflow-Run-Id"

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
		Allow: []string{"User-Agent"}, Expose: []string{headerRun, "X-Vercel-Ai-Ui-Message-Stream"},
		Streams: []protocol.Stream{
			{Stream: chat, Needs: auth.ScopeRead | auth.ScopeCommand, Begin: begin, Prelude: goOn, Format: format},
			{Stream: resume, Admit: admit, Format: format},
		},
		Routes: []protocol.Route{
			{Pattern: "POST " + Base + "/{run}/stop", Needs: auth.ScopeCommand, Serve: protocol.Bounded(stop)},
			{Pattern: "GET " + Base + "/{run}/messages", Needs: auth.ScopeRead, Serve: protocol.Bounded(messages)},
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
// (startIndex).
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	req = dialect.Request{Run: in.Path["run"], Stream: in.Stream, Span: dialect.SpanNewest}
	if err = schema.ValidRunID(req.Run); err != nil {
		return req, err
	}
	seen := in.Query["startIndex"]
	if len(seen) == 0 {
		return req, nil
	}
	n, err := strconv.ParseUint(seen[0], 10, 31)
	if err != nil || len(seen) > 1 {
		return req, dialect.Refuse(dialect.ErrBadRequest, "startIndex is not one whole number from 0 on, of chunks from the beginning")
	}
	req.Cursor.Frames = int(n)
	return req, nil
}

// request is the request for a response of a run, as it stands in p.
func request(run string, first schema.Seq, p *projector) dialect.Request {
	answered := strconv.Itoa(p.chat.Answered(first))
	return dialect.Request{Run: run, Stream: streamResume, Span: first.String(), Form: answered}
}

// admit finds the newest response. A page that asks for a run that is not there, or has none, has nothing to resume;
// with ?over=204 also one that asks for a response that is over.
func admit(c *protocol.Call, req *dialect.Request) error {
	ctx, cancel := c.Bounded()
	defer cancel()
	q, err := c.Query()
	if err != nil {
		return err
	}
	over, err := q.Choice("over", "replay", "204")
	if err != nil {
		return err
	}
	_, p, err := protocol.Newest[*projector](ctx, c, dialect.Request{Run: req.Run})
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
	return nil
}

// goOn begins the body that goes on with a message of which the page has a part: the same id, and what is new.
func goOn(_ *protocol.Call, at protocol.Seam) ([]dialect.Frame, error) {
	if at.Request.Cursor.Seq == 0 {
		return nil, nil
	}
	start := object("{").Str("type", "start").Str("messageId", at.Request.Run+"-"+at.Request.Span).End()
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
	c.Reply(status, object("{").Str("run", run).Str("status", word).End())
	return nil
}
