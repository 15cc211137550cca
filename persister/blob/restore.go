package blob

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"

	"agentstream/persister"
	"agentstream/schema"
)

// RestoreTables is a store into which runs are restored. Both database stores implement it.
type RestoreTables interface {
	// Append stores rows and moves heads; conflicts are reported and not kept.
	Append(ctx context.Context, chunks []persister.Chunk) (persister.Result, error)
	// SetArchived is that of Queue.
	SetArchived(ctx context.Context, key schema.RunKey, through schema.Seq, uri string, size int64) (bool, error)
	// BeginAt notes that the events of a run up to a seq have expired.
	BeginAt(ctx context.Context, key schema.RunKey, expired schema.Seq) error
	// Unarchive takes an object from a run's row, so that rows of the run are written again.
	Unarchive(ctx context.Context, key schema.RunKey, uri string) (bool, error)
}

// RestoreConfig configures a Restorer. Tables, Into and Store must be set, the first two to the same store.
type RestoreConfig struct {
	Tables Tables
	Into   RestoreTables
	Store  ObjectStore
	Base   string // beginning of the URIs of objects; default "file:"
	Logger *slog.Logger
	// Restored is called for each object that was read, with its run and the number of events that were new to the
	// tables. It may be nil.
	Restored func(key schema.RunKey, events int)
	// Failed is called for each object that cannot be restored, and why: it is damaged, or the tables hold other
	// content. It may be nil.
	Failed func(name string, err error)
}

// Restorer builds rows, and the rows of runs, from objects. What the tables have stays. It may be interrupted and run
// again, also by several processes at once. Create it with NewRestorer.
type Restorer struct {
	cfg     RestoreConfig
	archive *Archive
}

// NewRestorer returns a Restorer.
func NewRestorer(cfg RestoreConfig) (*Restorer, error) {
	if cfg.Tables == nil || cfg.Into == nil || cfg.Store == nil {
		return nil, errors.New("blob: a restorer needs tables and a store of objects")
	}
	if cfg.Base == "" {
		cfg.Base = FolderBase
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	archive, err := newArchive(Config{Tables: cfg.Tables, Store: cfg.Store})
	if err != nil {
		return nil, err
	}
	return &Restorer{cfg: cfg, archive: archive}, nil
}

// Restored is the result of a restore.
type Restored struct {
	Objects int // of runs
	Runs    int // objects from which something was restored
	Events  int // that were new to the tables
	Failed  int // objects that are damaged, or hold other content than the tables
}

// Objects restores the runs of all objects whose names begin with prefix. An object is read whole and compared with its
// check sums before anything of it is stored. Deleted runs stay deleted, and what has expired stays so. The error is
// that of the tables or of the store of objects; an object that fails is counted.
func (r *Restorer) Objects(ctx context.Context, prefix string) (done Restored, err error) {
	for o, err := range r.cfg.Store.List(ctx, prefix) {
		if err != nil {
			return done, fmt.Errorf("blob: restore: %w", err)
		}
		if _, _, _, err := ParseName(o.Name); err != nil {
			continue // a blob, or somebody else's
		}
		done.Objects++
		events, needed, err := r.one(ctx, o.Name)
		switch {
		case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrOtherEvents) || errors.Is(err, schema.ErrBadPack):
			done.Failed++
			r.cfg.Logger.Error("archive: an object is not restored", "object", o.Name, "err", err)
			if r.cfg.Failed != nil {
				r.cfg.Failed(o.Name, err)
			}
		case errors.Is(err, ErrNotFound): // a longer one has replaced it
		case err != nil:
			return done, fmt.Errorf("blob: restore %s: %w", o.Name, err)
		case needed:
			done.Runs++
			done.Events += events
		}
	}
	return done, nil
}

// ErrOtherEvents reports that the tables hold other events of a run than those that are to be restored.
var ErrOtherEvents = errors.New("the tables hold other events at the same numbers")

// one restores the run of an object, if the tables lack some of it.
func (r *Restorer) one(ctx context.Context, name string) (events int, needed bool, err error) {
	key, _, last, err := ParseName(name)
	if err != nil {
		return 0, false, err
	}
	place, err := r.cfg.Tables.Place(ctx, key)
	if err != nil || place.Deleted {
		return 0, false, err
	}
	if place.Last == last && place.Archived >= last {
		if held, err := r.hasRows(ctx, key, place); err != nil || held {
			return 0, false, err
		}
	}
	if place.Last > last {
		if whole, err := r.whole(ctx, key, place, last); err != nil || whole {
			return 0, false, err
		}
	}
	o, err := r.archive.cache.reads.open(ctx, name)
	if err == nil {
		err = o.verify(ctx)
	}
	if err != nil {
		return 0, false, err
	}
	if events, err = r.rows(ctx, o, max(place.Expired, place.Floor)); err != nil {
		return events, true, err
	}
	if first := o.index.First; first > 1 && place.Day == "" {
		if err := r.cfg.Into.BeginAt(ctx, key, first-1); err != nil {
			return events, true, err
		}
	}
	// It is false when the run has gone on since: the archiver writes a longer object.
	if _, err := r.cfg.Into.SetArchived(ctx, key, last, r.cfg.Base+name, o.size); err != nil {
		return events, true, err
	}
	if r.cfg.Restored != nil {
		r.cfg.Restored(key, events)
	}
	return events, true, nil
}

// whole reports whether the archive has the events of a run up to last, which is not its newest.
func (r *Restorer) whole(ctx context.Context, key schema.RunKey, place persister.Place, last schema.Seq) (bool, error) {
	w := walk{a: r.archive, key: key, pos: place.Expired, through: last,
		yield: func(schema.Pack, error) bool { return true }}
	err := w.once(ctx, place)
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrCorrupt) {
		return false, nil
	}
	return w.pos >= last, err
}

