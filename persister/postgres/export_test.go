package postgres

import (
	"context"
	"database/sql"
	"errors"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"

	"agentstream/persister"
	"agentstream/persister/postgres/tables"
)

// CopyStatement takes a CopyBody into the partitioned table.
const CopyStatement = "copy agent_run_events (" + copyNames + ") from stdin binary"

// CopyBody returns the rows of chunks of one day as COPY takes them.
func CopyBody(chunks []persister.Chunk, day string) []byte {
	b := persister.Arrange(chunks, nil)
	ways := make([]way, len(b.Rows))
	for i := range ways {
		ways[i] = wayCopy
	}
	body, err := io.ReadAll(columnsOf(&b, false).dayRows(day, ways))
	if err != nil {
		panic(err)
	}
	return body
}

// Races counts the transactions that were done again because keys of copied rows were taken.
func (s *Store) Races() int64 { return s.races.Load() }

// MigrateTo brings an empty database up to a version of old.
func MigrateTo(ctx context.Context, dsn string, version int64) error {
	return migrations(dsn, func(_ *sql.DB, p *goose.Provider) error {
		_, err := p.UpTo(ctx, version)
		return err
	})
}

// MigrateAgain runs a migration once more, after prepare.
func MigrateAgain(ctx context.Context, dsn string, version int64, prepare string) error {
	return migrations(dsn, func(db *sql.DB, p *goose.Provider) error {
		if _, err := db.ExecContext(ctx, prepare); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, "delete from "+tables.VersionTable+" where version_id = $1", version); err != nil {
			return err
		}
		_, err := p.ApplyVersion(ctx, version, true)
		return err
	})
}

func migrations(dsn string, fn func(*sql.DB, *goose.Provider) error) error {
	db, err := tables.Open(dsn)
	if err != nil {
		return err
	}
	p, err := tables.Provider(db)
	if err == nil {
		err = fn(db, p)
	}
	return errors.Join(err, db.Close())
}

// Copyless makes the store insert all rows.
func (s *Store) Copyless() { s.copyless.Store(true) }

// IsCopyless reports whether the store inserts all rows.
func (s *Store) IsCopyless() bool { return s.copyless.Load() }

// Within calls fn in a transaction for a tenant.
func (s *Store) Within(ctx context.Context, tenant string, fn func()) error {
	return s.within(ctx, tenant, func(pgx.Tx) error {
		fn()
		return nil
	})
}

// Settled reports whether so many statements of a tenant have a connection or wait for one.
func (s *Store) Settled(tenant string, statements int) bool {
	_, waiting := s.conns.CountHeld(tenant)
	stat := s.pool.Stat()
	return waiting+int(stat.AcquiredConns()) >= statements || stat.AcquiredConns() == stat.MaxConns()
}
