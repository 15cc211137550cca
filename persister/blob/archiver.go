package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"agentstream/internal/backoff"
	"agentstream/schema"
)

// ErrHole reports that an event between others is missing. The run is not archived: the event may still arrive, or be
// a dead letter, and an object would make the loss final.
var ErrHole = errors.New("run has a hole")

// Queue returns runs to archive. Both database stores implement it.
type Queue interface {
	// Claim returns at most limit runs that have ended and have not changed for settle. Other calls do not return
	// them for the time of lease.
	Claim(ctx context.Context, settle, lease time.Duration, limit int) ([]schema.RunKey, error)
	// Defer prevents that Claim returns a run for the time of wait.
	Defer(ctx context.Context, key schema.RunKey, wait time.Duration) error
	// Backlog returns the number of runs that Claim would return if none were claimed, at most limit.
	Backlog(ctx context.Context, settle time.Duration, limit int) (int, error)
	// SetArchived records the object of a run. It returns false and changes nothing when the run has newer events.
	SetArchived(ctx context.Context, key schema.RunKey, through schema.Seq, uri string, size int64) (bool, error)
}

// Hooks are called from several goroutines. Nil hooks are skipped.
type Hooks struct {
	Archived func(key schema.RunKey, ix *Index, size int64, took time.Duration) // the object of a run was recorded
	// of one run; with ErrHole the run is the reason, not the store
	Failed  func(key schema.RunKey, err error)
	Backlog func(runs int) // waiting runs; at most backlogLimit
	Audited func(r Audit)
}

// ArchiverConfig configures an Archiver. Tables, Queue and Store must be set, the first two to the same store.
type ArchiverConfig struct {
	Tables Tables
	Queue  Queue
	Store  ObjectStore
	Large  Large  // blobs to archive with their runs; nil: none
	Base   string // beginning of the URIs of objects, before their names; default "file:"

	Settle   time.Duration // time without changes before a run is archived; default a minute, negative: none
	Parallel int           // runs at the same time; default 2
	Frame    int           // approximate bytes of lines in a frame of an object; default FrameBytes
	Poll     time.Duration // pause when no run is to be archived; default 5 s
	Lease    time.Duration // time of a claim; default 10 minutes
	Limit    time.Duration // longest time for one run; default an hour
	Timeout  time.Duration // of one read of Store; default DefaultTimeout
	Audit    time.Duration // between two audits; default a day, negative: none
	Grace    time.Duration // age at which an object may be an orphan; default a day
	Logger   *slog.Logger
	Hooks    Hooks
}

func (c ArchiverConfig) withDefaults() ArchiverConfig {
	c.Settle = cmp.Or(c.Settle, time.Minute)
	c.Settle = max(c.Settle, 0)
	c.Poll = cmp.Or(c.Poll, 5*time.Second)
	c.Lease = cmp.Or(c.Lease, 10*time.Minute)
	c.Limit = cmp.Or(c.Limit, time.Hour)
	c.Audit = cmp.Or(c.Audit, 24*time.Hour)
	c.Grace = cmp.Or(c.Grace, 24*time.Hour)
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Parallel = cmp.Or(c.Parallel, 2)
	c.Frame = cmp.Or(c.Frame, FrameBytes)
	c.Base = cmp.Or(c.Base, FolderBase)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// FolderBase is the beginning of the URIs of objects in a folder. The path of the folder is not part of them, so that
// it may be moved.
const FolderBase = "file:"

// Archiver writes objects of runs that have ended. Create it with NewArchiver.
type Archiver struct {
	cfg     ArchiverConfig
	archive *Archive

	mu    sync.Mutex
	fails map[schema.RunKey]int // number of failures in a row
}

// NewArchiver returns an Archiver.
func NewArchiver(cfg ArchiverConfig) (*Archiver, error) {
	if cfg.Tables == nil || cfg.Queue == nil || cfg.Store == nil {
		return nil, errors.New("blob: an archiver needs tables and a store of objects")
	}
	if cfg.Parallel < 0 || cfg.Frame < 0 || cfg.Frame > maxFrame-schema.MaxPackBytes {
		return nil, fmt.Errorf("blob: an archiver cannot work on %d runs at once with frames of %d bytes", cfg.Parallel,
			cfg.Frame)
	}
	cfg = cfg.withDefaults()
	archive, err := newArchive(Config{Tables: cfg.Tables, Store: cfg.Store, Timeout: cfg.Timeout})
	if err != nil {
		return nil, err
	}
	return &Archiver{cfg: cfg, archive: archive, fails: make(map[schema.RunKey]int)}, nil
}

// claimRuns is the number of runs that a worker claims at once.
const claimRuns = 8

// backlogLimit bounds the backlog that is counted.
const backlogLimit = 100_000

// Run archives until ctx ends. The claims of runs that are being written then are given up.
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

// work claims runs and archives them. While everything fails its pauses grow up to a minute.
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

// pause waits for about d, so that processes that failed at the same time do not try again at the same time.
func pause(ctx context.Context, d time.Duration) { _ = backoff.Sleep(ctx, d/2+rand.N(d/2+1)) }

// batch claims some runs and archives them. An error means that tables or objects are away; then the remaining claims
// are given up.
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
		a.deferRun(ctx, key, err)
		if !errors.Is(err, ErrHole) && !errors.Is(err, ErrCorrupt) {
			a.giveBack(ctx, keys[i+1:])
			return i, err
		}
	}
	return len(keys), nil
}

// giveBack releases the claims of runs.
func (a *Archiver) giveBack(ctx context.Context, keys []schema.RunKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	for _, key := range keys {
		if err := a.cfg.Queue.Defer(ctx, key, 0); err != nil {
			return // the leases end by themselves
		}
	}
}

// maxFails bounds the number of failed runs that are remembered.
const maxFails = 10_000

// deferRun reports the failure and defers the run: for half a minute at first, then longer, up to the lease. A
// run with a gap is deferred for the lease at once.
func (a *Archiver) deferRun(ctx context.Context, key schema.RunKey, err error) {
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

// clearFailures forgets the failures of a run.
func (a *Archiver) clearFailures(key schema.RunKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.fails, key)
}

// watch reports the backlog.
func (a *Archiver) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if n, err := a.cfg.Queue.Backlog(ctx, a.cfg.Settle, backlogLimit); err == nil && a.cfg.Hooks.Backlog != nil {
			a.cfg.Hooks.Backlog(n)
		}
		pause(ctx, 30*time.Second)
	}
}

// audits runs an audit in each interval. The first begins after about a quarter of it, at a random time, so that
// processes that start together do not audit together.
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

// Audit is the result of an audit.
type Audit struct {
	Objects int // all
	Removed int // orphans: the run has another object, or has all events in its rows
	Unknown int // left: the tables do not know the run or some of its events, or the name is not that of an object
}

// Audit lists all objects and, with remove, removes those that no run needs: objects that were written but not
// recorded, and those that a longer one replaced. It leaves objects younger than Grace, and all objects that may be
// the only copy: after the tables were restored from a backup, there are objects of which they do not know.
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

// auditLarge checks the object of a blob: it is kept as long as its run has events.
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
