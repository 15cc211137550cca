package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/postgres"
	"agentstream/persister/retention"
	"agentstream/persister/sqlite"
)

// storeUses is one store, by what commands need of it.
type storeUses struct {
	rows     archiveTables
	ended    blob.Queue
	lists    runLists
	letters  deadLetterArchive
	keep     keepStore
	forget   retention.Forgetting
	survey   retention.Survey
	settings retention.Settings
	holds    holdKeeper
	offsets  perjs.Offsets
	changes  changes
}

// openStore opens the archive that a command is to work on: that of a dev server, which may run, or
// PostgreSQL. It is not created, and not migrated.
func openStore(ctx context.Context, dsn, data string, log *slog.Logger) (*storeUses, func(), error) {
	switch {
	case data != "":
		s, err := openDevStore(ctx, filepath.Join(data, "archive.db"))
		if err != nil {
			return nil, nil, err
		}
		return &storeUses{s, s, s, s, s, s, s, s, s, s, s}, func() { _ = s.Close() }, nil
	case dsn != "":
		s, err := postgres.Open(ctx, postgres.Config{DSN: dsn, MaxConns: 3, Logger: log})
		if err != nil {
			return nil, nil, err
		}
		if err := s.Ping(ctx); err != nil {
			s.Close()
			return nil, nil, err
		}
		return &storeUses{s, s, s, s, s, s, s, s, s, s, s}, s.Close, nil
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
