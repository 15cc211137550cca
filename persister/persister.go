package persister

import (
	"context"
	"sync"
	"time"
)

// Persister moves messages from its queues into its store. Create it with New and call Run once. Status may be called
// at any time from any goroutine.
type Persister struct {
	cfg   Config
	share *share
	pipes []*pipeline
}

// New returns a Persister, or an error when the configuration is not valid. It starts nothing.
func New(cfg Config) (*Persister, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	p := &Persister{cfg: cfg}
	p.share = newShare(&p.cfg)
	for i := range cfg.Queues {
		p.pipes = append(p.pipes, newPipeline(&p.cfg, i, p.share))
	}
	return p, nil
}

// Run works until ctx ends, and returns nil when all that it started has returned. Messages that are fetched by then
// are stored within Config.Grace, or stay in the log. Nothing else ends it: every failure is retried.
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

// Status is the state of one pipeline, for readiness checks and for operators.
type Status struct {
	Stream        string
	Standby       bool      // another process stores this partition now
	Offset        Offset    // as this process has moved it, or read it
	Lag           Lag       // as of LagAt
	LagEvents     uint64    // an estimate: Lag.Messages times the events per message of late
	LagAt         time.Time // zero: not known, not yet or because the log did not answer
	Alarm         string    // why the log may drop, or has dropped, messages that are not stored; "" when it may not
	Degraded      bool      // an operator must act on Alarm now: a quarter is left, or messages are lost
	RetryingSince time.Time // zero: the last attempt succeeded
	LastError     string    // of the current or the last outage
	LastCommit    time.Time
	BatchRows     int    // most rows of the next transaction
	HeldBytes     int    // approximate memory of messages that are fetched and not yet stored
	Inserted      uint64 // rows
	Repeated      uint64
	Dropped       uint64 // rows at or below their run's floor
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
