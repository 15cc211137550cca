package persister

import (
	"context"
	"errors"
	"time"
)

// Offset is the position up to which a stream of the log is stored. The store keeps it and moves it in the transaction
// that writes the rows. So each message is stored once, whichever process reads it.
type Offset struct {
	Stream   string
	Identity string    // of the stream: one that was created again has another; "" when nothing of it is stored
	Position uint64    // all messages up to this one are stored
	StoredAt time.Time // when the log stored the message at Position, by the log's clock; zero when unknown

	Generation uint64 // number of times that the log came back without messages that are stored, or as another log
}

// Same reports whether two offsets are the same position of the same stream.
func (o Offset) Same(p Offset) bool {
	return o.Stream == p.Stream && o.Identity == p.Identity && o.Position == p.Position
}

// behind returns the offset after a message.
func (o Offset) behind(m *Message) Offset {
	o.Position, o.StoredAt = m.Position, m.Stored
	return o
}

// StoredOffset is an offset as a store keeps it.
type StoredOffset struct {
	Offset
	Owner string        // the persister that moved it last
	Idle  time.Duration // since it was moved, by the store's clock
}

// Transfer is one transaction of a persister: the contents of some messages, and the offset after them.
type Transfer struct {
	Chunks      []Chunk
	DeadLetters []DeadLetter // stored with the rows
	From        Offset       // when the store has another one, the transaction fails with ErrOvertaken
	To          Offset       // without a Stream the offset is neither compared nor moved
	Owner       string       // the persister that moves it
	Losses      []Loss       // recorded with it, like RunLosses; one that is recorded already is skipped
	RunLosses   []RunLoss
}

// ShouldMoveOffset reports whether the transfer moves the offset of its stream.
func (t *Transfer) ShouldMoveOffset() bool { return t.To.Stream != "" }

// Conflicting returns the dead letters of rows that conflict with stored ones.
func (t *Transfer) Conflicting(conflicts []Conflict) []DeadLetter {
	deadLetters := make([]DeadLetter, len(conflicts))
	for i, c := range conflicts {
		deadLetters[i] = t.Chunks[c.Chunk].Conflict(c.Row)
	}
	return deadLetters
}

// Errors about offsets.
var (
	// ErrOvertaken reports that the stored offset is not Transfer.From: another process has stored these messages, or an
	// earlier attempt whose answer was lost. Nothing was written.
	ErrOvertaken = errors.New("the offset has moved")
	// ErrBehind reports that the log lacks messages that are stored: it has lost its newest messages, or is another log.
	ErrBehind = errors.New("the log is behind what is stored of it")
)

// Refiller completes a log that is behind its store.
type Refiller interface {
	// Refill writes the events to the stream that the store has of its runs and the stream lacks. It returns the offset
	// to continue from: all messages up to it are stored.
	Refill(ctx context.Context, stored Offset) (Offset, error)
}

var errConflict = errors.New("another content is stored at this run and seq")
