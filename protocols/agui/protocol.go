package agui

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Beginnings of the paths: the url of an agent, and CopilotKit's runtimeUrl.
const (
	Base    = "/v1/ag-ui"
	Copilot = "/v1/copilotkit"
)

// Names of the streams. In all of them but the last a POST is answered.
const (
	streamAgent   = "agent"   // the run is threadId of the body
	streamRun     = "run"     // the run is that of the path
	streamCopilot = "copilot" // CopilotKit's run
	streamConnect = "connect" // CopilotKit's connect, which never says anything
	streamWatch   = "watch"
)

// format has the id before the data: TanStack's client gives an id to what comes after it.
var format = &sse.Format{Name: "ag-ui", IDFirst: true, NoRetry: true}

// Protocol returns what an edge mounts.
func Protocol() protocol.Protocol {
	post := func(name, pattern string) protocol.Stream {
		st := dialect.Stream{Name: name, Pattern: "POST " + pattern, Transport: dialect.SSE, Mode: dialect.ModeB,
			Shared: true,
			Body:   []string{"application/json"}}
		return protocol.Stream{Stream: st, Needs: auth.ScopeRead | auth.ScopeCommand, Begin: beginResponse, Prelude: prelude,
			Complete: complete, Format: format}
	}
	watch := dialect.Stream{Name: streamWatch, Pattern: "GET " + Base + "/{run}", Transport: dialect.SSE,
		Mode: dialect.ModeB, Shared: true}
	agent := Copilot + "/agent/{agent}"
	return protocol.Protocol{
		Dialect: Dialect{}, Below: []string{Base, Copilot}, LastWords: lastWords, Allow: []string{"X-Run-Id"},
		Streams: []protocol.Stream{
			post(streamAgent, Base), post(streamRun, Base+"/{run}"), post(streamCopilot, agent+"/run"),
			post(streamConnect, agent+"/connect"),
			{Stream: watch, Asked: isStreamAsked, Admit: admit, Prelude: prelude, Complete: complete, Format: format},
		},
		Routes: []protocol.Route{
			{Pattern: "GET " + Base + "/{run}", Needs: auth.ScopeRead, Serve: protocol.WithLogTimeout(hydrate)},
			{Pattern: "POST " + Base + "/{run}/stop", Needs: auth.ScopeCommand, Serve: protocol.WithLogTimeout(stop)},
			{Pattern: "POST " + agent + "/stop/{run}", Needs: auth.ScopeCommand, Serve: protocol.WithLogTimeout(stop)},
			{Pattern: "GET " + Copilot + "/info", Needs: auth.ScopeRead, Anywhere: true, Serve: info},
			{Pattern: "POST " + Copilot + "/info", Needs: auth.ScopeRead, Anywhere: true, Serve: info},
		},
	}
}

// Dialect is the translation.
type Dialect struct{}

// Info names the protocol.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "ag-ui"} }

// AppendError writes {"error":{…}}. The client has the body as payload of its error.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte { return p.AppendJSON(dst) }

// lastWords leaves the body broken where the response is not over: a clean end without a terminal event is success for
// the client.
func lastWords(_ dialect.Stream, _ dialect.Problem, _ bool, end *transport.End) {
	if !end.Clean {
		end.Last = nil
	}
}

// isStreamAsked reports whether a GET wants the stream: all do that do not ask for JSON.
func isStreamAsked(in dialect.Input) bool {
	return protocol.IsStreamAccepted(in) || !strings.Contains(in.Header.Get("Accept"), "application/json")
}

// Open reads a request for a response, from its beginning or after the event that the client has.
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	at := in.Header.Get("Last-Event-ID")
	offset := in.Query.Get("offset")
	if at == "" && offset != "-1" && offset != "now" {
		at = offset
	}
	return open(in.Path["run"], in.Stream, at)
}

// open makes a request for the newest response, or after an event of any: at is its id, {response}.{seq}.{number}.
func open(run, stream, at string) (req dialect.Request, err error) {
	req = dialect.Request{Run: run, Stream: stream, Span: dialect.SpanNewest}
	if err = schema.ValidRunID(run); err != nil || at == "" {
		return req, err
	}
	parts := strings.Split(at, ".")
	var nums [3]uint64
	for i := range nums {
		if len(parts) == len(nums) {
			nums[i], _ = strconv.ParseUint(parts[i], 10, 53)
		}
		if nums[i] == 0 || parts[i] != strconv.FormatUint(nums[i], 10) {
			return req, dialect.Refuse(schema.ErrBadCursor, "the id of the last event is not one that was sent here")
		}
	}
	req.Span = parts[0]
	req.Cursor = dialect.Cursor{Seq: schema.Seq(nums[1]), Token: at}
	return req, nil
}

