package persister

import (
	"errors"

	"agentstream/schema"
)

// ErrMoved reports that a run is not any more where it was when it was looked at.
var ErrMoved = errors.New("the run has moved meanwhile")

// Rewritten is an event that is stored with another content than before. Its number, type, child and time are the same.
type Rewritten struct {
	Seq     schema.Seq
	Child   string // lane; "" is the root run itself
	Type    string
	Line    []byte // the whole event without line feed
	Payload []byte // part of Line
	Gone    bool   // its row has left the tables; what is kept beside it may be there
}

// Rewriting is a transaction that replaces the content of events of one run.
type Rewriting struct {
	Key     schema.RunKey
	Was     Place // where the run was when it was looked at
	Ended   bool  // it had ended then
	HeldToo bool  // also when it is under a legal hold
	// URI and Size are of the object that takes the place of the run's one, "" for none. It holds the events up to Archived.
	URI      string
	Size     int64
	Archived schema.Seq
}

// RunTexts is what the row of a run says that is made of its events. Numbers of events say of which one a text is: it
// counts if the row has the same.
type RunTexts struct {
	Digest  Digest
	Naming  Naming
	Session *Session      // all of it; nil: not all of its events are there
	Waits   *schema.Waits // likewise
	// Text and Value return another content of texts and JSON values of which the events are not known.
	Text  func(string) string
	Value func([]byte) []byte
}

// Logged is a message of a run in the log.
type Logged struct {
	Position uint64
	Pack     schema.Pack // the zero Pack where the message is none
	Body     []byte
}
