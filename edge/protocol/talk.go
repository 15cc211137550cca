package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/schema"
)

// Talk is a conversation as its handlers see it, and the Call in which they read and write runs: Params are those of
// the path, Request is there in Opened alone. Handlers use it until they return.
type Talk struct {
	*Call
	State any // the protocol's own, for as long as the connection lasts
	Beats int // heartbeats so far, with the one that is sent

	conv   *live.Conversation
	of     *Conversation
	life   *live.Life
	silent *time.Timer // ends a conversation whose client is waited for; nil: it is not
	until  time.Time   // up to when
}

// NewTalk makes a call a conversation's, which is served by live when Begin is called.
func NewTalk(c *Call, of *Conversation, life *live.Life, on *live.Live, bound *live.Bound,
	cfg live.ConversationConfig) (*Talk, error) {
	t := &Talk{Call: c, of: of, life: life}
	c.quiet, c.Commands = true, false
	cfg.Life, cfg.Report, cfg.Bound, cfg.Most, cfg.Ended = life, &c.Report, bound, of.Subscriptions, t.endSubscription
	cfg.Once, cfg.Gather = of.Once, of.Gather
	if of.Closing != nil {
		cfg.Closing = func(err error) { of.Closing(t, err) }
	}
	if b := &of.Heartbeat; b.Every > 0 {
		cfg.Beat = live.Heartbeat{Every: b.Every, Misses: b.Misses, Lost: b.Lost.of(dialect.ErrClientGone, 1001),
			Send: func() error { t.Beats++; return t.deal(nil, func() error { return b.Send(t) }) }}
	}
	var err error
	t.conv, err = on.Converse(cfg)
	return t, err
}

// Attach serves the conversation on a connection. request is the one that asked for it.
func (t *Talk) Attach(sink live.Socket, request *http.Request) {
	t.conv.Attach(sink, func() error {
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
	return t.conv.Do(func() error {
		t.conv.NoteMessage()
		err := t.deal(message, func() error { return t.of.Received(t, message) })
		t.conv.NoteMessage() // a client is not silent while it waits for the answer
		return err
	})
}

// Refuse deals with what is no message; over says that nothing can be read after it. An error says that the
// conversation is over.
func (t *Talk) Refuse(bad *Close, over bool) error {
	return t.conv.Do(func() error {
		t.conv.NoteMessage()
		err := t.deal(nil, func() error { return t.of.Malformed(t, bad) })
		if err == nil && over {
			return bad
		}
		return err
	})
}

// Await limits the time that the client has from now on, until Await is called again. The conversation ends when it has
// passed, as after Patience. 0 is no bound.
func (t *Talk) Await(most time.Duration) {
	if t.silent != nil {
		t.silent.Stop()
		t.silent = nil
	}
	if most > 0 {
		t.until = time.Now().Add(most)
		t.silent = time.AfterFunc(most, t.expire)
	}
}

// expire ends a conversation whose client has had its time, unless a message that is dealt with has changed
// that.
func (t *Talk) expire() {
	_ = t.conv.Do(func() error {
		switch last := t.of.TimedOut; {
		case t.silent == nil || time.Now().Before(t.until):
			return nil
		case last.Code != 0:
			return last.of(ends.ErrBodyTimeout, 0)
		}
		return dialect.Refuse(ends.ErrBodyTimeout, "nothing was sent that this conversation waits for")
	})
}

// endSubscription lets the protocol know that a subscription has ended.
func (t *Talk) endSubscription(id string, err error) error {
	if t.of.Ended == nil {
		return err
	}
	return t.deal(nil, func() error { return t.of.Ended(t, id, err) })
}

// deal calls a handler and sends the client what it refuses. An error ends the conversation.
func (t *Talk) deal(message []byte, handle func() error) error {
	ctx, cancel := context.WithTimeout(t.life.Ctx, t.Node.cfg.LogTimeout)
	defer cancel()
	t.noted = false
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
	p, told := t.Problem(err)
	if !told {
		return err
	}
	return t.Send(dialect.Frame{Data: t.Protocol.Dialect.AppendError(nil, p)})
}

// Lasting returns a context that ends with the conversation.
func (t *Talk) Lasting() context.Context { return t.life.Ctx }

// Stop ends the conversation. Any goroutine may call it.
func (t *Talk) Stop(err error) { t.life.Stop(err) }

// Send writes frames at once, each as a message, and waits for the client. An error ends the conversation. Other
// goroutines than the handlers' may call it until Closing has returned.
func (t *Talk) Send(frames ...dialect.Frame) error { return t.conv.Send(frames) }

// SendJSON sends a value, encoded, as one message.
func (t *Talk) SendJSON(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.Send(dialect.Frame{Data: data})
}

// With does what a message asks for, if the caller has the scope. Only within it, with the scope write or command, may
// the message write. What needs the scope write counts against the tenant's limits.
func (t *Talk) With(needs auth.Scope, do func() error) error {
	if err := t.Allow(needs); err != nil {
		return err
	}
	if needs == auth.ScopeRead {
		err := do()
		t.NoteRead(err)
		return err
	}
	defer func() { t.quiet, t.Commands = true, false }()
	t.quiet, t.Commands = false, true
	if needs&auth.ScopeWrite == 0 {
		return do()
	}
	return t.Node.Meter(func(*Call) error { return do() })(t.Call)
}

// Subscribe opens a subscription under an id that the handler chooses. Its frames begin after what the handler sends.
// The error wraps auth.ErrForbidden without the scope read, dialect.ErrBadRequest for an id that is in use,
// ends.ErrBusy when there are too many; others are those of a stream that cannot be opened.
func (t *Talk) Subscribe(id string, req dialect.Request) (live.Place, error) {
	if err := t.Allow(auth.ScopeRead); err != nil {
		return live.Place{}, err
	}
	t.Run = req.Run
	return t.conv.Subscribe(id, req)
}

// Unsubscribe ends a subscription and returns the seq of the last record that it has shown, or where it began. No frame
// of it comes later. ok is false when there is none.
func (t *Talk) Unsubscribe(id string) (at schema.Seq, ok bool) { return t.conv.Unsubscribe(id) }

// Change replaces a subscription by another request for the same run, which begins after what was shown. When that is
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
