package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/internal/fair"
	"agentstream/schema"
)

// Config is what a Hub needs. Stream and Tail are required.
type Config struct {
	Stream  History // the stream's window
	Tail    Tail
	Archive History // what is older; nil: nothing is
	// Open returns a pack as readers get it, where its content is encrypted; nil: none is. What the hub keeps is as it is
	// stored. The context is the reader's.
	Open func(ctx context.Context, p schema.Pack) (schema.Pack, error)

	RingBytes  int           // newest packs kept per watched run; default 256 KiB
	RingsBytes int           // the same for all watched runs together, down to 4 KiB for each; default 16 MiB
	CacheBytes int           // pages of history kept for all runs; default 64 MiB, negative: none
	CacheFresh time.Duration // how long they are given without a look whether the run still has them; default 1 s
	Handed     bool          // Tail calls back on the goroutines of writers, as Stored does
	AuditEvery time.Duration // how often silent runs are compared with the stream; default 7 s, jittered
	GiveUp     time.Duration // after so long without the stream, live readers get an error; default 30 s

	Logger *slog.Logger
	Hooks  Hooks
}

// Hooks are called as things happen; nil ones are off. They must not block.
type Hooks struct {
	Watching func(runs int)            // number of watched runs has changed
	Gap      func(key schema.RunKey)   // a copy was lost, by a hole in the numbers or by the audit
	Replayed func(events int)          // events read from history for a reader
	Page     func(hit bool, held int)  // a page of history was asked for; held: bytes in the cache now
	Audited  func(runs int, err error) // an audit has ended
}

func (c Config) withDefaults() Config {
	if c.RingBytes == 0 {
		c.RingBytes = 256 << 10
	}
	if c.RingsBytes == 0 {
		c.RingsBytes = 16 << 20
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 64 << 20
	}
	if c.CacheFresh == 0 {
		c.CacheFresh = time.Second
	}
	if c.AuditEvery == 0 {
		c.AuditEvery = 7 * time.Second
	}
	if c.GiveUp == 0 {
		c.GiveUp = 30 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return c
}

func (c Config) validate() error {
	if c.Stream == nil || c.Tail == nil {
		return errors.New("fanout: config: stream and tail are required")
	}
	return nil
}

// Hub watches runs on behalf of subscriptions.
type Hub struct {
	cfg   Config
	cache *cache // nil: none

	shards   [hubShards]shard
	watching atomic.Int64 // topics in all shards
	rings    fair.Parts   // the same by tenant
	closed   atomic.Bool  // set before the shards are emptied

	work   sync.WaitGroup // goroutines that fill holes
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// hubShards is into how many parts the registry of topics is cut, so that no look at a part of it, with a
// million runs in all, keeps subscribers waiting for more than a few milliseconds.
const hubShards = 64

type shard struct {
	mu     sync.Mutex
	topics map[schema.RunKey]*topic
}

func (h *Hub) shard(key schema.RunKey) *shard {
	return &h.shards[schema.Partition(key.Run, hubShards)]
}

// topic returns the run's topic; nil when nobody watches it.
func (h *Hub) topic(key schema.RunKey) *topic {
	s := h.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.topics[key]
}

// Deliver passes a pack that this process has written to the readers of its run, so that they need not wait for
// the copy, which is passed over. It never blocks. Packs of a run may come in any order, and some may not come.
func (h *Hub) Deliver(p schema.Pack) {
	if f := h.topic(p.Key); f != nil {
		f.early(p)
	}
}

// ring returns the newest packs of a run that is watched, nil when it is not.
func (h *Hub) ring(key schema.RunKey) *topicView {
	if f := h.topic(key); f != nil {
		return f.view.Load()
	}
	return nil
}

// minRing is what each watched run has of the newest packs, however many are watched, in bytes.
const minRing = 4 << 10

// ringLimit returns the bytes that the ring may hold now: readers that fall out of it read history, which is cheaper
// than the newest of everything in memory for everybody. A tenant's rings share its part.
func (f *topic) ringLimit() int {
	return min(f.hub.cfg.RingBytes, max(minRing, f.part.Share(f.hub.cfg.RingsBytes)))
}

// remove takes a topic out of the registry, if it still is in it. Under the lock of its shard.
func (h *Hub) remove(s *shard, f *topic) {
	if s.topics[f.key] == f {
		delete(s.topics, f.key)
		f.part.Leave()
		h.watching.Add(-1)
	}
}

// New makes a hub.
func New(cfg Config) (*Hub, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg}
	for i := range h.shards {
		h.shards[i].topics = make(map[schema.RunKey]*topic)
	}
	h.cache = newCache(h)
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	return h, nil
}

// Run audits the watched runs until ctx ends. Then every subscription ends with ErrClosed, and Run
// returns when nothing that the hub started is left.
func (h *Hub) Run(ctx context.Context) error {
	defer h.close()
	lastGood := time.Now()
	for {
		everyone := false
		t := time.NewTimer(h.cfg.AuditEvery/2 + rand.N(h.cfg.AuditEvery))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-h.cfg.Tail.Losses():
			everyone = true
			t.Stop()
			h.cache.forget()
		case <-t.C:
		}
		n, err := h.audit(ctx, everyone)
		if h.cfg.Hooks.Audited != nil {
			h.cfg.Hooks.Audited(n, err)
		}
		if err == nil {
			lastGood = time.Now()
			continue
		}
		h.cfg.Logger.Warn("compare watched runs with the stream", "runs", n, "err", err)
		if time.Since(lastGood) > h.cfg.GiveUp {
			// The cause is printed and not wrapped: a reader must not take the audit's deadline for its own.
			h.fail(fmt.Errorf("fanout: stream is silent for %s: %w: %v", time.Since(lastGood).Round(time.Second),
				ErrUnavailable, err))
		}
	}
}

