package reaper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"agentstream/internal/backoff"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/seal"
)

// Lister lists runs that may have been left.
type Lister interface {
	// Quiet walks the runs that are not over and whose newest event seems to be older than before. It may
	// name others too, and may lag: the log is asked about each.
	Quiet(ctx context.Context, before time.Time) iter.Seq2[schema.RunKey, error]
}

// Witness answers what a run's events do not show.
type Witness interface {
	// Ask asks an owner of lanes of the run whether it is there. false: it does not answer. An error: it is
	// unknown.
	Ask(ctx context.Context, key schema.RunKey, owner string) (bool, error)
	// Newest returns the run's newest event and when the log has stored it, by the log's clock: producers'
	// clocks may be wrong by hours. 0: the log holds nothing of the run any more.
	Newest(ctx context.Context, key schema.RunKey) (schema.Seq, time.Time, error)
}

// Config is what a Reaper needs. Log, Lister and Witness are required.
type Config struct {
	Log     producers.Log
	Lister  Lister
	Witness Witness
	Archive producers.Archive // of runs that the log no longer holds
	Past    producers.Past    // the events of those, and of beginnings that have left the log's window

	After time.Duration // silence after which a run's owner is asked for; default 5 min, negative: never
	// silence that ends a run whose writers own nothing (HTTP) and cannot be asked; default 24 h, negative: never
	Unowned time.Duration
	Grace   time.Duration // over which an owner is asked three times; default 15 s
	Every   time.Duration // between two rounds; default 1 min
	AtOnce  int           // runs that are looked at together; default 16

	Feeds   schema.Feeds      // which never end, and are left alone
	Reasons producers.Reasons // of runs that are ended because a deadline has passed
	Redact  *redact.File      // see producers.Config
	Seal    *seal.Keys        // see producers.Config
	// Finish is asked about a run that is open and silent, before its writer is looked for. It does what is left to be
	// done of runs that need no writer, and reports whether this is one: then the run is left alone until next, or as
	// long as one that is fine where next is zero. It is asked also where After and Unowned are negative. nil: there are
	// none.
	Finish func(ctx context.Context, key schema.RunKey) (finished bool, next time.Time, err error)

	Now    func() time.Time
	Logger *slog.Logger
	Hooks  Hooks
}

// Hooks are called as things happen, from many goroutines; nil ones are off.
type Hooks struct {
	Reaped func(key schema.RunKey, owned bool) // a run was ended
	Failed func(err error)                     // a run, or the list of them, could not be looked at
}

func (c Config) withDefaults() Config {
	def := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.After, 5*time.Minute)
	def(&c.Unowned, 24*time.Hour)
	def(&c.Grace, 15*time.Second)
	def(&c.Every, time.Minute)
	c.AtOnce = cmp.Or(c.AtOnce, 16)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// Reaper ends runs whose writer is gone, so that nobody waits for them for ever: everything that is open is
// closed ([producers.Open.Close]), and the run goes to error with the reason "writer is gone".
//
//	Lister ─▶ silent for long? ─▶ the owner, asked three times, does not answer? ─▶ lanes taken over,
//	            (log's clock)                                                        all that is open closed
//
// A session (a run that begins with session.created) in which nothing is open is silent because no one has written to
// it, and is left alone, until it is archived or deleted: then no one will, and it goes to done. A feed (schema.Feeds)
// never ends, and is left alone. So is a run that waits for somebody (schema.Fold.IsWaiting), itself or one of its
// children: its silence is that person's, however long.
//
// Silence alone is no reason: an owner of a lane that answers ([Witness]) may be silent for days. Ending is
// fenced like any write: it is stored only after the very event that the silence began with, so a writer
// that writes meanwhile is left alone, and one that writes afterwards is refused with ErrFenced. So any
// number of reapers may run, and none of them needs to be right about who lives.
//
// A run of which a deadline has passed ([producers.Expire]) is ended whoever is there.
//
// What it costs: for each open and silent run the read of a head and of the first event, and a request that is
// answered, every After.
type Reaper struct {
	cfg Config

	mu    sync.Mutex
	later map[schema.RunKey]time.Time  // when a run that was fine is looked at again
	rests map[schema.RunKey]schema.Seq // runs that wait for somebody, and sessions in which nothing is open, at this event
}

