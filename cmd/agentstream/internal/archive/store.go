package archive

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/deadletter"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/postgres"
	"agentstream/persister/retention"
	"agentstream/persister/sqlite"
	"agentstream/persister/sqlstore"
	"agentstream/schema"
)

// CommandStore is one store, by what commands need of it.
type CommandStore struct {
	Rows     Tables
	ended    blob.Queue
	Lists    RunLists
	Letters  DeadLetters
	Keep     KeepStore
	Forget   retention.Forgetting
	Survey   retention.Survey
	Settings retention.Settings
	Holds    HoldStore
	offsets  perjs.Offsets
	changes  Changes
	restore  restoring
	losses   Losses

	rewriting Rewriting
	vacuuming vacuuming
}

// Rewriting is a store whose events can get another content. Both stores are one.
type Rewriting interface {
	Place(ctx context.Context, key schema.RunKey) (persister.Place, error)
	Rewrite(ctx context.Context, w persister.Rewriting,
		fn func(event func(*persister.Rewritten) error) (persister.RunTexts, error)) error
	FindDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error)
	RewriteDeadLetter(ctx context.Context, l *deadletter.Stored) error
}

// Rewriting returns the store as events of it are replaced.
func (s *CommandStore) Rewriting() Rewriting { return s.rewriting }

// vacuuming writes the files of a store again, without what was removed from them.
type vacuuming interface {
	Vacuum(ctx context.Context) error
}

// Vacuum writes the tables again, without what rows held before.
func (s *CommandStore) Vacuum(ctx context.Context) error { return s.vacuuming.Vacuum(ctx) }

// VacuumCommands returns what does the same in PostgreSQL, for an operator.
func (s *CommandStore) VacuumCommands() string { return postgres.VacuumCommands() }

// Reviser returns what writes objects that take the place of others.
func (s *CommandStore) Reviser(b *Blobs, log *slog.Logger) (*blob.Reviser, error) {
	return blob.NewReviser(blob.ArchiverConfig{Tables: s.Rows, Queue: s.ended, Store: b.ObjectStore, Base: b.base, Logger: log})
}

// Offsets returns how far each stream of the log is stored.
func (s *CommandStore) Offsets(ctx context.Context) ([]persister.StoredOffset, error) {
	return s.offsets.Offsets(ctx)
}

// Restoring returns the store as runs are restored into it.
func (s *CommandStore) Restoring() blob.RestoreTables { return s.restore }

// OpenStore opens the archive that a command is to work on: that of a dev server, which may run, or
// PostgreSQL. It is not created, and not migrated.
func OpenStore(ctx context.Context, dsn, data string, log *slog.Logger) (*CommandStore, func(), error) {
	switch {
	case data != "":
		s, err := openDevStore(ctx, filepath.Join(data, "archive.db"))
		if err != nil {
			return nil, nil, err
		}
		return &CommandStore{s, s, s, s, s, s, s, s, s, s, s, s, s, s, s}, func() { _ = s.Close() }, nil
	case dsn != "":
		s, err := postgres.Open(ctx, postgres.Config{DSN: dsn, Fresh: cli.FreshDSN(dsn), MaxConns: 3, Logger: log})
		if err != nil {
			return nil, nil, err
		}
		if err := s.Ping(ctx); err != nil {
			s.Close()
			return nil, nil, err
		}
		return &CommandStore{s, s, s, s, s, s, s, s, s, s, s, s, s, s, s}, s.Close, nil
	}
	return nil, nil, errors.New("--postgres (or AGENTSTREAM_POSTGRES, AGENTSTREAM_POSTGRES_FILE) or --data is required")
}

func openDevStore(ctx context.Context, path string) (*sqlite.Store, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("--data: %w", err)
	}
	pending, err := sqlite.Migrate(ctx, path, true)
	if err != nil {
		return nil, err
	}
	if len(pending) > 0 {
		return nil, fmt.Errorf("--data: the archive is of an older version (%d migrations are missing): start dev with it once", len(pending))
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path, Readers: 2})
}

// DeadLetters is a store as the commands on dead letters need it.
type DeadLetters interface {
	deadletter.Redriver
	FindDeadLetters(ctx context.Context, q deadletter.Query) ([]deadletter.Stored, error)
	CountDeadLetters(ctx context.Context, q deadletter.Query) (map[string]int, error)
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
}

// RunLists names runs.
type RunLists interface {
	Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error)
	NextTenant(ctx context.Context, after string) (string, error)
}

// HoldStore places and lifts holds.
type HoldStore interface {
	AddHold(ctx context.Context, key schema.RunKey, reason string) (expired bool, err error)
	RemoveHold(ctx context.Context, key schema.RunKey) (bool, error)
}

// KeepStore is a store as retention needs it.
type KeepStore interface {
	retention.Runs
	retention.Trash
	retention.Tombstones
	retention.Forgetting
}

// restoring is a store as a restore needs it.
type restoring interface {
	blob.RestoreTables
	recording
}

// recording notes what is lost, and that it may be found again.
type recording interface {
	AddRunLosses(ctx context.Context, losses []persister.RunLoss) error
	MarkRestored(ctx context.Context) error
	DropRunLoss(ctx context.Context, l persister.RunLoss) error
}

// EveryTenant asks for the losses of all tenants.
const EveryTenant = sqlstore.EveryTenant

// Losses returns what is recorded as lost. Every store is one.
type Losses interface {
	Losses(ctx context.Context) ([]persister.Loss, error)
	RunLosses(ctx context.Context, tenant string, limit int) (losses []persister.RunLoss, all int, err error)
}

// Changes names the runs that were stored since some moment. Every store is one.
type Changes interface {
	RunsChangedSince(ctx context.Context, t time.Time) iter.Seq2[schema.RunKey, error]
}

// StoredRuns is the whole archive, as a log is completed from it.
type StoredRuns struct {
	*blob.Archive
	Changes
}

// History returns the whole archive of a store; b may be nil.
func (s *CommandStore) History(b *Blobs) (StoredRuns, error) {
	all, err := Join(s.Rows, b)
	return StoredRuns{all, s.changes}, err
}
