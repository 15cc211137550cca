package blob

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// ErrNoStore reports that events are in an object, but no store of objects is configured.
var ErrNoStore = errors.New("no store of objects is configured")

// Tables reads rows, and where the events of runs are. Both database stores implement it.
type Tables interface {
	persister.Rows
	Places
}

// Heads returns the newest positions of runs, whether their events are in rows or in objects.
type Heads interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Ping(ctx context.Context) error
}

// Defaults of Config.
const (
	DefaultTimeout = 30 * time.Second
	defaultIndexes = 64 << 20
)

// Config configures an Archive. Tables and Heads must be set, to the same store.
type Config struct {
	Tables  Tables
	Heads   Heads
	Store   ObjectStore   // nil: events that are only in an object cannot be read: ErrNoStore
	Timeout time.Duration // of one request to Store; default DefaultTimeout
	Indexes int64         // bytes of cached indexes; default 64 MiB
}

// Archive reads tables and objects as one history. Create it with New.
type Archive struct {
	cfg   Config
	cache *cache
}

// New returns an Archive.
func New(cfg Config) (*Archive, error) {
	if cfg.Tables == nil || cfg.Heads == nil {
		return nil, errors.New("blob: an archive needs tables")
	}
	return newArchive(cfg)
}

func newArchive(cfg Config) (*Archive, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.Indexes = cmp.Or(cfg.Indexes, defaultIndexes)
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	r := &reads{store: cfg.Store, codec: c, timeout: cfg.Timeout}
	return &Archive{cfg: cfg, cache: newCache(r, cfg.Indexes)}, nil
}

// Head returns the newest position of a run, as the stores do.
func (a *Archive) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	return a.cfg.Heads.Head(ctx, key, lane)
}

// Ping returns nil when tables and objects can be reached.
func (a *Archive) Ping(ctx context.Context) error {
	err := a.cfg.Heads.Ping(ctx)
	if p, ok := a.cfg.Store.(interface{ Ping(context.Context) error }); ok {
		err = errors.Join(err, p.Ping(ctx))
	}
	return err
}

// Packs iterates over the run's events with after < seq ≤ through in order, in packs as of persister.Walk. Events
// that were removed from the tables are read from the object, the others from rows. For an unknown run it yields
// nothing. When the events after after have expired, the first pack begins with the first event that is kept. A gap
// ends the iteration without an error. An object that is away or damaged ends it with an error.
func (a *Archive) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	return func(yield func(schema.Pack, error) bool) {
		w := walk{a: a, key: key, pos: after, through: through, yield: yield}
		if err := w.run(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(schema.Pack{}, err)
		}
	}
}

// errStopped reports that the caller has stopped the iteration.
var errStopped = errors.New("stopped")

// walk is the state of one call of Packs.
type walk struct {
	a            *Archive
	key          schema.RunKey
	pos, through schema.Seq
	began        bool // something was yielded
	yield        func(schema.Pack, error) bool
}

// moves is the number of times that events may move from rows to an object, or from one object to the next, during a
// walk.
const moves = 8

// run walks, and continues when events have moved meanwhile: rows may be in an object by now, or a longer object may
// have replaced the one that is read.
func (w *walk) run(ctx context.Context) error {
	var before persister.Place
	var failed error
	for try := range moves {
		place, err := w.a.cfg.Tables.Place(ctx, w.key)
		if err != nil {
			return errors.Join(failed, err)
		}
		last := place.Last
		place.Last = 0 // newer events are no move
		if try > 0 && place == before {
			return failed
		}
		if place.Day == "" || place.Deleted || w.began && w.pos < place.Expired {
			return nil
		}
		w.pos = max(w.pos, place.Expired) // the first pack shows the caller what is no longer kept
		failed = w.once(ctx, place)
		if failed == nil && w.pos < min(place.Archived, w.through) && place.Floor < place.Archived && w.a.cfg.Store != nil {
			whole := place
			whole.Floor = place.Archived // rows are missing: the object has them
			failed = w.once(ctx, whole)
		}
		if errors.Is(failed, errStopped) || failed == nil && w.pos >= min(last, w.through) {
			return failed
		}
		before = place
	}
	return failed
}

