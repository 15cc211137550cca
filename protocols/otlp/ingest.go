package otlp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"agentstream/internal/backoff"
	"agentstream/schema"
)

// Config is what an Ingest needs.
type Config struct {
	Settle time.Duration // silence after which a trace whose root has come is complete; default 5 s
	Logger *slog.Logger
}

// DefaultSettle is the default of Config.Settle.
const DefaultSettle = 5 * time.Second

// RootlessTimes is how many times longer a trace is waited for whose root has not come.
const RootlessTimes = 60

// maxWaiting bounds the traces of a tenant that are waited for here. Others are settled by whoever looks for runs that
// are silent.
const maxWaiting = 20_000

// Ingest takes spans and settles their traces.
type Ingest struct {
	cfg    Config
	traces *traces

	mu      sync.Mutex
	waiting map[string]map[string]time.Time // by tenant and run: when to look
}

// New returns an Ingest. It starts nothing.
func New(cfg Config) *Ingest {
	cfg.Settle = cmp.Or(cfg.Settle, DefaultSettle)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Ingest{cfg: cfg, traces: newTraces(), waiting: make(map[string]map[string]time.Time)}
}

// Settle returns Config.Settle, or its default.
func (in *Ingest) Settle() time.Duration { return in.cfg.Settle }

// note has a trace looked at after the silence that makes it complete.
func (in *Ingest) note(key schema.RunKey) { in.noteAt(key, time.Now().Add(in.cfg.Settle)) }

// noteAt has a trace looked at at a time.
func (in *Ingest) noteAt(key schema.RunKey, at time.Time) {
	in.mu.Lock()
	defer in.mu.Unlock()
	of := in.waiting[key.Tenant]
	if of == nil {
		of = make(map[string]time.Time)
		in.waiting[key.Tenant] = of
	}
	if _, there := of[key.Run]; there || len(of) < maxWaiting {
		of[key.Run] = at
	}
}

// due returns the traces that are to be looked at now, those of different tenants in turn.
func (in *Ingest) due(now time.Time) (keys []schema.RunKey) {
	type turn struct {
		schema.RunKey
		nth int
	}
	var turns []turn
	in.mu.Lock()
	for tenant, of := range in.waiting {
		n := 0
		for run, at := range of {
			if now.Before(at) {
				continue
			}
			delete(of, run)
			turns = append(turns, turn{schema.RunKey{Tenant: tenant, Run: run}, n})
			n++
		}
		if len(of) == 0 {
			delete(in.waiting, tenant)
		}
	}
	in.mu.Unlock()
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.nth, b.nth), cmp.Compare(a.Tenant, b.Tenant))
	})
	for _, one := range turns {
		keys = append(keys, one.RunKey)
	}
	return keys
}

// Run settles the traces that came in here, with s, until ctx ends. What it has not settled by then is settled by
// another node.
func (in *Ingest) Run(ctx context.Context, s *Settler) error {
	every := min(max(in.cfg.Settle/4, 10*time.Millisecond), time.Second)
	for {
		if err := backoff.Sleep(ctx, every); err != nil {
			return nil
		}
		for _, key := range in.due(time.Now()) {
			next, err := s.Settle(ctx, key)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil && !errors.Is(err, ErrGone) {
				in.cfg.Logger.Warn("a trace could not be settled; it is tried again", "run", key.String(), "err", err)
				next = time.Now().Add(in.cfg.Settle)
			}
			if !next.IsZero() {
				in.noteAt(key, next)
			}
		}
	}
}
