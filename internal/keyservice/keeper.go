package keyservice

import "context"

// Keeper makes, lists and deletes the keys of tenants.
type Keeper interface {
	// Create makes a tenant's key. The error wraps ErrExists when there is one.
	Create(ctx context.Context, tenant string) error
	// Rotate adds a version of a tenant's key, with which new content is encrypted. The error wraps schema.ErrKeyGone when
	// there is no key.
	Rotate(ctx context.Context, tenant string) error
	// Delete removes a tenant's key with all versions, for ever. The error wraps schema.ErrKeyGone when there is none.
	Delete(ctx context.Context, tenant string) error
	// List returns all keys, by tenant.
	List(ctx context.Context) ([]Info, error)
}
