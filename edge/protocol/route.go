package protocol

import (
	"net/http"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
)

// Protocol is all that a wire protocol brings to an edge. It is handed in by cmd and never changed.
type Protocol struct {
	// Dialect names the streams, reads the requests for them, translates records into frames, and words refusals.
	Dialect dialect.Dialect
	// Routes are what is answered beside the streams. Where a route and a stream share a path, the stream is served to
	// those who name its media type.
	Routes []Route
	// Below are the beginnings of paths ("/v1/sessions") where also what is no route is refused in the dialect's words.
	Below []string

	// RequestID is the header, in its canonical form, in which the protocol's clients look for the request's id, besides
	// X-Request-Id; "" is none.
	RequestID string
	// Refused adds headers to a refusal; nil adds none.
	Refused func(h http.Header, err error)
	// Allow and Expose are headers that pages of other origins may send and read, besides those of every route.
	Allow, Expose []string
}

// Route is one path of a protocol.
type Route struct {
	Pattern string     // "POST /v1/sessions/{run}/events"; {run} is a run's id wherever one stands
	Needs   auth.Scope // of the caller; not 0
	Writes  bool       // counts against the tenant's limits
	// Serve answers by Call.Reply, or returns an error that the table of ends knows.
	Serve func(*Call) error
}
