package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/adapters/demo"
	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/cmd/agentstream/internal/retention"
	"agentstream/internal/natskit"
	"agentstream/persister"
	"agentstream/persister/blob"
	"agentstream/persister/sqlite"
	"agentstream/producers"
	"agentstream/schema"
)

// DevCmd is the whole product in one process: embedded NATS with a file store, SQLite, persister,
// edge, and a demo run to look at. What it stores outlives it.
type DevCmd struct {
	node.ListenFlags
	cli.LayoutFlags
	LingerFlags
	node.ReapFlags
	PriceFlags
	archive.ArchiverFlags
	retention.RetentionFlags
	ModelFlags
	Data       string  `help:"Folder for the log and the archive." default:"data" type:"path" env:"AGENTSTREAM_DATA"`
	Demo       bool    `help:"Publish a demo run at start, and answer the sessions that people create." default:"true" negatable:""`
	DemoSpeed  float64 `help:"Speed of the demo run and of answers in sessions; 1 is natural." default:"1" env:"AGENTSTREAM_DEMO_SPEED"`
	DemoScript string  `help:"What the demo run tells: tour, plan (it waits until its plan is approved), failure, or quick (two seconds)." enum:"tour,plan,failure,quick" default:"tour" env:"AGENTSTREAM_DEMO_SCRIPT"`
	DemoGate   string  `help:"What the plan of the demo run needs: preview (nothing), or required (it waits until it is approved). Default: the script's own." enum:",preview,required" default:"" env:"AGENTSTREAM_DEMO_GATE"`
	Sync       string  `help:"always: an acknowledgement means written through to the disk. interval: in the system's cache." enum:"always,interval" default:"interval" env:"AGENTSTREAM_SYNC"`
	LocalTLS   bool    `name:"tls" help:"Serve clients over TLS, with a certificate of an authority of this folder, which is made at the first start." env:"AGENTSTREAM_TLS"`
	NATSListen string  `name:"nats-listen" help:"Also open the embedded NATS to other processes on this machine." env:"AGENTSTREAM_NATS_LISTEN" placeholder:"HOST:PORT"`

	cli.Streams `kong:"-"`
	made        bool // the token is this command's own

	// Serving is called with the address when clients are answered, in the place of what is printed for a person.
	Serving func(net.Addr) error `kong:"-"`
}

// Run serves until ctx ends, then drains, finishes persisting and stops NATS.
//
//	demo ─▶ log ◀─ edge ◀─ clients       stages end from the left (the demo answers sessions, too):
//	         │      │                    edge and demo, hub, copies, persister,
//	         ▼      ▼ older runs         then NATS and SQLite below
//	     persister ─▶ SQLite
func (c *DevCmd) Run(ctx context.Context, log *slog.Logger) error {
	c.makeToken()
	if err := c.Check(true); err != nil {
		return err
	}
	if c.NATSIngest && c.NATSListen == "" {
		return errors.New("--nats-ingest: nobody can reach the embedded NATS without --nats-listen")
	}
	memory, err := c.Keep(process.DevMemory(), log)
	if err != nil {
		return err
	}
	embedded, err := c.natsOptions()
	if err != nil {
		return err
	}
	if c.AdminListen == node.DefaultAdmin { // another dev may have it, or an edge
		c.SpareAdmin = "127.0.0.1:0"
	}
	m := process.NewMetrics()
	ports, err := c.Bind(ctx, c.NATSListen, m, log)
	if err != nil {
		return err
	}
	defer ports.Close()
	own, err := ownFolder(c.Data)
	if err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	defer own.Close()
	if err := c.useLocalTLS(); err != nil {
		return err
	}
	if err := errors.Join(c.keepToken(), c.keepAddress(ports.Clients.Addr())); err != nil {
		return fmt.Errorf("--data: %w", err)
	}
	host, err := natskit.Start(embedded)
	if err != nil {
		return err
	}
	defer host.Stop()
	return c.serve(ctx, host, ports, memory, m, log)
}