func (h *Hub) close() {
	h.closed.Store(true)
	h.cancel(ErrClosed)
	h.fail(ErrClosed)
	h.work.Wait()
}

// auditGroup is about how many runs are compared at once.
const auditGroup = 4096

// audit compares the watched runs that have been silent since the last audit, or all of them, with
// what the stream has. It finds what a lost copy hid.
func (h *Hub) audit(ctx context.Context, everyone bool) (runs int, err error) {
	var keys []schema.RunKey
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		for key, f := range s.topics {
			if f.quiet() || everyone {
				keys = append(keys, key)
			}
		}
		s.mu.Unlock()
		if len(keys) < auditGroup && i < hubShards-1 || len(keys) == 0 {
			continue
		}
		runs += len(keys)
		if err := h.compare(ctx, keys); err != nil {
			return runs, fmt.Errorf("fanout: audit: %w", err)
		}
		keys = keys[:0]
	}
	return runs, nil
}

func (h *Hub) compare(ctx context.Context, keys []schema.RunKey) error {
	ctx, cancel := context.WithTimeout(ctx, min(h.cfg.GiveUp, 5*time.Second))
	defer cancel()
	newest, err := h.cfg.Tail.Newest(ctx, keys)
	if err != nil {
		return err
	}
	for key, seq := range newest {
		if f := h.topic(key); f != nil {
			f.expect(seq)
		}
	}
	return h.missing(ctx, keys, newest)
}

// missingChecks bounds how many runs one comparison asks for by name.
const missingChecks = 64

// missing looks at runs that the stream has less of than their readers have seen. Mostly their events have left the
// stream's window and the archive has them. A run that neither has any more was deleted, and one that goes no further
// than its readers was begun anew: the readers of both get an error, for nothing else would come. Of those that have
// not begun it finds out whether they are children of others now.
func (h *Hub) missing(ctx context.Context, keys []schema.RunKey, newest map[schema.RunKey]schema.Seq) error {
	asked := 0
	for _, key := range keys {
		f := h.topic(key)
		if f == nil || !f.checkAhead(newest[key]) {
			continue
		}
		if asked++; asked > missingChecks {
			return nil // the others are asked for when these have had their turn
		}
		hi := f.view.Load().hi
		head, err := h.Head(ctx, key)
		child := new(ChildError)
		switch {
		case errors.As(err, &child):
			f.abandon(err)
		case hi == 0 && err == nil:
			f.expect(head.Last)
		case hi == 0 && errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrNotFound):
			f.abandon(fmt.Errorf("fanout: %s is no longer there: %w", key, ErrNotFound))
		case err != nil:
			return err
		case head.Last < hi:
			f.abandon(fmt.Errorf("fanout: %s stands at %d, %d was delivered: %w", key, head.Last, hi, ErrFuture))
		}
	}
	return nil
}

