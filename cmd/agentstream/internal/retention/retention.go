package retention

import (
	"fmt"
	"log/slog"
	"time"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/persister/blob"
	"agentstream/persister/retention"
	"agentstream/protocols/nimi"
)

// RetentionFlags say how long runs are kept.
type RetentionFlags struct {
	KeepCompleted  string `help:"How long a run is kept that has ended well (state done), from its last event: 90d, 36h, or never to keep all." default:"90d" env:"AGENTSTREAM_KEEP_COMPLETED" placeholder:"TIME"`
	KeepEnded      string `help:"How long a run is kept that has ended in state error or aborted." default:"30d" env:"AGENTSTREAM_KEEP_ENDED" placeholder:"TIME"`
	KeepTombstones string `help:"How long a cursor of an expired run is told that it has expired; then the run is unknown." default:"365d" env:"AGENTSTREAM_KEEP_TOMBSTONES" placeholder:"TIME"`
	FeedsFor       string `help:"How long the events of feeds are kept, which have no end; the newest of each stays." default:"30d" env:"AGENTSTREAM_FEEDS_FOR" placeholder:"TIME"`
	RowsFor        string `help:"How long archived runs keep their rows; then they are replayed from their blobs, and queries do not see their events. never: as long as the run." default:"never" env:"AGENTSTREAM_ROWS_FOR" placeholder:"TIME"`
}

func (f *RetentionFlags) policy() (p retention.Policy, err error) {
	for _, flag := range []struct {
		name, text string
		into       *time.Duration
	}{
		{"--keep-completed", f.KeepCompleted, &p.Completed}, {"--keep-ended", f.KeepEnded, &p.Ended},
		{"--keep-tombstones", f.KeepTombstones, &p.Tombstones}, {"--rows-for", f.RowsFor, &p.Rows},
		{"--feeds-for", f.FeedsFor, &p.Feeds},
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

// Parts returns the part that removes runs whose time is over. log and b may be nil.
func (f *RetentionFlags) Parts(s archive.KeepStore, at blob.Places, log retention.LogPurger, b *archive.Blobs,
	hooks retention.Hooks, logger *slog.Logger) ([]process.Part, error) {
	policy, err := f.policy()
	if err != nil {
		return nil, err
	}
	k, err := retention.New(ConfigFor(s, at, log, b, policy, hooks, logger))
	if err != nil {
		return nil, err
	}
	return []process.Part{{Name: "retention", Run: k.Run}}, nil
}

// ConfigFor returns the configuration of retention on one store. log, b and logger may be nil.
func ConfigFor(s archive.KeepStore, at blob.Places, log retention.LogPurger, b *archive.Blobs, policy retention.Policy,
	hooks retention.Hooks, logger *slog.Logger) retention.Config {
	cfg := retention.Config{Runs: s, Trash: s, Tombstones: s, Forgetting: s, Log: log, Policy: policy, Logger: logger,
		Hooks: hooks}
	cfg.FeedRuns = nimi.Feeds()
	cfg.Feeds, _ = s.(retention.Feeds) // every store is one
	if b != nil {                      // a nil pointer in an interface would not be nil
		cfg.Blobs = blob.Remover{Store: b.ObjectStore, Places: at, Missing: func(uri string) {
			if logger != nil {
				logger.Warn("retention: a blob that was to be removed is not there", "uri", uri)
			}
		}}
	}
	return cfg
}
