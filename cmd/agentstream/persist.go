package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/edge"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/postgres"
	pubjs "agentstream/producers/natsjs"
)

// PersistCmd writes the log into PostgreSQL, and ends runs whose writer is gone. Several processes share
// the partitions, and take over what one of them leaves.
type PersistCmd struct {
	NATSFlags
	PostgresFlags
	MemoryFlags
	LingerFlags
	ReapFlags
	ArchiveFlags
	RetentionFlags
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
	if _, err := c.keep(0, log); err != nil {
		return err
	}
	nc, err := c.dial("persist", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	m := newMetrics()
	l := ListenFlags{AdminListen: c.AdminListen}
	_, store, err := l.openLog(ctx, js, c.Postgres, persistConns, m, log)
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer store.Close()
	k, err := c.keeping(ctx, js, store, m, log)
	if err != nil {
		return err
	}
	stages := k.stages()
	a := &admin{metrics: m, log: log, persister: k.persister, checks: []edge.Check{
		{Name: "nats", Run: natsCheck(nc)}, {Name: "postgres", Run: func(ctx context.Context) error {
			if err := store.Ping(ctx); err != nil {
				return err
			}
			return k.persister.Storing()
		}}},
		durability: "rows and the log's offset are committed together", tables: postgres.Version()}
	ports, err := l.bind(ctx, "")
	if err != nil {
		return err
	}
	defer ports.close()
	ports.addAdmin(stages, a)
	c.addKeeper(stages, m, log)
	log.Info("persist: writing", "partitions", len(k.persister.Status()), "admin", c.AdminListen)
	return runStages(ctx, stages...)
}

// keeping makes the parts of the role.
func (c *PersistCmd) keeping(ctx context.Context, js jetstream.JetStream, store *postgres.Store, m *metrics, log *slog.Logger) (*keeping, error) {
	nc := js.Conn()
	runs, err := pubjs.OpenCompared(ctx, nc, comparedWith(js, store))
	if err != nil {
		return nil, err
	}
	objects, err := c.openBlobs()
	if err != nil {
		return nil, err
	}
	all, err := archived(store, objects)
	if err != nil {
		return nil, err
	}
	refill, err := newRefill(ctx, js, all, store, m, log)
	if err != nil {
		return nil, err
	}
	k, err := newKeeping(ctx, js, persister.Config{Store: store, Refill: refill}, c.LingerFlags, m, log)
	if err != nil {
		return nil, err
	}
	reaper, err := c.reaper(runs, all, store, m, log)
	if err != nil {
		return nil, err
	}
	k.parts = append(k.parts, reaper...)
	return k, k.lookAfter(ctx, nc, tables{store, store, store}, objects, c.ArchiveFlags, c.RetentionFlags, m, log)
}

// keeping is what dev and persist have in common: what writes the log into a store, and what looks after
// what is stored.
type keeping struct {
	parts     []part // look after runs that are stored; they end before the persister does
	persister *persister.Persister
}

// newKeeping makes the persister; cfg says what it stores into.
func newKeeping(ctx context.Context, js jetstream.JetStream, cfg persister.Config, f LingerFlags, m *metrics, log *slog.Logger) (*keeping, error) {
	var err error
	if cfg.Queues, err = perjs.Queues(ctx, js, perjs.Config{}); err != nil {
		return nil, err
	}
	cfg.Linger, cfg.Logger, cfg.Hooks = f.linger(), log, m.persisterHooks()
	p, err := persister.New(cfg)
	if err != nil {
		return nil, err
	}
	return &keeping{persister: p}, nil
}

// tables are one store, as those need it that look after stored runs.
type tables struct {
	rows  blob.Tables
	ended blob.Queue
	kept  keepStore
}

// lookAfter adds what writes runs that have ended as objects, and what removes runs whose time is over.
func (k *keeping) lookAfter(ctx context.Context, nc *nats.Conn, t tables, b *blobs, af ArchiveFlags, rf RetentionFlags, m *metrics, log *slog.Logger) error {
	large, err := natskit.NewBlobs(nc)
	if err != nil {
		return err
	}
	archiver, err := af.archiver(t.rows, t.ended, large, b, m.archiverHooks(), log)
	if err != nil {
		return err
	}
	purger, err := perjs.NewPurger(ctx, nc, natskit.KeysBucket)
	if err != nil {
		return err
	}
	retention, err := rf.parts(t.kept, t.rows, purger, b, m.retentionHooks(), log)
	k.parts = append(append(k.parts, archiver...), retention...)
	return err
}

// stages are the parts in the order in which they end.
func (k *keeping) stages() [][]part { return [][]part{k.parts, {{"persister", k.persister.Run}}} }
