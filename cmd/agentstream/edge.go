package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/persister/postgres/tables"
)

// EdgeCmd serves clients. It keeps no state: run as many as you like behind any balancer.
type EdgeCmd struct {
	cli.NATSFlags
	node.ListenFlags
	cli.PostgresFlags
	archive.BlobFlags
	InsecureNoAuth bool `help:"Ask nobody for a credential, as dev does; only on a loopback address. For load tests on one machine." env:"AGENTSTREAM_INSECURE_NO_AUTH"`
}

// check refuses flags that cannot be served.
func (c *EdgeCmd) check() error {
	if c.InsecureNoAuth && !c.Open() {
		return errors.New("--insecure-no-auth: authentication is configured as well; one of both is a mistake")
	}
	return c.ListenFlags.Check(c.InsecureNoAuth)
}

// Run serves until ctx ends, then drains.
func (c *EdgeCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := c.check(); err != nil {
		return err
	}
	memory, err := c.Keep(0, log)
	if err != nil {
		return err
	}
	m := process.NewMetrics()
	start := &node.Start{AdminListen: c.AdminListen, Flags: c.AdminFlags, Metrics: m, Log: log}
	conns, err := start.Dial(ctx, &c.NATSFlags, "edge", "edge live")
	if err != nil || ctx.Err() != nil {
		return err
	}
	nc, live := conns[0], conns[1]
	defer nc.Close()
	defer live.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	cfg := node.Config{Conn: nc, Live: live, Memory: memory, Flags: &c.ListenFlags, Metrics: m, Logger: log}
	layout, store, err := start.OpenLog(ctx, js, c.Postgres, node.EdgeConns)
	if err != nil || ctx.Err() != nil {
		return err
	}
	cfg.Layout = layout
	cfg.Durability = claim(layout.Replicas, c.NATSSync, store != nil)
	if store == nil {
		log.Warn("no --postgres: runs older than the stream's window cannot be read, and must not be written to")
	} else {
		defer store.Close()
		objects, err := c.OpenBlobs()
		if err != nil {
			return err
		}
		all, err := archive.Join(store, objects)
		if err != nil {
			return err
		}
		cfg.Archive, cfg.Runs, cfg.Costs, cfg.Letters, cfg.Losses, cfg.Offsets, cfg.Tables = all, store, store, store, store, store, node.TablesCheck(store)
		cfg.Stored, cfg.Objects = store, objects
	}
	n, err := node.New(ctx, cfg)
	if err != nil {
		return err
	}
	ports, err := c.Bind(ctx, "", m, log)
	if err != nil {
		return err
	}
	defer ports.Close()
	stages := n.Stages(ports.Clients)
	if store != nil {
		last := len(stages) - 1
		stages[last] = append(stages[last], process.Part{Name: "losses", Run: node.NewRecorded(store, m, log).Run})
	}
	ports.AddAdmin(stages, &process.Admin{Metrics: m, Log: log, Checks: n.Checks, Leaving: n.Leaving,
		Durability: cfg.Durability, Tables: tables.Version()})
	c.AddKeeper(stages, m, memory, log)
	log.Info("edge: serving", "listen", ports.Clients.Addr().String(), "admin", c.AdminListen, "durability",
		cfg.Durability)
	return process.RunStages(ctx, stages...)
}

// claim returns what an acknowledgement promises (docs/guarantees.md).
func claim(replicas int, sync string, postgres bool) string {
	s := "acknowledged events survive the crash of any process"
	switch {
	case replicas > 1 && sync == "always":
		s += ", a power cut, and the loss of a minority of the NATS nodes"
	case sync == "always":
		s += " and a power cut; not the loss of the disk"
	case replicas > 1:
		s += " and the loss of a minority of the NATS nodes; a power cut of all can lose up to the servers' sync_interval"
	default:
		s += "; a power cut can lose up to the server's sync_interval (2 minutes unless configured)"
	}
	if sync == "unknown" {
		s += " (say --nats-sync always if the servers run with sync_interval: always)"
	}
	if postgres {
		s += "; PostgreSQL is the second copy of what has been persisted"
	}
	return s
}
