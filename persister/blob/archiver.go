package blob

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"agentstream/schema"
)

// ErrHole reports that a run lacks an event between others. It is not archived: what is missing may be on
// its way, or among the dead letters, and an object would seal the loss.
var ErrHole = errors.New("run has a hole")

// Queue hands out runs that are to be archived. Both stores are one.
type Queue interface {
	// Claim returns at most limit runs that have ended and rested for settle, and keeps them from others
	// for lease.
	Claim(ctx context.Context, settle, lease time.Duration, limit int) ([]schema.RunKey, error)
	// Defer keeps a run from being claimed for a while.
	Defer(ctx context.Context, key schema.RunKey, wait time.Duration) error
	// Backlog counts what Claim would give, claimed or not, up to limit.
	Backlog(ctx context.Context, settle time.Duration, limit int) (int, error)
	// SetArchived names the object of a run; false: the run has moved, and nothing was changed.
	SetArchived(ctx context.Context, key schema.RunKey, through schema.Seq, uri string, size int64) (bool, error)
}

// Hooks are called as things happen, from several goroutines; nil ones are not.
type Hooks struct {
	Archived func(key schema.RunKey, ix *Index, size int64, took time.Duration) // an object is named by its run
	Failed   func(key schema.RunKey, err error)                                 // of one run; errors.Is(err, ErrHole) is about the run
	Backlog  func(runs int)                                                     // waiting runs; at most backlogLimit
	Audited  func(r Audit)
}

// ArchiverConfig says what an Archiver works on. Tables, Queue and Store must be set; the first two are
// one store.
type ArchiverConfig struct {
	Tables Tables
	Queue  Queue
	Store  Store
	Large  Large  // whose blobs are archived with their runs; nil: none are
	Base   string // what the URIs of objects begin with, before their names; default "file:"

	Settle   time.Duration // rest of a run before it is archived; default a minute, negative: none
	Parallel int           // runs at once; default 2
	Frame    int           // bytes of lines in a frame of an object, about; default FrameBytes
	Poll     time.Duration // pause when there is nothing to do; default 5 s
	Lease    time.Duration // for which a run is this process's; default 10 minutes
	Limit    time.Duration // for one run; default an hour
	Timeout  time.Duration // of one read of Store; default DefaultTimeout
	Audit    time.Duration // between two audits; default a day, negative: none
	Grace    time.Duration // age at which an object may be an orphan; default a day
	Logger   *slog.Logger
	Hooks    Hooks
}

func (c ArchiverConfig) withDefaults() ArchiverConfig {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&c.Settle, time.Minute)
	c.Settle = max(c.Settle, 0)
	set(&c.Poll, 5*time.Second)
	set(&c.Lease, 10*time.Minute)
	set(&c.Limit, time.Hour)
	set(&c.Audit, 24*time.Hour)
	set(&c.Grace, 24*time.Hour)
	set(&c.Timeout, DefaultTimeout)
	if c.Parallel == 0 {
		c.Parallel = 2
	}
	if c.Frame == 0 {
		c.Frame = FrameBytes
	}
	if c.Base == "" {
		c.Base = FolderBase
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// FolderBase is what the URIs of objects in a folder begin with. Where the folder is stands in no
// table: it may be moved.
const FolderBase = "file:"

// Archiver writes objects of runs that have ended. Make it with NewArchiver.
type Archiver struct {
	cfg     ArchiverConfig
	archive *Archive

	mu    sync.Mutex
	fails map[schema.RunKey]int // in a row
}

// NewArchiver makes an Archiver.
func NewArchiver(cfg ArchiverConfig) (*Archiver, error) {
	if cfg.Tables == nil || cfg.Queue == nil || cfg.Store == nil {
		return nil, errors.New("blob: an archiver needs tables and a store of objects")
	}
	if cfg.Parallel < 0 || cfg.Frame < 0 || cfg.Frame > maxFrame-schema.MaxPackBytes {
		return nil, fmt.Errorf("blob: an archiver cannot work on %d runs at once with frames of %d bytes", cfg.Parallel, cfg.Frame)
	}
	cfg = cfg.withDefaults()
	archive, err := newArchive(Config{Tables: cfg.Tables, Store: cfg.Store, Timeout: cfg.Timeout})
	if err != nil {
		return nil, err
	}
	return &Archiver{cfg: cfg, archive: archive, fails: make(map[schema.RunKey]int)}, nil
}

// claimRuns is how many runs a worker takes at once.
const claimRuns = 8

// backlogLimit bounds what is counted.
const backlogLimit = 100_000

// Run archives until ctx ends. A run that is being written then is given back.
func (a *Archiver) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range a.cfg.Parallel {
		wg.Go(func() { a.work(ctx) })
	}
	wg.Go(func() { a.watch(ctx) })
	if a.cfg.Audit > 0 {
		wg.Go(func() { a.audits(ctx) })
	}
	wg.Wait()
	return nil
}

