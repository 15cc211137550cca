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

// pullRequest is the body of a request for messages. The client library has no fetch that bounds both messages and
// bytes.
type pullRequest struct {
	Batch     int           `json:"batch"`
	MaxBytes  int           `json:"max_bytes"`
	Expires   time.Duration `json:"expires,omitempty"`
	Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	NoWait    bool          `json:"no_wait"`
}

// frameBytes is the part of a message's size, beside headers and body, that the server counts: subject and reply. The
// server never serves a request into which the next message does not fit.
const frameBytes = 8 << 10

// besideBody is about the most that the server counts of a usual message beside its body.
const besideBody = 1 << 10

// statusSlack is the room for status messages in a batch.
const statusSlack = 16

// answerSlack is the time that the server may take to end a request.
const answerSlack = 4 * time.Second

// heartbeat is the interval of the server's heartbeats during a request. Without them the request is lost, as when
// the server restarts or the consumer moves to another server.
const heartbeat = time.Second

func (q *Queue) request(limit persister.Limit) pullRequest {
	// Only the server counts bytes. A message that it sends and the client does not read would be sent again only
	// after the ack wait.
	r := pullRequest{
		Batch: limit.Messages, Expires: q.cfg.Wait, NoWait: true,
		MaxBytes: max(limit.Bytes+limit.Messages*besideBody, int(q.nc.MaxPayload())+frameBytes, int(q.wider.Load())),
	}
	if limit.NoWait { // since 2.9, with an expiry, it means: send what there is, or wait for the first message
		r.Expires = 0
	}
	if r.Expires >= 2*heartbeat {
		r.Heartbeat = heartbeat
	}
	return r
}

// silence is the time after which a server that sends nothing counts as gone.
func (r pullRequest) silence() time.Duration {
	if r.Heartbeat > 0 {
		return r.Heartbeat + answerSlack
	}
	return r.Expires + answerSlack
}

func (q *Queue) pull(ctx context.Context, limit persister.Limit) (msgs []persister.Message, err error) {
	request := q.request(limit)
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	inbox := q.nc.NewInbox()
	// The channel has room for the whole batch and the status that ends it. SubscribeSync would allocate one for
	// 65,536 messages, half a megabyte, for each fetch.
	arrived := make(chan *nats.Msg, limit.Messages+statusSlack)
	sub, err := q.nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sub.SetClosedHandler(func(string) { cancel(nats.ErrConnectionClosed) })
	late := time.AfterFunc(request.silence(), func() { cancel(errNoAnswer) })
	defer late.Stop()
	if err := q.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+q.stream+"."+q.consumer, inbox, body); err != nil {
		return nil, err
	}
	usual := min(limit.Messages, int(q.usual.Load()*9/8))
	msgs = make([]persister.Message, 0, usual)
	defer func() { q.usual.Store(int64(len(msgs))) }()
	for len(msgs) < limit.Messages {
		var m *nats.Msg
		select {
		case m = <-arrived:
		case <-wait.Done():
			return q.remaining(msgs, arrived), context.Cause(wait)
		}
		if status := m.Header.Get("Status"); len(m.Data) == 0 && status != "" && m.Reply == "" {
			if status == "100" { // heartbeat
				late.Reset(request.silence())
				continue
			}
			text := m.Header.Get("Description")
			if text == tooSmall && len(msgs) == 0 {
				return nil, q.widen(request.MaxBytes)
			}
			return msgs, over(status, text)
		}
		if msgs, err = q.keep(msgs, m); err != nil {
			return msgs, err
		}
		q.wider.Store(0)
		if len(msgs)%64 == 0 { // not each time: it takes a lock
			late.Reset(request.silence())
		}
	}
	return msgs, nil
}

// keep appends a message, which must be the next one of the consumer: it is not sent again.
func (q *Queue) keep(msgs []persister.Message, m *nats.Msg) ([]persister.Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return msgs, fmt.Errorf("message without place: %w", err)
	}
	if meta.Sequence.Consumer != q.serial+1 {
		return msgs, fmt.Errorf("message %d of the consumer behind %d: %w", meta.Sequence.Consumer, q.serial, errGap)
	}
	q.serial++
	return append(msgs, persister.Message{
		Stream: q.stream, Position: meta.Sequence.Stream, Stored: meta.Timestamp, Subject: m.Subject, Header: m.Header,
		Body: m.Data,
	}), nil
}

// remaining reads the messages that were sent before the wait ended: a server that serves a request sends at once.
func (q *Queue) remaining(msgs []persister.Message, arrived <-chan *nats.Msg) []persister.Message {
	quiet := time.NewTimer(remainingWait)
	defer quiet.Stop()
	for {
		select {
		case m := <-arrived:
			if m.Reply == "" {
				continue
			}
			var err error
			if msgs, err = q.keep(msgs, m); err != nil {
				return msgs // the next fetch finds the gap again
			}
			quiet.Reset(remainingWait)
		case <-quiet.C:
			return msgs
		}
	}
}

const remainingWait = 10 * time.Millisecond

// tooSmall is the server's status for a next message that does not fit into a request.
const tooSmall = "Message Size Exceeds MaxBytes"

// widen makes the next request larger, because the next message does not fit into one of this size: it was stored
// when the server accepted larger messages than now. Otherwise neither it nor the messages after it would ever be
// sent.
func (q *Queue) widen(bytes int) error {
	if bytes >= widest {
		return fmt.Errorf("a message does not fit into %d bytes", bytes)
	}
	q.wider.Store(int64(min(2*bytes, widest)))
	return nil
}

// widest is larger than any message that a server accepts.
const widest = 128 << 20

// errGap reports that a message was lost on its way.
var errGap = errors.New("messages are missing")

// errNoAnswer reports that the server did not end a request in time.
var errNoAnswer = errors.New("no answer")

// errGone reports that the consumer does not exist any more.
var errGone = errors.New("consumer was deleted")

// over returns the error of a status that ends a request.
func over(status, text string) error {
	switch {
	case status == "404":
		return nil // no messages, or no more
	case status == "408": // the request has expired
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
