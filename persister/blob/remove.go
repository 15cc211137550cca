package blob

import (
	"context"
	"fmt"
	"time"

	"agentstream/schema"
)

// Remove removes the object at a URI that a run's row has given. One that is not there is removed.
func Remove(ctx context.Context, s Store, key schema.RunKey, uri string) error {
	name, _, err := nameIn(uri, key)
	if err != nil {
		return err
	}
	return s.Delete(ctx, name)
}

// Remover removes objects for those who end runs.
type Remover struct {
	Store Store
}

// Remove removes the object that a run's row names.
func (r Remover) Remove(ctx context.Context, key schema.RunKey, uri string) error {
	return Remove(ctx, r.Store, key, uri)
}

// Wipe removes all objects of a run of a day, or of a tenant where Run is "", also those that no row names
// any more, and gives their number. It asks for a list.
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

// sweeper is a Store that can remove what uploads that were never finished have left.
type sweeper interface {
	Sweep(ctx context.Context, before time.Time) error
}
