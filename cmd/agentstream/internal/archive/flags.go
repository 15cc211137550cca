package archive

import (
	"context"
	"log/slog"

	"agentstream/cmd/agentstream/internal/cli"
)

// StoreFlags say which archive is meant.
type StoreFlags struct {
	cli.PostgresFlags
	Data string `help:"Folder of a dev server, whose archive is meant instead of PostgreSQL; it may run." type:"path" placeholder:"FOLDER"`

	cli.Streams `kong:"-"`
}

// Open opens the archive. It is not created, and not migrated.
func (f *StoreFlags) Open(ctx context.Context, log *slog.Logger) (*Store, func(), error) {
	return OpenStore(ctx, f.Postgres, f.Data, log)
}
