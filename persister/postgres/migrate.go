package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // database/sql driver "pgx", which goose needs
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versionTable records which migrations have run.
const versionTable = "agentstream_migrations"

// migrationLock is the advisory lock that one migrating process holds; the others wait.
const migrationLock = 0x6167656e747374 // "agentst"

// Migrate brings the tables up to date and gives the names of the migrations it ran, none when
// there was nothing to do. With dryRun it only gives the names and changes nothing. Any number of
// processes may call it at once.
func Migrate(ctx context.Context, dsn string, dryRun bool) ([]string, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: migrate: %w", err)
	}
	names, err := migrate(ctx, db, dryRun)
	if err = errors.Join(err, db.Close()); err != nil {
		return names, fmt.Errorf("postgres: migrate: %w", err)
	}
	return names, nil
}

func migrate(ctx context.Context, db *sql.DB, dryRun bool) ([]string, error) {
	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	if dryRun {
		return pending(ctx, db, provider)
	}
	results, err := provider.Up(ctx)
	names := make([]string, 0, len(results))
	for _, r := range results {
		names = append(names, nameOf(r.Source))
	}
	return names, err
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(migrationLock), lock.WithLockTimeout(1, 300), lock.WithUnlockTimeout(1, 30))
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectPostgres, db, files,
		goose.WithTableName(versionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(digestMigration()))
}

// nameOf names a migration; those that are no file have no path.
func nameOf(s *goose.Source) string {
	if s.Path != "" {
		return s.Path
	}
	return fmt.Sprintf("%05d_%s", s.Version, goMigrations[s.Version])
}

// pending asks for the version table first, because the provider would create it.
func pending(ctx context.Context, db *sql.DB, provider *goose.Provider) ([]string, error) {
	var exists bool
	if err := db.QueryRowContext(ctx, `select to_regclass($1) is not null`, versionTable).Scan(&exists); err != nil {
		return nil, err
	}
	var names []string
	if !exists {
		for _, s := range provider.ListSources() {
			names = append(names, nameOf(s))
		}
		return names, nil
	}
	list, err := provider.Status(ctx)
	for _, s := range list {
		if s.State == goose.StatePending {
			names = append(names, nameOf(s.Source))
		}
	}
	return names, err
}
