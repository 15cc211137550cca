package postgres

import (
	"context"
	"database/sql"
	"errors"
)

// RunsQuery and ParentQuery are statements whose plans are looked at.
var (
	RunsQuery   = runsQuery
	ParentQuery = parentQuery
)

// MigrateDown takes the tables back to what they were after migration version.
func MigrateDown(ctx context.Context, dsn string, version int64) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return err
	}
	provider, err := newProvider(db)
	if err == nil {
		_, err = provider.DownTo(ctx, version)
	}
	return errors.Join(err, db.Close())
}
