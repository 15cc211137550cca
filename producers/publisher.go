package producers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"agentstream/schema"
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
	Timeout      time.Duration // for one answer of the log; default 5 s

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
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
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
		return fmt.Errorf("producers: config: packs of %d events and %d bytes, at most %d and %d", c.PackEvents, c.PackBytes, schema.MaxPackEvents, schema.MaxPackBytes)
	}
	return nil
}

// Publisher writes one run: the root's events and those of the children that this process runs. It
// sends at once when idle and collects while an acknowledgement is outstanding, so packs grow with
// the load and waiting is never added.
type Publisher struct {
	cfg    Config
	writer *writer

	mu      sync.Mutex
	pending []item
	events  int           // buffered and being sent
	bytes   int           // the same
	freed   chan struct{} // closed when space has become free; nil when nobody waits
	idle    chan struct{} // closed when the flushing goroutine has returned; nil when it does not run
	closed  bool
	failed  error // the publisher has stopped for good

	// ctx ends the flushing goroutine, which outlives the call that started it.
	ctx    context.Context
	cancel context.CancelCauseFunc
}

type item struct {
	event schema.Event
	call  *call
}

// call is one Publish on its way.
type call struct {
	left    int
	receipt Receipt
	err     error
	done    chan struct{} // made by the first Wait
}

// Receipt says where events were stored. Other writers' events may lie between First and Last.
type Receipt struct {
	First    schema.Seq
	Last     schema.Seq
	Replayed bool // the answer of an earlier append with the same idempotency key
}

// New makes a publisher. It does not talk to the log: the first event does.
func New(cfg Config) (*Publisher, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Publisher{cfg: cfg, writer: newWriter(cfg)}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	return p, nil
}

// Pending is an event or several on the way to the log.
type Pending struct {
	p *Publisher
	c *call
}

// Wait returns when all events of the call are stored, or when it is certain that they will not be.
// When ctx ends first, they may still be stored later.
func (w Pending) Wait(ctx context.Context) (Receipt, error) {
	w.p.mu.Lock()
	if w.c.left == 0 {
		defer w.p.mu.Unlock()
		return w.c.receipt, w.c.err
	}
	if w.c.done == nil {
		w.c.done = make(chan struct{})
	}
	done := w.c.done
	w.p.mu.Unlock()
	select {
	case <-done:
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		return w.c.receipt, w.c.err
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("producers: publish to %s: %w", w.p.cfg.Key, context.Cause(ctx))
	}
}

// Publish hands events over in order. It returns when they are in the buffer: an error means that
// none of them is. With a full buffer it waits for space (or answers ErrBackpressure with NoWait).
// Events of one call and one lane are stored together or not at all, as long as the store takes them in
// one pack (schema.MaxPackEvents, schema.MaxPackBytes) and none of them is refused.
// Type and Payload are required, ChildID names the lane; ID, TS, RunID and Seq are filled in when
// the event is numbered. Payload bytes must not be changed afterwards.
func (p *Publisher) Publish(ctx context.Context, events ...schema.Event) (Pending, error) {
	size := 0
	for i := range events {
		if err := events[i].Prepare(p.cfg.Key.Run); err != nil {
			return Pending{}, fmt.Errorf("producers: publish to %s: event %d: %w", p.cfg.Key, i+1, err)
		}
		size += events[i].Size()
	}
	p.mu.Lock()
	for {
		if err := p.usable(); err != nil {
			p.mu.Unlock()
			return Pending{}, fmt.Errorf("producers: publish to %s: %w", p.cfg.Key, err)
		}
		if p.events == 0 || (p.events+len(events) <= p.cfg.BufferEvents && p.bytes+size <= p.cfg.BufferBytes) {
			break
		}
		if p.cfg.NoWait {
			p.mu.Unlock()
			return Pending{}, fmt.Errorf("producers: publish to %s: %w", p.cfg.Key, ErrBackpressure)
		}
		if err := p.awaitSpace(ctx); err != nil {
			return Pending{}, fmt.Errorf("producers: publish to %s: %w", p.cfg.Key, err)
		}
	}
	c := &call{left: len(events)}
	for i := range events {
		p.pending = append(p.pending, item{event: events[i], call: c})
	}
	p.events += len(events)
	p.bytes += size
	if p.idle == nil && len(events) > 0 {
		p.idle = make(chan struct{})
		go p.flush(p.idle)
	}
	p.mu.Unlock()
	return Pending{p: p, c: c}, nil
}

// Append publishes events and waits until they are stored.
func (p *Publisher) Append(ctx context.Context, events ...schema.Event) (Receipt, error) {
	w, err := p.Publish(ctx, events...)
	if err != nil {
		return Receipt{}, err
	}
	return w.Wait(ctx)
}

