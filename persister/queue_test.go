package persister_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// queue is one partition in memory. What was handed out and not settled comes again after redeliver.
type queue struct {
	stream    string
	redeliver time.Duration

	mu       sync.Mutex
	wake     chan struct{}
	msgs     []persister.Message
	out      map[uint64]time.Time // position → when it comes again
	acked    map[uint64]int
	released map[uint64]int
	fetchErr error
	ackErr   error
	onAck    func([]persister.Message)
	onHold   func([]persister.Message)
	lagErr   error
	held     int // messages that were held, counted each time
	lost     uint64
	away     bool          // another process has its turn
	takes    time.Duration // of a fetch that gives something, and of a confirmation
}

func newQueue(stream string) *queue {
	return &queue{
		stream: stream, redeliver: time.Minute, wake: make(chan struct{}, 1),
		out: make(map[uint64]time.Time), acked: make(map[uint64]int), released: make(map[uint64]int),
	}
}

// put stores messages as a log would.
func (q *queue) put(packs ...schema.Pack) {
	for _, p := range packs {
		q.raw(schema.Subject(p.Key, p.Child, 4), p.Headers(), p.Body)
	}
}

func (q *queue) raw(subject string, header map[string][]string, body []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.msgs = append(q.msgs, persister.Message{
		Stream: q.stream, Position: uint64(len(q.msgs) + 1), Stored: time.Now(), Subject: subject, Header: header, Body: body,
		Token: fmt.Sprint(len(q.msgs) + 1),
	})
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) Fetch(ctx context.Context, limit persister.Limit) ([]persister.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if msgs, err := q.due(limit); err != nil || len(msgs) > 0 || limit.NoWait {
		if len(msgs) > 0 {
			time.Sleep(q.takes)
		}
		return msgs, err
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-q.wake:
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return q.due(limit)
}

func (q *queue) due(limit persister.Limit) (msgs []persister.Message, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.fetchErr != nil {
		return nil, q.fetchErr
	}
	size := 0
	for _, m := range q.msgs {
		if q.acked[m.Position] > 0 || time.Now().Before(q.out[m.Position]) || len(msgs) == limit.Messages || size >= limit.Bytes {
			continue
		}
		q.out[m.Position] = time.Now().Add(q.redeliver)
		msgs = append(msgs, m)
		size += len(m.Body)
	}
	return msgs, nil
}

func (q *queue) Ack(ctx context.Context, msgs []persister.Message) error {
	time.Sleep(q.takes)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.onAck != nil {
		q.onAck(msgs)
	}
	if q.ackErr != nil {
		return q.ackErr
	}
	for _, m := range msgs {
		q.acked[m.Position]++
	}
	return ctx.Err()
}

func (q *queue) Release(ctx context.Context, msgs []persister.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, m := range msgs {
		q.released[m.Position]++
		delete(q.out, m.Position)
	}
	return ctx.Err()
}

func (q *queue) Lag(ctx context.Context) (persister.Lag, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lag := persister.Lag{Stream: q.stream, Window: time.Hour, Lost: q.lost}
	if q.lagErr != nil {
		return lag, q.lagErr
	}
	for _, m := range q.msgs {
		if q.acked[m.Position] == 0 {
			if lag.Messages++; lag.Messages == 1 {
				lag.Oldest = m.Stored
			}
		}
	}
	return lag, ctx.Err()
}

func (q *queue) Hold(_ context.Context, msgs []persister.Message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.onHold != nil {
		q.onHold(msgs)
	}
	for _, m := range msgs {
		q.out[m.Position] = time.Now().Add(q.redeliver)
		q.held++
	}
	return nil
}

func (q *queue) Patience() time.Duration { return q.redeliver }

func (q *queue) Ours() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.away
}

var (
	_ persister.Holder = (*queue)(nil)
	_ persister.Shared = (*queue)(nil)
)

func (q *queue) holds() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}

func (q *queue) counts() (acked, released int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.acked), len(q.released)
}

func (q *queue) set(fn func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	fn()
}

var errAway = errors.New("connection refused")
