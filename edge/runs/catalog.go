package runs

import (
	"context"
	"fmt"

	"agentstream/edge/ends"
	"agentstream/fanout"
	"agentstream/schema"
)

// Catalog answers questions about a tenant's runs. Implementations are safe for concurrent use.
type Catalog interface {
	// Runs returns one page of what has been persisted, in the order of schema.RunsQuery: a run that began
	// a moment ago may be missing. The error wraps ErrNoRuns when nothing is persisted here.
	Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error)
	// Parent returns the root run in whose log the events of a child are, "" when none is known. Of several roots
	// that use one child id it returns the one that took it up last.
	Parent(ctx context.Context, tenant, child string) (run string, err error)
}

// Costs knows what models have cost a tenant. Implementations are safe for concurrent use.
type Costs interface {
	// Costs returns costs of what has been persisted, in the order of schema.CostsQuery.
	Costs(ctx context.Context, tenant string, q schema.CostsQuery) ([]schema.Cost, error)
}

// ListCosts returns costs of what has been persisted. The error wraps ErrNoRuns or fanout.ErrUnavailable.
func (rs *Runs) ListCosts(ctx context.Context, tenant string, q schema.CostsQuery) ([]schema.Cost, error) {
	if rs.Costs == nil {
		return nil, ends.ErrNoRuns
	}
	costs, err := rs.Costs.Costs(ctx, tenant, q)
	if err != nil {
		return nil, fmt.Errorf("list costs: %w: %w", fanout.ErrUnavailable, err)
	}
	return costs, nil
}

// List returns one page of what has been persisted of a tenant's runs. The error wraps ErrNoRuns or
// fanout.ErrUnavailable.
func (rs *Runs) List(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if rs.Catalog == nil {
		return nil, ends.ErrNoRuns
	}
	runs, err := rs.Catalog.Runs(ctx, tenant, q)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w: %w", fanout.ErrUnavailable, err)
	}
	return runs, nil
}
