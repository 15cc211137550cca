package natsjs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister"
	perjs "agentstream/persister/natsjs"
	"agentstream/schema"
	"agentstream/tap/stream"
)

// TenantLog is stream.EventLog on JetStream, and keeps the places of tenants' taps in natskit.TapsBucket. It is safe
// for concurrent use.
type TenantLog struct {
	nc *nats.Conn
	js jetstream.JetStream
	stream.Tenants
}

var _ stream.EventLog = (*TenantLog)(nil)

// NewTenantLog returns the log at a connection, with what has left it. It sends nothing.
func NewTenantLog(nc *nats.Conn, of stream.Tenants) (*TenantLog, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	l := &TenantLog{nc: nc, js: js, Tenants: of}
	l.Tenants.Log = l
	return l, nil
}

// tenantsTap is in the names of consumers that read for tenants' taps.
const tenantsTap = "http"

// tenantsIdle is how long a consumer outlives its reader. An edge may not remove consumers: it could remove the
// persister's.
const tenantsIdle = 30 * time.Second

// Queues implements stream.EventLog.
func (l *TenantLog) Queues(ctx context.Context, tenant string) ([]persister.Queue, error) {
	return perjs.Queues(ctx, l.js, perjs.Config{Tap: tenantsTap, Tenant: tenant, Idle: tenantsIdle})
}

// Ends implements stream.EventLog.
func (l *TenantLog) Ends(ctx context.Context) (ends []persister.Offset, err error) {
	n, err := natskit.Partitions(ctx, l.js)
	for p := 0; p < n && err == nil; p++ {
		var at persister.Offset
		at, err = perjs.OffsetOfEnd(ctx, l.js, p)
		ends = append(ends, at)
	}
	return ends, err
}

// Since implements stream.EventLog.
func (l *TenantLog) Since(ctx context.Context, partition int, t time.Time) (persister.Offset, error) {
	return perjs.OffsetSince(ctx, l.js, partition, t)
}

// First implements stream.EventLog.
func (l *TenantLog) First(ctx context.Context, key schema.RunKey, position uint64) (schema.Seq, error) {
	n, err := natskit.Partitions(ctx, l.js)
	if err != nil {
		return 0, err
	}
	m, err := natskit.NextPack(ctx, l.nc, natskit.RunAddress{Key: key, Partitions: n}, position)
	if errors.Is(err, natskit.ErrNoMessage) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	p, err := natskit.ParsePack(m)
	if err != nil {
		return 0, fmt.Errorf("tap: first of %s: %w", key, err)
	}
	return p.First, nil
}

// maxTenantTaps bounds the names whose places are kept for a tenant.
const maxTenantTaps = 100

// ErrTooMany reports that a tenant has as many taps as it may.
var ErrTooMany = errors.New("there are too many taps of this tenant: remove one")

func tenantKey(tenant, name string) string { return natskit.TenantTaps + "." + tenant + "." + name }

// Place returns the cursor that is kept for a tap of a tenant; "" when there is none.
func (l *TenantLog) Place(ctx context.Context, tenant, name string) (string, error) {
	b, err := natskit.OpenBucket(ctx, l.nc, natskit.TapsBucket)
	if err != nil {
		return "", err
	}
	v, err := b.Read(ctx, tenantKey(tenant, name))
	return string(v.Data), err
}

// Keep moves what is kept for a tap of a tenant to a cursor, and never back. The error wraps schema.ErrBadCursor, or
// ErrTooMany.
func (l *TenantLog) Keep(ctx context.Context, tenant, name, cursor string) error {
	b, err := natskit.OpenBucket(ctx, l.nc, natskit.TapsBucket)
	for err == nil {
		var v natskit.Value
		if v, err = b.Read(ctx, tenantKey(tenant, name)); err != nil {
			break
		}
		var next string
		if next, err = stream.Later(string(v.Data), cursor); err != nil || next == string(v.Data) {
			break
		}
		if len(v.Data) == 0 {
			if err = requireRoom(ctx, b, tenant); err != nil {
				break
			}
		}
		_, err = b.Swap(ctx, tenantKey(tenant, name), []byte(next), v.Revision)
		if !errors.Is(err, natskit.ErrSwapped) {
			break
		}
		err = nil
	}
	return err
}

// requireRoom returns ErrTooMany when a tenant may have no more taps.
func requireRoom(ctx context.Context, b *natskit.Bucket, tenant string) error {
	all, err := b.List(ctx, tenantKey(tenant, "*"))
	if err == nil && len(all) >= maxTenantTaps {
		err = fmt.Errorf("%d taps: %w", len(all), ErrTooMany)
	}
	return err
}

// Forget removes what is kept for a tap of a tenant, and reports whether there was something.
func (l *TenantLog) Forget(ctx context.Context, tenant, name string) (found bool, err error) {
	b, err := natskit.OpenBucket(ctx, l.nc, natskit.TapsBucket)
	if err != nil {
		return false, err
	}
	v, err := b.Read(ctx, tenantKey(tenant, name))
	if err != nil || len(v.Data) == 0 {
		return false, err
	}
	return true, b.Remove(ctx, tenantKey(tenant, name))
}
