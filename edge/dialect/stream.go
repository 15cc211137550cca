package dialect

// Info describes a dialect.
type Info struct {
	Name string // short, lower case; the value of the attribute "dialect" in logs and metrics
	// Files are encoded FileDescriptorSets that declare its gRPC services, with all that they import.
	Files [][]byte
}

// Stream is one of a protocol's streams: where it is served, and how. A protocol declares each of them once, in its
// registration (protocol.Stream, protocol.Conversation).
type Stream struct {
	Name      string // unique within the protocol; Input.Stream and Request.Stream
	Pattern   string // "GET /v1/agent/runs/{run}/stream"; for gRPC the method's path
	Transport Transport
	Mode      Mode
	Shaped    bool // default detail is folded and paced (native §4)
	// Shared means that the frames of a record depend on that record, on the request and, where projectors are
	// Stateful, on the records before, so that they may be built once for all who ask for the same.
	Shared bool
	// Subprotocols are those that a WebSocket client may open the stream with: the first that it offers is used.
	Subprotocols []string
	// MaxMessage is the largest request message over gRPC, and the largest message of a WebSocket's client, in bytes;
	// 0: what the transport takes.
	MaxMessage int
	// Body are the media types of a request's body, which is read into Input.Body; none: there is no body to be read.
	Body []string
	// Children reports whether a child is opened by its own id as well, where the projectors are Stateful (Request.Child).
	Children bool
	// Latest is how many of the newest records a client is shown that is behind them; what is older its projector, a
	// Stateful, is fed alone. 0: a client is shown all.
	Latest int
	// Publishes means that the client sends events of any number of runs, one on each line, and gets receipts. Over
	// gRPC the dialect is Publishing. The caller needs the scope write.
	Publishes bool
	// Taps means that the client gets the events of all runs of its tenant. The caller needs the scope read.
	Taps bool
	// Backlog is how many events a client may be behind what is live, once it has had everything; its stream ends then
	// with ReasonOverflow. 0: any number.
	Backlog int
}

// Transport names what carries the frames.
type Transport string

// The transports.
const (
	SSE       Transport = "sse"
	WebSocket Transport = "ws"
	GRPC      Transport = "grpc"
	JSONL     Transport = "jsonl"
)

// Mode is how a stream ends when nothing goes wrong (runtime protocol K-STREAM-001, extended to
// all dialects).
type Mode byte

// The modes.
const (
	// ModeA: one generation. A terminal event carries the outcome, then a clean end; a fault before
	// the first event is an HTTP or RPC error instead.
	ModeA Mode = 'A'
	// ModeB: a run, a job. A terminal event, then a clean end.
	ModeB Mode = 'B'
	// ModeC: an export. A last chunk says so, then a clean end.
	ModeC Mode = 'C'
	// ModeD: sessions, threads, feeds. No terminal event: only shutdown, loss of the resource or the
	// client ends it.
	ModeD Mode = 'D'
)

// IsFinite reports whether the stream ends cleanly once the run's terminal event has been sent.
func (m Mode) IsFinite() bool { return m == ModeA || m == ModeB }
