package blob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Places says where the events of runs are. Both stores are.
type Places interface {
	Place(ctx context.Context, key schema.RunKey) (persister.Place, error)
}

// Remover removes objects for those who end runs.
type Remover struct {
	Store  Store
	Places Places // says whether a run's blobs are needed by a longer object; nil: they are not
	// Missing is told of objects that Remove was to remove and that were not there: somebody did it before, or this
	// is not the store that they are in. It may be nil.
	Missing func(uri string)
}

// Remove removes the object at a URI that a run's row has given, and the run's blobs. One that is not there is removed.
func (r Remover) Remove(ctx context.Context, key schema.RunKey, uri string) error {
	name, _, err := nameIn(uri, key)
	if err != nil {
		return err
	}
	if _, _, err := r.Store.Read(ctx, name, 0, 1); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	} else if err != nil && r.Missing != nil {
		r.Missing(uri)
	}
	if err := r.removeLarge(ctx, key, uri); err != nil {
		return err
	}
	return r.Store.Delete(ctx, name)
}

// Check reads all of the object that a run's row names, and says whether it holds what the row says. It is for
// those who are about to remove what else there is of the run.
func (r Remover) Check(ctx context.Context, key schema.RunKey, place persister.Place) error {
	name, last, err := nameIn(place.URI, key)
	if err != nil {
		return err
	}
	ix, err := Verify(ctx, r.Store, name)
	if err == nil && (last < place.Archived || ix.First > place.Expired+1) {
		err = fmt.Errorf("blob: %s holds the events %d to %d of run %s, not %d to %d: %w", name, ix.First, last, key, place.Expired+1, place.Archived, ErrCorrupt)
	}
	return err
}

// Wipe removes all objects of a run of a day, or of a tenant where Run is "", also those that no row names
// any more and those that are being written, and returns their number. It asks for a list.
func (r Remover) Wipe(ctx context.Context, key schema.RunKey, day string) (n int, err error) {
	if err := schema.ValidTenant(key.Tenant); err != nil {
		return 0, fmt.Errorf("blob: wipe: %w", err)
	}
	prefix := key.Tenant + "/"
	if key.Run != "" {
		if schema.ValidRunID(key.Run) != nil || !validDay(day) {
			return 0, fmt.Errorf("blob: wipe: no run of a day")
		}
		prefix += day + "/" + key.Run + "."
	}
	// First: an upload that is ended here makes no object behind the list.
	if s, ok := r.Store.(sweeper); ok {
		if err := s.Sweep(ctx, prefix, time.Now().Add(time.Hour)); err != nil {
			return 0, fmt.Errorf("blob: wipe %s: %w", prefix, err)
		}
	}
	for o, err := range r.Store.List(ctx, prefix) {
		if err == nil {
			err = r.Store.Delete(ctx, o.Name)
		}
		if err != nil {
			return n, fmt.Errorf("blob: wipe %s: %w", prefix, err)
		}
		n++
	}
	return n, nil
}

// sweeper is a Store that can remove what uploads of objects whose names begin with prefix have left, or will
// leave, that began before a time and are not finished.
type sweeper interface {
	Sweep(ctx context.Context, prefix string, before time.Time) error
}
