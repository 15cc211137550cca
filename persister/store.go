package persister

import (
	"context"
	"errors"
	"time"

	"agentstream/schema"
)

// ErrPoison reports that the data itself, not the store's condition, is why an append failed: trying
// the same again cannot help. The caller divides the batch until the one row is found.
var ErrPoison = errors.New("store refuses the data")

// Store keeps rows for good. Implementations are safe for concurrent use.
type Store interface {
	// Transfer writes the chunks' rows, moves their runs' heads, keeps the dead letters, those of conflicts
	// too, and moves the offset, in one transaction: all or nothing. A row that is there already with the
	// same line is left as it is; one with another line, or of a run that has another day, is left as it is
	// too and reported as a conflict. A run's head never moves backwards. The error wraps ErrOvertaken when
	// the stored offset is not From, and ErrPoison when it is about the data; a single row is refused with
	// that only when not even its line can be kept. After any other error the outcome is unknown, and the
	// caller may try again.
	Transfer(ctx context.Context, t *Transfer) (Result, error)
	// Offsets returns the offsets of all streams of which something is stored.
	Offsets(ctx context.Context) ([]StoredOffset, error)
}

// Chunk is what of one pack can be stored: its rows without those that were set aside, and the
// head of the run after the whole pack.
type Chunk struct {
	Key   schema.RunKey
	Child string // lane; "" is the root run itself
	Head  schema.Head
	Rows  []Row

	from *Message
}

// Row is one event, taken apart as far as tables need it. Slices are parts of the message.
type Row struct {
	Seq     schema.Seq
	ID      string
	Type    string
	TS      time.Time
	Line    []byte // the whole event without line feed: the truth
	Payload []byte // part of Line
}

// Result is what an append did.
type Result struct {
	Inserted  int        // rows that were new
	Repeated  int        // rows that were there, with the same line
	Dropped   int        // rows at or below their run's floor, or of a run that is to be forgotten: not written
	Conflicts []Conflict // rows that were not written because another content holds their place
}

// Conflict names a row by its place in the chunks that were handed in.
type Conflict struct {
	Chunk, Row int
}
