package postgres

import (
	"context"

	"agentstream/persister/postgres/tables"
)

// Errors of the tables' version; see package tables.
var (
	ErrAway  = tables.ErrAway
	ErrNewer = tables.ErrNewer
	ErrOlder = tables.ErrOlder
)

// Version calls tables.Version.
func Version() int64 { return tables.Version() }

// Migrate calls tables.Migrate.
func Migrate(ctx context.Context, dsn string, dryRun bool) ([]string, error) {
	return tables.Migrate(ctx, dsn, dryRun)
}

// GrantReader calls tables.GrantReader.
func GrantReader(ctx context.Context, dsn, role string) error {
	return tables.GrantReader(ctx, dsn, role)
}

// GrantAnalyst calls tables.GrantAnalyst.
func GrantAnalyst(ctx context.Context, dsn, role, tenant string) error {
	return tables.GrantAnalyst(ctx, dsn, role, tenant)
}

// SetSearch calls tables.SetSearch.
func SetSearch(ctx context.Context, dsn string, on bool) error {
	return tables.SetSearch(ctx, dsn, on)
}
