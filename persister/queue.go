package persister

import (
	"context"
	"time"
)

// Queue is one partition of the log, seen as a queue of messages that wait for the store.
// Implementations are safe for concurrent use.
type Queue interface {
	// Fetch waits for messages and gives at most what limit allows, in the order of the log. It may
	// return none without an error when nothing came for a while, or at once when limit says so. A
	// message that is neither acknowledged nor released is handed out again some time later.
	Fetch(ctx context.Context, limit Limit) ([]Message, error)
	// Ack confirms that the messages are kept elsewhere, and returns when the queue has recorded it.
	// It must confirm these messages only, never one that another fetcher holds.
	Ack(ctx context.Context, msgs []Message) error
	// Release gives messages back unconfirmed, to be handed out again soon.
	Release(ctx context.Context, msgs []Message) error
	// Lag says how far the store is behind the log.
	Lag(ctx context.Context) (Lag, error)
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
	Token    string // the queue's own, to acknowledge it
}

// Lag is how far the store is behind one partition of the log.
type Lag struct {
	Stream   string
	Messages uint64        // stored by the log, not yet confirmed
	Oldest   time.Time     // when the oldest of them was stored, by the log's clock; zero when none
	Window   time.Duration // the log drops messages older than this, confirmed or not; 0: never
	Room     float64       // part of the log's size that new messages may fill before it drops what is not confirmed, 0 to 1
	Bounded  bool          // the log's size is bounded: Room means something
	Lost     uint64        // messages that the log dropped unconfirmed, counted by this queue since it was made
}

// Holder is a Queue that hands messages out again after a while, and can be told to wait.
type Holder interface {
	// Hold says that the messages are worked on: their time begins anew.
	Hold(ctx context.Context, msgs []Message) error
	// Patience is how long a message may be held without a word; 0: for ever.
	Patience() time.Duration
}

// Shared is a Queue that several processes serve in turn. While it is another's turn, Fetch waits and
// gives nothing.
type Shared interface {
	Ours() bool
}