// Bounds of a round.
const (
	reapTries = 3
	reapBatch = 1000    // runs that are asked for together
	reapLater = 100_000 // runs that are remembered to be fine
	reapLimit = 2 * time.Minute
)

// New returns a reaper, or an error about the configuration. It starts nothing.
func New(cfg Config) (*Reaper, error) {
	cfg = cfg.withDefaults()
	switch {
	case cfg.Log == nil || cfg.Lister == nil || cfg.Witness == nil:
		return nil, errors.New("producers: reaper config: log, lister and witness are needed")
	case cfg.Grace < 0 || cfg.Every <= 0 || cfg.AtOnce < 1:
		return nil, fmt.Errorf("producers: reaper config: grace %v, every %v, %d at once", cfg.Grace, cfg.Every, cfg.AtOnce)
	}
	return &Reaper{cfg: cfg, later: make(map[schema.RunKey]time.Time), rests: make(map[schema.RunKey]schema.Seq)}, nil
}

// Run looks at the runs every so often until ctx ends. An outage is waited for.
func (r *Reaper) Run(ctx context.Context) error {
	for {
		if err := backoff.Sleep(ctx, r.cfg.Every/2+backoff.Delay(0, r.cfg.Every/2, r.cfg.Every/2)); err != nil {
			return nil
		}
		if err := r.Round(ctx); err != nil && ctx.Err() == nil {
			r.reportFailure(err)
		}
	}
}

// reportFailure logs and counts a run that could not be looked at.
func (r *Reaper) reportFailure(err error) {
	r.cfg.Logger.Warn("reaper", "err", err)
	if h := r.cfg.Hooks.Failed; h != nil {
		h(err)
	}
}

// Round looks at all runs once. Its error is the list's; what happens to single runs goes to the log and
// the hooks.
func (r *Reaper) Round(ctx context.Context) error {
	patience := r.cfg.After
	if patience < 0 || r.cfg.Unowned > 0 && r.cfg.Unowned < patience {
		patience = r.cfg.Unowned
	}
	switch {
	case patience >= 0:
	case r.cfg.Finish == nil:
		return nil
	default:
		patience = r.cfg.Every
	}
	now := r.cfg.Now()
	r.forget(now)
	var batch []*suspect
	for key, err := range r.cfg.Lister.Quiet(ctx, now.Add(-min(patience, r.cfg.Every))) {
		if err != nil {
			return fmt.Errorf("producers: reaper: list of quiet runs: %w", err)
		}
		if r.cfg.Feeds.Has(key.Run) || r.fine(key) {
			continue
		}
		batch = append(batch, &suspect{key: key})
		if len(batch) == reapBatch {
			r.judge(ctx, batch)
			batch = batch[:0]
		}
	}
	r.judge(ctx, batch)
	return nil
}

// forget drops what need not be remembered.
func (r *Reaper) forget(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, at := range r.later {
		if !now.Before(at) {
			delete(r.later, key)
		}
	}
	if len(r.later) > reapLater {
		clear(r.later)
	}
	if len(r.rests) > reapLater {
		clear(r.rests)
	}
}

func (r *Reaper) fine(key schema.RunKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, fine := r.later[key]
	return fine
}

func (r *Reaper) fineUntil(key schema.RunKey, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.later[key] = at
}

// noteRest notes a session in which nothing is open.
func (r *Reaper) noteRest(key schema.RunKey, last schema.Seq) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rests[key] = last
	r.later[key] = r.cfg.Now().Add(r.cfg.Every + max(r.cfg.After, 0))
}

// resting reports whether a session was found to rest, and nothing was written since.
func (r *Reaper) resting(key schema.RunKey, last schema.Seq) bool {
	r.mu.Lock()
	at, known := r.rests[key]
	if known && at != last {
		delete(r.rests, key)
	}
	r.mu.Unlock()
	if known && at == last {
		r.noteRest(key, last)
	}
	return known && at == last
}

// suspect is a run that may have been left.
type suspect struct {
	key   schema.RunKey
	owner string     // of the run itself; "" for none
	last  schema.Seq // newest event, when the silence was looked at
}

