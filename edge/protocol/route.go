package protocol

import (
	"net/http"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// Protocol is all that a wire protocol brings to an edge. It is handed in by cmd and never changed.
type Protocol struct {
	// Dialect names the streams, reads the requests for them, translates records into frames, and words refusals.
	Dialect dialect.Dialect
	// Routes are what is answered beside the streams. Where a route and a stream share a path, the stream is served to
	// those who name its media type.
	Routes []Route
	// Conversations are the WebSockets on which clients send messages.
	Conversations []Conversation
	// Below are the beginnings of paths ("/v1/sessions") where also what is no route is refused in the dialect's words.
	Below []string

	// RequestID is the header, in its canonical form, in which the protocol's clients look for the request's id, besides
	// X-Request-Id; "" is none.
	RequestID string
	// Refused adds headers to a refusal; nil adds none.
	Refused func(h http.Header, err error)
	// LastWords may change what a client is told at the end of a stream, a conversation or a unary RPC; nil changes nothing.
	// It is asked for the end of a run too, and where a gRPC call is refused: begun reports whether the stream had been
	// answered.
	LastWords func(st dialect.Stream, why dialect.Problem, begun bool, end *transport.End)
	// Allow and Expose are headers that pages of other origins may send and read, besides those of every route.
	Allow, Expose []string
}

// Route is one request with one answer: an HTTP path of a protocol, a unary RPC, or both.
type Route struct {
	Pattern string // "POST /v1/sessions/{run}/events"; {run} is a run's id wherever one stands; "": an RPC alone
	// RPC is the path of a unary gRPC method, "/package.Service/Method", of a service that Dialect.Info().Files declares;
	// "" is none.
	RPC string
	// MaxMessage is the largest message of Call.Message, in bytes; 0: what the transport takes.
	MaxMessage int
	Needs      auth.Scope // of the caller; not 0
	Writes     bool       // counts against the tenant's limits
	// Serve reads Call.Message and answers by Call.Reply, or returns an error that the table of ends knows.
	Serve func(*Call) error
}
