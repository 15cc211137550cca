package workers

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"agentstream/edge/ends"
	"agentstream/producers/worker"
	"agentstream/schema"
)

// Config is what a node needs to have workers. Worker and Follow are required.
type Config struct {
	// Worker is how sessions are opened. Answer, Remote and Most are set here.
	Worker worker.Config
	// Follow hands over the packs of a tenant's runs (natsjs.Log.Follow).
	Follow func(ctx context.Context, tenant string, hand func(p schema.Pack, done func())) error
	// Bounds of one tenant at this node: seats, and places of all of them. Default 64 and 512.
	MaxSeats, MaxPlaces int
	Logger              *slog.Logger
}

// MaxPlaces is how many places one seat may have.
const MaxPlaces = 256

// Workers are the agents that are connected to a node.
type Workers struct {
	cfg Config

	mu    sync.Mutex
	pools map[string]*pool // by tenant
}

// New returns the workers of a node, or an error about the configuration. It starts nothing.
func New(cfg Config) (*Workers, error) {
	if cfg.Follow == nil || cfg.Worker.Log == nil {
		return nil, errors.New("workers: config: log and follow are needed")
	}
	cfg.MaxSeats, cfg.MaxPlaces = cmp.Or(cfg.MaxSeats, 64), cmp.Or(cfg.MaxPlaces, 2*MaxPlaces)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Workers{cfg: cfg, pools: make(map[string]*pool)}, nil
}

// fullWait is after how long a tenant that has as many workers as it may is to come again.
const fullWait = 5 * time.Second

// Join adds an agent of a tenant and returns its seat, with so many places, from 1 to MaxPlaces. The error wraps
// ends.ErrLimited when the tenant has no more. The caller calls Leave.
func (w *Workers) Join(tenant string, places int) (*Seat, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pools[tenant]
	if p == nil {
		p = newPool(w, tenant)
	}
	if len(p.seats) >= w.cfg.MaxSeats || p.places+places > w.cfg.MaxPlaces {
		return nil, &ends.LimitError{What: "workers at once", Verb: "connect", Wait: fullWait}
	}
	if len(p.seats) == 0 {
		if err := p.start(); err != nil {
			return nil, err
		}
		w.pools[tenant] = p
	}
	s := &Seat{pool: p, places: places, frames: make(chan []byte, 2*places+spareFrames)}
	s.gone, s.empty = make(chan struct{}), make(chan struct{})
	p.seats = append(p.seats, s)
	p.resize(places)
	return s, nil
}

// leave takes a seat away. The last one ends the pool, and waits for it.
func (w *Workers) leave(s *Seat) {
	p := s.pool
	w.mu.Lock()
	p.remove(s)
	last := len(p.seats) == 0
	if last {
		delete(w.pools, p.tenant)
	}
	w.mu.Unlock()
	if last {
		p.stop()
	}
}
