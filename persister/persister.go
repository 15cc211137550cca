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
	share *share
	pipes []*pipeline
}

// New checks the configuration. It starts nothing.
func New(cfg Config) (*Persister, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Persister{cfg: cfg}
	p.share = newShare(&p.cfg)
	for _, q := range cfg.Queues {
		p.pipes = append(p.pipes, newPipeline(&p.cfg, q, p.share))
	}
	return p, nil
}

// Run works until ctx ends and returns nil when all that it started has returned. What has been fetched
// by then may be stored within Config.Grace; what is not, or fails, stays in the log. Nothing else ends it:
// every failure is retried.
func (p *Persister) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { p.share.run(ctx) })
	for _, pipe := range p.pipes {
		wg.Go(func() { pipe.run(ctx) })
		wg.Go(func() { pipe.watchLag(ctx) })
	}
	wg.Wait()
	return nil
}

// Status is the state of one pipeline, for readiness and for people.
type Status struct {
	Stream        string
	Standby       bool      // another process stores this partition now
	Offset        Offset    // as this process has moved it, or found it
	Lag           Lag       // as of LagAt
	LagEvents     uint64    // an estimate: Lag.Messages times the events that a message had of late
	LagAt         time.Time // zero: not yet known
	Alarm         string    // "" or why the log may drop, or has dropped, what is not stored
	Degraded      bool      // somebody must look at Alarm now: a quarter is left, or messages are lost
	RetryingSince time.Time // zero: all is well
	LastError     string    // of the current or the last outage
	LastCommit    time.Time
	BatchRows     int    // rows that the next transaction may have
	HeldBytes     int    // about what is held in memory: fetched and not yet stored
	Inserted      uint64 // rows
	Repeated      uint64
	Dropped       uint64 // rows below their run's floor
	DeadLetters   uint64 // dead letters, conflicts among them
	Conflicts     uint64
	Lost          uint64 // messages that the log dropped before they were stored, seen since the start
}

// Status returns the state of each pipeline, in the order of Config.Queues.
func (p *Persister) Status() []Status {
	out := make([]Status, len(p.pipes))
	for i, pipe := range p.pipes {
		out[i] = pipe.snapshot()
	}
	return out
}
