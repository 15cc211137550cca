package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// CompareWith compares the log with what a store has of it.
func CompareWith(js jetstream.JetStream, store perjs.Offsets) pubjs.Compare {
	return func(ctx context.Context, partition int) (uint64, error) {
		return perjs.Compare(ctx, js, store, partition)
	}
}

// compareWithAll compares the log with the tables, and the tables with the objects; nil when there are no
// tables.
func compareWithAll(js jetstream.JetStream, cfg *Config) pubjs.Compare {
	if cfg.Offsets == nil {
		return nil
	}
	u := &unrestored{runs: cfg.Stored, objects: cfg.Objects, log: cfg.Logger}
	compare := CompareWith(js, cfg.Offsets)
	return func(ctx context.Context, partition int) (uint64, error) {
		if err := u.check(ctx); err != nil {
			return 0, err
		}
		return compare(ctx, partition)
	}
}

// errUnrestored reports that the tables are empty and the objects are not: the database was made again. What is written
// now would get the numbers of events that objects have.
var errUnrestored = fmt.Errorf("the tables know no run, and there are objects of runs; agentstream archive restore: %w",
	persister.ErrBehind)

// unrestored looks for a database that was made again.
type unrestored struct {
	runs    archive.Changes
	objects *archive.Blobs // nil: there are none
	log     *slog.Logger
	fine    atomic.Bool // the tables know runs, or there were no objects
}

// check returns errUnrestored, or an error of the tables. Objects that cannot be listed are none.
func (u *unrestored) check(ctx context.Context) error {
	if u.objects == nil || u.fine.Load() {
		return nil
	}
	for _, err := range u.runs.RunsChangedSince(ctx, time.Unix(0, 0)) {
		u.fine.Store(err == nil)
		return err
	}
	for o, err := range u.objects.List(ctx, "") {
		if err != nil {
			u.log.Warn("archive: objects cannot be listed: whether the database lacks what they have is unknown", "err", err)
			return nil
		}
		if _, _, _, err := blob.ParseName(o.Name); err == nil {
			return errUnrestored
		}
	}
	u.fine.Store(true)
	return nil
}

// wholeCheck reports, for readiness, that the log lacks what is stored of it. That it cannot be compared is reported
// by the checks of its two sides.
func wholeCheck(log *pubjs.Log) func(context.Context) error {
	return func(ctx context.Context) error {
		err := log.Compare(ctx)
		switch {
		case errors.Is(err, errUnrestored):
			return err
		case errors.Is(err, persister.ErrBehind):
			return fmt.Errorf("%w; a persister is to write it back", err)
		}
		return nil
	}
}

// wholeStream is the stream's window. While it lacks what is stored, heads are not known: a cursor that is right
// would be refused.
type wholeStream struct {
	*fanjs.Log
	written *pubjs.Log
}

// compareWait bounds how long a reader waits for a comparison; when nobody can tell, it reads what there is.
const compareWait = time.Second

// Head reads from the leader.
func (s wholeStream) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	once, cancel := context.WithTimeout(ctx, compareWait)
	defer cancel()
	if err := s.written.CompareRun(once, key); errors.Is(err, persister.ErrBehind) {
		return schema.Head{}, fmt.Errorf("%w: %w", fanout.ErrUnavailable, err)
	}
	return s.Log.Head(ctx, key, lane)
}

// NewRefill makes what completes a log that has come back shorter than what is stored of it.
func NewRefill(ctx context.Context, js jetstream.JetStream, all *blob.Archive, runs archive.Changes, m *process.Metrics,
	log *slog.Logger) (*perjs.Refill, error) {
	purger, err := perjs.NewPurger(ctx, js.Conn(), natskit.KeysBucket)
	if err != nil {
		return nil, err
	}
	plain, err := pubjs.Open(ctx, js.Conn())
	if err != nil {
		return nil, err
	}
	refilled := m.RefillCounter()
	return perjs.NewRefill(js, perjs.RefillConfig{
		Log: plain, Archive: archive.StoredRuns{Archive: all, Changes: runs}, Purger: purger, Logger: log,
		Done:    func(_ schema.RunKey, from, through schema.Seq) { refilled.Add(float64(through - from + 1)) },
		Missing: m.Losses.Add,
	}), nil
}
