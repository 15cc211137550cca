package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/edge"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
)

// OpenServed opens PostgreSQL for a role that runs on. Tables that are missing, or of another version than
// this program's, are an error: what was begun with them would fail later and less clearly. Any other failure is
// an outage, through which the role starts.
// conns is the size of the pool unless the DSN says one; 0 is pgx's own.
func OpenServed(ctx context.Context, dsn string, conns int, log *slog.Logger) (*postgres.Store, error) {
	if strings.Contains(dsn, "pool_max_conns") {
		conns = 0
	}
	store, err := postgres.Open(ctx, postgres.Config{DSN: dsn, Fresh: cli.FreshDSN(dsn), MaxConns: conns, Logger: log})
	if err != nil {
		return nil, err
	}
	once, cancel := context.WithTimeout(ctx, servedWait)
	defer cancel()
	switch err := store.Ping(once); {
	case errors.Is(err, tables.ErrOlder):
		store.Close()
		return nil, fmt.Errorf("--postgres: %w (agentstream migrate, with a role that may change tables)", err)
	case errors.Is(err, tables.ErrNewer):
		store.Close()
		return nil, fmt.Errorf("--postgres: %w: start the newer program", err)
	case err != nil && ctx.Err() == nil:
		log.Warn("postgres: not there yet, starting without it", "err", err)
	}
	return store, nil
}

// TablesCheck fails when the tables have become newer than this program reads: what it would list of them could be
// wrong. That they cannot be asked is left to other checks.
func TablesCheck(store *postgres.Store) edge.Check {
	return edge.Check{Name: "tables", Run: func(ctx context.Context) error {
		if err := store.CheckVersion(ctx); errors.Is(err, tables.ErrNewer) {
			return fmt.Errorf("%w: start the newer program", err)
		}
		return nil
	}}
}

// EdgeConns leaves the size to pgx.
func EdgeConns(int) int { return 0 }

// PersistConns is what a persister may need at once: one connection for each partition, so that some that
// wait for locks do not keep the others waiting, and a few for what looks after stored runs and for checks.
func PersistConns(partitions int) int { return partitions + 4 }

// servedWait bounds the look at the start.
const servedWait = 5 * time.Second