// Flush waits until everything that was published before is stored or has failed; the error is that
// of a publisher that has stopped.
func (p *Publisher) Flush(ctx context.Context) error {
	for {
		p.mu.Lock()
		idle, failed := p.idle, p.failed
		p.mu.Unlock()
		if failed != nil {
			return fmt.Errorf("producers: flush %s: %w", p.cfg.Key, failed)
		}
		if idle == nil {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("producers: flush %s: %w", p.cfg.Key, context.Cause(ctx))
		}
	}
}

// Close takes no more events, waits until those it has are stored, and returns when its goroutine
// has ended. When ctx ends first, the rest is given up: those calls fail with ErrClosed, and with
// ErrUnanswered where a pack may have been stored after all. Closing twice is harmless.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.mu.Unlock()
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			p.cancel(ErrClosed)
			<-idle
		}
	}
	p.cancel(ErrClosed)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed != nil {
		return fmt.Errorf("producers: close %s: %w", p.cfg.Key, p.failed)
	}
	return nil
}

// usable is called with the lock held.
func (p *Publisher) usable() error {
	if p.failed != nil {
		return p.failed
	}
	if p.closed {
		return ErrClosed
	}
	return nil
}

// awaitSpace is called with the lock held and returns with it held, or without it and an error.
func (p *Publisher) awaitSpace(ctx context.Context) error {
	if p.freed == nil {
		p.freed = make(chan struct{})
	}
	freed := p.freed
	p.mu.Unlock()
	select {
	case <-freed:
		p.mu.Lock()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// flush sends until nothing is pending. At most one runs per publisher.
func (p *Publisher) flush(idle chan struct{}) {
	var batch []item
	var events []schema.Event
	for {
		p.mu.Lock()
		if len(p.pending) == 0 {
			p.idle = nil
			p.mu.Unlock()
			close(idle)
			return
		}
		batch, p.pending = p.pending, batch[:0]
		p.mu.Unlock()
		events = events[:0]
		for i := range batch {
			events = append(events, batch[i].event)
		}
		p.send(batch, events)
		clear(batch)
		clear(events)
	}
}

// send stores a batch in as many packs as it takes. The fate of every event is settled when it
// returns.
func (p *Publisher) send(batch []item, events []schema.Event) {
	for len(events) > 0 {
		pack, n, err := p.writer.commit(p.ctx, events, p.bounds(batch))
		if n > 0 {
			p.settle(batch[:n], pack.First, nil, false)
			batch, events = batch[n:], events[n:]
		}
		if err == nil {
			continue
		}
		if refusal(err) {
			// Only this event is at fault. The rest of its call must not be stored as if it had gone
			// through, so it fails with it; later calls go on.
			n = 1
			for n < len(batch) && batch[n].call == batch[0].call {
				n++
			}
			p.settle(batch[:n], 0, err, false)
			batch, events = batch[n:], events[n:]
			continue
		}
		p.settle(batch, 0, err, true)
		return
	}
}

// bounds are those of the next pack. Calls are not divided: what was handed over together is stored
// together (see Publish).
func (p *Publisher) bounds(batch []item) limits {
	lim := limits{events: p.cfg.PackEvents, bytes: p.cfg.PackBytes}
	if len(batch) < 2 {
		return lim
	}
	lim.whole = func(n int) int {
		k := n
		for k > 0 && batch[k-1].call == batch[n].call {
			k--
		}
		return k
	}
	first, bytes := 0, 0
	for first < len(batch) && batch[first].call == batch[0].call {
		bytes += batch[first].event.Size()
		first++
	}
	if first > 1 && first <= schema.MaxPackEvents && bytes <= schema.MaxPackBytes {
		lim.events, lim.bytes = max(lim.events, first), max(lim.bytes, bytes)
	}
	return lim
}

// refusal says that the error is about one event and not about the log or the lane.
func refusal(err error) bool {
	return errors.Is(err, schema.ErrEnded) || errors.Is(err, schema.ErrSeqMismatch) ||
		errors.Is(err, schema.ErrMalformed) || errors.Is(err, schema.ErrTooLarge)
}

// settle gives the calls of items their receipts, first being the seq of the first item, or their
// error. fatal stops the publisher for good.
func (p *Publisher) settle(items []item, first schema.Seq, err error, fatal bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if fatal {
		p.failed = err
		items = append(items, p.pending...)
		p.pending = nil
	}
	for i := range items {
		c := items[i].call
		seq := first + schema.Seq(i)
		if err != nil {
			c.err = err
		} else {
			if c.receipt.First == 0 {
				c.receipt.First = seq
			}
			c.receipt.Last = seq
		}
		p.events--
		p.bytes -= items[i].event.Size()
		if c.left--; c.left == 0 && c.done != nil {
			close(c.done)
		}
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// writerID names one opening of a writer: it finds an unanswered publish again.
func writerID() string { return rand.Text()[:20] }

// Send hands events over like Publish, without a receipt: what became of them is said by Flush and
// Close.
func (p *Publisher) Send(ctx context.Context, events ...schema.Event) error {
	_, err := p.Publish(ctx, events...)
	return err
}
