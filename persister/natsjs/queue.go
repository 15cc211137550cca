package natsjs

import (
	"context"
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
	Roster        *Roster       // shares the partitions with other processes; nil: every partition is ours
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
	wider atomic.Int64 // bytes that a request must allow, because the next message is larger than usual; else 0

	mu    sync.Mutex
	ready bool // the consumer is known to exist
	loss  loss
}

var (
	_ persister.Queue  = (*Queue)(nil)
	_ persister.Holder = (*Queue)(nil)
	_ persister.Shared = (*Queue)(nil)
)

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
	var consumer jetstream.Consumer
	if err == nil {
		consumer, err = stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
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
	q.ready = true
	q.loss.begin(stream.CachedInfo().State.FirstSeq, consumer.CachedInfo())
	return nil
}

func (q *Queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ready = false
}

// Fetch implements persister.Queue. It returns as soon as the server has handed out what there is.
func (q *Queue) Fetch(ctx context.Context, limit persister.Limit) ([]persister.Message, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if r := q.cfg.Roster; r != nil {
		wait := q.cfg.Wait
		if limit.NoWait {
			wait = 0
		}
		turn := r.turn(ctx, q.partition, wait)
		if turn == nil {
			return nil, ctx.Err()
		}
		stop := context.AfterFunc(turn.ctx, func() { cancel(errTurn) })
		defer stop()
	}
	if err := q.ensure(ctx); err != nil {
		return nil, err
	}
	got, err := q.pull(ctx, limit)
	if len(got.msgs) > 0 {
		q.handed(len(got.msgs))
		q.look(ctx, got.places)
		return got.msgs, nil // what ended the request shows again at the next
	}
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, errGone) {
		q.forget()
	}
	if errors.Is(err, errTurn) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("natsjs: fetch from %s: %w", q.stream, err)
	}
	return nil, nil
}

// errTurn says that the partition is another's from now on.
var errTurn = errors.New("it is another's turn")

// Ours implements persister.Shared.
func (q *Queue) Ours() bool { return q.cfg.Roster == nil || q.cfg.Roster.holds(q.partition) }

func (q *Queue) handed(n int) {
	if r := q.cfg.Roster; r != nil {
		r.handed(q.partition, n)
	}
}

var (
	ack     = []byte("+ACK")
	release = []byte("-NAK")
	wait    = []byte("+WPI")
)

// Ack implements persister.Queue. It returns when the server has recorded the last one, which it
// does after the others.
func (q *Queue) Ack(ctx context.Context, msgs []persister.Message) error {
	defer q.handed(-len(msgs))
	if err := q.settle(ctx, msgs, ack); err != nil {
		return fmt.Errorf("natsjs: acknowledge %d messages of %s: %w", len(msgs), q.stream, err)
	}
	return nil
}

// Release implements persister.Queue.
func (q *Queue) Release(ctx context.Context, msgs []persister.Message) error {
	defer q.handed(-len(msgs))
	q.mu.Lock()
	q.loss.released(msgs)
	q.mu.Unlock()
	if err := q.settle(ctx, msgs, release); err != nil {
		return fmt.Errorf("natsjs: release %d messages of %s: %w", len(msgs), q.stream, err)
	}
	return nil
}

// Hold implements persister.Holder.
func (q *Queue) Hold(ctx context.Context, msgs []persister.Message) error {
	if !q.nc.IsConnected() {
		return nil // said later, it would be too late
	}
	if err := q.settle(ctx, msgs, wait); err != nil {
		return fmt.Errorf("natsjs: hold %d messages of %s: %w", len(msgs), q.stream, err)
	}
	return nil
}

// Patience implements persister.Holder.
func (q *Queue) Patience() time.Duration { return q.cfg.AckWait }

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
