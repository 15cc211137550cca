package protocol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/schema"
)

// MaxSubscriptions is how many subscriptions a conversation may allow.
const MaxSubscriptions = 64

// Conversation is a WebSocket on which clients send messages, which are answered, and hold subscriptions: streams of runs
// whose frames go to the same connection. Its handlers are called one at a time for each connection; while one runs
// nothing more is read from it. Their messages and the frames of subscriptions leave in one order.
type Conversation struct {
	// Stream names the conversation and says how its subscriptions are served: Name, Pattern ("GET /v1/talk"), Mode,
	// Shaped, Shared, Subprotocols and MaxMessage count.
	dialect.Stream
	Needs auth.Scope // of who opens it; not 0
	// Late says that who may not open it is told so after the upgrade, by a close code.
	Late bool
	// Subscriptions is how many a connection may hold at a time, at most MaxSubscriptions; 0: none.
	Subscriptions int
	// Patience is how long a client may take, from the upgrade on, until a handler calls Talk.Await; 0: for ever. TimedOut
	// is what it is told then; the zero value: what the table of ends has for a time-out.
	Patience time.Duration
	TimedOut Close
	// Heartbeat shows signs of life in the protocol's own frames, in place of the pings of WebSocket.
	Heartbeat Heartbeat

	// Opened is called after the upgrade, with the request that asked for it; nil does nothing.
	Opened func(*Talk) error
	// Received is called with each message, valid UTF-8. An error is told as the dialect's AppendError has it, and the
	// conversation goes on; but *Close, and what is no fault of the message, ends it.
	Received func(t *Talk, message []byte) error
	// Malformed is called with what is no message for Received, and with the close that its client would get: 1009 for one
	// that is too large, 1003 for one that is not text, 1007 for text that is not UTF-8, 1002 for what is no frame. The message
	// is passed over, and an error counts as one of Received; but behind 1002, and behind binary data in the midst of a text,
	// the conversation ends whatever is returned: with a *Close, or with bad. nil: it ends with bad.
	Malformed func(t *Talk, bad *Close) error
	// Ended is called when a subscription has ended by itself: err is nil at the end of its run. An error that it
	// returns counts as one of Received. nil: the conversation ends with err, and goes on when that is nil.
	Ended func(t *Talk, subscription string, err error) error
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
	Every  time.Duration     // of silence in both directions, after which Send is called
	Send   func(*Talk) error // sends a frame; an error counts as one of Received
	Misses int               // of them in a row that the client may leave without an answer; 0: any number
	Lost   Close             // what it is told then; the zero value: 1001
	// Strict says that only Talk.Alive answers; else every message of the client does.
	Strict bool
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

// Talk is a conversation as its handlers see it, and the Call in which they read and write runs: Params are those of the
// path, Request is there in Opened alone. Handlers use it until they return.
type Talk struct {
	*Call
	State any // the protocol's own, for as long as the connection lasts

	conv   *live.Conversation
	of     *Conversation
	life   *live.Life
	silent *time.Timer // ends a conversation whose client is waited for; nil: it is not
	until  time.Time   // up to when
}

// NewTalk makes a call a conversation's, which is served by live when Begin is called.
func NewTalk(c *Call, of *Conversation, life *live.Life, on *live.Live, bound *live.Bound, cfg live.ConversationConfig) (*Talk, error) {
	t := &Talk{Call: c, of: of, life: life}
	c.quiet = true
	cfg.Life, cfg.Report, cfg.Bound, cfg.Most, cfg.Ended = life, &c.Report, bound, of.Subscriptions, t.ended
	if b := &of.Heartbeat; b.Every > 0 {
		cfg.Beat = live.Heartbeat{Every: b.Every, Misses: b.Misses, Lost: b.Lost.of(dialect.ErrClientGone, 1001),
			Send: func() error { return t.deal(nil, func() error { return b.Send(t) }) }}
	}
	var err error
	t.conv, err = on.Converse(cfg)
	return t, err
}

// Begin serves the conversation on a connection. request is the one that asked for it.
func (t *Talk) Begin(sink live.Socket, request *http.Request) {
	t.conv.Begin(sink, func() error {
		t.Await(t.of.Patience)
		if t.of.Opened == nil {
			return nil
		}
		t.Request = request
		err := t.deal(nil, func() error { return t.of.Opened(t) })
		t.Request = nil
		return err
	})
}

// Receive deals with a message. An error says that the conversation is over.
func (t *Talk) Receive(message []byte) error {
	return t.conv.Turn(func() error {
		t.conv.Heard(!t.of.Heartbeat.Strict)
		return t.deal(message, func() error { return t.of.Received(t, message) })
	})
}

// Refuse deals with what is no message; over says that nothing can be read behind it. An error says that the conversation
// is over.
func (t *Talk) Refuse(bad *Close, over bool) error {
	return t.conv.Turn(func() error {
		t.conv.Heard(!t.of.Heartbeat.Strict)
		err := t.deal(nil, func() error { return t.of.Malformed(t, bad) })
		if err == nil && over {
			return bad
		}
		return err
	})
}

// Await gives the client some time from now on, until Await is called again. The conversation ends when it has passed, as
// after Patience. 0 is no bound.
func (t *Talk) Await(most time.Duration) {
	if t.silent != nil {
		t.silent.Stop()
		t.silent = nil
	}
	if most > 0 {
		t.until = time.Now().Add(most)
		t.silent = time.AfterFunc(most, t.timedOut)
	}
}

// timedOut ends a conversation whose client has had its time, unless a message that is dealt with has changed that.
func (t *Talk) timedOut() {
	_ = t.conv.Turn(func() error {
		switch last := t.of.TimedOut; {
		case t.silent == nil || time.Now().Before(t.until):
			return nil
		case last.Code != 0:
			return last.of(ends.ErrBodyTimeout, 0)
		}
		return dialect.Refuse(ends.ErrBodyTimeout, "nothing was sent that this conversation waits for")
	})
}

// Alive says that the client has answered a heartbeat.
func (t *Talk) Alive() { t.conv.Heard(true) }

func (t *Talk) ended(id string, err error) error {
	if t.of.Ended == nil {
		return err
	}
	return t.deal(nil, func() error { return t.of.Ended(t, id, err) })
}

// deal calls a handler and tells the client what it refuses. An error ends the conversation.
func (t *Talk) deal(message []byte, handle func() error) error {
	ctx, cancel := context.WithTimeout(t.life.Ctx, t.Node.cfg.LogTimeout)
	defer cancel()
	t.Carry(ctx, dialect.WebSocket, message, func(body []byte) { _ = t.Send(dialect.Frame{Data: body}) })
	err := handle()
	t.over, t.meter, t.quiet = nil, nil, true
	if err == nil {
		return nil
	}
	if t.life.Ctx.Err() != nil {
		return context.Cause(t.life.Ctx)
	}
	if last := new(Close); errors.As(err, &last) {
		return last
	}
	switch reason := ends.ReasonOf(err); reason {
	case dialect.ReasonInternal, dialect.ReasonClientGone, dialect.ReasonSlowClient, dialect.ReasonShutdown:
		return err
	default:
		p := ends.Problem(reason, err)
		p.RequestID = t.ID
		return t.Send(dialect.Frame{Data: t.Protocol.Dialect.AppendError(nil, p)})
	}
}

// Send writes frames at once, each as a message, and waits for the client. An error ends the conversation.
func (t *Talk) Send(frames ...dialect.Frame) error { return t.conv.Send(frames) }

// With does what a message asks for, if the caller has the scope. Only within it, with the scope write or command, may
// the message write. What needs the scope write counts against the tenant's limits.
func (t *Talk) With(needs auth.Scope, do func() error) error {
	if !t.Caller.May(needs) {
		return auth.ErrForbidden
	}
	if needs == auth.ScopeRead {
		return do()
	}
	defer func() { t.quiet = true }()
	t.quiet = false
	if needs&auth.ScopeWrite == 0 {
		return do()
	}
	return t.Node.Metered(func(*Call) error { return do() })(t.Call)
}

// Subscribe opens a subscription under an id that the handler chooses. Its frames begin behind what the handler sends.
// The error wraps auth.ErrForbidden without the scope read, dialect.ErrBadRequest for an id that is in use, ends.ErrBusy
// when there are too many; others are those of a stream that cannot be opened.
func (t *Talk) Subscribe(id string, req dialect.Request) (live.Place, error) {
	if !t.Caller.May(auth.ScopeRead) {
		return live.Place{}, auth.ErrForbidden
	}
	t.Run = req.Run
	return t.conv.Subscribe(id, req)
}

// Unsubscribe ends a subscription and returns the seq of the last record that it has shown, or where it began. No frame of
// it comes later. ok is false when there is none.
func (t *Talk) Unsubscribe(id string) (at schema.Seq, ok bool) { return t.conv.Unsubscribe(id) }

// Change replaces a subscription by another request for the same run, which begins behind what was shown. When that is
// refused the subscription has ended.
func (t *Talk) Change(id string, req dialect.Request) (live.Place, error) {
	at, ok := t.conv.Unsubscribe(id)
	if !ok {
		return live.Place{}, dialect.Refuse(dialect.ErrNotFound, "there is no subscription with this id")
	}
	req.Cursor = dialect.Cursor{Seq: at}
	return t.Subscribe(id, req)
}

// Subscriptions returns the ids of those that are open.
func (t *Talk) Subscriptions() []string { return t.conv.Subscriptions() }
