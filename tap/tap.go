package tap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Backlog has what has left the log. It is safe for concurrent use.
type Backlog interface {
	// Packs walks the run's events with after < seq ≤ through, in order, as far as they are kept.
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	// RunsChangedSince walks the runs that were stored at t or later.
	RunsChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error]
}

// Config configures a Tap. Spec.Name, Queues, Places, Letters and Sink must be set.
type Config struct {
	Spec    Spec
	Queues  []persister.Queue // one for each partition of the log, of this tap's tenant
	Places  Places
	Letters Letters
	Sink    Receiver
	Archive Backlog            // nil: a tap that was away for longer than the log's window ends with ErrGap
	Back    persister.Refiller // where to go on in a log that came back shorter than it was; nil: the tap waits

	// least time between two batches of a partition while they are small; default 100 ms, negative: none
	Linger time.Duration
	Batch  int           // events of one batch, at most; default 8,000
	Held   int           // bytes of events that are read and not delivered, at most; default 64 MiB
	Stale  time.Duration // a member that has said nothing for this long has lost its partitions; default 5 s
	Retry  time.Duration // longest pause after a failure; default 10 s

	Logger *slog.Logger // nil discards
	Hooks  persister.Hooks

	MaxLetters int             // dead letters that are kept, at most; 0: as many as Letters keeps by itself
	Full       func(full bool) // the tap waits, or waits no longer, because it has too many dead letters; nil is off
}

// Bounds of a tap's work.
const (
	defaultLinger = 100 * time.Millisecond
	defaultStale  = 5 * time.Second
	firstBatch    = 256             // events of the first batch; those of a sink that is fast grow from there
	attempt       = 5 * time.Minute // for one batch, also for a part of what is read from the archive
)

func (c Config) withDefaults() (Config, error) {
	if c.Linger == 0 {
		c.Linger = defaultLinger
	}
	if c.Stale == 0 {
		c.Stale = defaultStale
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("tap", c.Spec.Name)
	switch {
	case c.Places == nil || c.Letters == nil || c.Sink == nil:
		return c, errors.New("tap: config needs places, letters and a sink")
	case c.Batch < 0 || c.Held < 0 || c.Stale < 0 || c.Retry < 0:
		return c, errors.New("tap: a bound is negative")
	}
	return c, c.Spec.Validate()
}

// Validate returns nil when a tap can be made of the spec.
func (s *Spec) Validate() error {
	if schema.ValidTenant(s.Name) != nil { // the same alphabet: it becomes a part of subjects
		return fmt.Errorf("tap: name %.80q is not [A-Za-z0-9_-]{1,64}", s.Name)
	}
	if s.Tenant != "" && schema.ValidTenant(s.Tenant) != nil {
		return fmt.Errorf("tap: tenant %.80q is none", s.Tenant)
	}
	return s.ValidateTypes()
}

// ValidateTypes returns nil when the types are names, or beginnings of names.
func (s *Spec) ValidateTypes() error {
	for _, t := range s.Types {
		if t == "" || strings.ContainsAny(t, ", \t\r\n") || strings.Contains(strings.TrimSuffix(t, "*"), "*") {
			return fmt.Errorf("tap: type %.80q: want a name, or the beginning of one and *", t)
		}
	}
	return nil
}

// HasType reports whether the tap delivers events of a type.
func (s *Spec) HasType(name string) bool {
	return len(s.Types) == 0 || slices.ContainsFunc(s.Types, func(t string) bool {
		family, all := strings.CutSuffix(t, "*")
		return t == name || all && strings.HasPrefix(name, family)
	})
}

// ErrGap reports that events have left the log before the tap has read them, and that there is no archive to read them
// from.
var ErrGap = errors.New("events have left the log before this tap has read them, and no archive was given")

// Tap is one member of those that share a name. Make it with New and call Run once.
type Tap struct {
	cfg       Config
	store     *store
	persister *persister.Persister
}

// New returns a Tap. It starts nothing.
func New(cfg Config) (*Tap, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &Tap{cfg: cfg, store: newStore(&cfg)}
	t.persister, err = persister.New(persister.Config{
		Queues: cfg.Queues, Store: t.store, Refill: cfg.Back, Role: "tap", Replaces: true,
		BatchEvents: cfg.Batch, BatchStart: min(firstBatch, cmp.Or(cfg.Batch, firstBatch)), HeldBytes: cfg.Held,
		Linger: cfg.Linger, Attempt: attempt,
		ShareStale: cfg.Stale, ShareEvery: cfg.Stale * 2 / 5, RetryMax: cfg.Retry,
		RetryMin: min(cfg.Retry, 100*time.Millisecond),
		Logger:   cfg.Logger, Hooks: cfg.Hooks,
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Run delivers until ctx ends, and then finishes the batches that it is at and leaves its partitions to others.
// Failures of the log and of the sink are waited for. The error wraps ErrGap, or what Stop was given by the sink. All
// goroutines have ended then.
func (t *Tap) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	t.store.stop = cancel
	err := t.persister.Run(ctx)
	t.store.leave(ctx)
	if cause := context.Cause(ctx); err == nil && errors.As(cause, new(stopError)) {
		err = cause
	}
	return err
}

// Status returns the state of each partition.
func (t *Tap) Status() []persister.Status { return t.persister.Status() }

// Storing returns an error when the sink, or what keeps the places, has failed at least twice in a row.
func (t *Tap) Storing() error { return t.persister.Storing() }

// stopError ends a tap for good.
type stopError struct{ error }

func (e stopError) Unwrap() error { return e.error }

// IsStop reports whether an error is one of Stop.
func IsStop(err error) bool { return errors.As(err, new(stopError)) }

// Stop returns an error by which a sink ends its tap: nothing may be delivered there any more.
func Stop(err error) error { return stopError{err} }
