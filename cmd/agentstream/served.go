package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"agentstream/persister/postgres"
)

// openServed opens PostgreSQL for a role that runs on. Tables that are missing, or of another version than
// this program's, are an error: no time mends that, and what was begun with them would fail later and less
// clearly. Any other failure is an outage, through which the role starts.
func openServed(ctx context.Context, dsn string, log *slog.Logger) (*postgres.Store, error) {
	store, err := postgres.Open(ctx, postgres.Config{DSN: dsn, Logger: log})
	if err != nil {
		return nil, err
	}
	once, cancel := context.WithTimeout(ctx, servedWait)
	defer cancel()
	switch err := store.Ping(once); {
	case errors.Is(err, postgres.ErrOlder):
		store.Close()
		return nil, fmt.Errorf("--postgres: %w (agentstream migrate, with a role that may change tables)", err)
	case errors.Is(err, postgres.ErrNewer):
		store.Close()
		return nil, fmt.Errorf("--postgres: %w: start the newer program", err)
	case err != nil && ctx.Err() == nil:
		log.Warn("postgres: not there yet, starting without it", "err", err)
	}
	return store, nil
}

// servedWait bounds the look at the start.
const servedWait = 5 * time.Second
