package retention

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"agentstream/internal/backoff"
	"agentstream/persister"
	"agentstream/schema"
)

// Runs lists runs of a store that have ended or are unwanted, and marks those that have ended. See persister/postgres
// for each method.
type Runs interface {
	ListEnded(ctx context.Context, q persister.EndedQuery) ([]persister.EndedRun, error)
	Expire(ctx context.Context, runs []persister.EndedRun, now time.Time) ([]persister.EndedRun, error)
	Cool(ctx context.Context, runs []persister.EndedRun, now time.Time) ([]persister.EndedRun, error)
	Overrides(ctx context.Context) (map[string]persister.Override, error)
}

// Trash removes what is marked from a store.
type Trash interface {
	Scraps(ctx context.Context, after int64, limit int) ([]persister.Scrap, error)
	RemoveRows(ctx context.Context, scraps []persister.Scrap, limit int) (removed int, all bool, err error)
	DropDays(ctx context.Context, days []string) ([]string, error)
	Discard(ctx context.Context, ids []int64) error
}

// Tombstones lists and removes the last rows of runs in a store. Alone runs fn unless another process is in Alone.
type Tombstones interface {
	Tombstones(ctx context.Context, expired time.Time, after schema.RunKey, limit int) ([]persister.Tombstone, error)
	RemoveTombstones(ctx context.Context, list []persister.Tombstone) (int, error)
	RemoveDeadLetters(ctx context.Context, key schema.RunKey) (int, error)
	Alone(ctx context.Context, fn func(context.Context) error) (bool, error)
}

// LogPurger removes runs from the log. Purge removes what it has of a run up to a seq, and the idempotency keys
// named there; with schema.MaxSeq, everything.
type LogPurger interface {
	Head(ctx context.Context, key schema.RunKey) (schema.Head, error)
	Holding(ctx context.Context, keys []schema.RunKey) ([]schema.RunKey, error)
	RunsOf(ctx context.Context, tenant string) ([]string, error)
	Purge(ctx context.Context, key schema.RunKey, through schema.Seq) (messages, keys int, err error)
}

// BlobRemover removes blobs. Removing one that does not exist is no error.
type BlobRemover interface {
	// Check reads the blob that a run's row names. It returns an error unless the blob holds what the row names. Rows
	// are removed only after it, because the blob may not have been read for months.
	Check(ctx context.Context, key schema.RunKey, place persister.Place) error
	// Remove removes the blob that a run's row names.
	Remove(ctx context.Context, key schema.RunKey, uri string) error
	// Wipe removes all blobs of a run of a day, or of a tenant when Run is "", also those that no row names any more,
	// and returns their number. It lists objects, and is for deleted runs.
	Wipe(ctx context.Context, key schema.RunKey, day string) (int, error)
}

// Feeds trims feeds in a store, which have no end.
type Feeds interface {
	TrimFeeds(ctx context.Context, which schema.Feeds, before, now time.Time) (trimmed int, err error)
}

// Config configures a Worker. Runs, Trash and Tombstones must be set, to the same store.
type Config struct {
	Runs       Runs
	Trash      Trash
	Tombstones Tombstones

	Forgetting Forgetting // the same store; when it or Log is nil, runs whose session was deleted stay

	Feeds    Feeds        // the same store; nil: feeds are not trimmed
	FeedRuns schema.Feeds // those that are feeds

	Log    LogPurger   // nil: nothing is purged from the log
	Blobs  BlobRemover // nil: nothing is cooled, and scraps that name a blob wait for a Worker that has one
	Policy Policy

	Every     time.Duration // between two passes, jittered; default 1 h
	PassTime  time.Duration // longest time of a pass; the next one continues; default 15 min
	BatchRows int           // rows per transaction; default 5,000
	Pause     time.Duration // between two transactions; default 20 ms, negative: none

	Logger *slog.Logger // nil discards
	Hooks  Hooks
	Now    func() time.Time // default time.Now
}

// Hooks are called about the work, for metrics. Nil hooks are skipped.
type Hooks struct {
	// Passed is called after each pass, also after one that failed.
	Passed func(r Report, err error)
}

