package dialect

import (
	"math"
	"net/http"
	"net/url"
	"strconv"

	"agentstream/schema"
)

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
	Kept     bool      // without a cursor, begin with the first record that is kept, whatever has expired
	// without a cursor, wait for a run that is not there yet: the stream begins, and is silent until the run does
	Await bool
	// the part of the run that the stream is, by its id, where the projectors are Spanners; SpanNewest; "": the whole
	// run
	Span  string
	Child string // set by the edge: the child whose id Run was in what Open returned; Run is its root now
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
	// Frames is how many frames of the span, or of the run, the client of a Stateful projector has, for protocols whose
	// clients count. Those of an Opener do not count, and Seq is not used then. More than there are is a cursor from
	// the future.
	Frames int
	// Step is the step to begin with, when ByStep is set: its index (native §3.5).
	Step   int
	ByStep bool
}

// ParseStep reads the index of a step. The error wraps ErrBadRequest.
func ParseStep(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, BadValue(ErrBadRequest, "from_step", text, "the index of a step, a whole number from 0 to %d",
			math.MaxInt32)
	}
	return int(n), nil
}

// Detail is how finely deltas are delivered.
type Detail byte

// The details.
const (
	DetailDefault Detail = iota // as the dialect's pace has it
	DetailFull                  // every event of the log as it is (native §4 R2)
)