// hasRows reports whether the tables have the rows that they are to have of a run. Those up to its floor have
// left on purpose.
func (r *Restorer) hasRows(ctx context.Context, key schema.RunKey, place persister.Place) (bool, error) {
	last := max(place.Floor, place.Expired)
	for p, err := range persister.Walk(ctx, r.cfg.Tables, key, place.Day, last, place.Last) {
		if err != nil {
			return false, err
		}
		last = p.Last()
	}
	return last >= place.Last, nil
}

// restoreRows bounds the rows of one transaction.
const restoreRows = 2000

// rows stores the object's events after a seq, and returns the number of those that were missing.
func (r *Restorer) rows(ctx context.Context, o *openedObject, after schema.Seq) (events int, err error) {
	ix := o.index
	after = max(ix.First-1, after)
	base := ix.before(after)
	rows := &joined{floor: ix.Last, cursor: newCursor(o), base: base.Last}
	events, _, err = RestorePacks(ctx, r.cfg.Into, persister.WalkFrom(ctx, rows, ix.Key(), base, after, ix.Last))
	return events, err
}

// RestorePacks stores the packs of a run. It returns how many of their events were new to the tables, also with an
// error, and the seq of the last event; 0 when there were no packs. The error wraps ErrOtherEvents when the tables hold
// other events.
func RestorePacks(ctx context.Context, into RestoreTables, all iter.Seq2[schema.Pack, error]) (events int,
	last schema.Seq, err error) {
	var packs []schema.Pack
	pending := 0
	flush := func() error {
		chunks, err := persister.Chunks(packs...)
		if err != nil {
			return err
		}
		res, err := into.Append(ctx, chunks)
		if err == nil && len(res.Conflicts) > 0 {
			c := &chunks[res.Conflicts[0].Chunk]
			err = fmt.Errorf("event %d of run %s: %w", c.Rows[res.Conflicts[0].Row].Seq, c.Key, ErrOtherEvents)
		}
		events += res.Inserted
		packs, pending = packs[:0], 0
		return err
	}
	for p, err := range all {
		if err != nil {
			return events, last, err
		}
		packs, last = append(packs, p), p.Last()
		pending += p.Count
		if pending < restoreRows {
			continue
		}
		if err := flush(); err != nil {
			return events, last, err
		}
	}
	if pending > 0 {
		err = flush()
	}
	return events, last, err
}

// Missing is the result of a look for the objects that the tables name.
type Missing struct {
	Freed []schema.RunKey     // runs that have their rows, which an Archiver is to write again
	Lost  []persister.RunLoss // events that only an object had
}

// CheckRuns looks for the object that each run's row names. When it does not exist and the run has all of its
// rows, the row is freed of it, so that an Archiver writes the run again. Otherwise the events that only the
// object had are lost, except for those that another object of the run has, which are restored.
func (r *Restorer) CheckRuns(ctx context.Context, keys iter.Seq2[schema.RunKey, error]) (found Missing, err error) {
	for key, err := range keys {
		if err == nil {
			err = r.checkRun(ctx, key, &found)
		}
		if err != nil {
			return found, fmt.Errorf("blob: restore: %w", err)
		}
	}
	return found, nil
}

// checkRun is CheckRuns for one run. It adds to found.
func (r *Restorer) checkRun(ctx context.Context, key schema.RunKey, found *Missing) error {
	place, err := r.cfg.Tables.Place(ctx, key)
	if err != nil || place.URI == "" || place.Deleted {
		return err
	}
	name, _, err := nameIn(place.URI, key)
	if err != nil {
		return err
	}
	if _, _, err = r.cfg.Store.Read(ctx, name, 0, 1); !errors.Is(err, ErrNotFound) {
		return err
	}
	gone := place.Floor > place.Expired
	other, err := r.longest(ctx, key, place.Day)
	if err != nil {
		return err
	}
	if gone && other == nil { // the row stays: it knows the numbers that were given
		found.lose(key, place.Expired+1, place.Floor)
		return nil
	}
	freed, err := r.cfg.Into.Unarchive(ctx, key, place.URI)
	switch {
	case err != nil || !freed:
		return err
	case !gone:
		found.Freed = append(found.Freed, key)
		return nil
	}
	if _, err := r.rows(ctx, other, place.Expired); err != nil {
		return err
	}
	if other.index.Last < place.Floor {
		found.lose(key, other.index.Last+1, place.Floor)
		return nil
	}
	found.Freed = append(found.Freed, key)
	return nil
}

func (m *Missing) lose(key schema.RunKey, first, last schema.Seq) {
	m.Lost = append(m.Lost, persister.RunLoss{Key: key, First: first, Last: last, Reason: persister.LossObject})
}

// longest opens the object of a run with the newest event, nil when there is none that is sound.
func (r *Restorer) longest(ctx context.Context, key schema.RunKey, day string) (best *openedObject, err error) {
	for o, err := range r.cfg.Store.List(ctx, key.Tenant+"/"+day+"/"+key.Run+".") {
		if err != nil {
			return nil, err
		}
		_, _, last, err := ParseName(o.Name)
		if err != nil || best != nil && last < best.index.Last { // a later revision is listed after the one before
			continue
		}
		one, err := r.archive.cache.reads.open(ctx, o.Name)
		if err == nil {
			err = one.verify(ctx)
		}
		switch {
		case err == nil:
			best = one
		case !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return best, nil
}
