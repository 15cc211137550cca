package dialect

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentstream/schema"
)

// Dialect is one wire protocol.
type Dialect interface {
	// Info names the protocol and its streams. It is constant.
	Info() Info
	// Open reads a request. The error wraps ErrBadRequest, schema.ErrBadID or schema.ErrBadCursor;
	// a Request that comes without one has a valid Run.
	Open(in Input) (Request, error)
	// Projector returns the translation for a request that Open returned.
	Projector(req Request) Projector
	// AppendError appends the body, one JSON text, that tells a client of this protocol why its
	// request was refused.
	AppendError(dst []byte, p Problem) []byte
}

// Projector translates the records of one run, in the order of the log, for one kind of client. It
// is a pure state machine: frames depend on the records fed so far and on the Request, on nothing
// else.
type Projector interface {
	// Project appends the frames of the next record, possibly none. They may share memory with the
	// record. An error means that the record cannot be told in this protocol and that going on would
	// hide it; the stream ends with ReasonInternal.
	Project(out *Frames, r schema.Record) error
}

// Stateful is a projector whose frames depend on the records before, of the whole run from its first one. The
// edge brings it up to a place by feeding it silently (Project with a nil Frames keeps the frames to itself),
// and keeps copies, so that this need not begin at the run's first record. A projector that was fed the same
// records is the same, on whatever node.
//
// When the beginning of a run is no longer kept, it is fed from the first record that is.
type Stateful interface {
	Projector
	// For returns a copy that projects for a request, or for nobody in particular when it is zero.
	For(req Request) Stateful
	// Size is about what the copy holds, in bytes.
	Size() int
	// Admit reports whether a request may be served, asked of a projector that was fed the run's newest record. The
	// error wraps ErrNotFound, ErrBadRequest or schema.ErrBadCursor.
	Admit(req Request) error
}

// Opener is a projector whose streams begin with what comes before their place: frames that no record has, an
// acknowledgement or a snapshot, and frames of records before it that a client needs to understand what follows.
type Opener interface {
	// Open appends the first, and may set out.Again for the second. It is asked of a projector that was made for the
	// stream's request, before anything else is sent. The client has everything up to after; a Stateful projector was fed
	// that. It is asked of one that was fed less as well, for out.Again alone.
	Open(out *Frames, after schema.Seq) error
}

// Closer is a projector whose streams end with frames behind the run's last record.
type Closer interface {
	// Close appends them. It is asked where the stream ends with its run.
	Close(out *Frames) error
}

// Decisions of a caller.
var (
	// ErrBadRequest reports that a request's parameters are not what its protocol allows.
	ErrBadRequest = errors.New("bad request")
	// ErrNotFound reports that a part of a run, a thread of a session, say, is not there; or that the whole of it is
	// not to be seen in this protocol any more.
	ErrNotFound = errors.New("there is no such thing")
	// ErrGone reports that what was asked to change can no longer be changed: an archived session.
	ErrGone = errors.New("it can no longer be changed")
	// ErrComplete reports that the client has all that its stream would bring. It is no refusal.
	ErrComplete = errors.New("the client has all of it")
)

// Info describes a dialect.
type Info struct {
	Name    string // short, lower case; the value of the attribute "dialect" in logs and metrics
	Streams []Stream
	// Files are encoded FileDescriptorSets that declare its gRPC services, with all that they import.
	Files [][]byte
}

