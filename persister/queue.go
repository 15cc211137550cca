package persister

import (
	"context"
	"time"
)

// Queue reads one partition of the log in its order. A pipeline uses Seek and Fetch from one goroutine at a
// time; Stream and Lag may be called from any.
type Queue interface {
	// Stream returns the name of the partition's stream.
	Stream() string
	// Seek makes Fetch go on behind stored, and returns stored as it is in the stream that is there now: its
	// beginning when the stream was made anew and is empty, or when nothing is stored. The error wraps
	// ErrBehind when messages that are stored are missing at the stream's end.
	Seek(ctx context.Context, stored Offset) (Offset, error)
	// Fetch waits for the next messages and returns at most what limit allows. It may return none without an
	// error when nothing came for a while, or at once when limit says so. After an error Seek comes first.
	Fetch(ctx context.Context, limit Limit) ([]Message, error)
	// Lag returns how far stored is behind the log.
	Lag(ctx context.Context, stored Offset) (Lag, error)
}

// Steady is a Queue that can tell whether the log may have become another one since Seek, as when its server was away.
// What was read before is then not stored, but read again: others may have numbered on from a log that has lost it.
type Steady interface {
	Same() bool
}

// Limit bounds one fetch. A queue may exceed Bytes by one message.
type Limit struct {
	Messages int
	Bytes    int
	NoWait   bool // nothing there: return at once
}

// Message is one stored message of the log. Body must not be changed.
type Message struct {
	Stream   string    // name of the partition's stream
	Position uint64    // place in that stream
	Stored   time.Time // when the log stored it, by the log's clock
	Subject  string
	Header   map[string][]string
	Body     []byte
}

// Lag is how far the store is behind one partition of the log.
type Lag struct {
	Stream   string
	Messages uint64        // stored by the log and not by the store, about
	Oldest   time.Time     // when the oldest of them was stored, by the log's clock; zero when none
	Window   time.Duration // the log drops messages older than this, stored or not; 0: never
	Room     float64       // part of the log's size that new messages may fill before it drops what is not stored, 0 to 1
	Bounded  bool          // the log's size is bounded: Room means something
	Lost     uint64        // messages that the log dropped before they were stored, counted by this queue since it was made
}
