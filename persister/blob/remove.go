package blob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/persister"
	"agentstream/schema"
)

// Places returns where the events of runs are. Both database stores implement it.
type Places interface {
	Place(ctx context.Context, key schema.RunKey) (persister.Place, error)
}

// Remover removes objects of runs that are removed.
type Remover struct {
	Store  ObjectStore
	Places Places // where the events of runs are, to keep blobs that a longer object needs; nil: none does
	// Missing is called with the URIs of objects that Remove found missing: they were removed before, or are in
	// another store. It may be nil.
	Missing func(uri string)
}

// Remove removes the object at a URI from a run's row, and the run's blobs. Removing an object that does not exist is
// no error.
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

// Check reads all of the object that a run's row names. It returns an error unless the object holds what the row
// names. Callers use it before they remove the rows.
func (r Remover) Check(ctx context.Context, key schema.RunKey, place persister.Place) error {
	name, last, err := nameIn(place.URI, key)
	if err != nil {
		return err
	}
	ix, err := Verify(ctx, r.Store, name)
	if err == nil && (last < place.Archived || ix.First > place.Expired+1) {
		err = fmt.Errorf("blob: %s holds the events %d to %d of run %s, not %d to %d: %w", name, ix.First, last, key,
			place.Expired+1, place.Archived, ErrCorrupt)
	}
	return err
}

// Wipe removes all objects of a run of a day, or of a tenant when Run is "", also those that no row names any more
// and those that are being written, and returns their number. It lists objects.
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
	// The sweep comes first: an upload that it ends creates no object after the list was made.
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

// sweeper is a Store that can remove unfinished uploads of objects whose names begin with prefix, if they began
// before a time.
type sweeper interface {
	Sweep(ctx context.Context, prefix string, before time.Time) error
}
