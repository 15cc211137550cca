package fanout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"agentstream/schema"
)

// Config is what a Hub needs. Stream and Tail are required.
type Config struct {
	Stream  History // the stream's window
	Tail    Tail
	Archive History // what is older; nil: nothing is

	RingBytes  int           // newest packs kept per watched run; default 256 KiB
	CacheBytes int           // pages of history kept for all runs; default 64 MiB, negative: none
	CacheFresh time.Duration // how long they are given without a look whether the run still has them; default 1 s
	AuditEvery time.Duration // how often silent runs are compared with the stream; default 7 s, jittered
	GiveUp     time.Duration // after so long without the stream, live readers are told; default 30 s

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

	mu     sync.Mutex
	feeds  map[schema.RunKey]*feed
	closed bool

	work   sync.WaitGroup // goroutines that fill holes
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// New makes a hub.
func New(cfg Config) (*Hub, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Hub{cfg: cfg, feeds: make(map[schema.RunKey]*feed)}
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
		case <-h.cfg.Tail.Lost():
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
			h.fail(fmt.Errorf("fanout: stream is silent for %s: %w: %w", time.Since(lastGood).Round(time.Second), ErrUnavailable, err))
		}
	}
}

func (h *Hub) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.cancel(ErrClosed)
	h.fail(ErrClosed)
	h.work.Wait()
}

// audit compares the watched runs that have been silent since the last audit, or all of them, with
// what the stream has. It finds what a lost copy hid.
func (h *Hub) audit(ctx context.Context, everyone bool) (int, error) {
	h.mu.Lock()
	keys := make([]schema.RunKey, 0, len(h.feeds))
	for key, f := range h.feeds {
		if f.quiet() || everyone {
			keys = append(keys, key)
		}
	}
	h.mu.Unlock()
	if len(keys) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(h.cfg.GiveUp, 5*time.Second))
	defer cancel()
	newest, err := h.cfg.Tail.Newest(ctx, keys)
	if err != nil {
		return len(keys), fmt.Errorf("fanout: audit: %w", err)
	}
	for key, seq := range newest {
		h.mu.Lock()
		f := h.feeds[key]
		h.mu.Unlock()
		if f != nil {
			f.expect(seq)
		}
	}
	return len(keys), nil
}

// fail ends all feeds. Their subscriptions get err once they have delivered what the feed holds.
func (h *Hub) fail(err error) {
	h.mu.Lock()
	feeds := make([]*feed, 0, len(h.feeds))
	for _, f := range h.feeds {
		feeds = append(feeds, f)
	}
	clear(h.feeds)
	h.mu.Unlock()
	for _, f := range feeds {
		f.fail(err)
	}
	h.count(0)
}

func (h *Hub) count(n int) {
	if h.cfg.Hooks.Watching != nil {
		h.cfg.Hooks.Watching(n)
	}
}

// acquire gives the run's feed, attached. The first user attaches it, the others wait for that.
func (h *Hub) acquire(ctx context.Context, key schema.RunKey) (*feed, error) {
	for {
		h.mu.Lock()
		if h.closed {
			h.mu.Unlock()
			return nil, ErrClosed
		}
		f := h.feeds[key]
		if f == nil {
			f = newFeed(h, key)
			h.feeds[key] = f
			f.refs = 1
			n := len(h.feeds)
			h.mu.Unlock()
			h.count(n)
			err := f.attach(ctx)
			close(f.attached)
			if err != nil {
				h.release(f)
				return nil, err
			}
			return f, nil
		}
		f.refs++
		h.mu.Unlock()
		select {
		case <-f.attached:
		case <-ctx.Done():
			h.release(f)
			return nil, context.Cause(ctx)
		}
		if f.attachErr == nil {
			return f, nil
		}
		h.release(f)
		if !errors.Is(f.attachErr, context.Canceled) && !errors.Is(f.attachErr, context.DeadlineExceeded) {
			return nil, f.attachErr
		}
		// The one who attached went away in the middle: try it ourselves.
	}
}

// release gives a feed back; the last user ends the interest.
func (h *Hub) release(f *feed) {
	failed := false
	select {
	case <-f.attached:
		failed = f.attachErr != nil
	default:
	}
	h.mu.Lock()
	f.refs--
	last := f.refs == 0
	if (last || failed) && h.feeds[f.key] == f {
		delete(h.feeds, f.key)
	}
	n := len(h.feeds)
	h.mu.Unlock()
	if last {
		f.detach()
		h.count(n)
	}
}

// Head gives the newest position of a run: from the stream's leader, or from the archive when the
// stream no longer holds the run. ErrNotFound: neither knows it. ErrUnavailable: ask again.
func (h *Hub) Head(ctx context.Context, key schema.RunKey) (schema.Head, error) {
	head, err := h.cfg.Stream.Head(ctx, key, "")
	if err == nil && !head.Exists() && h.cfg.Archive != nil {
		head, err = h.cfg.Archive.Head(ctx, key, "")
	}
	switch {
	case err != nil:
		return schema.Head{}, fmt.Errorf("fanout: head of %s: %w: %w", key, ErrUnavailable, err)
	case !head.Exists():
		return schema.Head{}, fmt.Errorf("fanout: head of %s: %w", key, ErrNotFound)
	}
	return head, nil
}
