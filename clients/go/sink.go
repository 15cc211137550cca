package agentstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentstream/schema"
)

// SinkConfig configures a Sink. The zero SinkConfig is ready to use.
type SinkConfig struct {
	BatchEvents int // most events in one request; default 1,024
	BatchBytes  int // most bytes in one request, unless one call of Send has more; default 512 KiB
	BufferBytes int // most bytes that are not stored yet, unless one call of Send has more; default 4 MiB
	// Stored is called after each request that was stored. It must not block.
	Stored func(Receipt)
}

func (c SinkConfig) withDefaults() SinkConfig {
	c.BatchEvents = cmp.Or(c.BatchEvents, schema.MaxPackEvents)
	c.BatchBytes = cmp.Or(c.BatchBytes, 512<<10)
	c.BufferBytes = cmp.Or(c.BufferBytes, 4<<20)
	return c
}

// Sink writes the events of one agent to its run over HTTP, in order, exactly once. It is what
// producers.RunConfig wants as its Sink, so that an agent without NATS has the same typed builders:
//
//	sink := client.Run(id).Sink(agentstream.SinkConfig{})
//	defer sink.Close(ctx)
//	run, err := producers.NewRun(producers.RunConfig{Sink: sink, RunID: id})
//
// Send returns before the events are stored. The first event is sent at once; events that are sent during a
// request share the next one. Each request has one idempotency key and is repeated with it until the server
// answers, or until Config.GiveUp is over. Only one request at a time is on its way, so that the order of the
// calls is the order of the run.
//
// A Sink does not own the run: other writers may append between its events. It is safe for concurrent use. It
// runs one goroutine while events wait and none when idle. Close waits for it.
type Sink struct {
	run *Run
	cfg SinkConfig

	mu       sync.Mutex
	queue    []sent // in the order of the calls
	bytes    int    // of what is not stored yet
	accepted uint64 // calls of Send
	stored   uint64 // of those, stored
	running  bool   // the sending goroutine
	closed   bool
	failed   error         // final
	progress chan struct{} // closed and replaced whenever one of the above changes; nil when nobody waits

	// ctx ends the requests, which outlive the calls of Send that caused them.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// sent is one call of Send.
type sent struct {
	lines  []byte
	events int
}

// LostError reports that events which a Sink had accepted are not stored. After ErrUnavailable some of them may
// be stored all the same: the answer is missing.
type LostError struct {
	Events int
	Err    error // why the first of them is not stored
}

// Error returns how many, and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("%d accepted events are not stored: %v", e.Events, e.Err)
}

// Unwrap returns the reason.
func (e *LostError) Unwrap() error { return e.Err }

