package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/cmd/agentstream/internal/retention"
	"agentstream/edge"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
	"agentstream/persister/postgres"
	"agentstream/persister/postgres/tables"
	"agentstream/persister/prices"
	pubjs "agentstream/producers/natsjs"
)

// PersistCmd writes the log into PostgreSQL, and ends runs whose writer is gone. Several processes share
// the partitions, and take over what one of them leaves.
type PersistCmd struct {
	cli.NATSFlags
	cli.PostgresFlags
	process.MemoryFlags
	LingerFlags
	node.ReapFlags
	process.RedactFlags
	process.SealFlags
	PriceFlags
	archive.ArchiverFlags
	retention.RetentionFlags
	AdminListen string `help:"Address for /metrics, /debug/pprof and health; off switches it off. Never expose it." default:"127.0.0.1:8082" env:"AGENTSTREAM_ADMIN_LISTEN" placeholder:"HOST:PORT"`
	process.AdminFlags
	process.SpanFlags
}

// LingerFlags is how a persister gathers what it stores.
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
		return cli.ErrNoPostgres
	}
	memory, err := c.Keep(0, log)
	if err != nil {
		return err
	}
	m := process.NewMetrics()
	start := &node.Start{AdminListen: c.AdminListen, Flags: c.AdminFlags, Metrics: m, Log: log}
	conns, err := start.Dial(ctx, &c.NATSFlags, "persist")
	if err != nil || ctx.Err() != nil {
		return err
	}
	nc := conns[0]
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	layout, store, err := start.OpenLog(ctx, js, c.Postgres, node.PersistConns)
	if err != nil || ctx.Err() != nil {
		return err
	}
	defer store.Close()
	tracer, sending, err := c.SpanFlags.Open("persist", m, log)
	if err != nil {
		return err
	}
	hooks := process.WithSpans(m.PersisterHooks(), tracer, "store")
	k, err := c.keeping(ctx, js, store, hooks, m, log)
	if err != nil {
		return err
	}
	streams := node.NewInspector(js, layout, store, m)
	k.parts = append(k.parts, process.Part{Name: "streams", Run: streams.Run},
		process.Part{Name: "last backup", Run: node.NewLastBackup(nc, m, log).Run})
	stages := k.stages()
	a := &process.Admin{Metrics: m, Log: log, Persister: k.persister, Checks: append([]edge.Check{
		{Name: "nats", Run: node.NATSCheck(nc)}, {Name: "postgres", Run: func(ctx context.Context) error {
			if err := store.Ping(ctx); err != nil {
				return err
			}
			return k.persister.Storing()
		}}}, streams.Checks()...),
		Durability: "rows and the log's offset are committed together", Tables: tables.Version()}
	operators, err := process.OpenOperators(ctx, c.AdminListen, c.AdminFlags, m, log)
	if err != nil {
		return err
	}
	defer operators.Close()
	stages = append(stages[:len(stages)-1], append(stages[len(stages)-1], operators.Parts(a)...), sending)
	c.AddKeeper(stages, m, memory, log)
	log.Info("persist: writing", "partitions", len(k.persister.Status()), "admin", c.AdminListen)
	return process.RunStages(ctx, stages...)
}

