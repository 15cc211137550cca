package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	"agentstream/persister/postgres"
)

// MigrateCmd brings streams and tables up to date. Any number may run at once.
type MigrateCmd struct {
	NATSFlags
	LayoutFlags
	PostgresFlags
	DryRun  bool `help:"Say what would be done to the tables; change nothing."`
	Streams `kong:"-"`
}

// Run declares the streams and, with --postgres, migrates the tables.
func (c *MigrateCmd) Run(ctx context.Context, log *slog.Logger) error {
	if !c.DryRun {
		nc, err := c.dial("migrate", log)
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		if err := natskit.Declare(ctx, js, c.layout()); err != nil {
			return err
		}
		have, err := natskit.Declared(ctx, js)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.out(), "streams: %d partitions, %d replicas, window %s\n", have.Partitions, have.Replicas, have.MaxAge)
	}
	if c.Postgres == "" {
		fmt.Fprintln(c.out(), "tables: no --postgres, left alone")
		return nil
	}
	names, err := postgres.Migrate(ctx, c.Postgres, c.DryRun)
	if err != nil {
		return err
	}
	verb := "applied"
	if c.DryRun {
		verb = "would apply"
	}
	fmt.Fprintf(c.out(), "tables: %s %d migrations\n", verb, len(names))
	for _, n := range names {
		fmt.Fprintln(c.out(), "  "+n)
	}
	return nil
}