// work takes runs and archives them. While everything fails it slows down, to a minute.
func (a *Archiver) work(ctx context.Context) {
	const most = time.Minute
	trouble := time.Duration(0)
	for ctx.Err() == nil {
		n, err := a.batch(ctx)
		switch {
		case err != nil:
			trouble = min(most, max(time.Second, 2*trouble))
			pause(ctx, trouble)
		case n == 0:
			trouble = 0
			pause(ctx, a.cfg.Poll)
		default:
			trouble = 0
		}
	}
}

// pause waits for about d, so that processes that failed together do not try together.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d/2 + rand.N(d/2+1))
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// batch claims some runs and archives them. An error says that tables or objects are away; what is
// left of the claim is given back then.
func (a *Archiver) batch(ctx context.Context) (n int, err error) {
	keys, err := a.cfg.Queue.Claim(ctx, a.cfg.Settle, a.cfg.Lease, claimRuns)
	if err != nil {
		if ctx.Err() == nil {
			a.cfg.Logger.Warn("archiver: claim", "err", err)
		}
		return 0, err
	}
	for i, key := range keys {
		err := a.One(ctx, key)
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			a.giveBack(ctx, keys[i:])
			return i, err
		}
		a.failed(ctx, key, err)
		if !errors.Is(err, ErrHole) && !errors.Is(err, ErrCorrupt) {
			a.giveBack(ctx, keys[i+1:])
			return i, err
		}
	}
	return len(keys), nil
}

// giveBack lets others take the runs at once.
func (a *Archiver) giveBack(ctx context.Context, keys []schema.RunKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, key := range keys {
		if err := a.cfg.Queue.Defer(ctx, key, 0); err != nil {
			return // the lease ends by itself
		}
	}
}

// maxFails bounds what is remembered of runs that failed.
const maxFails = 10_000

// failed says what happened and keeps the run back: half a minute at first, up to the lease, and as
// long at once for a run with a hole.
func (a *Archiver) failed(ctx context.Context, key schema.RunKey, err error) {
	a.mu.Lock()
	if len(a.fails) >= maxFails {
		clear(a.fails)
	}
	a.fails[key]++
	wait := min(a.cfg.Lease, 30*time.Second<<min(a.fails[key]-1, 10))
	a.mu.Unlock()
	if errors.Is(err, ErrHole) {
		wait = a.cfg.Lease
	}
	a.cfg.Logger.Warn("archiver: run is not archived", "run", key.String(), "again in", wait, "err", err)
	if a.cfg.Hooks.Failed != nil {
		a.cfg.Hooks.Failed(key, err)
	}
	if err := a.cfg.Queue.Defer(ctx, key, wait/2+rand.N(wait/2+1)); err != nil {
		a.cfg.Logger.Warn("archiver: keep back", "run", key.String(), "err", err)
	}
}

func (a *Archiver) succeeded(key schema.RunKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.fails, key)
}

