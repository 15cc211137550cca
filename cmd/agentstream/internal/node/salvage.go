package node

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/persister"
	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
)

// salvage restores runs from objects after a loss, and finds which events of runs are lost.
type salvage struct {
	js       jetstream.JetStream
	heads    perjs.Heads
	restorer *blob.Restorer // nil: there are no objects

	mu      sync.Mutex
	objects int // that the last restore has seen
	done    time.Time
}

var _ persister.Salvager = (*salvage)(nil)

// restoreAgain is how long what a restore has found counts: partitions are begun one after the other.
const restoreAgain = time.Minute

// NewSalvage returns what saves what objects have; b may be nil.
func NewSalvage(js jetstream.JetStream, all *blob.Archive, t archive.Tables, into blob.RestoreTables, b *archive.Blobs,
	log *slog.Logger) (persister.Salvager, error) {
	s := &salvage{js: js, heads: all}
	if b == nil {
		return s, nil
	}
	var err error
	s.restorer, err = b.Restorer(t, into, log)
	return s, err
}

// Salvage implements persister.Salvager. It restores all runs, whatever their stream: objects are listed as a whole.
func (s *salvage) Salvage(ctx context.Context, stream string) (lost []persister.RunLoss, objects bool, err error) {
	if s.restorer != nil {
		if objects, err = s.restore(ctx); err != nil {
			return nil, false, err
		}
	}
	lost, err = perjs.FindLostRuns(ctx, s.js, s.heads, stream)
	return lost, objects, err
}

func (s *salvage) restore(ctx context.Context) (objects bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.done) >= restoreAgain {
		done, err := s.restorer.Objects(ctx, "")
		if err != nil {
			return false, err
		}
		s.objects, s.done = done.Objects-done.Failed, time.Now()
	}
	return s.objects > 0, nil
}

// Recorded keeps what is recorded as lost in the metrics and in what operators are told.
type Recorded struct {
	losses archive.Losses
	m      *process.Metrics
	log    *slog.Logger
}

// NewRecorded returns a Recorded.
func NewRecorded(losses archive.Losses, m *process.Metrics, log *slog.Logger) *Recorded {
	return &Recorded{losses: losses, m: m, log: log}
}

const (
	recordedEvery = 10 * time.Second
	recordedRuns  = 20 // that are named
)

// Run reads what is recorded until ctx ends. While it cannot be read, what was read last counts.
func (r *Recorded) Run(ctx context.Context) error {
	tick := time.NewTicker(recordedEvery)
	defer tick.Stop()
	for {
		r.read(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *Recorded) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordedEvery)
	defer cancel()
	losses, err := r.losses.Losses(ctx)
	var runs []persister.RunLoss
	all := 0
	if err == nil {
		runs, all, err = r.losses.RunLosses(ctx, archive.EveryTenant, recordedRuns)
	}
	if err != nil {
		r.log.Debug("losses: what is recorded cannot be read", "err", err)
		return
	}
	r.m.Losses.Record(losses, runs, all)
}
