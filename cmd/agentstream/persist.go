package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentstream/edge"
	"agentstream/persister"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/postgres"
	pubjs "agentstream/producers/natsjs"
)

// PersistCmd writes the log into PostgreSQL, and ends runs whose writer is gone. A second process is safe
// and takes over what the first leaves.
type PersistCmd struct {
	NATSFlags
	PostgresFlags
	MemoryFlags
	LingerFlags
	ReapFlags
	AdminListen string `help:"Address for /metrics, /debug/pprof and health; off switches it off. Never expose it." default:"127.0.0.1:8082" env:"AGENTSTREAM_ADMIN_LISTEN" placeholder:"HOST:PORT"`
}

// LingerFlags says how a persister gathers what it stores.
type LingerFlags struct {
	Linger time.Duration `help:"Least time between two transactions of a partition while they are small: what comes meanwhile is stored together. 0: none." default:"1s" env:"AGENTSTREAM_LINGER"`
}

func (f LingerFlags) linger() time.Duration {
	if f.Linger <= 0 {
		return -1 // zero means the default there
	}
	return f.Linger
}

// Run persists until ctx ends and finishes the batch it is at.
func (c *PersistCmd) Run(ctx context.Context, log *slog.Logger) error {
	if c.Postgres == "" {
		return errNoPostgres
	}
	nc, err := c.dial("persist", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	store, err := postgres.Open(ctx, postgres.Config{DSN: c.Postgres, Logger: log})
	if err != nil {
		return err
	}
	defer store.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	queues, err := perjs.Queues(ctx, js, perjs.Config{})
	if err != nil {
		return err
	}
	m := newMetrics()
	p, err := persister.New(persister.Config{Queues: queues, Store: store, Linger: c.linger(), Logger: log, Hooks: m.persisterHooks()})
	if err != nil {
		return err
	}
	runs, err := pubjs.Open(ctx, nc)
	if err != nil {
		return err
	}
	reaper, err := c.reaper(runs, store, store, m, log)
	if err != nil {
		return err
	}
	stages := [][]part{append(reaper, part{"persister", p.Run})}
	l := ListenFlags{AdminListen: c.AdminListen}
	a := &admin{metrics: m, persister: p, checks: []edge.Check{
		{Name: "nats", Run: natsCheck(nc)}, {Name: "postgres", Run: store.Ping}},
		durability: "rows are committed before the log's message is confirmed"}
	if err := l.addAdmin(ctx, stages, a); err != nil {
		return err
	}
	c.addKeeper(stages, m, log)
	log.Info("persist: writing", "partitions", len(queues), "admin", c.AdminListen)
	return runStages(ctx, stages...)
}
