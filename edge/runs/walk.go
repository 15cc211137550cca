package runs

import (
	"context"
	"iter"
	"runtime"
	"time"

	"agentstream/internal/fair"
	"agentstream/schema"
)

// Bounds of what reads history at once.
const (
	minAtOnce = 8                     // beyond each tenant's first, of all tenants together
	tenants   = 64                    // that read at once
	lease     = 20 * time.Millisecond // of who waits for the log, or for a client
)

// AtOnce is how much may read history at a node at once, of one kind.
func AtOnce() fair.Config {
	return fair.Config{Shared: max(minAtOnce, 2*runtime.GOMAXPROCS(0)), Firsts: tenants}
}

// NewSlots returns slots for Runs.Slots. Who waits for the log or for a client keeps nobody from reading.
func NewSlots() *fair.Lanes {
	cfg := AtOnce()
	cfg.Lease = lease
	return fair.NewLanes(cfg, fair.NewCores(lease))
}

// Lanes returns lanes for another kind of reading, which computes on the same cores.
func (rs *Runs) Lanes() *fair.Lanes {
	if rs.Slots == nil {
		return fair.NewLanes(AtOnce(), nil)
	}
	return fair.NewLanes(AtOnce(), rs.Slots.Cores())
}

// Short is a request that counts as short, for which long reads make room, until its End. It is the context of what the
// request does.
type Short struct{ fair.Mark }

// MarkShort begins to count a request as short.
func (rs *Runs) MarkShort(ctx context.Context, s *Short) { rs.Slots.Cores().Begin(ctx, &s.Mark) }

// Slot waits until a tenant may read for what is asked. The caller releases it; nil, where nothing is shared, is one
// too.
func (rs *Runs) Slot(ctx context.Context, tenant string) (*fair.Slot, error) {
	if rs.Slots == nil {
		return nil, nil
	}
	return rs.Slots.Of(ctx).Acquire(ctx, tenant)
}

// Walk is Source.Walk within the tenant's share of the node. The loop must not wait for anything else that is shared,
// or for a client.
func (rs *Runs) Walk(ctx context.Context, src Source, after, through schema.Seq) iter.Seq2[schema.Record, error] {
	return rs.walk(ctx, src, after, through, (*fair.Slot).Compute)
}

// Replay is Walk for a loop that writes to a client.
func (rs *Runs) Replay(ctx context.Context, src Source, after, through schema.Seq) iter.Seq2[schema.Record, error] {
	return rs.walk(ctx, src, after, through, (*fair.Slot).Tick)
}

func (rs *Runs) walk(ctx context.Context, src Source, after, through schema.Seq,
	tick func(*fair.Slot, context.Context) error) iter.Seq2[schema.Record, error] {
	return func(yield func(schema.Record, error) bool) {
		slot, err := rs.Slot(ctx, src.Key.Tenant)
		if err != nil {
			yield(schema.Record{}, err)
			return
		}
		defer slot.Release()
		for r, err := range src.Walk(ctx, rs.Hub, after, through) {
			if err == nil {
				err = tick(slot, ctx)
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}