// once walks the run's events as they are stored according to place.
func (w *walk) once(ctx context.Context, place persister.Place) error {
	rows, base, err := w.a.rows(ctx, w.key, place, w.pos)
	if err != nil {
		return err
	}
	for p, err := range persister.WalkFrom(ctx, rows, w.key, base, w.pos, w.through) {
		if err != nil {
			if errors.Is(err, ErrCorrupt) && rows.cursor != nil {
				w.a.cache.drop(rows.cursor.o.name)
			}
			return err
		}
		w.pos, w.began = p.Last(), true
		if !w.yield(p, nil) {
			return errStopped
		}
	}
	return ctx.Err()
}

// rows returns the run's events as rows, and the newest head at or before the event after that is known without
// reading more.
func (a *Archive) rows(ctx context.Context, key schema.RunKey, place persister.Place, after schema.Seq) (*joined,
	schema.Head, error) {
	base := beginning(place)
	j := &joined{tables: a.cfg.Tables, floor: place.Floor}
	if place.Floor <= place.Expired {
		return j, base, nil
	}
	name, last, err := nameIn(place.URI, key)
	if err != nil {
		return nil, base, err
	}
	if last < place.Floor {
		return nil, base, fmt.Errorf("blob: %s ends before event %d of run %s, from which on there are rows", name,
			place.Floor, key)
	}
	if a.cfg.Store == nil {
		return nil, base, fmt.Errorf("blob: run %s up to %d: %w", key, place.Floor, ErrNoStore)
	}
	o, err := a.cache.open(ctx, name)
	if err != nil {
		return nil, base, err
	}
	if o.index.First > place.Expired+1 {
		return nil, base, fmt.Errorf("blob: %s begins with event %d where %d is the first: %w", name, o.index.First,
			place.Expired+1, ErrCorrupt)
	}
	j.cursor, base = newCursor(o), o.index.before(min(after, place.Floor))
	j.base = base.Last
	return j, base, nil
}

// beginning returns the head before the first event that is kept.
func beginning(place persister.Place) schema.Head {
	base := schema.Head{Day: place.Day}
	if place.Expired > 0 {
		// Which of the final states it was is not known, and does not matter: the events after an end are late, or
		// open the run again.
		base.Last, base.State = place.Expired, schema.StateDone
	}
	return base
}

// joined reads the object and the tables as one set of rows.
type joined struct {
	tables Tables
	floor  schema.Seq // rows begin after it
	cursor *cursor    // nil: there are only rows
	base   schema.Seq // of the walk
}

// Page implements persister.Rows.
func (j *joined) Page(ctx context.Context, key schema.RunKey, day string, after, through schema.Seq) ([]persister.Line,
	error) {
	if j.cursor == nil || after >= j.floor {
		return j.tables.Page(ctx, key, day, after, through)
	}
	return j.cursor.page(ctx, after, min(through, j.floor))
}

// Frames implements persister.Rows.
func (j *joined) Frames(ctx context.Context, key schema.RunKey, day string,
	through schema.Seq) (frames []persister.Frame, err error) {
	if j.cursor != nil {
		if frames, err = j.cursor.frames(ctx, j.base, min(through, j.floor)); err != nil {
			return nil, err
		}
	}
	if through <= j.floor && j.cursor != nil {
		return frames, nil
	}
	more, err := j.tables.Frames(ctx, key, day, through)
	if err != nil {
		return nil, err
	}
	for _, f := range more {
		if f.Seq > j.floor || j.cursor == nil {
			frames = append(frames, f)
		}
	}
	return frames, nil
}