// serve opens what stands on the embedded NATS and runs all of it until ctx ends.
func (c *DevCmd) serve(ctx context.Context, host *natskit.Host, ports *node.Ports, memory process.Budget,
	m *process.Metrics, log *slog.Logger) error {
	disk := &node.DiskMonitor{Dir: c.Data, Host: host, Log: log}
	nc, live, err := connect(host)
	if err != nil {
		return err
	}
	defer nc.Close()
	defer live.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	alone := c.NATSListen == ""
	if err := c.Declare(ctx, js, alone); err != nil {
		return err
	}
	layout, err := natskit.ReadLayout(ctx, js)
	if err != nil {
		return err
	}
	layout.Alone = alone
	store, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	objects, all, err := c.openArchive(store)
	if err != nil {
		return err
	}
	c.ShareSecret = cmp.Or(c.ShareSecret, rand.Text()+rand.Text())
	durability := claim(1, c.Sync, false)
	n, err := node.New(ctx, node.Config{Conn: nc, Live: live, Embedded: true, Alone: alone, Memory: memory,
		Archive: all, Runs: store, Costs: store, Letters: store, Losses: store, Offsets: store, Stored: store,
		Objects: objects, Flags: &c.ListenFlags,
		Durability: durability, Metrics: m, Logger: log, Requests: slog.LevelDebug, Room: disk, Layout: layout})
	if err != nil {
		return err
	}
	k, err := c.keeping(ctx, js, n, store, objects, all, m, log)
	if err != nil {
		return err
	}
	n.Storing, n.Stored = k.persister.Storing, k.persister.Status
	stages := append(n.Stages(ports.Clients), k.stages()...)
	ports.AddAdmin(stages, &process.Admin{Metrics: m, Log: log, Checks: n.Checks,
		Leaving: func() bool { return ctx.Err() != nil || n.Leaving() }, Durability: durability, Persister: k.persister})
	c.AddKeeper(stages, m, memory, log)
	stages[len(stages)-1] = append(stages[len(stages)-1], process.Part{Name: "disk", Run: disk.Run})
	addr := ports.Clients.Addr()
	log.Info("dev: serving", "listen", addr.String(), "admin", c.AdminListen, "data", c.Data, "nats",
		cmp.Or(c.NATSListen, "in this process only"))
	log.Info("dev: durability claim in force", "claim", durability)
	if c.Demo {
		answers, err := c.demoParts(n, store, addr, m.ProducerHooks(log), log)
		if err != nil {
			return err
		}
		// First of all: nothing is written any more when the streams that show it are broken off.
		stages = append([][]process.Part{answers}, stages...)
	} else if err := c.announce(addr); err != nil {
		return err
	}
	return process.RunStages(ctx, stages...)
}

// announce prints where clients are answered, or calls Serving.
func (c *DevCmd) announce(addr net.Addr) error {
	if c.Serving != nil {
		return c.Serving(addr)
	}
	return c.greet(addr, "")
}

// demoParts are the demo run, and what answers the sessions that people create.
func (c *DevCmd) demoParts(n *node.Node, store *sqlite.Store, addr net.Addr, hooks producers.Hooks,
	log *slog.Logger) ([]process.Part, error) {
	sessions, err := c.answerSessions(n, store, hooks, log)
	if err != nil {
		return nil, err
	}
	demo := process.Part{Name: "demo", Run: func(ctx context.Context) error { return c.runDemo(ctx, n, addr, hooks, log) }}
	return []process.Part{sessions, demo}, nil
}

// connect opens the connection for all that is written and read, and the one for live copies.
func connect(host *natskit.Host) (nc, live *nats.Conn, err error) {
	if nc, err = natskit.Dial("", "agentstream dev", nats.InProcessServer(host)); err != nil {
		return nil, nil, err
	}
	if live, err = natskit.Dial("", "agentstream dev live", nats.InProcessServer(host)); err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, live, nil
}

