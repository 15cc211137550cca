package natsjs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/schema"
)

// Config says how messages are handed out. The zero value works.
type Config struct {
	Durable       string        // the consumer's name; default "persist"
	AckWait       time.Duration // a message not confirmed after this is handed out again; default 10 s, see doc
	MaxAckPending int           // messages handed out and not confirmed, per partition; default 50,000
	Wait          time.Duration // longest wait of one Fetch; default 5 s
}

func (c Config) withDefaults() Config {
	if c.Durable == "" {
		c.Durable = "persist"
	}
	if c.AckWait == 0 {
		c.AckWait = 10 * time.Second
	}
	if c.MaxAckPending == 0 {
		c.MaxAckPending = 50_000 // the server's own 1,000 would cap a batch silently
	}
	if c.Wait == 0 {
		c.Wait = 5 * time.Second
	}
	return c
}

func (c Config) validate() error {
	if schema.ValidTenant(c.Durable) != nil { // the same alphabet: it becomes part of a subject
		return fmt.Errorf("natsjs: durable %q is not [A-Za-z0-9_-]{1,64}", c.Durable)
	}
	if c.AckWait < 0 || c.MaxAckPending < 0 || c.Wait < 0 {
		return errors.New("natsjs: config has a negative bound")
	}
	return nil
}

// Queue is a persister.Queue on one partition.
type Queue struct {
	cfg       Config
	js        jetstream.JetStream
	nc        *nats.Conn
	partition int
	stream    string

	usual atomic.Int64 // messages of the last fetch: about what the next one holds

	mu     sync.Mutex
	ready  bool          // the consumer is known to exist
	window time.Duration // the stream's MaxAge, read when the consumer was made
}

var _ persister.Queue = (*Queue)(nil)

// Queues gives a queue for each partition of the log that js holds. It wraps natskit.ErrNotDeclared
// when there is no log.
func Queues(ctx context.Context, js jetstream.JetStream, cfg Config) ([]persister.Queue, error) {
	n, err := natskit.Partitions(ctx, js)
	if err != nil {
		return nil, fmt.Errorf("natsjs: queues: %w", err)
	}
	queues := make([]persister.Queue, n)
	for p := range n {
		if queues[p], err = New(js, p, cfg); err != nil {
			return nil, err
		}
	}
	return queues, nil
}

// New gives the queue of one partition. It asks the server for nothing: the consumer is made by the
// first call that needs it, and again when somebody has deleted it. Then all messages that the
// stream still has are handed out once more.
func New(js jetstream.JetStream, partition int, cfg Config) (*Queue, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Queue{cfg: cfg, js: js, nc: js.Conn(), partition: partition, stream: natskit.StreamName(partition)}, nil
}

func (q *Queue) ensure(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ready {
		return nil
	}
	stream, err := q.js.Stream(ctx, q.stream)
	if err == nil {
		_, err = stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable:       q.cfg.Durable,
			Description:   "agentstream: packs on their way into the store",
			FilterSubject: schema.PartitionFilter(q.partition),
			DeliverPolicy: jetstream.DeliverAllPolicy,
			AckPolicy:     jetstream.AckExplicitPolicy,
			AckWait:       q.cfg.AckWait,
			MaxAckPending: q.cfg.MaxAckPending,
			MaxDeliver:    -1, // what cannot be stored is set aside by the persister, never given up here
		})
	}
	if err != nil {
		return fmt.Errorf("natsjs: consumer %s of %s: %w", q.cfg.Durable, q.stream, err)
	}
	q.ready, q.window = true, stream.CachedInfo().Config.MaxAge
	return nil
}

func (q *Queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = false
}

// pullRequest is the body of a request for messages. The client library's fetch has no form that
// bounds messages and bytes at once.
type pullRequest struct {
	Batch    int           `json:"batch"`
	MaxBytes int           `json:"max_bytes"`
	Expires  time.Duration `json:"expires,omitempty"`
	NoWait   bool          `json:"no_wait"`
}

// frameBytes is what the server counts beside headers and body: subject and reply. A request that
// the next message does not fit into would never be served.
const frameBytes = 8 << 10

// statusSlack is room for the statuses among a batch.
const statusSlack = 16

// answerSlack is how long the server may take to say that a request is over.
const answerSlack = 2 * time.Second

// Fetch implements persister.Queue. It returns as soon as the server has handed out what there is.
func (q *Queue) Fetch(ctx context.Context, limit persister.Limit) ([]persister.Message, error) {
	if err := q.ensure(ctx); err != nil {
		return nil, err
	}
	msgs, err := q.pull(ctx, limit)
	if len(msgs) > 0 {
		return msgs, nil // what ended the request shows again at the next
	}
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, errGone) {
		q.forget()
	}
	if err != nil {
		return nil, fmt.Errorf("natsjs: fetch from %s: %w", q.stream, err)
	}
	return nil, nil
}

