package natsjs

import (
	"cmp"
	"context"
	"crypto/rand"
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

// Config configures a Queue. The zero value is ready to use.
type Config struct {
	Wait   time.Duration // longest wait of one Fetch; default 5 s
	Tap    string        // name of the tap that reads; "": the persister does
	Tenant string        // of a tap that reads one; "": all
	// after which the server removes what has read, longer than Wait: the reader may not remove it itself; 0: it may
	Idle time.Duration
}

func (c Config) withDefaults() Config {
	c.Wait = cmp.Or(c.Wait, 5*time.Second)
	return c
}

func (c Config) validate() error {
	if c.Wait < 0 {
		return errors.New("natsjs: config has a negative bound")
	}
	if c.Tenant != "" {
		if err := schema.ValidTenant(c.Tenant); err != nil {
			return fmt.Errorf("natsjs: tenant: %w", err)
		}
	}
	return nil
}

// Queue is a persister.Queue on one partition.
type Queue struct {
	cfg    Config
	js     jetstream.JetStream
	nc     *nats.Conn
	stream string
	filter string // of subjects

	usual atomic.Int64 // messages of the last fetch, an estimate for the next one
	wider atomic.Int64 // bytes that a request must allow, because the next message is larger than usual; else 0

	// Used by Seek and Fetch.
	consumer string        // its name; "": there is none
	since    atomic.Uint64 // reconnections at the time of Seek
	serial   uint64        // the consumer's count of the newest message returned
	passed   uint64        // position of the newest message or mark returned
	marked   time.Time     // when it was last looked for a mark

	mu      sync.Mutex
	loss    loss
	retired bool // the consumer of an older release is gone
}

var (
	_ persister.Queue   = (*Queue)(nil)
	_ persister.Steady  = (*Queue)(nil)
	_ persister.Dropper = (*Queue)(nil)
)

// Queues returns a queue for each partition of the log. The error wraps natskit.ErrNotDeclared when there is no log.
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

// New returns the queue of one partition. It sends no request.
func New(js jetstream.JetStream, partition int, cfg Config) (*Queue, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	q := &Queue{cfg: cfg, js: js, nc: js.Conn(), stream: natskit.StreamName(partition),
		filter: schema.PartitionFilter(partition)}
	if cfg.Tenant != "" {
		q.filter = tenantFilter(cfg.Tenant, partition)
	}
	return q, nil
}

// Stream implements persister.Queue.
func (q *Queue) Stream() string { return q.stream }

// Seek implements persister.Queue.
func (q *Queue) Seek(ctx context.Context, stored persister.Offset) (persister.Offset, error) {
	q.since.Store(q.nc.Stats().Reconnects)
	s, err := readState(ctx, q.js, q.stream)
	if err != nil {
		return stored, fmt.Errorf("natsjs: seek in %s: %w", q.stream, err)
	}
	at, err := s.compare(ctx, q.nc, stored)
	if err == nil && stored.Identity == "" && q.cfg.Tap == "" {
		at, err = q.inheritOffset(ctx, at)
	}
	if err != nil {
		return at, fmt.Errorf("natsjs: seek in %s behind %d: %w", q.stream, stored.Position, err)
	}
	q.forget(ctx)
	q.mu.Lock()
	q.loss.seek(at, s.info.State.FirstSeq)
	q.mu.Unlock()
	if q.consumer, err = q.makeConsumer(ctx, at.Position+1); err != nil {
		return at, fmt.Errorf("natsjs: read %s behind %d: %w", q.stream, at.Position, err)
	}
	return at, nil
}

// Same implements persister.Steady. While the connection is down no process can append through it either.
func (q *Queue) Same() bool { return q.nc.Stats().Reconnects == q.since.Load() }

// consumerIdle is the time without a request after which the server removes a consumer.
const consumerIdle = 5 * time.Minute

func (q *Queue) makeConsumer(ctx context.Context, from uint64) (string, error) {
	cfg := jetstream.ConsumerConfig{
		Description:       "agentstream: packs on their way into the store",
		DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:       from,
		AckPolicy:         jetstream.AckNonePolicy,
		InactiveThreshold: cmp.Or(q.cfg.Idle, consumerIdle),
		MemoryStorage:     true,
		Replicas:          1,
	}
	if q.cfg.Tap != "" {
		cfg.Name = tapConsumer(q.cfg.Tap) + rand.Text()
		cfg.Description = "agentstream: packs on their way to the tap " + q.cfg.Tap
	}
	if q.cfg.Tenant != "" {
		cfg.FilterSubject = q.filter
	}
	c, err := q.js.CreateConsumer(ctx, q.stream, cfg)
	if err != nil {
		return "", err
	}
	q.serial, q.passed, q.marked = 0, from-1, time.Now()
	return c.CachedInfo().Name, nil
}

// forget removes the consumer. When it cannot be reached, the server removes it after consumerIdle.
func (q *Queue) forget(ctx context.Context) {
	if q.consumer == "" || q.cfg.Idle > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = q.js.DeleteConsumer(ctx, q.stream, q.consumer)
	q.consumer = ""
}

// errSeek reports that Fetch was called without a successful Seek.
var errSeek = errors.New("seek comes first")

// Fetch implements persister.Queue. It returns as soon as the server has sent the messages that there are.
func (q *Queue) Fetch(ctx context.Context, limit persister.Limit) ([]persister.Message, error) {
	if q.consumer == "" {
		return nil, fmt.Errorf("natsjs: fetch from %s: %w", q.stream, errSeek)
	}
	msgs, err := q.pull(ctx, limit)
	if len(msgs) > 0 {
		q.look(ctx, msgs)
		q.passed = msgs[len(msgs)-1].Position
		return msgs, nil // the error occurs again at the next request
	}
	if err == nil && q.cfg.Tenant != "" && time.Since(q.marked) >= markEvery {
		return q.mark(ctx)
	}
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("natsjs: fetch from %s: %w", q.stream, err)
	}
	return nil, nil
}

// legacyConsumer is the durable consumer of releases that acknowledged messages to the log.
const legacyConsumer = "persist"

// inheritOffset returns the offset of such a release: all messages at or below the consumer's floor are stored.
func (q *Queue) inheritOffset(ctx context.Context, at persister.Offset) (persister.Offset, error) {
	c, err := q.js.Consumer(ctx, q.stream, legacyConsumer)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return at, nil
	}
	if err == nil {
		at.Position = c.CachedInfo().AckFloor.Stream
	}
	return at, err
}

// retire removes the consumer of such a release when no process uses it any more.
func (q *Queue) retire(ctx context.Context) {
	q.mu.Lock()
	retired := q.retired
	q.mu.Unlock()
	if retired {
		return
	}
	c, err := q.js.Consumer(ctx, q.stream, legacyConsumer)
	switch {
	case err == nil && c.CachedInfo().NumWaiting == 0:
		_ = q.js.DeleteConsumer(ctx, q.stream, legacyConsumer) // tried again the next time
	case errors.Is(err, jetstream.ErrConsumerNotFound):
		q.mu.Lock()
		defer q.mu.Unlock()
		q.retired = true
	}
}
