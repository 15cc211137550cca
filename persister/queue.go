package persister

import (
	"context"
	"time"
)

// Queue reads one partition of the log in order. Seek and Fetch are called from one goroutine at a time, Stream and Lag
// from any goroutine.
type Queue interface {
	// Stream returns the name of the partition's stream.
	Stream() string
	// Seek makes Fetch continue after stored. It returns stored as an offset of the present stream: the stream's
	// beginning when it was created again and is empty, or when nothing is stored. The error wraps ErrBehind when
	// messages that are stored are missing at the stream's end.
	Seek(ctx context.Context, stored Offset) (Offset, error)
	// Fetch waits for the next messages and returns at most what limit allows. It may return none without an error when
	// none arrived for a while, or at once with Limit.NoWait. After an error Seek must be called first.
	Fetch(ctx context.Context, limit Limit) ([]Message, error)
	// Lag returns how far the offset is behind the log.
	Lag(ctx context.Context, stored Offset) (Lag, error)
}

// Steady is implemented by a Queue that knows whether the log may have been replaced since Seek, as when its server was
// away. Same reports that it was not. Otherwise messages that were read are not stored but read again: the log may have
// lost them, and writers may have used their seqs for other events.
type Steady interface {
	Same() bool
}

// Limit bounds one fetch. A queue may exceed Bytes by one message.
type Limit struct {
	Messages int
	Bytes    int
	NoWait   bool // return at once when there are no messages
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

// IsMark reports whether the message only says that the queue has nothing up to its position: a queue of some of the
// messages sends one when it has passed many others.
func (m *Message) IsMark() bool { return m.Subject == "" }

// Lag is how far the store is behind one partition of the log.
type Lag struct {
	Stream   string
	Messages uint64        // approximate number of messages that are in the log and not stored
	Oldest   time.Time     // when the oldest of them was stored, by the log's clock; zero when none
	Window   time.Duration // the log drops messages older than this, stored or not; 0: never
	// part of the log's size, 0 to 1, that new messages may fill before it drops messages that are not stored
	Room    float64
	Bounded bool   // the log's size is bounded: Room is valid
	Lost    uint64 // messages that the log dropped before they were stored, counted since this queue was created
}