// watch counts what waits.
func (a *Archiver) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := a.cfg.Queue.Backlog(ctx, a.cfg.Settle, backlogLimit); err == nil && a.cfg.Hooks.Backlog != nil {
			a.cfg.Hooks.Backlog(n)
		}
		pause(ctx, 30*time.Second)
	}
}

// audits looks for orphans again and again, at first after a part of the interval: processes that start
// together look one after the other.
func (a *Archiver) audits(ctx context.Context) {
	pause(ctx, a.cfg.Audit/4)
	for ctx.Err() == nil {
		r, err := a.Audit(ctx, true)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			a.cfg.Logger.Warn("archiver: audit", "err", err)
		case r.Removed > 0 || r.Unknown > 0:
			a.cfg.Logger.Info("archiver: audit", "objects", r.Objects, "removed", r.Removed, "unknown", r.Unknown)
		}
		if err == nil && a.cfg.Hooks.Audited != nil {
			a.cfg.Hooks.Audited(r)
		}
		pause(ctx, a.cfg.Audit)
	}
}

// Audit is what an audit found.
type Audit struct {
	Objects int // all
	Removed int // orphans: the run names another object, or has all of it in its rows
	Unknown int // of no run in the tables, or of no run's name at all, or with more of it than the tables know: left
}

// Audit walks all objects and, with remove, removes those that no run needs: what was written and then not
// named, and what a longer one followed. It leaves objects younger than Grace, and whatever it cannot
// tell from the only copy: after the tables were restored from a backup, objects know more than they.
func (a *Archiver) Audit(ctx context.Context, remove bool) (r Audit, err error) {
	if s, ok := a.cfg.Store.(sweeper); ok && remove {
		if err := s.Sweep(ctx, "", time.Now().Add(-a.cfg.Grace)); err != nil {
			return r, fmt.Errorf("blob: audit: %w", err)
		}
	}
	for o, err := range a.cfg.Store.List(ctx, "") {
		if err != nil {
			return r, fmt.Errorf("blob: audit: %w", err)
		}
		r.Objects++
		if of, _, _, err := ParseLargeName(o.Name); err == nil {
			if err := a.auditLarge(ctx, &r, o, of, remove); err != nil {
				return r, err
			}
			continue
		}
		key, _, last, err := ParseName(o.Name)
		if err != nil {
			r.Unknown++
			continue
		}
		if time.Since(o.Modified) < a.cfg.Grace {
			continue
		}
		place, err := a.cfg.Tables.Place(ctx, key)
		if err != nil {
			return r, fmt.Errorf("blob: audit: %w", err)
		}
		named, archived, _ := nameIn(place.URI, key)
		switch {
		case named == o.Name:
			continue
		case place.Day == "" || last > place.Last && !place.Deleted:
			r.Unknown++
			continue
		case !place.Deleted && place.Floor > place.Expired && (archived <= last || !a.there(ctx, named)):
			r.Unknown++
			continue
		}
		r.Removed++
		if !remove {
			continue
		}
		if err := a.cfg.Store.Delete(ctx, o.Name); err != nil {
			return r, fmt.Errorf("blob: audit: %w", err)
		}
	}
	return r, nil
}

// auditLarge looks at the object of a blob: it stays as long as its run has events.
func (a *Archiver) auditLarge(ctx context.Context, r *Audit, o Object, key schema.RunKey, remove bool) error {
	if time.Since(o.Modified) < a.cfg.Grace {
		return nil
	}
	place, err := a.cfg.Tables.Place(ctx, key)
	if err != nil {
		return fmt.Errorf("blob: audit: %w", err)
	}
	switch {
	case place.Day == "" && !place.Deleted:
		r.Unknown++
		return nil
	case !needless(place):
		return nil
	}
	if r.Removed++; !remove {
		return nil
	}
	if err := a.cfg.Store.Delete(ctx, o.Name); err != nil {
		return fmt.Errorf("blob: audit: %w", err)
	}
	return nil
}

// there reports whether an object can be opened.
func (a *Archiver) there(ctx context.Context, name string) bool {
	_, err := a.archive.cache.reads.open(ctx, name)
	return err == nil
}