func (c Config) withDefaults() Config {
	c.Policy = c.Policy.withDefaults()
	c.Every = cmp.Or(c.Every, time.Hour)
	c.PassTime = cmp.Or(c.PassTime, 15*time.Minute)
	c.BatchRows = cmp.Or(c.BatchRows, 5000)
	c.Pause = cmp.Or(c.Pause, 20*time.Millisecond)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Report counts what a pass has done.
type Report struct {
	Expired    int           // runs
	Deleted    int           // runs whose session was deleted
	Trimmed    int           // feeds of which old events were removed
	Cooled     int           // runs whose rows were removed because their blobs have them
	Events     int64         // rows removed, estimated for partitions
	Days       int           // partitions dropped
	Blobs      int           // removed
	Messages   int           // purged from the log
	Keys       int           // idempotency keys removed
	Tombstones int           // removed
	Failed     int           // failures, which are tried again
	More       bool          // PassTime ended before everything was done
	Took       time.Duration // by the process's own clock
}

func (r Report) nothing() bool { r.Took = 0; return r == Report{} }

// Worker removes runs when their retention has passed. Create it with New. It starts nothing before Run or Pass is
// called.
type Worker struct {
	cfg  Config
	from *persister.EndedRun // where the last pass stopped
}

// New returns a Worker.
func New(cfg Config) (*Worker, error) {
	if cfg.Runs == nil || cfg.Trash == nil || cfg.Tombstones == nil {
		return nil, errors.New("retention: config needs a store")
	}
	cfg = cfg.withDefaults()
	if cfg.BatchRows < 1 || cfg.Every < 0 || cfg.PassTime < 0 {
		return nil, errors.New("retention: config has a negative bound")
	}
	return &Worker{cfg: cfg}, nil
}

// soon is the pause before the first pass and after one that did not finish.
const soon = time.Minute

// Run makes a pass every Config.Every until ctx ends. A pass that fails is logged and tried again.
func (k *Worker) Run(ctx context.Context) error {
	pause := min(soon, k.cfg.Every)
	for backoff.Sleep(ctx, pause/2+rand.N(pause+1)) == nil {
		r, err := k.Pass(ctx)
		if ctx.Err() != nil {
			return nil
		}
		pause = k.cfg.Every
		if err != nil || r.More {
			pause = min(soon, k.cfg.Every)
		}
	}
	return nil
}

// Pass removes what is due now, unless another process is in a pass. Failures are counted in the report, and tried
// again by the next pass. It is not safe for concurrent use.
func (k *Worker) Pass(ctx context.Context) (r Report, err error) {
	began := time.Now()
	ran, err := k.cfg.Tombstones.Alone(ctx, func(ctx context.Context) error {
		pass, cancel := context.WithTimeout(ctx, k.cfg.PassTime)
		defer cancel()
		w := removal{Config: &k.cfg, report: &r}
		err := k.pass(pass, &w)
		if err != nil && pass.Err() != nil && ctx.Err() == nil { // PassTime is over
			r.More, err = true, nil
		}
		return err
	})
	if r.Took = time.Since(began); err != nil && ctx.Err() == nil {
		k.cfg.Logger.Error("retention: pass", "err", err)
	}
	if ran && !r.nothing() {
		k.cfg.Logger.Info("retention: removed", "runs", r.Expired, "deleted", r.Deleted, "trimmed", r.Trimmed, "cooled",
			r.Cooled, "events", r.Events, "partitions", r.Days,
			"blobs", r.Blobs, "messages", r.Messages, "tombstones", r.Tombstones, "failed", r.Failed, "more", r.More,
			"took", r.Took)
	}
	if k.cfg.Hooks.Passed != nil && (ran || err != nil) {
		k.cfg.Hooks.Passed(r, err)
	}
	return r, err
}

// pass marks first, so that it is known of which partitions everything is removed, and then removes, also what an
// earlier pass has left.
func (k *Worker) pass(ctx context.Context, w *removal) error {
	overrides, err := k.cfg.Runs.Overrides(ctx)
	if err != nil {
		return err
	}
	now := k.cfg.Now()
	d := due{policy: k.cfg.Policy, overrides: overrides, now: now}
	if err := w.forget(ctx, &d); err != nil {
		return err
	}
	marked := func(n *int, mark func(context.Context, []persister.EndedRun, time.Time) ([]persister.EndedRun, error)) func([]persister.EndedRun) error {
		return func(runs []persister.EndedRun) error {
			if len(runs) == 0 {
				return nil
			}
			done, err := mark(ctx, runs, now)
			*n += len(done)
			return err
		}
	}
	if k.from, err = d.eachExpired(ctx, k.cfg.Runs, k.from, marked(&w.report.Expired, k.cfg.Runs.Expire)); err != nil {
		return err
	}
	cool := marked(&w.report.Cooled, k.cfg.Runs.Cool)
	if err := d.cold(ctx, k.cfg.Runs, func(runs []persister.EndedRun) error { return cool(w.sound(ctx, runs)) }); err != nil {
		return err
	}
	if keep := k.cfg.Policy.Feeds; keep >= 0 && k.cfg.Feeds != nil {
		n, err := k.cfg.Feeds.TrimFeeds(ctx, k.cfg.FeedRuns, now.Add(-keep), now)
		if w.report.Trimmed += n; err != nil {
			return err
		}
	}
	if err := w.sweep(ctx); err != nil {
		return err
	}
	return w.tombstones(ctx, now)
}
