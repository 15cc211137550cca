package persister

import (
	"context"
	"sync"
	"time"
)

// Persister moves messages of its queues into its store. Make it with New, run it once with Run;
// Status may be called at any time from any goroutine.
type Persister struct {
	cfg   Config
	pipes []*pipeline
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Persister, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Persister{cfg: cfg}
	for _, q := range cfg.Queues {
		p.pipes = append(p.pipes, &pipeline{cfg: &p.cfg, queue: q, size: cfg.BatchEvents})
	}
	return p, nil
}

// Run works until ctx ends and returns nil when all that it started has returned. A batch that is
// being written then may finish within Config.Grace; what it does not finish is released to the
// queue, unconfirmed. Nothing else ends it: every failure is retried.
func (p *Persister) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, pipe := range p.pipes {
		wg.Go(func() { pipe.run(ctx) })
		wg.Go(func() { pipe.watchLag(ctx) })
	}
	wg.Wait()
	return nil
}

// Status is the state of one pipeline, for readiness and for people.
type Status struct {
	Stream        string    // "" until the first message or lag answer
	Lag           Lag       // as of LagAt
	LagAt         time.Time // zero: not yet known
	RetryingSince time.Time // zero: all is well
	LastError     string    // of the current or the last outage
	LastCommit    time.Time
	Inserted      uint64 // rows
	Repeated      uint64
	Buried        uint64 // dead letters, conflicts among them
	Conflicts     uint64
}

// Status gives the state of each pipeline, in the order of Config.Queues.
func (p *Persister) Status() []Status {
	out := make([]Status, len(p.pipes))
	for i, pipe := range p.pipes {
		out[i] = pipe.snapshot()
	}
	return out
}