// Forget drops what the hub holds of a run whose stored events have another content now. Its subscriptions end with
// ErrUnavailable: clients come back, and are given what is stored.
func (h *Hub) Forget(key schema.RunKey) {
	h.cache.forgetRun(key)
	if f := h.topic(key); f != nil {
		f.abandon(fmt.Errorf("fanout: events of %s have another content now: %w", key, ErrUnavailable))
	}
}

// fail ends all topics. Their subscriptions get err once they have delivered what the topic holds.
func (h *Hub) fail(err error) {
	for i := range h.shards {
		s := &h.shards[i]
		s.mu.Lock()
		topics := s.topics
		s.topics = make(map[schema.RunKey]*topic)
		h.watching.Add(-int64(len(topics)))
		s.mu.Unlock()
		for _, f := range topics {
			f.part.Leave()
			f.fail(err)
		}
	}
	h.count()
}

func (h *Hub) count() {
	if h.cfg.Hooks.Watching != nil {
		h.cfg.Hooks.Watching(int(h.watching.Load()))
	}
}

// acquire returns the run's topic, attached. The first user attaches it, the others wait for that. fresh reports
// whether the topic's head was asked for within the call.
func (h *Hub) acquire(ctx context.Context, key schema.RunKey) (f *topic, fresh bool, err error) {
	part := h.shard(key)
	for {
		part.mu.Lock()
		if h.closed.Load() {
			part.mu.Unlock()
			return nil, false, ErrClosed
		}
		f := part.topics[key]
		if f == nil {
			f = newTopic(h, key)
			part.topics[key] = f
			f.refs = 1
			h.watching.Add(1)
			part.mu.Unlock()
			h.count()
			err := f.attach(ctx)
			close(f.attached)
			if err != nil {
				h.release(f)
				return nil, false, err
			}
			return f, true, nil
		}
		f.refs++
		part.mu.Unlock()
		if err := until(ctx, f.attached); err != nil {
			h.release(f)
			return nil, false, err
		}
		if f.attachErr == nil {
			return f, false, nil
		}
		h.release(f)
		if !errors.Is(f.attachErr, context.Canceled) && !errors.Is(f.attachErr, context.DeadlineExceeded) {
			return nil, false, f.attachErr
		}
		// The one who attached went away in the middle: try it ourselves.
	}
}

// release ends a use of a topic; the last user ends the interest.
func (h *Hub) release(f *topic) {
	failed := false
	select {
	case <-f.attached:
		failed = f.attachErr != nil
	default:
	}
	part := h.shard(f.key)
	part.mu.Lock()
	f.refs--
	last := f.refs == 0
	if last || failed {
		h.remove(part, f)
	}
	part.mu.Unlock()
	if last {
		f.detach()
		h.count()
	}
}

// Head returns the newest position of a run: from the stream's leader, or from the archive when the
// stream no longer holds the run. ErrNotFound: neither has it. ErrUnavailable: ask again.
func (h *Hub) Head(ctx context.Context, key schema.RunKey) (schema.Head, error) {
	head, err := h.cfg.Stream.Head(ctx, key, "")
	if err == nil && !head.HasEvents() && head.Root == "" && h.cfg.Archive != nil {
		head, err = h.cfg.Archive.Head(ctx, key, "")
	}
	switch {
	case err != nil:
		return schema.Head{}, fmt.Errorf("fanout: head of %s: %w: %w", key, ErrUnavailable, err)
	case !head.HasEvents() && head.Root != "":
		return schema.Head{}, fmt.Errorf("fanout: head of %s: %w", key, &ChildError{Root: head.Root})
	case !head.HasEvents():
		return schema.Head{}, fmt.Errorf("fanout: head of %s: %w", key, ErrNotFound)
	}
	return head, nil
}

// until waits until c can be received from. What it waits beside is made only when it must wait: a context makes a
// channel for that, and keeps it.
func until(ctx context.Context, c <-chan struct{}) error {
	select {
	case <-c:
		return nil
	default:
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
