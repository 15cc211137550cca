package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	sqlite3 "modernc.org/sqlite/lib"
)

//go:embed migrations/*.sql
var migrations embed.FS

// versionTable is the table that records which migrations have run.
const versionTable = "agentstream_migrations"

// Errors of Open, Ping and Migrate about the version of the tables.
var (
	ErrOlder = errors.New("run migrate")                       // or they are missing
	ErrNewer = errors.New("the tables are of a newer version") // than this program
)

// Ping returns nil when the file can be read and its tables have the version of this program. The error wraps
// ErrOlder or ErrNewer when the version is the reason.
func (s *Store) Ping(ctx context.Context) error {
	have, err := versionOf(ctx, s.read)
	switch want := known.Newest(); {
	case err != nil:
		return fmt.Errorf("sqlite: ping: %w", err)
	case have == 0:
		return fmt.Errorf("sqlite: ping: the tables are missing: %w", ErrOlder)
	case have < want:
		return fmt.Errorf("sqlite: ping: the tables are at version %d, this program needs %d: %w", have, want, ErrOlder)
	case have > want:
		return fmt.Errorf("sqlite: ping: %w: they are at %d, this program knows up to %d", ErrNewer, have, want)
	}
	return nil
}

// Migrate brings the tables of the file up to date and returns the names of the migrations it ran. It creates the
// file when it does not exist. With dryRun it returns the names and changes nothing. Any number of processes may call
// it at the same time. When one dies another does its work. The error wraps ErrNewer for tables of a newer version,
// which it does not change.
func Migrate(ctx context.Context, path string, dryRun bool) ([]string, error) {
	if path == "" {
		return nil, errors.New("sqlite: migrate: no path")
	}
	open := openWriter
	if dryRun {
		open = func(path string) (*sql.DB, error) {
			return openDB(path, "busy_timeout(5000)", "query_only(1)", "mode=ro")
		}
	}
	db, err := open(path)
	if err != nil {
		return nil, err
	}
	names, err := migrate(ctx, db, dryRun)
	if err = errors.Join(err, db.Close()); err != nil {
		return names, fmt.Errorf("sqlite: migrate: %w", err)
	}
	return names, nil
}

func migrate(ctx context.Context, db *sql.DB, dryRun bool) ([]string, error) {
	provider, err := newProvider(db)
	if err != nil {
		return nil, err
	}
	have, err := versionOf(ctx, db)
	if err != nil && !(dryRun && isCode(err, sqlite3.SQLITE_CANTOPEN)) && !isCode(err, sqlite3.SQLITE_BUSY) {
		return nil, err
	}
	if newest := known.Newest(); have > newest {
		return nil, fmt.Errorf("%w: they are at %d, this program knows up to %d", ErrNewer, have, newest)
	}
	if dryRun {
		return known.Behind(have), nil
	}
	return up(ctx, db, provider)
}

// Bounds of a migration's wait for other processes that migrate. Each try waits for the file's writer, and fails when
// another process was first. While the version changes or the file is busy, another process is migrating.
const (
	busyPause = 100 * time.Millisecond
	busyTries = 100 // of five seconds each
)

func up(ctx context.Context, db *sql.DB, provider *goose.Provider) (names []string, err error) {
	tick := time.NewTicker(busyPause)
	defer tick.Stop()
	last := int64(-1)
	for range busyTries {
		var results []*goose.MigrationResult
		results, err = provider.Up(ctx)
		if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
			results = partial.Applied
		}
		for _, r := range results {
			names = append(names, known[r.Source.Version])
		}
		if err == nil {
			return names, nil
		}
		have, verr := versionOf(ctx, db)
		if !isCode(err, sqlite3.SQLITE_BUSY) && !isCode(verr, sqlite3.SQLITE_BUSY) && have == last {
			return names, err
		}
		last = have
		select {
		case <-tick.C:
		case <-ctx.Done():
			return names, errors.Join(err, ctx.Err())
		}
	}
	return names, err
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(digestMigration(), asksMigration(), repeatsMigration(), namesMigration(),
			idsMigration()))
}

// versionOf reads the version table itself, because the provider would create it. Without one it returns 0.
func versionOf(ctx context.Context, db *sql.DB) (have int64, err error) {
	err = db.QueryRowContext(ctx, `select coalesce(max(version_id), 0) from `+versionTable+` where is_applied`).Scan(&have)
	if err != nil && strings.Contains(err.Error(), "no such table") {
		return 0, nil
	}
	return have, err
}
