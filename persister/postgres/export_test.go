package postgres

import (
	"context"
	"errors"
	"io"

	"agentstream/persister"
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
	body, err := io.ReadAll(columnsOf(&b, false).copied(day, ways))
	if err != nil {
		panic(err)
	}
	return body
}

// Races counts the transactions that were done again because keys of copied rows were taken.
func (s *Store) Races() int64 { return s.races.Load() }

// RunsQuery and ParentQuery are statements whose plans are looked at.
var (
	RunsQuery   = runsQuery
	ParentQuery = parentQuery
)

// MigrateTo brings an empty database up to a version of old.
func MigrateTo(ctx context.Context, dsn string, version int64) error {
	db, err := openMigrator(dsn)
	if err != nil {
		return err
	}
	provider, err := newProvider(db)
	if err == nil {
		_, err = provider.UpTo(ctx, version)
	}
	return errors.Join(err, db.Close())
}

// Copyless makes the store insert all rows.
func (s *Store) Copyless() { s.copyless.Store(true) }

// IsCopyless reports whether the store inserts all rows.
func (s *Store) IsCopyless() bool { return s.copyless.Load() }

// CollectFrames does what the migration of that name does.
func CollectFrames(ctx context.Context, dsn string) error {
	db, err := openMigrator(dsn)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err == nil {
		err = collectFrames(ctx, tx)
	}
	if err == nil {
		err = tx.Commit()
	}
	return errors.Join(err, db.Close())
}

// LinkStoredCalls is part of a migration.
const LinkStoredCalls = linkStoredCalls
