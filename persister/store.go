package persister

import (
	"context"
	"errors"
	"iter"
	"time"

	"agentstream/schema"
)

// ErrPoison reports that an append failed because of its data, so that trying again cannot help. The caller divides the
// batch until it has found the row.
var ErrPoison = errors.New("store refuses the data")

// Store stores rows. Implementations are safe for concurrent use.
type Store interface {
	// Transfer stores the chunks' rows, moves their runs' heads, stores the dead letters, those of conflicts too, and
	// moves the offset, in one transaction: all or nothing. Stored rows are never changed. A row that is stored with
	// another line, or whose run has another day, is reported as a conflict. A run's head never moves backwards. The
	// error wraps ErrOvertaken when the stored offset is not From, and ErrPoison when the data is the reason. A single
	// row fails with ErrPoison only when not even its line can be stored. After any other error the outcome is unknown,
	// and the caller may try again.
	Transfer(ctx context.Context, t *Transfer) (Result, error)
	// Offsets returns the offsets of all streams of which messages are stored.
	Offsets(ctx context.Context) ([]StoredOffset, error)
}

// Chunk is the part of a pack that can be stored: its rows without those that became dead letters, and the head of the
// run after the whole pack.
type Chunk struct {
	Key   schema.RunKey
	Child string // lane; "" is the root run itself
	Head  schema.Head
	Rows  []Row

	from *Message
}

// Source returns where the chunk's message is in the log, and when the log stored it; zero values for a chunk that is
// not from there.
func (c *Chunk) Source() (position uint64, stored time.Time) {
	if c.from == nil {
		return 0, time.Time{}
	}
	return c.from.Position, c.from.Stored
}

// Row is one event with the fields that tables have as columns. Slices are parts of the message.
type Row struct {
	Seq     schema.Seq
	ID      string
	Type    string
	TS      time.Time
	Line    []byte // the whole event without line feed; all else is derived from it
	Payload []byte // part of Line

	plain bool // plainLines has read it: the payload is the only field of its name, the last one, and valid
}

// Result is the result of an append.
type Result struct {
	Inserted  int        // rows that were new
	Repeated  int        // rows that were stored before with the same line
	Dropped   int        // rows at or below their run's floor, or of a deleted run: not written
	Conflicts []Conflict // rows that were not written because another content is stored in their place

	Waited time.Duration // until other transactions of the store had ended, which a smaller transaction does not shorten
}

// Conflict identifies a row by its indexes in the chunks of the transfer.
type Conflict struct {
	Chunk, Row int
}

// Place describes where the events of a run are stored. Its rows begin after Floor. Events at or below it are in the
// blob, except for those that have expired, which are stored nowhere.
//
//	1 ……… Expired │ Expired+1 ……… Floor │ Floor+1 ……… Last
//	    gone              blob alone        rows; up to Archived in the blob as well
type Place struct {
	Day      string     // of the run, which names its partition; "" when there is no such run
	Last     schema.Seq // newest event stored
	Archived schema.Seq // the blob at URI holds the events 1 to Archived; 0: there is no blob
	URI      string
	Floor    schema.Seq // rows up to this one were removed from the tables and are not written again
	Expired  schema.Seq // events up to this one were removed everywhere
	Deleted  bool       // the run was deleted: for readers it does not exist
}

// Keys iterates over keys that a store returns in pages. page returns keys that follow after, in their order, and none
// at the end. The iteration ends with the first error.
func Keys(page func(after schema.RunKey) ([]schema.RunKey, error)) iter.Seq2[schema.RunKey, error] {
	return func(yield func(schema.RunKey, error) bool) {
		var after schema.RunKey
		for {
			keys, err := page(after)
			if err != nil {
				yield(schema.RunKey{}, err)
				return
			}
			for _, key := range keys {
				if !yield(key, nil) {
					return
				}
			}
			if len(keys) == 0 {
				return
			}
			after = keys[len(keys)-1]
		}
	}
}
