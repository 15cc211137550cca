package producers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/seal"
)

// Config is what a Publisher needs. Log and Key are required.
type Config struct {
	Log     Log
	Key     schema.RunKey
	Archive Archive // consulted when the log has nothing of the run; nil: a run never outlives the log's window
	// Shared writes beside others without owning the lanes: no takeover, no fence. For tools, not for
	// agents.
	Shared bool
	// NoWait makes Publish answer ErrBackpressure when the buffer is full, instead of waiting.
	NoWait bool

	PackEvents   int           // most events in one pack; default 128
	PackBytes    int           // bytes after which a pack is closed; default 64 KiB
	BufferEvents int           // most events that are not acknowledged; default 4,096
	BufferBytes  int           // most bytes that are not acknowledged; default 4 MiB
	Timeout      time.Duration // for one answer of the log, which is asked again, at first after half of it; default 1 s
	Reasons      Reasons       // for Expire alone
	// Redact hides what is not to be stored; nil: nothing. A text that ends with what may be the beginning of a secret
	// waits for what follows, for a quarter of a second at most.
	Redact *redact.File
	// Seal encrypts the events of some tenants; nil: of none. A Publisher waits for a key service that is away.
	Seal *seal.Keys

	Now    func() time.Time
	IDs    *schema.IDs
	Logger *slog.Logger
	Hooks  Hooks
}

// Hooks are called as things happen; nil ones are off. They must not block.
type Hooks struct {
	Stored   func(events int, bytes int, took time.Duration) // a pack was acknowledged
	Conflict func()                                          // another writer was first
	Retry    func(err error)                                 // the log did not answer or refused for now
	Fenced   func(key schema.RunKey)                         // the lane was taken over
	// acknowledged events that the log has lost, and nobody has
	Lost    func(key schema.RunKey, after, through schema.Seq)
	Refused func(events int, err error) // events that Send had taken are not stored; see LostError
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.PackEvents, 128)
	def(&c.PackBytes, 64<<10)
	def(&c.BufferEvents, 4096)
	def(&c.BufferBytes, 4<<20)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.IDs == nil {
		c.IDs = schema.NewIDs()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return c
}

func (c Config) validate() error {
	if c.Log == nil {
		return errors.New("producers: config: no log")
	}
	if err := c.Key.Validate(); err != nil {
		return fmt.Errorf("producers: config: %w", err)
	}
	if c.PackEvents < 1 || c.PackEvents > schema.MaxPackEvents || c.PackBytes < 1 || c.PackBytes > schema.MaxPackBytes {
		return fmt.Errorf("producers: config: packs of %d events and %d bytes, at most %d and %d", c.PackEvents,
			c.PackBytes, schema.MaxPackEvents, schema.MaxPackBytes)
	}
	return nil
}

// Publisher writes one run: the root's events and those of the children that this process runs. Opened on the id of
// a child that was spawned and has no log of its own, it writes that child's lane in its root's log, in the root's
// numbers. It sends at once when idle and collects while an acknowledgement is outstanding, so packs grow with the
// load and waiting is never added.
type Publisher struct {
	cfg    Config
	writer *writer
	child  string // whose lane is written in place of the run's; "" unless cfg.Key is a child's id. The goroutine's

	mu       sync.Mutex
	pending  queue // the flushing goroutine has not taken it yet
	spare    queue // the other one, empty; the goroutine has it while it runs
	accepted uint64
	settled  uint64 // of those accepted: their fate is known
	bytes    int    // of those accepted and not settled
	flushes  []flushWait
	freed    chan struct{} // closed when space has become free; nil when nobody waits
	running  bool          // the flushing goroutine
	texts    redact.Trail  // how the blocks have ended in what was handed to the log; the goroutine's
	more     chan struct{} // closed when there is more to decide by; nil while the goroutine does not wait for it
	ended    chan struct{} // closed when it has returned; nil when nobody waits
	closed   bool
	failed   error     // the publisher has stopped for good
	lost     LostError // since the last Flush

	// ctx ends the flushing goroutine, which outlives the call that started it.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// flushWait is one Flush that waits.
type flushWait struct {
	upto uint64 // value of settled
	done chan struct{}
}

// LostError reports that events which Send had taken are not stored, or with ErrUnanswered perhaps not. It
// wraps why the first of them is not.
type LostError struct {
	Events int
	Err    error
}

// Error returns how many, and why the first.
func (e *LostError) Error() string {
	return fmt.Sprintf("%d events that were sent are not stored: %v", e.Events, e.Err)
}

// Unwrap returns why the first is not stored.
func (e *LostError) Unwrap() error { return e.Err }

// New returns a publisher. It does not contact the log before the first event.
func New(cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, writer: newWriter(cfg)}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p, nil
}

// Config returns the configuration that the publisher works with, defaults filled in.
func (p *Publisher) Config() Config { return p.cfg }

// Key returns the run that the publisher writes.
func (p *Publisher) Key() schema.RunKey { return p.cfg.Key }

// WriterID returns the id of this writer. Packs name it as their writer, and lanes as their owner.
func (p *Publisher) WriterID() string { return p.writer.build.writer }

// Err returns why the publisher takes no more events: ErrClosed, ErrFenced, or what the log refused; nil
// while it does.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.usable()
}

