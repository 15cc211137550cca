package persister_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// stream is one partition of a log in memory.
type stream struct {
	name string

	mu       sync.Mutex
	changed  chan struct{} // closed at every change, and made anew
	identity string
	msgs     []persister.Message // those that are still there
	last     uint64              // position of the newest message ever
	fetchErr error
	lagErr   error
	window   time.Duration
	takes    time.Duration // of a fetch that returns something
	fetches  int
}

// queue reads a stream. Each persister has its own.
type queue struct {
	*stream
	busy   atomic.Bool
	sought string // identity of the stream that Seek found, "" when Seek must come first
	next   uint64
	lost   atomic.Uint64
	gone   atomic.Uint64 // position of the newest message that was dropped unread
	judged uint64        // losses up to this position are counted
}

var (
	_ persister.Queue   = (*queue)(nil)
	_ persister.Dropper = (*queue)(nil)
)

func (q *queue) LastDropped() uint64 { return q.gone.Swap(0) }

// lose counts what was dropped between a position and the front.
func (q *queue) lose(after uint64) {
	front := q.front()
	if front <= after {
		return
	}
	q.gone.Store(front)
	if from := max(after, q.judged); front > from {
		q.lost.Add(front - from)
		q.judged = front
	}
}

// front returns the position before the first message.
func (q *queue) front() uint64 {
	if len(q.msgs) == 0 {
		return q.last
	}
	return q.msgs[0].Position - 1
}

func newQueue(name string) *queue {
	return (&stream{name: name, identity: "1", changed: make(chan struct{}), window: time.Hour}).open()
}

// open makes another reader of the stream.
func (s *stream) open() *queue { return &queue{stream: s} }

// put stores messages as a log would.
func (s *stream) put(packs ...schema.Pack) {
	for _, p := range packs {
		s.raw(schema.Subject(p.Key, p.Child, 4), p.Headers(), p.Body)
	}
}

func (s *stream) raw(subject string, header map[string][]string, body []byte) {
	s.set(func() {
		s.last++
		s.msgs = append(s.msgs, persister.Message{
			Stream: s.name, Position: s.last, Stored: time.Now(), Subject: subject, Header: header, Body: body,
		})
	})
}

// cut takes away what was stored behind a position, as a log does that is set back to an older copy.
func (s *stream) cut(position uint64) {
	s.set(func() {
		for len(s.msgs) > 0 && s.msgs[len(s.msgs)-1].Position > position {
			s.msgs = s.msgs[:len(s.msgs)-1]
		}
		s.last = position
	})
}

// drop takes away the oldest messages, as a window does.
func (s *stream) drop(n int) { s.set(func() { s.msgs = s.msgs[n:] }) }

// anew makes the stream anew, without a message.
func (s *stream) anew() {
	s.set(func() {
		n, _ := strconv.Atoi(s.identity)
		s.identity, s.msgs, s.last = strconv.Itoa(n+1), nil, 0
	})
}

func (s *stream) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	close(s.changed)
	s.changed = make(chan struct{})
}

// asked returns how many fetches there were.
func (s *stream) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fetches
}

func (q *queue) Stream() string { return q.name }

// alone fails when two use the queue at the same time.
func (q *queue) alone() func() {
	if !q.busy.CompareAndSwap(false, true) {
		panic("two use one queue")
	}
	return func() { q.busy.Store(false) }
}

func (q *queue) Seek(ctx context.Context, stored persister.Offset) (persister.Offset, error) {
	defer q.alone()()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sought = ""
	beginning := persister.Offset{Stream: q.name, Identity: q.identity, Generation: stored.Generation}
	switch {
	case ctx.Err() != nil:
		return persister.Offset{}, ctx.Err()
	case q.fetchErr != nil:
		return persister.Offset{}, q.fetchErr
	case stored.Identity == "", stored.Identity != q.identity && q.last == 0:
		stored = beginning
	case stored.Identity != q.identity || stored.Position > q.last:
		return persister.Offset{}, fmt.Errorf("%s ends at %d: %w", q.name, q.last, persister.ErrBehind)
	}
	q.sought, q.next = q.identity, stored.Position+1
	q.lose(stored.Position)
	return stored, nil
}

func (q *queue) Fetch(ctx context.Context, limit persister.Limit) ([]persister.Message, error) {
	defer q.alone()()
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	for {
		msgs, changed, err := q.due(ctx, limit)
		if len(msgs) > 0 {
			time.Sleep(q.takes)
		}
		if err != nil || len(msgs) > 0 || limit.NoWait {
			return msgs, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (q *queue) due(ctx context.Context, limit persister.Limit) (msgs []persister.Message, changed <-chan struct{},
	err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fetches++
	switch {
	case q.sought == "":
		panic("fetch without seek")
	case ctx.Err() != nil:
		err = ctx.Err()
	case q.fetchErr != nil:
		err = q.fetchErr
	case q.sought != q.identity || q.next > q.last+1:
		err = errors.New("the stream is another one")
	}
	if err != nil {
		q.sought = ""
		return nil, q.changed, err
	}
	size := 0
	q.lose(q.next - 1)
	for _, m := range q.msgs {
		if m.Position < q.next {
			continue
		}
		if len(msgs) == limit.Messages || size >= limit.Bytes {
			break
		}
		q.next = m.Position + 1
		msgs = append(msgs, m)
		size += len(m.Body)
	}
	return msgs, q.changed, nil
}

func (q *queue) Lag(ctx context.Context, stored persister.Offset) (persister.Lag, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lag := persister.Lag{Stream: q.name, Window: q.window, Lost: q.lost.Load()}
	if q.lagErr != nil {
		return lag, q.lagErr
	}
	for _, m := range q.msgs {
		if m.Position > stored.Position || stored.Identity != q.identity {
			if lag.Messages++; lag.Messages == 1 {
				lag.Oldest = m.Stored
			}
		}
	}
	return lag, ctx.Err()
}

var errAway = errors.New("connection refused")
