package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/internal/natskit"
	pubjs "agentstream/producers/natsjs"
)

// EdgeCmd serves clients. It keeps no state: run as many as you like behind any balancer.
type EdgeCmd struct {
	NATSFlags
	ListenFlags
	PostgresFlags
	BlobFlags
	InsecureNoAuth bool `help:"Ask nobody for a credential, as dev does; only on a loopback address. For load tests on one machine." env:"AGENTSTREAM_INSECURE_NO_AUTH"`
}

// check refuses flags that cannot be served.
func (c *EdgeCmd) check() error {
	if c.InsecureNoAuth && !c.open() {
		return errors.New("--insecure-no-auth: authentication is configured as well; one of both is a mistake")
	}
	return c.ListenFlags.check(c.InsecureNoAuth)
}

// Run serves until ctx ends, then drains.
func (c *EdgeCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := c.check(); err != nil {
		return err
	}
	nc, err := c.dial("edge", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	live, err := c.dial("edge live", log)
	if err != nil {
		return err
	}
	defer live.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	layout, err := natskit.Declared(ctx, js)
	if err != nil {
		return fmt.Errorf("%w (run agentstream migrate first?)", err)
	}
	m := newMetrics()
	cfg := nodeConfig{nc: nc, live: live, flags: &c.ListenFlags, metrics: m, logger: log,
		keys: pubjs.KeysConfig{Replicas: layout.Replicas}, durability: claim(layout.Replicas, c.NATSSync, c.Postgres != "")}
	if c.Postgres == "" {
		log.Warn("no --postgres: runs older than the stream's window cannot be read, and must not be written to")
	} else {
		store, err := openServed(ctx, c.Postgres, 0, log)
		if err != nil {
			return err
		}
		defer store.Close()
		objects, err := c.openBlobs()
		if err != nil {
			return err
		}
		all, err := archived(store, objects)
		if err != nil {
			return err
		}
		cfg.archive, cfg.runs = all, store
	}
	n, err := newNode(ctx, cfg)
	if err != nil {
		return err
	}
	ln, err := listen(ctx, "--listen", c.Listen)
	if err != nil {
		return err
	}
	stages := n.stages(ln)
	if err := c.addAdmin(ctx, stages, &admin{metrics: m, checks: n.checks, durability: cfg.durability}); err != nil {
		ln.Close()
		return err
	}
	c.addKeeper(stages, m, log)
	log.Info("edge: serving", "listen", ln.Addr().String(), "admin", c.AdminListen, "durability", cfg.durability)
	return runStages(ctx, stages...)
}

// addAdmin puts the operators' listener into the stage of the clients'.
func (f *ListenFlags) addAdmin(ctx context.Context, stages [][]part, a *admin) error {
	if f.AdminListen == "off" {
		return nil
	}
	ln, err := listen(ctx, "--admin-listen", f.AdminListen)
	if err != nil {
		return err
	}
	last := len(stages) - 1 // to the end: a drain is when one wants to look
	stages[last] = append(stages[last], part{"admin", func(ctx context.Context) error { return a.run(ctx, ln) }})
	return nil
}

// claim says what an acknowledgement promises (docs/guarantees.md).
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
