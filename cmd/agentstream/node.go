package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/dialect/native"
	"agentstream/edge/dialect/qoder"
	"agentstream/edge/sessions"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	perjs "agentstream/persister/natsjs"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// archive is a store as the read and the write side see it.
type archive interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	Blob(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error)
	Ping(ctx context.Context) error
}

// node is an edge: what dev and the edge role have in common.
//
//	                      ┌─▶ appender ──────────▶ log (JetStream)
//	clients ─▶ edge.Server┤                          │ direct get, copies
//	                      └─▶ hub ◀── log reader ◀───┘
//	                           ▲
//	                           └── archive (SQLite, PostgreSQL)
//
// What agents publish over NATS goes from the inbox to edge.Server as well, which appends it.
type node struct {
	server   *edge.Server
	hub      *fanout.Hub
	reader   *fanjs.Log
	log      *pubjs.Log
	appender *producers.Appender
	archive  archive      // nil: there is none
	inbox    *pubjs.Inbox // nil: events are not taken over NATS
	gate     *gate
	checks   []edge.Check
	storing  func() error // says why the archive takes nothing; nil: another process writes it
	files    files
	metrics  *metrics
	logger   *slog.Logger
}

// nodeConfig is what a node is made of. archive and runs, which are one store, may be nil.
type nodeConfig struct {
	nc         *nats.Conn // for writing and for reading history
	live       *nats.Conn // for live copies: its error handler is the reader's
	embedded   bool       // the server of nc is in this process
	archive    archive
	runs       edge.Catalog  // the archive's list of runs
	offsets    perjs.Offsets // of the log, as the archive has them; nil: there is none
	tables     edge.Check    // whether this program reads the archive's tables; the zero Check: nobody changes them meanwhile
	room       *room         // of the disk below the log; nil: it is not ours
	flags      *ListenFlags
	durability string
	memory     budget
	metrics    *metrics
	logger     *slog.Logger
}

func newNode(ctx context.Context, cfg nodeConfig) (*node, error) {
	n := &node{archive: cfg.archive, files: filesHere(), metrics: cfg.metrics, logger: cfg.logger}
	js, err := jetstream.New(cfg.nc)
	if err != nil {
		return nil, err
	}
	if n.log, err = pubjs.OpenCompared(ctx, cfg.nc, comparedWith(js, cfg.offsets)); err != nil {
		return nil, err
	}
	if n.reader, err = fanjs.Open(ctx, cfg.live); err != nil {
		return nil, err
	}
	keys, err := pubjs.OpenKeys(ctx, cfg.nc)
	if err != nil {
		return nil, err
	}
	hub := fanout.Config{Stream: wholeStream{n.reader, n.log}, Tail: n.reader, Logger: cfg.logger, Hooks: cfg.metrics.fanoutHooks(),
		CacheBytes: int(cfg.memory.folds)}
	app := producers.AppenderConfig{Log: n.log, Keys: pubjs.Heard(cfg.nc, keys), Logger: cfg.logger, Hooks: cfg.metrics.producerHooks(cfg.logger)}
	var pace *paced
	if most := cfg.memory.log; most > 0 && cfg.embedded {
		pace = newPaced(n.log, most, func(d time.Duration) { cfg.metrics.paced.Add(d.Seconds()) })
		app.Log = pace
	}
	if cfg.room != nil {
		app.Log, app.Keys = roomyLog{app.Log, cfg.room}, roomyKeys{app.Keys, cfg.room}
	}
	if cfg.archive != nil { // a nil archive in an interface would not be nil
		hub.Archive, app.Archive = cfg.archive, cfg.archive
		if marks, ok := cfg.runs.(forgetting); ok {
			app.Archive = guarded(cfg.archive, marks)
		}
	}
	if cfg.runs != nil {
		app.Parent = cfg.runs.Parent
	}
	if n.hub, err = fanout.New(hub); err != nil {
		return nil, err
	}
	if n.appender, err = producers.NewAppender(app); err != nil {
		return nil, err
	}
	if n.gate, err = newGate(ctx, cfg.flags, cfg.nc, cfg.logger); err != nil {
		return nil, err
	}
	n.checks = append(n.dependencies(cfg), n.gate.checks...)
	all, tenants, err := cfg.flags.limits()
	if err != nil {
		return nil, err
	}
	bodies, err := cfg.flags.bodyMemory(cfg.memory)
	if err != nil {
		return nil, err
	}
	blobs, bounds, err := cfg.blobs(pace)
	if err != nil {
		return nil, err
	}
	session := qoder.Dialect{Increments: cfg.flags.Increments}
	n.server, err = edge.New(edge.Config{
		IngestLimit: all, TenantLimits: tenants, BodyMemory: bodies, FoldCacheBytes: int(cfg.memory.folds), MaxStreams: cmp.Or(cfg.flags.MaxStreams, n.files.streams),
		Hub: n.hub, Appender: n.appender, Blobs: blobs, MaxBlobBytes: bounds.one, MaxRunBlobBytes: bounds.run, MaxTenantBlobBytes: bounds.tenant,
		Dialects: []dialect.Dialect{native.Dialect{}, session}, APIs: []edge.API{sessions.API(session)},
		Authenticate: n.gate.authenticate, Still: n.gate.still, Tickets: n.gate.tickets, Origins: cfg.flags.CORSOrigin,
		Catalog: newCatalog(cfg.runs, n.reader.Parent),
		Checks:  n.checks, Durability: cfg.durability,
		KeepAlive: cfg.flags.KeepAlive, WriteTimeout: cfg.flags.WriteLimit, DrainWindow: cfg.flags.Drain,
		Logger: cfg.logger, Hooks: cfg.metrics.edgeHooks(),
	})
	if err == nil && cfg.flags.NATSIngest {
		n.inbox, err = pubjs.NewInbox(pubjs.InboxConfig{
			MaxPending: int(min(bodies/2, 64<<20)), Log: n.log, Take: n.server.Take, Refuse: n.server.Refusal, Logger: cfg.logger, Hooks: cfg.metrics.inboxHooks()})
	}
	return n, err
}

