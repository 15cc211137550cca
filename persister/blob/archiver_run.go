package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// One archives a run now, also when it has changed within Settle. It does nothing, and returns no error, when the run
// has not ended, is archived already, or has no events. An object that was removed is written again as long as there
// are rows.
func (a *Archiver) One(ctx context.Context, key schema.RunKey) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, a.cfg.Limit,
		fmt.Errorf("blob: archive run %s: not done within %v", key, a.cfg.Limit))
	defer cancel()
	place, err := a.cfg.Tables.Place(ctx, key)
	if err != nil {
		return err
	}
	if place.Day == "" || place.Deleted || place.Last <= place.Expired {
		return nil
	}
	if place.Last <= place.Archived && (place.Floor > place.Expired || !a.isMissing(ctx, key, place)) {
		return nil
	}
	name := Name(key, place.Day, place.Last)
	if was, last, err := nameIn(place.URI, key); err == nil && last == place.Last { // it is written again, with its revision
		name = was
	}
	o, err := a.object(ctx, name, key, place)
	if err != nil {
		return fmt.Errorf("blob: archive run %s: %w", key, err)
	}
	if err := a.large(ctx, key, place.Day); err != nil {
		return fmt.Errorf("blob: archive blobs of run %s: %w", key, err)
	}
	set, err := a.cfg.Queue.SetArchived(ctx, key, place.Last, a.cfg.Base+name, o.size)
	if err != nil {
		return err // the object stays: the outcome is unknown, and the next attempt finds it
	}
	if !set {
		return a.discard(ctx, key, name)
	}
	a.clearFailures(key)
	if a.cfg.Hooks.Archived != nil {
		a.cfg.Hooks.Archived(key, o.index, o.size, time.Since(begun))
	}
	if old, _, err := nameIn(place.URI, key); err == nil && old != name {
		if err := a.cfg.Store.Delete(ctx, old); err != nil {
			a.cfg.Logger.Warn("archiver: an object that was followed by a longer one stays until the audit", "object",
				old, "err", err)
		}
	}
	return nil
}

// isMissing reports whether the object that a run names does not exist. As long as the run has its rows it is
// written again.
func (a *Archiver) isMissing(ctx context.Context, key schema.RunKey, place persister.Place) bool {
	name, _, err := nameIn(place.URI, key)
	if err == nil {
		_, err = a.archive.cache.reads.open(ctx, name)
	}
	return errors.Is(err, ErrNotFound)
}

// object writes the run's object, or finds the one that an earlier attempt has written, and reads it back.
func (a *Archiver) object(ctx context.Context, name string, key schema.RunKey, place persister.Place) (*openedObject,
	error) {
	ix, err := a.put(ctx, name, key, place)
	if errors.Is(err, ErrExists) {
		ix, err = a.write(ctx, io.Discard, key, place) // for its digest
	}
	if err != nil {
		return nil, err
	}
	o, err := a.archive.cache.reads.open(ctx, name)
	if err == nil && (o.index.SHA256 != ix.SHA256 || o.index.First != ix.First) {
		err = fmt.Errorf("blob: %s: it holds other lines than the tables: %w", name, ErrCorrupt)
	}
	if err == nil {
		err = o.verify(ctx)
	}
	if errors.Is(err, ErrCorrupt) {
		err = errors.Join(err, a.discard(ctx, key, name)) // the next attempt writes it again
	}
	return o, err
}

// discard removes an object unless the run names it.
func (a *Archiver) discard(ctx context.Context, key schema.RunKey, name string) error {
	place, err := a.cfg.Tables.Place(ctx, key)
	if err != nil {
		return err
	}
	if named, _, err := nameIn(place.URI, key); err == nil && named == name {
		return nil
	}
	return a.cfg.Store.Delete(ctx, name)
}

// put writes the run to its object in the store.
func (a *Archiver) put(ctx context.Context, name string, key schema.RunKey, place persister.Place) (ix *Index,
	err error) {
	err = a.stream(ctx, name, func(w io.Writer) (err error) {
		ix, err = a.write(ctx, w, key, place)
		return err
	})
	return ix, err
}

// stream stores the bytes that write writes as an object.
func (a *Archiver) stream(ctx context.Context, name string, write func(io.Writer) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := a.cfg.Store.Put(ctx, name, r)
		_ = r.CloseWithError(errPutEnded) // a writer that has not finished must not wait
		done <- err
	}()
	err := write(w)
	_ = w.CloseWithError(err) // nil ends the object; after an error it is not created
	if put := <-done; err == nil || errors.Is(err, errPutEnded) {
		err = put
	}
	return err
}

// errPutEnded is the error of a write after the store has stopped reading. Put's own error has the reason.
var errPutEnded = errors.New("store takes no more")

// write writes the run in the format of objects.
func (a *Archiver) write(ctx context.Context, out io.Writer, key schema.RunKey, place persister.Place) (*Index, error) {
	var w *Writer
	var failed error
	walk := walk{a: a.archive, key: key, pos: place.Expired, through: place.Last,
		yield: func(p schema.Pack, _ error) bool {
			failed = w.Add(p)
			return failed == nil
		}}
	w = newWriter(out, a.archive.cache.reads.codec, key, beginning(place))
	w.frame = a.cfg.Frame
	err := walk.once(ctx, place)
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	if walk.pos < place.Last {
		return nil, fmt.Errorf("event %d is not there, the newest is %d: %w", walk.pos+1, place.Last, ErrHole)
	}
	return w.Close()
}
