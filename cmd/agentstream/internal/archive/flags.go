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

// With opens the archive, calls do and closes the archive again. It neither creates nor migrates it.
func (f *StoreFlags) With(ctx context.Context, log *slog.Logger, do func(*CommandStore) error) error {
	s, done, err := f.Open(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	return do(s)
}

// Open opens the archive. It neither creates nor migrates it.
func (f *StoreFlags) Open(ctx context.Context, log *slog.Logger) (*CommandStore, func(), error) {
	return OpenStore(ctx, f.Postgres, f.Data, log)
}