func (q *Queue) pull(ctx context.Context, limit persister.Limit) (msgs []persister.Message, err error) {
	request := pullRequest{
		Batch: limit.Messages, MaxBytes: max(limit.Bytes, int(q.nc.MaxPayload())+frameBytes), Expires: q.cfg.Wait, NoWait: true,
	}
	if limit.NoWait { // together with a time it means, since 2.9: hand out what there is, or wait for the first
		request.Expires = 0
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	inbox := q.nc.NewInbox()
	// The channel takes the whole batch and what ends it. SubscribeSync would make one for 65,536
	// messages, half a megabyte to clear and to collect, for each fetch.
	arrived := make(chan *nats.Msg, limit.Messages+statusSlack)
	sub, err := q.nc.ChanSubscribe(inbox, arrived)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }()
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sub.SetClosedHandler(func(string) { cancel(nats.ErrConnectionClosed) })
	late := time.AfterFunc(request.Expires+answerSlack, func() { cancel(errNoAnswer) })
	defer late.Stop()
	if err := q.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+q.stream+"."+q.cfg.Durable, inbox, body); err != nil {
		return nil, err
	}
	msgs = make([]persister.Message, 0, min(limit.Messages, int(q.usual.Load()*9/8)))
	defer func() { q.usual.Store(int64(len(msgs))) }()
	for size := 0; len(msgs) < limit.Messages && size < limit.Bytes; {
		var m *nats.Msg
		select {
		case m = <-arrived:
		case <-wait.Done():
			return q.remaining(msgs, arrived), context.Cause(wait)
		}
		if status := m.Header.Get("Status"); len(m.Data) == 0 && status != "" && m.Reply == "" {
			if status == "100" { // idle heartbeat
				continue
			}
			return msgs, q.over(ctx, status, m.Header.Get("Description"))
		}
		if msgs, err = q.keep(msgs, m); err != nil {
			return msgs, err
		}
		size += len(m.Data) + len(m.Subject)
	}
	return msgs, nil
}

func (q *Queue) keep(msgs []persister.Message, m *nats.Msg) ([]persister.Message, error) {
	meta, err := m.Metadata()
	if err != nil {
		return msgs, fmt.Errorf("message without place: %w", err)
	}
	return append(msgs, persister.Message{
		Stream: q.stream, Position: meta.Sequence.Stream, Stored: meta.Timestamp,
		Subject: m.Subject, Header: m.Header, Body: m.Data, Token: m.Reply,
	}), nil
}

// remaining takes what has arrived when a fetch is called off: dropped here, it would come again
// only after the ack wait.
func (q *Queue) remaining(msgs []persister.Message, arrived <-chan *nats.Msg) []persister.Message {
	quiet := time.NewTimer(remainingWait)
	defer quiet.Stop()
	for {
		select {
		case m := <-arrived:
			if m.Reply != "" {
				msgs, _ = q.keep(msgs, m)
			}
			quiet.Reset(remainingWait)
		case <-quiet.C:
			return msgs
		}
	}
}

// remainingWait is how long nothing has arrived when all has.
const remainingWait = 10 * time.Millisecond

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
	case status == "409" && (text == "Message Size Exceeds MaxBytes" || text == "Batch Completed"):
		return nil
	case status == "409" && (text == "Consumer Deleted" || text == "Consumer is push based"):
		return fmt.Errorf("%s: %w", text, errGone)
	case status == "503":
		return nats.ErrNoResponders
	}
	return fmt.Errorf("server says %s %s", status, text)
}

var (
	ack     = []byte("+ACK")
	release = []byte("-NAK")
)

// Ack implements persister.Queue. It returns when the server has recorded the last one, which it
// does after the others.
func (q *Queue) Ack(ctx context.Context, msgs []persister.Message) error {
	if err := q.settle(ctx, msgs, ack); err != nil {
		return fmt.Errorf("natsjs: acknowledge %d messages of %s: %w", len(msgs), q.stream, err)
	}
	return nil
}

// Release implements persister.Queue.
func (q *Queue) Release(ctx context.Context, msgs []persister.Message) error {
	if err := q.settle(ctx, msgs, release); err != nil {
		return fmt.Errorf("natsjs: release %d messages of %s: %w", len(msgs), q.stream, err)
	}
	return nil
}

func (q *Queue) settle(ctx context.Context, msgs []persister.Message, how []byte) error {
	if len(msgs) == 0 {
		return nil
	}
	last := len(msgs) - 1
	for i := range msgs[:last] {
		if err := q.nc.Publish(msgs[i].Token, how); err != nil {
			return err
		}
	}
	_, err := q.nc.RequestWithContext(ctx, msgs[last].Token, how)
	return err
}

// Lag implements persister.Queue.
func (q *Queue) Lag(ctx context.Context) (persister.Lag, error) {
	lag := persister.Lag{Stream: q.stream}
	if err := q.ensure(ctx); err != nil {
		return lag, err
	}
	consumer, err := q.js.Consumer(ctx, q.stream, q.cfg.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		q.forget()
	}
	if err != nil {
		return lag, fmt.Errorf("natsjs: lag of %s: %w", q.stream, err)
	}
	info := consumer.CachedInfo()
	q.mu.Lock()
	lag.Window = q.window
	q.mu.Unlock()
	lag.Messages = info.NumPending + uint64(info.NumAckPending)
	if lag.Messages == 0 {
		return lag, nil
	}
	m, err := natskit.NextFromLeader(ctx, q.nc, q.stream, schema.PartitionFilter(q.partition), info.AckFloor.Stream+1)
	switch {
	case errors.Is(err, natskit.ErrNoMessage): // confirmed or expired since
	case err != nil:
		return lag, fmt.Errorf("natsjs: lag of %s: %w", q.stream, err)
	default:
		lag.Oldest = m.Time
	}
	return lag, nil
}