// keeping makes the parts that write the log into the store. No other process can.
func (c *DevCmd) keeping(ctx context.Context, js jetstream.JetStream, n *node.Node, store *sqlite.Store,
	objects *archive.Blobs, all *blob.Archive, m *process.Metrics, log *slog.Logger) (*keeping, error) {
	if err := c.PriceFlags.set(ctx, store, log); err != nil {
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
	k, err := newKeeping(ctx, js, persister.Config{Store: store, Refill: refill, Salvage: salvage, Alone: true,
		Hooks: process.WithSpans(m.PersisterHooks(), n.Tracer, "store")}, c.LingerFlags, log)
	if err != nil {
		return nil, err
	}
	k.parts = append(k.parts, process.Part{Name: "losses", Run: node.NewRecorded(store, m, log).Run})
	reaper, err := c.Reaper(n.Log, all, store, n.Redact, n.Keys, m, log)
	if err != nil {
		return nil, err
	}
	k.parts = append(k.parts, reaper...)
	return k, k.lookAfter(ctx, js.Conn(), archiveTables{store, store, store}, objects, c.ArchiverFlags,
		c.RetentionFlags, m, log)
}

// openArchive joins the tables and the objects, which lie in --data unless --blobs says otherwise.
func (c *DevCmd) openArchive(store *sqlite.Store) (*archive.Blobs, *blob.Archive, error) {
	b, err := c.Beside(c.Data).OpenBlobs()
	if err != nil {
		return nil, nil, err
	}
	all, err := archive.Join(store, b)
	return b, all, err
}

// natsOptions returns how the embedded NATS runs.
func (c *DevCmd) natsOptions() (natskit.Embedded, error) {
	e := natskit.Embedded{StoreDir: filepath.Join(c.Data, "nats"), SyncAlways: c.Sync == "always"}
	if c.NATSListen == "" {
		return e, nil
	}
	host, port, err := net.SplitHostPort(c.NATSListen)
	if err != nil {
		return e, fmt.Errorf("--nats-listen %q: %w", c.NATSListen, err)
	}
	if !node.Loopback(host) {
		return e, fmt.Errorf("--nats-listen %q: the embedded server has no authorization; only a loopback address is served", c.NATSListen)
	}
	e.Listen = host
	if e.Port, err = strconv.Atoi(port); err != nil {
		return e, fmt.Errorf("--nats-listen %q: %w", c.NATSListen, err)
	}
	return e, nil
}

func (c *DevCmd) openStore(ctx context.Context) (*sqlite.Store, error) {
	path := filepath.Join(c.Data, "archive.db")
	if _, err := sqlite.Migrate(ctx, path, false); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path})
}

// runDemo publishes one run and then waits, so that its end does not end the process. A run that is
// called demo is easy to type; when it is there from an earlier start, a new id is taken.
func (c *DevCmd) runDemo(ctx context.Context, n *node.Node, addr net.Addr, hooks producers.Hooks,
	log *slog.Logger) error {
	key := schema.RunKey{Tenant: c.Tenant, Run: "demo"}
	if head, err := n.Log.Head(ctx, key, ""); err != nil || head.HasEvents() {
		key.Run = schema.NewIDs().Run(time.Now())
	}
	log.Info("dev: a demo run is being published", "run", key.Run)
	if err := c.greet(addr, key.Run); err != nil {
		return err
	}
	cfg := demo.Config{Script: c.DemoScript, Speed: c.DemoSpeed, PlanningGate: c.DemoGate}
	if err := publishDemo(ctx, n, key, cfg, hooks, log); err != nil && ctx.Err() == nil {
		log.Warn("dev: demo run", "run", key.String(), "err", err)
	}
	<-ctx.Done()
	return nil
}