// dependencies are the checks of what the node stands on.
func (n *node) dependencies(cfg nodeConfig) []edge.Check {
	checks := []edge.Check{{Name: "nats", Run: natsCheck(cfg.nc)}}
	if cfg.room != nil {
		checks = append(checks, edge.Check{Name: "disk", Run: func(context.Context) error { return cfg.room.err() }})
	}
	if cfg.archive != nil {
		checks = append(checks, edge.Check{Name: "log", Run: wholeCheck(n.log)}, edge.Check{
			// Without it, live streams and runs within the window are served all the same.
			Name: "archive", Run: n.checkArchive, Optional: true})
	}
	if cfg.tables.Run != nil {
		checks = append(checks, cfg.tables)
	}
	return checks
}

// stages are the node's parts in the order in which they end.
func (n *node) stages(clients net.Listener) [][]part {
	front := []part{{"edge", func(ctx context.Context) error { return n.serve(ctx, clients) }}}
	if n.inbox != nil {
		front = append(front, part{"nats ingest", n.inbox.Run})
	}
	return [][]part{
		front,
		{{"hub", n.hub.Run}, {"auth", n.gate.run}},
		{{"live copies", n.reader.Run}},
	}
}

// checkArchive returns why the archive cannot be read, or cannot be written where that happens here.
func (n *node) checkArchive(ctx context.Context) error {
	if err := n.archive.Ping(ctx); err != nil || n.storing == nil {
		return err
	}
	return n.storing()
}

// serve lets as many clients in as there are descriptors for.
func (n *node) serve(ctx context.Context, clients net.Listener) error {
	d := clientsDoor(clients, n.files, n.metrics, n.logger)
	defer d.wait()
	return n.server.Run(ctx, d)
}

func natsCheck(nc *nats.Conn) func(context.Context) error {
	return func(ctx context.Context) error {
		if !nc.IsConnected() {
			return errors.New("not connected: " + nc.Status().String())
		}
		if err := nc.FlushWithContext(ctx); err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		return nil
	}
}
