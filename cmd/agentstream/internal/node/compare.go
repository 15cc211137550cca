package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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

// ComparedWith compares the log with what a store has of it; nil when there is no store.
func ComparedWith(js jetstream.JetStream, store perjs.Offsets) pubjs.Compare {
	if store == nil {
		return nil
	}
	return func(ctx context.Context, partition int) (uint64, error) {
		return perjs.Compare(ctx, js, store, partition)
	}
}

// wholeCheck reports, for readiness, that the log lacks what is stored of it. That it cannot be compared is reported
// by the checks of its two sides.
func wholeCheck(log *pubjs.Log) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := log.Compared(ctx); errors.Is(err, persister.ErrBehind) {
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
	if err := s.written.ComparedRun(once, key); errors.Is(err, persister.ErrBehind) {
		return schema.Head{}, fmt.Errorf("%w: %w", fanout.ErrUnavailable, err)
	}
	return s.Log.Head(ctx, key, lane)
}

// NewRefill makes what completes a log that has come back shorter than what is stored of it.
func NewRefill(ctx context.Context, js jetstream.JetStream, all *blob.Archive, runs archive.Changes, m *process.Metrics, log *slog.Logger) (*perjs.Refill, error) {
	purger, err := perjs.NewPurger(ctx, js.Conn(), natskit.KeysBucket)
	if err != nil {
		return nil, err
	}
	plain, err := pubjs.Open(ctx, js.Conn())
	if err != nil {
		return nil, err
	}
	refilled := m.Refilled()
	return perjs.NewRefill(js, perjs.RefillConfig{
		Log: plain, Archive: archive.StoredRuns{Archive: all, Changes: runs}, Purger: purger, Logger: log,
		Done:    func(_ schema.RunKey, from, through schema.Seq) { refilled.Add(float64(through - from + 1)) },
		Missing: m.Losses.Add,
	}), nil
}
