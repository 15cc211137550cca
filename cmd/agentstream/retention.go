package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"agentstream/persister/blob"
	"agentstream/persister/retention"
	"agentstream/schema"
)

// RetentionFlags say how long runs are kept.
type RetentionFlags struct {
	KeepCompleted  string `help:"How long a run is kept that has ended well (state done), from its last event: 90d, 36h, or never to keep all." default:"90d" env:"AGENTSTREAM_KEEP_COMPLETED" placeholder:"TIME"`
	KeepEnded      string `help:"How long a run is kept that has ended in state error or aborted." default:"30d" env:"AGENTSTREAM_KEEP_ENDED" placeholder:"TIME"`
	KeepTombstones string `help:"How long a cursor of an expired run is told that it has expired; then the run is unknown." default:"365d" env:"AGENTSTREAM_KEEP_TOMBSTONES" placeholder:"TIME"`
	RowsFor        string `help:"How long archived runs keep their rows; then they are replayed from their blobs, and queries do not see their events. never: as long as the run." default:"never" env:"AGENTSTREAM_ROWS_FOR" placeholder:"TIME"`
}

func (f *RetentionFlags) policy() (p retention.Policy, err error) {
	for _, flag := range []struct {
		name, text string
		into       *time.Duration
	}{
		{"--keep-completed", f.KeepCompleted, &p.Completed}, {"--keep-ended", f.KeepEnded, &p.Ended},
		{"--keep-tombstones", f.KeepTombstones, &p.Tombstones}, {"--rows-for", f.RowsFor, &p.Rows},
	} {
		if flag.text == "" {
			continue // the default
		}
		if *flag.into, err = retention.ParseKeep(flag.text); err != nil {
			return p, fmt.Errorf("%s %w", flag.name, err)
		}
	}
	return p, nil
}

// keepStore is a store as retention needs it.
type keepStore interface {
	retention.Runs
	retention.Trash
	retention.Tombstones
	retention.Forgetting
}

// parts returns the part that removes runs whose time is over. log and b may be nil.
func (f *RetentionFlags) parts(s keepStore, at blob.Places, log retention.Log, b *blobs, hooks retention.Hooks, logger *slog.Logger) ([]part, error) {
	policy, err := f.policy()
	if err != nil {
		return nil, err
	}
	k, err := retention.New(retentionConfig(s, at, log, b, policy, hooks, logger))
	if err != nil {
		return nil, err
	}
	return []part{{"retention", k.Run}}, nil
}

func retentionConfig(s keepStore, at blob.Places, log retention.Log, b *blobs, policy retention.Policy, hooks retention.Hooks, logger *slog.Logger) retention.Config {
	cfg := retention.Config{Runs: s, Trash: s, Tombstones: s, Forgetting: s, Log: log, Policy: policy, Logger: logger, Hooks: hooks}
	if b != nil { // a nil pointer in an interface would not be nil
		cfg.Blobs = blob.Remover{Store: b.Store, Places: at, Missing: func(uri string) {
			if logger != nil {
				logger.Warn("retention: a blob that was to be removed is not there", "uri", uri)
			}
		}}
	}
	return cfg
}

func (m *metrics) retentionHooks() retention.Hooks {
	removed := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "agentstream_retention_removed_total",
		Help: "What retention has removed: runs (marked as expired), deleted (runs whose session was deleted), cooled (runs whose rows went), events, partitions, blobs, messages (of the log), tombstones."}, []string{"kind"})
	failed := prometheus.NewCounter(prometheus.CounterOpts{Name: "agentstream_retention_failures_total", Help: "Things that retention could not do and tries again."})
	took := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "agentstream_retention_pass_seconds", Help: "Time of one pass.",
		Buckets: []float64{.01, .1, 1, 10, 60, 300, 900}})
	m.registry.MustRegister(removed, failed, took)
	return retention.Hooks{Passed: func(r retention.Report, err error) {
		for kind, n := range map[string]int64{"runs": int64(r.Expired), "deleted": int64(r.Deleted), "cooled": int64(r.Cooled), "events": r.Events, "partitions": int64(r.Days),
			"blobs": int64(r.Blobs), "messages": int64(r.Messages), "tombstones": int64(r.Tombstones)} {
			removed.WithLabelValues(kind).Add(float64(n))
		}
		failed.Add(float64(r.Failed))
		if err != nil {
			failed.Inc()
		}
		took.Observe(r.Took.Seconds())
	}}
}

// KeepStoreFlags say which archive is meant.
type KeepStoreFlags struct {
	PostgresFlags
	Data string `help:"Folder of a dev server, whose archive is meant instead of PostgreSQL; it may run." type:"path" placeholder:"FOLDER"`

	Streams `kong:"-"`
}

// holdKeeper places and lifts holds.
type holdKeeper interface {
	AddHold(ctx context.Context, key schema.RunKey, reason string) (expired bool, err error)
	RemoveHold(ctx context.Context, key schema.RunKey) (bool, error)
}

// open opens the archive. It is not created, and not migrated.
func (f *KeepStoreFlags) open(ctx context.Context, log *slog.Logger) (*storeUses, func(), error) {
	return openStore(ctx, f.Postgres, f.Data, log)
}
