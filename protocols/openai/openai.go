package openai

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Base is the beginning of the paths: the baseURL of a client.
const Base = "/openai/v1"

const (
	paths        = Base + "/responses"
	pathOne      = paths + "/{response}"
	mediaType    = "application/json"
	streamCreate = "create"
	streamGet    = "retrieve"
)

var format = &sse.Format{Name: "openai", NoRetry: true}

// Protocol returns what an edge mounts.
func Protocol() protocol.Protocol {
	stream := func(name, pattern string) dialect.Stream {
		return dialect.Stream{Name: name, Pattern: pattern, Transport: dialect.SSE, Mode: dialect.ModeB, Shared: true,
			Body: []string{mediaType}}
	}
	post, get := stream(streamCreate, "POST "+paths), stream(streamGet, "GET "+pathOne)
	return protocol.Protocol{
		Dialect: Dialect{}, Below: []string{Base}, LastWords: lastWords, Refused: discourageRetry,
		Expose: []string{"X-Should-Retry"},
		// What the clients send of their own; nobody reads it here.
		Allow: []string{"OpenAI-Beta", "OpenAI-Organization", "OpenAI-Project", "User-Agent", "X-Stainless-Arch",
			"X-Stainless-Helper-Method", "X-Stainless-Lang", "X-Stainless-Os", "X-Stainless-Package-Version",
			"X-Stainless-Retry-Count", "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout"},
		Streams: []protocol.Stream{
			{Stream: post, Asked: isStreamAsked, Begin: beginResponse, Format: format},
			{Stream: get, Asked: isStreamAsked, Complete: complete, Format: format},
		},
		Routes: []protocol.Route{
			{Pattern: post.Pattern, Needs: auth.ScopeRead | auth.ScopeWrite, Writes: true, Serve: create},
			{Pattern: get.Pattern, Needs: auth.ScopeRead, Serve: protocol.WithLogTimeout(retrieve)},
			{Pattern: "DELETE " + pathOne, Needs: auth.ScopeWrite, Serve: remove},
			{Pattern: "POST " + pathOne + "/cancel", Needs: auth.ScopeCommand, Serve: protocol.WithLogTimeout(cancel)},
			{Pattern: "GET " + pathOne + "/input_items", Needs: auth.ScopeRead, Serve: protocol.WithLogTimeout(inputItems)},
		},
	}
}

// isStreamAsked reports whether a request wants events: stream is in the query, or in the body, also of a GET.
func isStreamAsked(in dialect.Input) bool {
	var body struct {
		Stream bool `json:"stream"`
	}
	_ = json.Unmarshal(in.Body, &body) // what is no JSON is refused by who serves it
	return in.Query.Get("stream") == "true" || body.Stream
}

// complete answers who has all events: nothing follows, and that is no error.
func complete(c *protocol.Call) error {
	format.SetHeader(c.Header())
	c.Length(0)
	c.Writer.WriteHeader(http.StatusOK)
	return nil
}

// lastWords leaves the body broken where the response goes on: an event for it would need a number that the log has
// not.
func lastWords(_ dialect.Stream, _ dialect.Problem, _ bool, end *transport.End) {
	if !end.Clean {
		end.Last = nil
	}
}

// discourageRetry keeps the clients from repeating what cannot succeed: they do so with every 409.
func discourageRetry(h http.Header, err error) {
	if ends.OutcomeOf(ends.ReasonOf(err)).Status == http.StatusConflict {
		h.Set("X-Should-Retry", "false")
	}
}

// Dialect is the translation.
type Dialect struct{}

// Info names the protocol.
func (Dialect) Info() dialect.Info { return dialect.Info{Name: "openai"} }

// AppendError writes an error as OpenAI does.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte {
	code := p.Named
	if code == "" {
		code = strings.ReplaceAll(strings.ToLower(p.Code), "-", "_")
	}
	o := append(jsonscan.Object(dst), `{"error":{`...).Str("message", p.Message).Str("type", typeOf(p.Status))
	return append(o.Raw("param", nil).Str("code", code), `}}`...)
}

// typeOf is the type of an error with a status.
func typeOf(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= http.StatusInternalServerError:
		return "server_error"
	}
	return "invalid_request_error"
}

// Open reads a request for the events of a response, from its first one or after the one with a number.
func (Dialect) Open(in dialect.Input) (req dialect.Request, err error) {
	if req, err = request(in.Path["response"]); err != nil {
		return req, err
	}
	req.Stream = streamGet
	after := in.Query["starting_after"]
	if len(after) == 0 {
		return req, nil
	}
	n, err := strconv.ParseUint(after[0], 10, 31)
	if err != nil || len(after) > 1 || n >= 1<<31-1 {
		return req, dialect.Refuse(dialect.ErrBadRequest, "starting_after is not one whole number from 0 on")
	}
	req.Cursor.Frames = int(n) + 1
	return req, nil
}

// prefix is what ids of responses begin with.
const prefix = "resp_"

// request is the request for a response by its id.
func request(id string) (req dialect.Request, err error) {
	name, ok := strings.CutPrefix(id, prefix)
	run, nth, more := strings.Cut(name, ".")
	n := 1
	if more {
		n, _ = strconv.Atoi(nth) // 0 is no number of a response
	}
	if !ok || n < 1 || schema.ValidRunID(run) != nil || responseID(run, n) != id {
		return req, dialect.Refuse(dialect.ErrNotFound, "no response has this id")
	}
	return dialect.Request{Run: run, Span: strconv.Itoa(n)}, nil
}

// responseID is the id of the n-th response of a run.
func responseID(run string, n int) string {
	if n == 1 {
		return prefix + run
	}
	return prefix + run + "." + strconv.Itoa(n)
}
