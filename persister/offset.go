package persister

import (
	"context"
	"errors"
	"time"
)

// Offset is how far one stream of the log is stored. The store keeps it, and moves it in the transaction
// that writes the rows, so that each message is stored once, whoever reads it.
type Offset struct {
	Stream   string
	Identity string    // of the stream: one that was made anew has another; "" when nothing of it is stored
	Position uint64    // everything up to here is stored
	StoredAt time.Time // when the log stored the message at Position, by the log's clock; zero when unknown

	Generation uint64 // counts how often the log came back shorter than what is stored of it, or as another one
}

// Same reports whether two offsets are one place of one stream.
func (o Offset) Same(p Offset) bool {
	return o.Stream == p.Stream && o.Identity == p.Identity && o.Position == p.Position
}

// behind returns the offset behind a message.
func (o Offset) behind(m *Message) Offset {
	o.Position, o.StoredAt = m.Position, m.Stored
	return o
}

// StoredOffset is an offset as a store keeps it.
type StoredOffset struct {
	Offset
	Owner string        // the persister that moved it last
	Idle  time.Duration // since then, by the store's clock
}

// Transfer is one transaction of a persister: what became of some messages, and the offset behind them.
type Transfer struct {
	Chunks      []Chunk
	DeadLetters []DeadLetter // kept with the rows
	From        Offset       // the transaction is refused with ErrOvertaken when the store has another one
	To          Offset       // without a Stream the offset is neither compared nor moved
	Owner       string       // who moves it
}

// Moves reports whether the transfer moves the offset of its stream.
func (t *Transfer) Moves() bool { return t.To.Stream != "" }

// Conflicting returns the dead letters of rows that conflict with stored ones.
func (t *Transfer) Conflicting(conflicts []Conflict) []DeadLetter {
	deadLetters := make([]DeadLetter, len(conflicts))
	for i, c := range conflicts {
		deadLetters[i] = t.Chunks[c.Chunk].Conflict(c.Row)
	}
	return deadLetters
}

// Decisions of a caller about offsets.
var (
	// ErrOvertaken reports that the stored offset is not the one that a transfer moves: another process has
	// stored these messages, or an earlier attempt has, whose answer was lost. Nothing was written.
	ErrOvertaken = errors.New("the offset has moved")
	// ErrBehind reports that the log lacks messages that are stored: it has lost its tail, or is another log.
	ErrBehind = errors.New("the log is behind what is stored of it")
)

// Refiller completes a log that is behind its store.
type Refiller interface {
	// Refill writes into the stream what the store has of its runs and the stream lacks, and returns the
	// offset to go on from: everything up to there is stored.
	Refill(ctx context.Context, stored Offset) (Offset, error)
}

var errConflict = errors.New("another content is stored at this run and seq")
