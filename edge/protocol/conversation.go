package protocol

import (
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
	// Patience is how long a connection may take until a message was taken without an error; 0: for ever.
	Patience time.Duration

	// Opened is called after the upgrade, with the request that asked for it; nil does nothing.
	Opened func(*Talk) error
	// Received is called with each message, valid UTF-8. An error is told as the dialect's AppendError has it, and the
	// conversation goes on; but *Close, and what is no fault of the message, ends it.
	Received func(t *Talk, message []byte) error
	// Ended is called when a subscription has ended by itself: err is nil at the end of its run. An error that it
	// returns counts as one of Received. nil: the conversation ends with err, and goes on when that is nil.
	Ended func(t *Talk, subscription string, err error) error
}

// Validate checks what can be checked before anybody calls.
func (v *Conversation) Validate() error {
	if v.Needs == 0 || v.Received == nil || v.Subscriptions < 0 || v.Subscriptions > MaxSubscriptions || v.Patience < 0 {
		return fmt.Errorf("conversation %s: needs a scope and Received, and 0 to %d subscriptions", v.Name, MaxSubscriptions)
	}
	return nil
}

// Close is the error with which a handler ends a conversation.
type Close struct {
	Code   int    // of RFC 6455 §7.4.1
	Reason string // at most 123 bytes of it reach the client
}

// Error returns the code and the reason.
func (e *Close) Error() string { return fmt.Sprintf("close %d: %s", e.Code, e.Reason) }

// Unwrap makes it a bad request, for logs.
func (e *Close) Unwrap() error { return dialect.ErrBadRequest }

// Talk is a conversation as its handlers see it, and the Call in which they read and write runs: Params are those of the
// path, Request is there in Opened alone. Handlers use it until they return.
type Talk struct {
	*Call
	State any // the protocol's own, for as long as the connection lasts

	conv   *live.Conversation
	of     *Conversation
	life   *live.Life
	silent *time.Timer // ends a conversation that is of no use; nil: nothing does
}

// NewTalk makes a call a conversation's, which is served by live when Begin is called.
func NewTalk(c *Call, of *Conversation, life *live.Life, on *live.Live, bound *live.Bound, cfg live.ConversationConfig) (*Talk, error) {
	t := &Talk{Call: c, of: of, life: life}
	c.quiet = true
	cfg.Life, cfg.Report, cfg.Bound, cfg.Most, cfg.Ended = life, &c.Report, bound, of.Subscriptions, t.ended
	var err error
	t.conv, err = on.Converse(cfg)
	return t, err
}

// Begin serves the conversation on a connection. request is the one that asked for it.
func (t *Talk) Begin(sink live.Socket, request *http.Request) {
	t.conv.Begin(sink, func() error {
		if t.of.Patience > 0 {
			t.silent = time.AfterFunc(t.of.Patience, func() {
				t.life.End(dialect.Refuse(ends.ErrBodyTimeout, "no message in %v", t.of.Patience))
			})
		}
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
	return t.conv.Turn(func() error { return t.deal(message, func() error { return t.of.Received(t, message) }) })
}

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
		if message != nil && t.silent != nil {
			t.silent.Stop()
			t.silent = nil
		}
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
