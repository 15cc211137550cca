package protocol

import (
	"cmp"
	"fmt"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
)

// MaxSubscriptions is how many subscriptions a conversation may allow.
const MaxSubscriptions = 64

// Conversation is a WebSocket on which clients send messages, which are answered, and hold subscriptions: streams of
// runs whose frames go to the same connection. Its handlers are called one at a time for each connection; while one
// runs nothing more is read from it. Their messages and the frames of subscriptions leave in one order.
type Conversation struct {
	// Stream names the conversation and says how its subscriptions are served: Name, Pattern ("GET /v1/talk"), Mode,
	// Shaped, Shared, Subprotocols and MaxMessage count.
	dialect.Stream
	Needs auth.Scope // of who opens it; not 0
	// Late means that who may not open it is refused after the upgrade, by a close code.
	Late bool
	// Subscriptions is how many a connection may hold at a time, at most MaxSubscriptions; 0: none.
	Subscriptions int
	// Once means that a frame which several subscriptions of a run show comes once: those that differ in their
	// selections alone are one stream. One that joins gets its own replay first, in full, while the others wait; they
	// go on together behind that. Their cursors are seqs or places. Such streams have no opening frames
	// (dialect.Opener).
	Once bool
	// Gather is how long a subscription waits for others to begin with it, so that their replays are one as well; 0: not.
	Gather time.Duration
	// Patience is how long a client may take, from the upgrade on, until a handler calls Talk.Await; 0: for ever. TimedOut
	// is what it gets then; the zero value: what the table of ends has for a time-out.
	Patience time.Duration
	TimedOut Close
	// Heartbeat shows signs of life in the protocol's own frames, in place of the pings of WebSocket.
	Heartbeat Heartbeat

	// Opened is called after the upgrade, with the request that asked for it; nil does nothing.
	Opened func(*Talk) error
	// Received is called with each message, valid UTF-8. An error is sent as the dialect's AppendError has it, and the
	// conversation goes on; but *Close, and what is no fault of the message, ends it.
	Received func(t *Talk, message []byte) error
	// Malformed is called with what is no message for Received, and with the close that its client would get: 1009 for
	// one that is too large, 1003 for one that is not text, 1007 for text that is not UTF-8, 1002 for what is no frame.
	// The message is passed over, and an error counts as one of Received; but behind 1002, and behind binary data in
	// the midst of a text, the conversation ends whatever is returned: with a *Close, or with bad. nil: it ends with
	// bad.
	Malformed func(t *Talk, bad *Close) error
	// Ended is called when a subscription has ended by itself: err is nil at the end of its run. An error that it
	// returns counts as one of Received. nil: the conversation ends with err, and goes on when that is nil.
	Ended func(t *Talk, subscription string, err error) error
	// Closing is called when the conversation is over, before the client is told: it may still Send. nil does nothing.
	Closing func(t *Talk, err error)
}

// Validate checks what can be checked before anybody calls.
func (v *Conversation) Validate() error {
	if v.Needs == 0 || v.Received == nil || v.Subscriptions < 0 || v.Subscriptions > MaxSubscriptions || v.Patience < 0 {
		return fmt.Errorf("conversation %s: needs a scope and Received, and 0 to %d subscriptions", v.Name, MaxSubscriptions)
	}
	if b := v.Heartbeat; b.Every < 0 || b.Misses < 0 || b.Every > 0 && b.Send == nil {
		return fmt.Errorf("conversation %s: a heartbeat needs Send, and no negative numbers", v.Name)
	}
	return nil
}

// Heartbeat is a sign of life in a protocol's own frames. The zero value is none.
type Heartbeat struct {
	Every time.Duration     // of silence in both directions, after which Send is called
	Send  func(*Talk) error // sends a frame; an error counts as one of Received
	// of them in a row that the client may leave unanswered, any message is an answer; 0: any number
	Misses int
	Lost   Close // what it gets then; the zero value: 1001
}

// Close is the error with which a handler ends a conversation.
type Close struct {
	Code   int    // of RFC 6455 §7.4.1
	Reason string // at most 123 bytes of it reach the client
	Cause  error  // for logs; nil: dialect.ErrBadRequest
}

// Error returns the code and the reason.
func (e *Close) Error() string { return fmt.Sprintf("close %d: %s", e.Code, e.Reason) }

// Unwrap returns the cause.
func (e *Close) Unwrap() error { return cmp.Or(e.Cause, dialect.ErrBadRequest) }

// of returns a copy with a cause, and with a code if it has none.
func (e Close) of(cause error, code int) *Close {
	e.Cause, e.Code = cause, cmp.Or(e.Code, code)
	return &e
}
