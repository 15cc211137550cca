package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"agentstream/persister"
)

// pullRequest is the body of a request for messages. The client library's fetch has no form that
// bounds messages and bytes at once.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	NoWait    bool          `json:"no_wait"`
}

// frameBytes is what the server counts beside headers and body: subject and reply. A request that
// the next message does not fit into would never be served.
const frameBytes = 8 << 10

// statusSlack is room for the statuses among a batch.
const statusSlack = 16

// answerSlack is how long the server may take to say that a request is over.
const answerSlack = 4 * time.Second

// heartbeat is how often the server shows during a request that it has not forgotten it, as it does when
// it is started anew or the consumer moves to another one.
const heartbeat = time.Second

func (q *Queue) request(limit persister.Limit) pullRequest {
	// The server alone counts bytes: what it sends and nobody takes would come again only after the ack wait.
	r := pullRequest{
		Batch: limit.Messages, MaxBytes: max(limit.Bytes, int(q.nc.MaxPayload())+frameBytes, int(q.wider.Load())), Expires: q.cfg.Wait, NoWait: true,
	}
	if limit.NoWait { // together with a time it means, since 2.9: hand out what there is, or wait for the first
		r.Expires = 0
	}
	if r.Expires >= 2*heartbeat {
		r.Heartbeat = heartbeat
	}
	return r
}

// silence is how long nothing may come.
func (r pullRequest) silence() time.Duration {
	if r.Heartbeat > 0 {
		return r.Heartbeat + answerSlack
	}
	return r.Expires + answerSlack
}

func (q *Queue) pull(ctx context.Context, limit persister.Limit) (h haul, err error) {
	request := q.request(limit)
	body, err := json.Marshal(request)
	if err != nil {
		return h, err
	}
	inbox := q.nc.NewInbox()
	// The channel takes the whole batch and what ends it. SubscribeSync would make one for 65,536
	// messages, half a megabyte to clear and to collect, for each fetch.
	arrived := make(chan *nats.Msg, limit.Messages+statusSlack)
	sub, err := q.nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return h, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sub.SetClosedHandler(func(string) { cancel(nats.ErrConnectionClosed) })
	late := time.AfterFunc(request.silence(), func() { cancel(errNoAnswer) })
	defer late.Stop()
	if err := q.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+q.stream+"."+q.cfg.Durable, inbox, body); err != nil {
		return h, err
	}
	usual := min(limit.Messages, int(q.usual.Load()*9/8))
	h.msgs, h.places = make([]persister.Message, 0, usual), make([]place, 0, usual)
	defer func() { q.usual.Store(int64(len(h.msgs))) }()
	for len(h.msgs) < limit.Messages {
		var m *nats.Msg
		select {
		case m = <-arrived:
		case <-wait.Done():
			h.remaining(q.stream, arrived)
			return h, context.Cause(wait)
		}
		if status := m.Header.Get("Status"); len(m.Data) == 0 && status != "" && m.Reply == "" {
			if status == "100" { // heartbeat
				late.Reset(request.silence())
				continue
			}
			text := m.Header.Get("Description")
			if text == tooSmall && len(h.msgs) == 0 {
				return h, q.widen(request.MaxBytes)
			}
			return h, q.over(ctx, status, text)
		}
		if err = h.keep(q.stream, m); err != nil {
			return h, err
		}
		q.wider.Store(0)
		if len(h.msgs)%64 == 0 { // now and then is enough
			late.Reset(request.silence())
		}
	}
	return h, nil
}

// haul is what one request brings.
type haul struct {
	msgs   []persister.Message
	places []place
}

func (h *haul) keep(stream string, m *nats.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("message without place: %w", err)
	}
	h.msgs = append(h.msgs, persister.Message{
		Stream: stream, Position: meta.Sequence.Stream, Stored: meta.Timestamp,
		Subject: m.Subject, Header: m.Header, Body: m.Data, Token: m.Reply,
	})
	h.places = append(h.places, place{meta.Sequence.Stream, meta.Sequence.Consumer})
	return nil
}

// remaining takes what has arrived when a fetch is called off: dropped here, it would come again
// only after the ack wait.
func (h *haul) remaining(stream string, arrived <-chan *nats.Msg) {
	quiet := time.NewTimer(remainingWait)
	defer quiet.Stop()
	for {
		select {
		case m := <-arrived:
			if m.Reply != "" {
				_ = h.keep(stream, m)
			}
			quiet.Reset(remainingWait)
		case <-quiet.C:
			return
		}
	}
}

// remainingWait is how long nothing has arrived when all has.
const remainingWait = 10 * time.Millisecond

// tooSmall is how the server says that the next message does not fit into a request.
const tooSmall = "Message Size Exceeds MaxBytes"

// widen makes the next request larger, because the next message fits into none of this size: it was stored
// when the server took larger ones than it does now. It would never be handed out, nor what is behind it.
func (q *Queue) widen(bytes int) error {
	if bytes >= widest {
		return fmt.Errorf("a message does not fit into %d bytes", bytes)
	}
	q.wider.Store(int64(min(2*bytes, widest)))
	return nil
}

// widest is above what any server takes as one message.
const widest = 128 << 20

// errNoAnswer says that the server did not end a request in time.
var errNoAnswer = errors.New("no answer")

// errGone says that the consumer does not exist any more.
var errGone = errors.New("consumer was deleted")

// over reads the status that ends a request.
func (q *Queue) over(ctx context.Context, status, text string) error {
	switch {
	case status == "404":
		return nil // nothing there, or nothing more
	case status == "408" && text == "Requests Pending":
		// Another process's request is served with what there is. Do not ask again at once.
		timer := time.NewTimer(20 * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return nil
	case status == "408": // the time is over
		return nil
	case status == "409" && (text == tooSmall || text == "Batch Completed"):
		return nil
	case status == "409" && (text == "Consumer Deleted" || text == "Consumer is push based"):
		return fmt.Errorf("%s: %w", text, errGone)
	case status == "503":
		return nats.ErrNoResponders
	}
	return fmt.Errorf("server says %s %s", status, text)
}