// Sink returns a new Sink of the run. It sends nothing and starts nothing before the first event.
func (r *Run) Sink(cfg SinkConfig) *Sink {
	s := &Sink{run: r, cfg: cfg.withDefaults()}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Send accepts events, all or none. It waits while the buffer is full, until ctx ends. It keeps nothing of its
// arguments. An event without a time gets the time of the call.
//
// An error that wraps schema.ErrMalformed, schema.ErrTooLarge or another fault of an event concerns this call
// alone. Once the server has refused a request, Send returns that refusal in a *LostError: ErrEnded,
// ErrForbidden and so on. After Close it returns ErrClosed.
func (s *Sink) Send(ctx context.Context, events ...schema.Event) error {
	call, err := s.encode(events)
	if err != nil {
		return fmt.Errorf("send to run %s: %w", s.run.id, err)
	}
	if call.events == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	full := func() bool { return s.bytes > 0 && s.bytes+len(call.lines) > s.cfg.BufferBytes }
	for s.usable() == nil && full() {
		if err := s.await(ctx); err != nil {
			return fmt.Errorf("send to run %s: %w", s.run.id, err)
		}
	}
	if err := s.usable(); err != nil {
		return fmt.Errorf("send to run %s: %w", s.run.id, err)
	}
	s.queue = append(s.queue, call)
	s.bytes += len(call.lines)
	s.accepted++
	if !s.running {
		s.running = true
		go s.drain()
	}
	return nil
}

// encode checks events and writes them as lines.
func (s *Sink) encode(events []schema.Event) (sent, error) {
	call := sent{events: len(events)}
	now := time.Now().UTC().Format(schema.TimeLayout)
	for i := range events {
		e := events[i]
		if err := e.Prepare(s.run.id); err != nil {
			return sent{}, fmt.Errorf("event %d: %w", i+1, err)
		}
		e.TS = cmp.Or(e.TS, now)
		call.lines = append(AppendNew(call.lines, &e), '\n')
	}
	return call, nil
}

// usable returns why no more events are accepted. It is called with the lock held.
func (s *Sink) usable() error {
	if s.failed == nil && s.closed {
		return ErrClosed
	}
	return s.failed
}

// await releases the lock until the state of the Sink changes or ctx ends. It is called with the lock held.
func (s *Sink) await(ctx context.Context) error {
	if s.progress == nil {
		s.progress = make(chan struct{})
	}
	changed := s.progress
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// announce wakes those who await a change. It is called with the lock held.
func (s *Sink) announce() {
	if s.progress != nil {
		close(s.progress)
		s.progress = nil
	}
}

// Flush returns when all events that were accepted before are stored. The error is a *LostError when they
// cannot be, or the cause of ctx.
func (s *Sink) Flush(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	target := s.accepted
	for s.failed == nil && s.stored < target {
		if err := s.await(ctx); err != nil {
			return fmt.Errorf("flush run %s: %w", s.run.id, err)
		}
	}
	if s.failed != nil {
		return fmt.Errorf("flush run %s: %w", s.run.id, s.failed)
	}
	return nil
}

// Close accepts no more events and returns when those that it has are stored. When ctx ends first, Close gives
// the rest up and returns a *LostError. A second Close returns the same.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.announce()
	for s.running {
		if s.await(ctx) != nil {
			s.cancel(context.Cause(ctx))
			ctx = context.Background() // the goroutine ends at once
		}
	}
	s.cancel(ErrClosed)
	if s.failed != nil {
		return fmt.Errorf("close run %s: %w", s.run.id, s.failed)
	}
	return nil
}

// drain sends what waits, one request at a time, until nothing waits.
func (s *Sink) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) > 0 && s.failed == nil {
		calls, batch := s.next()
		s.mu.Unlock()
		receipt, err := s.run.AppendLines(s.ctx, rand.Text(), batch.lines)
		if err == nil && s.cfg.Stored != nil {
			s.cfg.Stored(receipt)
		}
		s.mu.Lock()
		if err != nil {
			s.fail(err, batch.events)
			break
		}
		s.stored += uint64(calls)
		s.bytes -= len(batch.lines)
		s.announce()
	}
	s.running = false
	s.announce()
}

// next removes whole calls from the queue and joins them into one request. It is called with the lock held.
func (s *Sink) next() (calls int, batch sent) {
	for _, call := range s.queue {
		full := batch.events+call.events > s.cfg.BatchEvents || len(batch.lines)+len(call.lines) > s.cfg.BatchBytes
		if calls > 0 && full {
			break
		}
		batch.lines = append(batch.lines, call.lines...)
		batch.events += call.events
		calls++
	}
	clear(s.queue[:calls])
	s.queue = s.queue[calls:]
	return calls, batch
}

// fail stops the Sink: a request with so many events was refused, and what waits will not be sent. It is called
// with the lock held.
func (s *Sink) fail(err error, events int) {
	var refusal *Error
	if errors.As(err, &refusal) {
		events -= refusal.Stored
	}
	for _, call := range s.queue {
		events += call.events
	}
	s.queue, s.bytes = nil, 0
	s.failed = &LostError{Events: events, Err: err}
}
