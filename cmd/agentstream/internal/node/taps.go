package node

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"agentstream/edge"
	"agentstream/edge/ends"
	"agentstream/fanout"
	"agentstream/schema"
	"agentstream/schema/seal"
	"agentstream/tap/natsjs"
	"agentstream/tap/stream"
)

// tenantTaps is edge.Taps on the log and the archive, with errors in the edge's words.
type tenantTaps struct {
	*natsjs.TenantLog
	keys *seal.Keys
}

var _ edge.Taps = tenantTaps{}

// tenantRuns names the runs of a tenant. Every store is one.
type tenantRuns interface {
	TenantRunsChangedSince(ctx context.Context, after schema.RunKey, t time.Time) iter.Seq2[schema.RunKey, error]
}

// taps returns what follows tenants.
func (n *Node) taps(cfg *Config) (edge.Taps, error) {
	of := stream.Tenants{Logger: cfg.Logger}
	if runs, ok := cfg.Stored.(tenantRuns); ok && cfg.Archive != nil {
		of.Archive = struct {
			Archive
			tenantRuns
		}{cfg.Archive, runs}
	}
	l, err := natsjs.NewTenantLog(cfg.Conn, of)
	return tenantTaps{l, n.Keys}, err
}

// edgeError puts an error into the edge's words: what is neither the client's nor its tenant's fault is the log's.
func edgeError(err error) error {
	switch {
	case err == nil || errors.Is(err, schema.ErrBadCursor) || errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, natsjs.ErrTooMany):
		return fmt.Errorf("%w: %w", ends.ErrLimited, err)
	}
	return fmt.Errorf("%w: %w", fanout.ErrUnavailable, err)
}

// Follow implements edge.Taps. An error of emit is returned as it is.
func (t tenantTaps) Follow(ctx context.Context, q schema.TapQuery, emit func([]schema.TapRecord) error) error {
	var failed error
	err := t.TenantLog.Follow(ctx, q, func(records []schema.TapRecord) error {
		if failed = openRecords(ctx, t.keys, q.Tenant, records); failed == nil {
			failed = emit(records)
		}
		return failed
	})
	if failed != nil || ctx.Err() != nil {
		return errors.Join(failed, context.Cause(ctx))
	}
	return edgeError(err)
}

// Place implements edge.Taps.
func (t tenantTaps) Place(ctx context.Context, tenant, name string) (string, error) {
	cursor, err := t.TenantLog.Place(ctx, tenant, name)
	return cursor, edgeError(err)
}

// Keep implements edge.Taps.
func (t tenantTaps) Keep(ctx context.Context, tenant, name, cursor string) error {
	return edgeError(t.TenantLog.Keep(ctx, tenant, name, cursor))
}

// Forget implements edge.Taps.
func (t tenantTaps) Forget(ctx context.Context, tenant, name string) (bool, error) {
	found, err := t.TenantLog.Forget(ctx, tenant, name)
	return found, edgeError(err)
}
