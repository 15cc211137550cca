package dialect

import (
	"errors"

	"agentstream/schema"
)

// Dialect is one wire protocol.
type Dialect interface {
	// Info names the protocol. It is constant.
	Info() Info
	// Open reads a request. The error wraps ErrBadRequest, schema.ErrBadID or schema.ErrBadCursor;
	// a Request that comes without one has a valid Run.
	Open(in Input) (Request, error)
	// Projector returns the translation for a request that Open returned.
	Projector(req Request) Projector
	// AppendError appends the body, one JSON text, that informs a client of this protocol why its
	// request was refused.
	AppendError(dst []byte, p Problem) []byte
}

// Projector translates the records of one run, in the order of the log, for one kind of client. It
// is a pure state machine: frames depend on the records fed so far and on the Request, on nothing
// else.
type Projector interface {
	// Project appends the frames of the next record, possibly none. They may share memory with the
	// record. An error means that the record cannot be expressed in this protocol and that going on would
	// hide it; the stream ends with ReasonInternal.
	Project(out *Frames, r schema.Record) error
}

// ProjectorFunc is a function as a Projector without a state.
type ProjectorFunc func(out *Frames, r schema.Record) error

// Project calls f.
func (f ProjectorFunc) Project(out *Frames, r schema.Record) error { return f(out, r) }

// Stateful is a projector whose frames depend on the records before, of the whole run from its first one. The
// edge brings it up to a place by feeding it silently (Project with a nil Frames keeps the frames to itself),
// and keeps copies, so that this need not begin at the run's first record. A projector that was fed the same
// records is the same, on whatever node.
//
// When the beginning of a run is no longer kept, it is fed from the first record that is.
type Stateful interface {
	Projector
	// For returns a copy that projects for a request, or for nobody in particular when it is zero. Copies of one that is
	// not fed meanwhile may be made at the same time.
	For(req Request) Stateful
	// Size is about what the copy holds, in bytes.
	Size() int
	// Admit reports whether a request may be served, asked of a projector that was fed the run's newest record. The
	// error wraps ErrNotFound, ErrBadRequest or schema.ErrBadCursor.
	Admit(req Request) error
}

// Foreteller is a Stateful projector of a protocol that names events before they come.
type Foreteller interface {
	// Foretold reports whether the event with a cursor's token is named and still to come, asked of a projector that
	// was fed the run's newest record. A client that goes on with it has what was sent until now.
	Foretold(token string) bool
}

// Spanner is a Stateful projector of a protocol that has streams of spans.
type Spanner interface {
	// Span finds the one that a request names (Request.Span), or the newest one for SpanNewest, asked of a projector
	// that was fed the run's newest record. The stream begins with its first record, and the projector ends it
	// (Frame.Last).
	Span(req Request) Span
}

// Opener is a projector whose streams begin with what comes before their place: frames that no record has, an
// acknowledgement or a snapshot, and frames of records before it that a client needs to understand what follows.
type Opener interface {
	// Open appends the first, and may set out.Again for the second. It is asked of a projector that was made for the
	// stream's request, before anything else is sent. The client has everything up to after; a Stateful projector was fed
	// that. It is asked of one that was fed less as well, for out.Again alone.
	Open(out *Frames, after schema.Seq) error
}

// Decisions of a caller.
var (
	// ErrBadRequest reports that a request's parameters are not what its protocol allows.
	ErrBadRequest = errors.New("bad request")
	// ErrUnprocessable reports a request that is understood and asks for what there is not; protocols that tell it from
	// ErrBadRequest answer 422.
	ErrUnprocessable = errors.New("it asks for what there is not")
	// ErrNotFound reports that a part of a run, a thread of a session, say, is not there; or that the whole of it is
	// not to be seen in this protocol any more.
	ErrNotFound = errors.New("there is no such thing")
	// ErrGone reports that what was asked to change can no longer be changed: an archived session.
	ErrGone = errors.New("it can no longer be changed")
	// ErrComplete reports that the client has all that its stream would bring. It is no refusal.
	ErrComplete = errors.New("the client has all of it")
)
