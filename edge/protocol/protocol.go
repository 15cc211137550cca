package protocol

import (
	"net/http"
	"strings"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/schema"
)

// Protocol is all that a wire protocol brings to an edge. It is handed in by cmd and never changed.
type Protocol struct {
	// Dialect reads the requests for streams, translates records into frames, and words refusals.
	Dialect dialect.Dialect
	// Streams are all that is streamed, each once.
	Streams []Stream
	// Routes are what is answered besides the streams. Where a route and a stream share a method and a path, Stream.Asked
	// decides.
	Routes []Route
	// Conversations are the WebSockets on which clients send messages.
	Conversations []Conversation
	// Unread returns the feed of which an event, stored in a run by anybody, is one that no client of the protocol is
	// shown; "" for none. It is for metrics alone, and is asked for each event that this edge stores. nil: the protocol
	// has no feeds.
	Unread func(run string, e *schema.Event) string
	// Below are the beginnings of paths ("/v1/sessions") where also what is no route is refused in the dialect's words.
	Below []string

	// Envelope returns what is wrong with the form of a call of gRPC, which is then told to callers who may not call,
	// in the place of that. Stream of the input is the method, "/package.Service/Method". nil: they hear that they may
	// not. What others send is read by who serves it.
	Envelope func(dialect.Input) error
	// Key is a header, in its canonical form, in which clients may send the credential that others send as a bearer
	// token in Authorization; "" is none.
	Key string
	// Ticket is how the protocol has its tickets.
	Ticket Ticket
	// KeepAlive is the silence after which the protocol's streams and conversations show a sign of life; 0: edge.Config's.
	KeepAlive time.Duration
	// Slow is how long a write to a stream over gRPC may take. A client that takes longer gets the frame that ends the
	// stream (dialect.Frame.Last), if the log has its record already, and the stream ends with dialect.ErrSlowClient.
	// 0: there is only the time-out of writes, behind which the stream is reset.
	Slow time.Duration
	// RequestID is the header, in its canonical form, in which the protocol's clients look for the request's id, besides
	// X-Request-Id; "" is none.
	RequestID string
	// Header is put into every answer: over gRPC into the leading metadata. Names are in their canonical form.
	Header http.Header
	// Words writes a refusal in the form of its request, for protocols that have several; nil: it is JSON, as the
	// dialect words it.
	Words func(*http.Request, dialect.Problem) (mediaType string, body []byte)
	// Refused adds headers to a refusal; nil adds none.
	Refused func(h http.Header, err error)
	// LastWords may change what is sent at the end of a stream, a conversation or a unary RPC; nil changes nothing.
	// It is asked for the end of a run too, and where a gRPC call is refused: begun reports whether the stream had been
	// answered.
	LastWords func(st dialect.Stream, why dialect.Problem, begun bool, end *transport.End)
	// Allow and Expose are headers that pages of other origins may send and read, besides those of every route.
	Allow, Expose []string
}

// Ticket is how a protocol has its tickets: tokens that open one stream (a GET) or conversation of one run once, for
// clients that can set no header. Call.Ticket makes them.
type Ticket struct {
	Param string // of the query, in which one stands; "" is "ticket"
	auth.Terms
}

// Stream is one stream of a protocol. A field that is zero adds nothing.
type Stream struct {
	dialect.Stream
	// Needs is the scope of the caller; 0: auth.ScopeRead. Begin needs auth.ScopeWrite as well.
	Needs auth.Scope
	// Asked reports whether a request wants the stream where a route answers the same method and path with an object.
	// All that the request says may decide: query, body, Accept (IsStreamAccepted). It is asked before anything else
	// reads the request, which may be malformed. With Body, which is read first, the scopes of the route must be those
	// of the stream. nil: no route shares the path.
	Asked func(dialect.Input) bool
	// Begin does what comes before the stream, and reads the request in the place of the dialect's Open; nil: that does
	// it. What it writes counts against the tenant's limits. Its error is answered as a route's. It returns where the
	// stream begins. A client that was cut off comes again with the same Idempotency-Key.
	Begin func(*Call, dialect.Input) (dialect.Request, error)
	// Serve is in the place of all that reads a run, for gRPC streams that are no run's: it sends messages until it
	// returns. nil: the stream is a run's. Its error is how the stream ends; the context of Call ends with the client,
	// or when the node ends the stream.
	Serve func(*Call, dialect.Input, Sending) error
	// Admit decides whether a stream that is read may be opened, before anything is opened, and may change where it
	// begins; nil: the dialect's Open has decided. Its error is answered as a route's; dialect.ErrComplete says that
	// there is nothing to be streamed.
	Admit func(*Call, *dialect.Request) error
	// Prelude returns the frames that the stream begins with at its seam, after those of a dialect.Opener and before
	// any of a record. All that this one request says may decide, and the run as it is at the seam: they go to this
	// client alone, so all else is still shared with whoever asks for the same. One with a token moves the client's
	// cursor. Its error is answered as a route's. nil: there are none.
	Prelude func(*Call, Seam) ([]dialect.Frame, error)
	// CaughtUp returns the frame that is sent once the client has everything that there was when the stream was opened.
	// last is the newest record that was looked at, 0 for a run that is not there yet. nil: there is none.
	CaughtUp func(last schema.Seq) dialect.Frame
	// Around serves a stream of gRPC that reads a run, by calling serve once, and returns its error. It may do
	// something meanwhile and after that. nil: serve is called.
	Around func(c *Call, req dialect.Request, serve func() error) error
	// Complete answers a client of SSE that has all that the stream would bring; nil: 204. It may read the body once more.
	Complete func(*Call) error
	// Format is how SSE is written; nil: sse.Plain.
	Format *sse.Format
}

// Seam is where a stream begins: what its client has ends there, and all that follows comes from the log.
type Seam struct {
	Input   dialect.Input   // the request as it came
	Request dialect.Request // as it was opened: Child and Span are what was found
	After   schema.Seq      // the last record that the client has
	Last    schema.Seq      // the newest record when the stream was opened
	// records before it that are no longer kept, of a client without a cursor (dialect.Request.Kept)
	Missed schema.Seq
	// State is a copy of the projector that was fed everything up to After; nil where the dialect's have no state.
	State dialect.Stateful
}

// IsStreamAccepted reports whether a request names the media type of server-sent events in Accept. A client
// that accepts anything does not. It is a Stream.Asked.
func IsStreamAccepted(in dialect.Input) bool {
	for _, line := range in.Header["Accept"] {
		for part := range strings.SplitSeq(line, ",") {
			name, _, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), "text/event-stream") {
				return true
			}
		}
	}
	return false
}

// AllStreams returns the streams of a protocol, those of its conversations included.
func (p Protocol) AllStreams() (list []dialect.Stream) {
	for i := range p.Streams {
		list = append(list, p.Streams[i].Stream)
	}
	for i := range p.Conversations {
		list = append(list, p.Conversations[i].Stream)
	}
	return list
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
