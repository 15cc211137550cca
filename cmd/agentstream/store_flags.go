package main

import (
	"context"
	"log/slog"
)

// KeepStoreFlags say which archive is meant.
type KeepStoreFlags struct {
	PostgresFlags
	Data string `help:"Folder of a dev server, whose archive is meant instead of PostgreSQL; it may run." type:"path" placeholder:"FOLDER"`

	Streams `kong:"-"`
}

// open opens the archive. It is not created, and not migrated.
func (f *KeepStoreFlags) open(ctx context.Context, log *slog.Logger) (*storeUses, func(), error) {
	return openStore(ctx, f.Postgres, f.Data, log)
}