// judge looks at runs side by side, so that what is waited for is waited for once.
func (r *Reaper) judge(ctx context.Context, runs []*suspect) {
	runs = r.filter(ctx, runs, r.silent)
	for try := range reapTries {
		if try > 0 && len(runs) > 0 && backoff.Sleep(ctx, r.cfg.Grace/(reapTries-1)) != nil {
			return
		}
		runs = r.filter(ctx, runs, r.isAbandoned)
	}
	r.filter(ctx, runs, r.endRun)
}

// filter returns the runs for which keep returns true. Errors are logged, and their runs left out.
func (r *Reaper) filter(ctx context.Context, runs []*suspect,
	keep func(context.Context, *suspect) (bool, error)) []*suspect {
	var group sync.WaitGroup
	places := make(chan struct{}, r.cfg.AtOnce)
	kept := make([]bool, len(runs))
	for i, s := range runs {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			once, cancel := context.WithTimeout(ctx, reapLimit)
			defer cancel()
			var err error
			if kept[i], err = keep(once, s); err != nil && ctx.Err() == nil {
				kept[i] = false
				r.reportFailure(fmt.Errorf("producers: reaper: run %s: %w", s.key, err))
			}
		})
	}
	group.Wait()
	var out []*suspect
	for i, s := range runs {
		if kept[i] && ctx.Err() == nil {
			out = append(out, s)
		}
	}
	return out
}

// silent asks the log's leader whether the run is open and has been silent for too long.
func (r *Reaper) silent(ctx context.Context, s *suspect) (bool, error) {
	last, stored, err := r.cfg.Witness.Newest(ctx, s.key)
	if err != nil {
		return false, err
	}
	head, err := producers.ReadHead(ctx, r.cfg.Log, r.cfg.Archive, s.key, "")
	if err != nil {
		return false, err
	}
	if !head.HasEvents() || head.State.Final() || last != 0 && last != head.Last || r.resting(s.key, head.Last) {
		return false, nil // over; or just written to; or at rest
	}
	if finish := r.cfg.Finish; finish != nil {
		finished, next, err := finish(ctx, s.key)
		if err == nil && finished {
			r.fineUntil(s.key, cmp.Or(next, r.cfg.Now().Add(max(r.cfg.After, r.cfg.Every))))
		}
		if err != nil || finished {
			return false, err
		}
	}
	now := r.cfg.Now()
	if r.cfg.After < 0 && r.cfg.Unowned < 0 {
		r.fineUntil(s.key, now.Add(time.Hour)) // it may be one that Finish knows then
		return false, nil
	}
	s.owner, s.last = head.Lane.Owner, head.Last
	patience := r.cfg.After
	if s.owner == "" {
		patience = r.cfg.Unowned
	}
	late, next, err := producers.Expire(ctx, producers.Config{Log: r.cfg.Log, Key: s.key, Archive: r.cfg.Archive,
		Reasons: r.cfg.Reasons, Redact: r.cfg.Redact, Seal: r.cfg.Seal, Now: r.cfg.Now, Logger: r.cfg.Logger}, now)
	if err != nil || late {
		if late {
			r.reportReaped(s, "a deadline has passed")
		}
		return false, err
	}
	fine := func(until time.Time) {
		if !next.IsZero() && next.Before(until) {
			until = next
		}
		r.fineUntil(s.key, until)
	}
	switch {
	case patience < 0:
		fine(now.Add(time.Hour)) // of the other kind it may be then
		return false, nil
	case last != 0 && now.Sub(stored) < patience:
		fine(stored.Add(patience))
		return false, nil
	}
	return true, nil
}

// isAbandoned asks the run's owner whether it is there, and reports whether no answer says so.
func (r *Reaper) isAbandoned(ctx context.Context, s *suspect) (bool, error) {
	if s.owner == "" {
		return true, nil
	}
	there, err := r.cfg.Witness.Ask(ctx, s.key, s.owner)
	if err != nil {
		return false, err
	}
	if there {
		r.fineUntil(s.key, r.cfg.Now().Add(r.cfg.After))
	}
	return !there, nil
}