// Stream is one of a dialect's streams and where it is served.
type Stream struct {
	Name      string // unique within the dialect
	Pattern   string // "GET /v1/agent/runs/{run}/stream"; for gRPC the method's path
	Transport Transport
	Mode      Mode
	Shaped    bool // default detail is folded and paced (native §4)
	// Shared says that the frames of a record depend on that record and on the request alone, so that
	// they may be built once for all who ask for the same.
	Shared bool
	// Subprotocols are those that a WebSocket client may open the stream with: the first that it offers is spoken.
	Subprotocols []string
	// MaxMessage is the largest request message over gRPC, and the largest message of a WebSocket's client, in bytes;
	// 0: what the transport takes.
	MaxMessage int
	// ByAccept reports whether the stream is served to those who name its media type in Accept; all others get what else
	// answers the path.
	ByAccept bool
	// Body are the media types of a request's body, which is read into Input.Body; none: there is no body to be read.
	Body []string
	// Children reports whether a child is opened by its own id as well, where the projectors are Stateful (Request.Child).
	Children bool
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

// Mode says how a stream ends when nothing goes wrong (runtime protocol K-STREAM-001, extended to
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

// EndsWithRun reports whether the stream ends cleanly once the run's terminal event has been sent.
func (m Mode) EndsWithRun() bool { return m == ModeA || m == ModeB }

// Input is what a request brings, whatever carried it. A dialect reads and never changes it.
type Input struct {
	Stream string            // Stream.Name
	Path   map[string]string // values of the pattern's {names}, unescaped and unchecked
	Query  url.Values
	Header http.Header // metadata, for gRPC
	Body   []byte      // request body, subscribe message or request message; nil when there is none
}

// Request is the parsed result of Open: who wants what from where. Requests that are
// equal in Run, Filter, Detail, Bundle, Form, Span and Stream are made the same frames and may share them.
type Request struct {
	Run      string // root run, session or thread, or a child of one; passed schema.ValidRunID
	Cursor   Cursor
	Filter   Filter
	Detail   Detail
	Stream   string    // Stream.Name
	Bundle   bool      // deltas of lanes that speak at the same time may come in one event
	Snapshot bool      // begin with the fold of everything up to the newest event, when there is no cursor
	Speed    float64   // replay with the original timing, so many times faster; 0: as fast as it goes
	Form     string    // what else decides the frames; requests that differ in it share none
	Select   Selection // which of the frames are shown; nil: all
	Newest   bool      // without a cursor, begin behind the newest event
	Await    bool      // without a cursor, wait for a run that is not there yet: the stream begins, and is silent until the run does
	Span     string    // the part of the run that the stream is, by its id, where the projectors are Spanners; "": the whole run
	Child    string    // set by the edge: the child whose id Run was in what Open returned; Run is its root now
}

// Filter says which events of a run a client wants. What is left out is explained to it by first_seq.
// The zero Filter is everything. Both lists are sorted and without doubles. The root's terminal event
// passes every filter: a client must see the end.
type Filter struct {
	Children []string // lanes; schema.RootLane is the run itself; nil: all
	Types    []string // names of event types; nil: all
	Nested   bool     // Children stand for all that is below them as well
	Agent    bool     // without the words of others than the agent: deltas of an actor that is a user, a system or a tool
}

// Key is the filter as one text: equal for filters that mean the same.
func (f Filter) Key() string {
	if f.All() {
		return ""
	}
	nested := ""
	if f.Nested {
		nested = "+"
	}
	agent := ""
	if f.Agent {
		agent = ";agent"
	}
	return strings.Join(f.Children, ",") + nested + ";" + strings.Join(f.Types, ",") + agent
}

// All reports whether nothing is left out.
func (f Filter) All() bool { return len(f.Children) == 0 && len(f.Types) == 0 && !f.Agent }

// HasType reports whether Types shows a type.
func (f Filter) HasType(name string) bool {
	return len(f.Types) == 0 || slices.ContainsFunc(withNative(f.Types), func(t string) bool {
		family, all := strings.CutSuffix(t, "*")
		return t == name || all && strings.HasPrefix(name, family)
	})
}

// Cursor is where to begin: behind the event that the client has. The zero Cursor is the start.
type Cursor struct {
	Seq schema.Seq // position, when ID and Token are empty
	ID  string     // event id, for protocols that resume by id; passed schema.ValidEventID
	// Token is that of a frame which a Stateful projector makes: the frame itself is looked for, from the record
	// at Seq on, and the client has everything up to it. One that is not there is a bad cursor.
	Token string
	Later bool // the frame may come with a record behind Seq
	// Place is where a client of a Stateful projector is, whatever it was shown of it; Seq is not used then.
	Place Place
	// Step is the step to begin with, when ByStep is set: its index (native §3.5).
	Step   int
	ByStep bool
}

// ParseStep reads the index of a step. The error wraps ErrBadRequest.
func ParseStep(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("step is not the index of one: %w", ErrBadRequest)
	}
	return int(n), nil
}

// Detail says how finely deltas are delivered.
type Detail byte

// The details.
const (
	DetailDefault Detail = iota // as the dialect's pace has it
	DetailFull                  // every event of the log as it is (native §4 R2)
)

// Problem is a refused request, for AppendError. Fields that do not apply are zero.
type Problem struct {
	Reason    Reason
	Status    int        // HTTP status
	Code      string     // KAI-STREAM-… where the native protocol has one (native §8)
	Named     string     // the code that the protocol itself has given it, by an error with a method Named; "": none
	Message   string     // for people; never holds another caller's data
	Line      int        // line of an NDJSON body or position in a JSON array, from 1
	Field     string     // JSON pointer into the event
	First     schema.Seq // first seq that is still kept, with ReasonExpired, when known
	Last      schema.Seq // newest seq, with ReasonFuture, ReasonState and ReasonCondition, when known
	Stored    int        // events of a refused batch, from its first, that are stored all the same
	RequestID string
}
