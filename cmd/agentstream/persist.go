package main

import (
	"context"
	"fmt"
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
	nc, err := c.dial("persist", log)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	partitions, err := natskit.Partitions(ctx, js)
	if err != nil {
		return fmt.Errorf("%w (run agentstream migrate first?)", err)
	}
	store, err := openServed(ctx, c.Postgres, persistConns(partitions), log)
	if err != nil {
		return err
	}
	defer store.Close()
	m := newMetrics()
	k, err := c.keeping(ctx, js, store, m, log)
	if err != nil {
		return err
	}
	stages := k.stages()
	l := ListenFlags{AdminListen: c.AdminListen}
	a := &admin{metrics: m, persister: k.persister, checks: []edge.Check{
		{Name: "nats", Run: natsCheck(nc)}, {Name: "postgres", Run: store.Ping}},
		durability: "rows are committed before the log's message is confirmed"}
	if err := l.addAdmin(ctx, stages, a); err != nil {
		return err
	}
	c.addKeeper(stages, m, log)
	log.Info("persist: writing", "partitions", len(k.persister.Status()), "admin", c.AdminListen)
	return runStages(ctx, stages...)
}

// keeping makes the parts of the role.
func (c *PersistCmd) keeping(ctx context.Context, js jetstream.JetStream, store *postgres.Store, m *metrics, log *slog.Logger) (*keeping, error) {
	nc := js.Conn()
	roster, err := perjs.OpenRoster(ctx, js, perjs.RosterConfig{Logger: log})
	if err != nil {
		return nil, err
	}
	k, err := newKeeping(ctx, js, store, roster, c.LingerFlags, m, log)
	if err != nil {
		return nil, err
	}
	runs, err := pubjs.Open(ctx, nc)
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
	roster    *perjs.Roster // nil where no other process can write the same log
}

func newKeeping(ctx context.Context, js jetstream.JetStream, store persister.Store, roster *perjs.Roster, f LingerFlags, m *metrics, log *slog.Logger) (*keeping, error) {
	queues, err := perjs.Queues(ctx, js, perjs.Config{Roster: roster})
	if err != nil {
		return nil, err
	}
	p, err := persister.New(persister.Config{Queues: queues, Store: store, Linger: f.linger(), Logger: log, Hooks: m.persisterHooks()})
	if err != nil {
		return nil, err
	}
	return &keeping{persister: p, roster: roster}, nil
}

// tables are one store, as those need it that look after stored runs.
type tables struct {
	rows  blob.Tables
	ended blob.Queue
	kept  keepStore
}

// lookAfter adds what writes runs that have ended as objects, and what removes runs whose time is over.
func (k *keeping) lookAfter(ctx context.Context, nc *nats.Conn, t tables, b *blobs, af ArchiveFlags, rf RetentionFlags, m *metrics, log *slog.Logger) error {
	archiver, err := af.archiver(t.rows, t.ended, b, m.archiverHooks(), log)
	if err != nil {
		return err
	}
	purger, err := perjs.NewPurger(ctx, nc, pubjs.KeysBucket)
	if err != nil {
		return err
	}
	retention, err := rf.parts(t.kept, purger, b, m.retentionHooks(), log)
	k.parts = append(append(k.parts, archiver...), retention...)
	return err
}

// stages are the parts in the order in which they end. Partitions are handed over when nothing of them
// is being written any more.
func (k *keeping) stages() [][]part {
	stages := [][]part{k.parts, {{"persister", k.persister.Run}}}
	if k.roster != nil {
		stages = append(stages, []part{{"roster", k.roster.Run}})
	}
	return stages
}
