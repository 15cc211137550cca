package rest

import (
	"context"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/schema"
)

// blobsUsed remembers what the blobs of tenants take together, which is counted by a list of all of them.
type blobsUsed struct {
	mu      sync.Mutex
	tenants map[string]tenantBlobs
}

type tenantBlobs struct {
	bytes int64
	at    time.Time
}

// Bounds of what is remembered: for how long, and of how many tenants.
const (
	blobsKnown   = 10 * time.Second
	blobsTenants = 4096
)

// bytesLeft returns how many bytes of blobs a tenant may still be given. What other nodes have stored in the
// last ten seconds is not counted.
func (u *blobsUsed) bytesLeft(ctx context.Context, a *API, tenant string) (int64, error) {
	u.mu.Lock()
	known, ok := u.tenants[tenant]
	u.mu.Unlock()
	if !ok || time.Since(known.at) > blobsKnown {
		list, err := a.cfg.Blobs.List(ctx, schema.RunKey{Tenant: tenant})
		if err != nil {
			return 0, err
		}
		known = tenantBlobs{at: time.Now()}
		for _, b := range list {
			known.bytes += b.Size
		}
		u.mu.Lock()
		if len(u.tenants) >= blobsTenants || u.tenants == nil {
			u.tenants = make(map[string]tenantBlobs)
		}
		u.tenants[tenant] = known
		u.mu.Unlock()
	}
	return a.cfg.MaxTenantBlobBytes - known.bytes, nil
}

// add counts a blob that was stored here.
func (u *blobsUsed) add(tenant string, bytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if known, ok := u.tenants[tenant]; ok {
		known.bytes += bytes
		u.tenants[tenant] = known
	}
}

// blobsLeft returns how many bytes of blobs a run may still be given, as far as its tenant may. It wraps
// ends.ErrRunBlobs when that is less than what is to come. What others put at the same time is not counted.
func (a *API) blobsLeft(ctx context.Context, key schema.RunKey, coming int64) (int64, error) {
	list, err := a.cfg.Blobs.List(ctx, key)
	if err != nil {
		return 0, err
	}
	left := a.cfg.MaxRunBlobBytes
	for _, b := range list {
		left -= b.Size
	}
	if left < coming || len(list) >= maxRunBlobs {
		return 0, dialect.Refuse(ends.ErrRunBlobs, "the run has %d blobs of %d bytes, and may have %d of %d", len(list),
			a.cfg.MaxRunBlobBytes-left, maxRunBlobs, a.cfg.MaxRunBlobBytes)
	}
	if a.cfg.MaxTenantBlobBytes > 0 {
		most, err := a.blobs.bytesLeft(ctx, a, key.Tenant)
		if err != nil {
			return 0, err
		}
		if most <= 0 || most < coming {
			return 0, dialect.Refuse(ends.ErrRunBlobs, "%d bytes are left of %d for all runs of the tenant", max(most, 0),
				a.cfg.MaxTenantBlobBytes)
		}
		left = min(left, most)
	}
	return max(left, 0), nil
}
