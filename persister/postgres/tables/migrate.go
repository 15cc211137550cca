package tables

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib" // goose needs database/sql
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"agentstream/persister/sqlstore"
)

//go:embed migrations/*.sql
var migrations embed.FS

// EveryTenant is the tenant of work for all tenants at once: appends, upkeep, migrations. No tenant can have this name,
// and row security accepts it from the tables' owner alone.
const EveryTenant = sqlstore.EveryTenant

// TenantSetting is the setting with which the tables' row policies compare each row's tenant.
const TenantSetting = "agentstream.tenant"

// migrationLock is the advisory lock that one migrating process holds; the others wait.
const migrationLock = 0x6167656e747374 // "agentst"

// ErrAway reports that the database cannot be reached, or does not take connections yet.
var ErrAway = errors.New("the database is away")

// away wraps the error of a database that is away in ErrAway.
func away(err error) error {
	var pe *pgconn.PgError
	var ce *pgconn.ConnectError
	if errors.As(err, &pe) && pe.Code != "57P03" || !errors.As(err, &pe) && !errors.As(err, &ce) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrAway, err)
}

// Bounds of a migration's wait for a lock. Whoever queues after it waits as well, readers too. So it gives up after
// lockTimeout and tries again after lockPause.
const (
	lockTimeout = "2s"
	lockPause   = time.Second
	lockTries   = 200
)

// Migrate brings the tables up to date and returns the names of the migrations it ran, none when there was nothing to
// do. With dryRun it returns the names and changes nothing. Any number of processes may call it at the same time. When
// one dies another does its work. The error wraps ErrNewer for tables of a newer version, which it does not change,
// and ErrAway when the database cannot be reached.
func Migrate(ctx context.Context, dsn string, dryRun bool) ([]string, error) {
	db, err := Open(dsn)
	if err != nil {
		return nil, fmt.Errorf("postgres: migrate: %w", err)
	}
	names, err := migrate(ctx, db, dryRun)
	if err = errors.Join(err, db.Close()); err != nil {
		return names, fmt.Errorf("postgres: migrate: %w", away(err))
	}
	return names, nil
}

// Open returns a pool of connections that work for all tenants and do not wait long for locks. It does not connect.
func Open(dsn string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("the DSN cannot be read") // pgx's text may quote it
	}
	return stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, `select set_config('`+TenantSetting+`', '`+EveryTenant+`', false),
			set_config('lock_timeout', '`+lockTimeout+`', false), set_config('statement_timeout', '0', false)`)
		return err
	})), nil
}

func migrate(ctx context.Context, db *sql.DB, dryRun bool) ([]string, error) {
	provider, err := Provider(db)
	if err != nil {
		return nil, err
	}
	have, err := versionOf(ctx, db)
	if err != nil {
		return nil, err
	}
	if newest := Version(); have > newest {
		return nil, fmt.Errorf("%w: they are at %d, this program knows up to %d", ErrNewer, have, newest)
	}
	if dryRun {
		return known.Behind(have), nil
	}
	names, err := up(ctx, provider)
	if err == nil {
		err = followOwner(ctx, db)
	}
	return names, err
}

// up runs what is pending, and tries again when a lock was not available in time.
func up(ctx context.Context, provider *goose.Provider) (names []string, err error) {
	tick := time.NewTicker(lockPause)
	defer tick.Stop()
	for range lockTries {
		var results []*goose.MigrationResult
		results, err = provider.Up(ctx)
		if partial := (*goose.PartialError)(nil); errors.As(err, &partial) {
			results = partial.Applied
		}
		for _, r := range results {
			names = append(names, known[r.Source.Version])
		}
		if !lockNotAvailable(err) {
			return names, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return names, errors.Join(err, ctx.Err())
		}
	}
	return names, err
}

func lockNotAvailable(err error) bool {
	var pe *pgconn.PgError
	return errors.As(err, &pe) && pe.Code == "55P03"
}

// followOwner creates the policies again of tables whose owner has changed: policies name the owner.
func followOwner(ctx context.Context, db *sql.DB) error {
	rows, err := db.QueryContext(ctx, `select c.oid::regclass::text from pg_policy p join pg_class c on c.oid = p.polrelid
		where p.polname = 'agent_every_tenant' and p.polroles <> array[c.relowner] and pg_has_role(c.relowner, 'usage')
			and pg_table_is_visible(c.oid)`)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var tables []string
	for rows.Next() {
		var table string
		if err := rows.Scan(&table); err != nil {
			return err
		}
		tables = append(tables, table)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, `call agent_secure($1)`, table); err != nil {
			return err
		}
	}
	return nil
}

// Provider returns the migrations, for connections of Open.
func Provider(db *sql.DB) (*goose.Provider, error) {
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
		goose.WithTableName(VersionTable), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true),
		goose.WithGoMigrations(digestMigration(), framesMigration(), asksMigration(), repeatsMigration(), namesMigration()))
}

// Empty reports whether a database has no tables of agentstream.
func Empty(ctx context.Context, dsn string) (empty bool, err error) {
	db, err := Open(dsn)
	if err != nil {
		return false, fmt.Errorf("postgres: %w", err)
	}
	err = db.QueryRowContext(ctx, `select to_regclass('agent_runs') is null and to_regclass('agentstream_migrations') is null`).
		Scan(&empty)
	if err = errors.Join(err, db.Close()); err != nil {
		return false, fmt.Errorf("postgres: %w", away(err))
	}
	return empty, nil
}

// ForgetLog forgets how far a log is stored: the tables have all of one that is not there any more. What is stored of the
// next one begins with its first message. No persister may run.
func ForgetLog(ctx context.Context, dsn string) error {
	db, err := Open(dsn)
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	_, err = db.ExecContext(ctx, "delete from agent_log_offsets")
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("postgres: forget the log: %w", away(err))
	}
	return nil
}