// request is the request for a response of a run that stands at head, as it is in p, and truth the record with which a
// client begins that is given what comes before as a snapshot: what follows ends the response, or the run of AG-UI, if
// that has ended.
func (p *projector) request(first, head schema.Seq) (req dialect.Request, truth schema.Seq) {
	req = dialect.Request{Run: p.run, Span: first.String()}
	span := p.chat.Spans.Find(req.Span)
	truth = head
	switch {
	case span.Last > 0:
		req.Form, truth = formWhole, span.Last-1
	case p.now.response != first:
	case p.now.running:
		req.Form = strconv.Itoa(p.now.pauses)
	default:
		req.Form, truth = strconv.Itoa(p.now.pauses-1), p.now.paused-1
	}
	if truth < span.First {
		truth = 0
	}
	return req, truth
}

// admit finds the response that is asked for: that of the event that the client has, that of a run of AG-UI, or the
// newest.
func admit(c *protocol.Call, req *dialect.Request) error {
	q, err := c.Query()
	if err != nil {
		return err
	}
	runID, err := q.One("runId")
	if err != nil {
		return err
	}
	offset, err := q.One("offset")
	if err != nil {
		return err
	}
	ctx, cancel := c.LogContext()
	defer cancel()
	return find(ctx, c, req, runID, offset == "now")
}

// find makes a request that Open has returned one for a response.
func find(ctx context.Context, c *protocol.Call, req *dialect.Request, runID string, tail bool) error {
	head, p, err := protocol.Newest[*projector](ctx, c, dialect.Request{Run: req.Run})
	if err != nil {
		return err
	}
	first := p.Span(*req).First
	if named, ok := p.runs.Get(runID); ok && req.Cursor.Token == "" {
		first = named
	}
	switch {
	case first == 0 && req.Span == dialect.SpanNewest:
		return dialect.ErrComplete
	case first == 0:
		return dialect.Refuse(schema.ErrBadCursor, "the id of the last event is not one that was sent here")
	}
	found, truth := p.request(first, head.Last)
	found.Run, found.Stream, found.Cursor = req.Run, req.Stream, req.Cursor
	if tail && req.Cursor.Token == "" {
		found.Cursor.Seq = truth
	}
	paused := p.now.response == first && !p.now.running
	*req = found
	if paused && req.Cursor.Token != "" && req.Cursor.Seq >= p.now.paused {
		return dialect.ErrComplete
	}
	return nil
}

// complete answers a client that has everything with the event that ended it, without an id: one whose body broke after
// it waits for that. Who has nothing, and asks with a POST, gets a run that is over at once.
func complete(c *protocol.Call) error {
	in := dialect.Input{Header: c.Request.Header, Query: c.Request.URL.Query(), Path: c.Params.Map()}
	req, err := Dialect{}.Open(in)
	var frames []dialect.Frame
	if c.Request.Method == http.MethodPost {
		var b *post
		b, err = readCall(c)
		if err != nil {
			return err
		}
		req, err = open(b.ThreadID, "", in.Header.Get("Last-Event-ID"))
		frames = b.empty()
	}
	if err == nil && req.Cursor.Token != "" {
		frames, err = lastEvent(c, req)
	}
	if err != nil {
		return err
	}
	if len(frames) == 0 {
		c.Writer.WriteHeader(http.StatusNoContent)
		return nil
	}
	format.SetHeader(c.Writer.Header())
	var body []byte
	for _, f := range frames {
		body = format.Append(body, f)
	}
	_, err = c.Writer.Write(body)
	return err
}

// lastEvent returns the last event of the record that a client has.
func lastEvent(c *protocol.Call, req dialect.Request) ([]dialect.Frame, error) {
	ctx, cancel := c.LogContext()
	defer cancel()
	p, err := protocol.StateAt[*projector](ctx, c, req.Cursor.Seq-1,
		dialect.Request{Run: req.Run, Span: req.Span, Form: formWhole})
	if err != nil {
		return nil, err
	}
	var out dialect.Frames
	for r, err := range c.Records(ctx, req.Run, req.Cursor.Seq-1, req.Cursor.Seq) {
		if err != nil {
			return nil, err
		}
		if err := p.Project(&out, r); err != nil {
			return nil, err
		}
	}
	if len(out.List) == 0 {
		return nil, dialect.Refuse(schema.ErrBadCursor, "the id of the last event is not one that was sent here")
	}
	last := out.List[len(out.List)-1]
	last.Token = nil
	return []dialect.Frame{last}, nil
}

// stop commands the agent to end the response under way. A client that goes away is no command.
func stop(ctx context.Context, c *protocol.Call) error {
	run, status, word := c.Path("run"), http.StatusAccepted, "stopping"
	change := protocol.Change[*projector]{Request: dialect.Request{Run: run},
		Events: []schema.Event{{Type: "command.cancel", Payload: c.By([]byte(`{}`))}}}
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

// info names the agents to CopilotKit's browser: any name is a run's agent.
func info(c *protocol.Call) error {
	c.Reply(http.StatusOK, []byte(`{"version":"1.0.0","agents":{"default":{"name":"default","className":"HttpAgent",`+
		`"description":"Runs of agentstream"}},"audioFileTranscriptionEnabled":false,"mode":"sse"}`))
	return nil
}
