package protocol

import (
	"net/http"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
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
	// Streams say of the dialect's streams, by Stream.Name, what a translation cannot; one that is not named has the zero
	// value's.
	Streams map[string]Stream
	// Unread returns the feed of which an event, stored in a run by anybody, is one that no client of the protocol is shown; "" for
	// none. It is for metrics alone, and is asked for each event that this edge stores. nil: the protocol has no feeds.
	Unread func(run string, e *schema.Event) string
	// Below are the beginnings of paths ("/v1/sessions") where also what is no route is refused in the dialect's words.
	Below []string

	// Envelope returns what is wrong with the form of a call of gRPC, which is then told to callers who may not call, in the place of
	// that. Stream of the input is the method, "/package.Service/Method". nil: they hear that they may not. What others send is read by
	// who serves it.
	Envelope func(dialect.Input) error
	// Coding is how its messages of gRPC hold what handlers read and write.
	Coding Coding
	// Key is a header, in its canonical form, in which clients may send the credential that others send as a bearer token in
	// Authorization; "" is none.
	Key string
	// Ticket is how the protocol has its tickets.
	Ticket Ticket
	// KeepAlive is the silence after which the protocol's streams and conversations show a sign of life; 0: edge.Config's.
	KeepAlive time.Duration
	// Slow is how long a write to a stream over gRPC may take. A client that takes longer gets the frame that ends the stream
	// (dialect.Frame.Last), if the log has its record already, and the stream ends with dialect.ErrSlowClient. 0: there is only the
	// time-out of writes, behind which the stream is reset.
	Slow time.Duration
	// RequestID is the header, in its canonical form, in which the protocol's clients look for the request's id, besides
	// X-Request-Id; "" is none.
	RequestID string
	// Header is put into every answer: over gRPC into the leading metadata. Names are in their canonical form.
	Header http.Header
	// Refused adds headers to a refusal; nil adds none.
	Refused func(h http.Header, err error)
	// LastWords may change what is sent at the end of a stream, a conversation or a unary RPC; nil changes nothing.
	// It is asked for the end of a run too, and where a gRPC call is refused: begun reports whether the stream had been
	// answered.
	LastWords func(st dialect.Stream, why dialect.Problem, begun bool, end *transport.End)
	// Allow and Expose are headers that pages of other origins may send and read, besides those of every route.
	Allow, Expose []string
}

// Ticket is how a protocol has its tickets: tokens that open one stream (a GET) or conversation of one run once, for clients
// that can set no header. Call.Ticket makes them.
type Ticket struct {
	Param string // of the query, in which one stands; "" is "ticket"
	auth.Terms
}

// Stream is what a protocol says of one of its dialect's streams, besides dialect.Stream. The zero value is a stream
// that is read.
type Stream struct {
	Needs auth.Scope // of the caller; 0: auth.ScopeRead. Begin needs auth.ScopeWrite as well.
	// Begin does what comes before the stream, and reads the request in the place of the dialect's Open; nil: that does
	// it. What it writes counts against the tenant's limits. Its error is answered as a route's. It returns where the
	// stream begins. A client that was cut off comes again with the same Idempotency-Key.
	Begin func(*Call, dialect.Input) (dialect.Request, error)
	// Serve is in the place of all that reads a run, for gRPC streams that are no run's: it sends messages until it returns. nil: the
	// stream is a run's. Its error is how the stream ends; the context of Call ends with the client, or when the node ends the
	// stream.
	Serve func(*Call, dialect.Input, Sending) error
	// Admit decides whether a stream that is read may be opened, before anything is opened, and may change where it begins; nil: the
	// dialect's Open has decided. Its error is answered as a route's.
	Admit func(*Call, *dialect.Request) error
	// Around serves a stream of gRPC that reads a run, by calling serve once, and returns its error. It may do something beside that and
	// behind it. nil: serve is called.
	Around func(c *Call, req dialect.Request, serve func() error) error
	// Complete answers a client of SSE that has all that the stream would bring; nil: 204.
	Complete func(*Call) error
	// Format is how SSE is written; nil: sse.Plain.
	Format *sse.Format
	// KeepAlive is in the place of Protocol.KeepAlive; 0: that.
	KeepAlive time.Duration
	// Missed is the comment that informs a client without a cursor how many records are no longer kept, where there are any
	// (dialect.Request.Kept). Replayed is the one behind all that there was when the stream was opened; it gets the newest
	// record that was looked at, 0 for a run that is not there yet. Only SSE has comments. nil: there is none.
	Missed, Replayed func(schema.Seq) string
	// Heartbeat is the sign of life, in the form of the stream's other frames; nil: the transport's own, which is a comment, or
	// the ping of WebSocket or HTTP/2. One with a token would move the client's cursor.
	Heartbeat *dialect.Frame
}

// Sending is what a stream that is no run's is sent with.
type Sending struct {
	Send    func(message []byte) error // returns when it is written
	Closing <-chan struct{}            // is closed when the node begins to go away, at the latest when it ends the stream
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
	Anywhere   bool       // is about no run, and answers also who has a credential for one run alone
	// Serve reads Call.Message and answers by Call.Reply, or returns an error that the table of ends knows.
	Serve func(*Call) error
}