// keeping makes the parts of the role.
func (c *PersistCmd) keeping(ctx context.Context, js jetstream.JetStream, store *postgres.Store, hooks persister.Hooks,
	m *process.Metrics, log *slog.Logger) (*keeping, error) {
	if err := c.PriceFlags.set(ctx, store, log); err != nil {
		return nil, err
	}
	nc := js.Conn()
	keys, err := c.OpenSealing()
	if err != nil {
		return nil, err
	}
	runs, err := pubjs.OpenWith(ctx, nc, pubjs.Config{Compare: node.CompareWith(js, store), Seal: keys})
	if err != nil {
		return nil, err
	}
	objects, err := c.OpenBlobs()
	if err != nil {
		return nil, err
	}
	all, err := archive.Join(store, objects)
	if err != nil {
		return nil, err
	}
	refill, err := node.NewRefill(ctx, js, all, store, m, log)
	if err != nil {
		return nil, err
	}
	salvage, err := node.NewSalvage(js, all, store, store, objects, log)
	if err != nil {
		return nil, err
	}
	k, err := newKeeping(ctx, js, persister.Config{Store: store, Refill: refill, Salvage: salvage,
		Hooks: hooks}, c.LingerFlags, log)
	if err != nil {
		return nil, err
	}
	k.parts = append(k.parts, process.Part{Name: "losses", Run: node.NewRecorded(store, m, log).Run})
	rules, err := c.OpenRules(m, log)
	if err != nil {
		return nil, err
	}
	reaper, err := c.Reaper(runs, all, store, rules, keys, m, log)
	if err != nil {
		return nil, err
	}
	k.parts = append(k.parts, reaper...)
	return k, k.lookAfter(ctx, nc, archiveTables{store, store, store}, objects, c.ArchiverFlags, c.RetentionFlags, m, log)
}

// PriceFlags choose what models cost.
type PriceFlags struct {
	Prices string `help:"File with what models cost, per million tokens and by day (JSON; docs/sql.md). none: no prices. Default: the public list prices that ship with the program." env:"AGENTSTREAM_PRICES" placeholder:"FILE"`
}

// set puts the prices into the store. A store that refuses them is a store all the same: the error is logged.
func (f *PriceFlags) set(ctx context.Context, store interface {
	SetPrices(ctx context.Context, list prices.List) error
}, log *slog.Logger) error {
	list, err := prices.Load(f.Prices)
	if err != nil {
		return fmt.Errorf("--prices: %w", err)
	}
	if err := store.SetPrices(ctx, list); err != nil {
		log.Warn("prices are not stored; costs are computed by those of before", "err", err)
	}
	return nil
}

// keeping is what dev and persist have in common: what writes the log into a store, and what looks after
// what is stored.
type keeping struct {
	parts     []process.Part // look after runs that are stored; they end before the persister does
	persister *persister.Persister
}

// newKeeping returns the persister, which stores into what cfg names.
func newKeeping(ctx context.Context, js jetstream.JetStream, cfg persister.Config, f LingerFlags,
	log *slog.Logger) (*keeping, error) {
	var err error
	if cfg.Queues, err = perjs.Queues(ctx, js, perjs.Config{}); err != nil {
		return nil, err
	}
	cfg.Linger, cfg.Logger = f.linger(), log
	p, err := persister.New(cfg)
	if err != nil {
		return nil, err
	}
	return &keeping{persister: p}, nil
}

// archiveTables are one store, as those need it that look after stored runs.
type archiveTables struct {
	rows  blob.Tables
	ended blob.Queue
	kept  archive.KeepStore
}

// lookAfter adds what writes runs that have ended as objects, and what removes runs whose time is over.
func (k *keeping) lookAfter(ctx context.Context, nc *nats.Conn, t archiveTables, b *archive.Blobs,
	af archive.ArchiverFlags, rf retention.RetentionFlags, m *process.Metrics, log *slog.Logger) error {
	large, err := natskit.NewBlobs(nc)
	if err != nil {
		return err
	}
	archiver, err := af.Archiver(t.rows, t.ended, large, b, m.ArchiverHooks(), log)
	if err != nil {
		return err
	}
	purger, err := perjs.NewPurger(ctx, nc, natskit.KeysBucket)
	if err != nil {
		return err
	}
	retention, err := rf.Parts(t.kept, t.rows, purger, b, m.RetentionHooks(), log)
	k.parts = append(append(k.parts, archiver...), retention...)
	return err
}

// stages are the parts in the order in which they end.
func (k *keeping) stages() [][]process.Part {
	return [][]process.Part{k.parts, {{Name: "persister", Run: k.persister.Run}}}
}