// Publish accepts events in order. It returns when they are in the buffer: an error means that
// none of them is. With a full buffer it waits for space (or answers ErrBackpressure with NoWait).
// Events of one call and one lane are stored together or not at all, as long as the store takes them in
// one pack (schema.MaxPackEvents, schema.MaxPackBytes) and none of them is refused.
// Type and Payload are required, ChildID names the lane; ID, TS, RunID and Seq are filled in when
// the event is numbered. Payload bytes must not be changed afterwards.
func (p *Publisher) Publish(ctx context.Context, events ...schema.Event) (Pending, error) {
	c := &pendingPublish{left: len(events)}
	if err := p.enqueue(ctx, events, c); err != nil {
		return Pending{}, fmt.Errorf("producers: publish to %s: %w", p.cfg.Key, err)
	}
	return Pending{p: p, c: c}, nil
}

// Send is Publish without a receipt, for many small events: it makes no object for each, and keeps
// nothing of its arguments but their strings and Path: the slice, and the bytes of Payload and Extra, may
// be used again when it has returned.
//
// What became of the events is reported only when they are not stored: by Hooks.Refused at once, by the next
// Flush or Close with a LostError, and, where the publisher has stopped for good, by the next Send.
func (p *Publisher) Send(ctx context.Context, events ...schema.Event) error {
	if err := p.enqueue(ctx, events, nil); err != nil {
		return fmt.Errorf("producers: send to %s: %w", p.cfg.Key, err)
	}
	return nil
}

// Append publishes events and waits until they are stored.
func (p *Publisher) Append(ctx context.Context, events ...schema.Event) (Receipt, error) {
	w, err := p.Publish(ctx, events...)
	if err != nil {
		return Receipt{}, err
	}
	return w.Wait(ctx)
}

// Flush waits until everything that was handed over before is stored or has failed. The error is that
// of a publisher that has stopped, or a LostError about events of Send since the last Flush.
func (p *Publisher) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.settled < p.accepted {
		w := flushWait{upto: p.accepted, done: make(chan struct{})}
		p.flushes = append(p.flushes, w)
		p.wake()
		p.mu.Unlock()
		select {
		case <-w.done:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			p.flushes = slices.DeleteFunc(p.flushes, func(o flushWait) bool { return o == w })
			return fmt.Errorf("producers: flush %s: %w", p.cfg.Key, context.Cause(ctx))
		}
	}
	return p.outcome("flush")
}

// Close takes no more events, waits until those it has are stored, and returns when its goroutine
// has ended. When ctx ends first, the rest is given up: those calls fail with ErrClosed, and with
// ErrUnanswered where a pack may have been stored after all. Events of Send that are not stored are reported
// as by Flush. Closing twice is harmless.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.wake()
	if p.running {
		if p.ended == nil {
			p.ended = make(chan struct{})
		}
		ended := p.ended
		p.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			p.cancel(ErrClosed)
			<-ended
		}
		p.mu.Lock()
	}
	p.cancel(ErrClosed)
	return p.outcome("close")
}

// outcome returns what was lost, once, and always returns why the publisher has stopped. Called with the lock held.
func (p *Publisher) outcome(doing string) error {
	err := p.failed
	if p.lost.Events > 0 {
		lost := p.lost
		p.lost = LostError{}
		if err == nil || errors.Is(lost.Err, err) {
			err = &lost
		} else {
			err = fmt.Errorf("%w; %w", &lost, err)
		}
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("producers: %s %s: %w", doing, p.cfg.Key, err)
}

// enqueue puts events into the buffer, all or none. c nil: without a receipt, and their bytes are copied.
func (p *Publisher) enqueue(ctx context.Context, events []schema.Event, c *pendingPublish) error {
	size := 0
	for i := range events {
		if err := events[i].Prepare(p.cfg.Key.Run); err != nil {
			return fmt.Errorf("event %d: %w", i+1, err)
		}
		size += events[i].Size()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.awaitSpace(ctx, len(events), size); err != nil || len(events) == 0 {
		return err
	}
	p.pending.add(events, c)
	p.accepted += uint64(len(events))
	p.bytes += size
	p.wake()
	if !p.running {
		p.running = true
		go p.flush()
	}
	return nil
}

// usable returns why no more events are taken. Called with the lock held.
func (p *Publisher) usable() error {
	if p.failed != nil {
		return p.failed
	}
	if p.closed {
		return ErrClosed
	}
	return nil
}

// awaitSpace returns when so many events of this size may be added. It is called with the lock held, and
// releases it while it waits.
func (p *Publisher) awaitSpace(ctx context.Context, events, size int) error {
	for {
		if err := p.usable(); err != nil {
			return err
		}
		buffered := int(p.accepted - p.settled)
		if buffered == 0 || buffered+events <= p.cfg.BufferEvents && p.bytes+size <= p.cfg.BufferBytes {
			return nil
		}
		if p.cfg.NoWait {
			return ErrBackpressure
		}
		if p.freed == nil {
			p.freed = make(chan struct{})
			p.wake()
		}
		freed := p.freed
		p.mu.Unlock()
		select {
		case <-freed:
			p.mu.Lock()
		case <-ctx.Done():
			p.mu.Lock()
			return context.Cause(ctx)
		}
	}
}
