package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"

	"github.com/nats-io/nats.go"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/dialect/native"
	"agentstream/edge/dialect/qoder"
	"agentstream/edge/sessions"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// archive is a store as the read and the write side see it.
type archive interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
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
}

// nodeConfig is what a node is made of. archive and runs, which are one store, may be nil.
type nodeConfig struct {
	nc         *nats.Conn // for writing and for reading history
	live       *nats.Conn // for live copies: its error handler is the reader's
	archive    archive
	runs       edge.Catalog // the archive's list of runs
	keys       pubjs.KeysConfig
	flags      *ListenFlags
	durability string
	metrics    *metrics
	logger     *slog.Logger
}

func newNode(ctx context.Context, cfg nodeConfig) (*node, error) {
	n := &node{archive: cfg.archive}
	var err error
	if n.log, err = pubjs.Open(ctx, cfg.nc); err != nil {
		return nil, err
	}
	if n.reader, err = fanjs.Open(ctx, cfg.live); err != nil {
		return nil, err
	}
	keys, err := pubjs.OpenKeys(ctx, cfg.nc, cfg.keys)
	if err != nil {
		return nil, err
	}
	hub := fanout.Config{Stream: n.reader, Tail: n.reader, Logger: cfg.logger, Hooks: cfg.metrics.fanoutHooks()}
	app := producers.AppenderConfig{Log: n.log, Keys: keys, Logger: cfg.logger, Hooks: cfg.metrics.producerHooks()}
	if cfg.archive != nil { // a nil archive in an interface would not be nil
		hub.Archive, app.Archive = cfg.archive, cfg.archive
		if marks, ok := cfg.runs.(forgetting); ok {
			app.Archive = guarded(cfg.archive, marks)
		}
	}
	if n.hub, err = fanout.New(hub); err != nil {
		return nil, err
	}
	if n.appender, err = producers.NewAppender(app); err != nil {
		return nil, err
	}
	n.checks = []edge.Check{{Name: "nats", Run: natsCheck(cfg.nc)}}
	if cfg.archive != nil {
		n.checks = append(n.checks, edge.Check{
			// Without it, live streams and runs within the window are served all the same.
			Name: "archive", Run: cfg.archive.Ping, Optional: true})
	}
	if n.gate, err = newGate(ctx, cfg.flags, cfg.nc, cfg.keys.Replicas, cfg.logger); err != nil {
		return nil, err
	}
	n.checks = append(n.checks, n.gate.checks...)
	all, tenants, err := cfg.flags.limits()
	if err != nil {
		return nil, err
	}
	session := qoder.Dialect{Increments: cfg.flags.Increments}
	n.server, err = edge.New(edge.Config{
		IngestLimit: all, TenantLimits: tenants,
		Hub: n.hub, Appender: n.appender,
		Dialects: []dialect.Dialect{native.Dialect{}, session}, APIs: []edge.API{sessions.API(session)},
		Authenticate: n.gate.authenticate, Still: n.gate.still, Tickets: n.gate.tickets, Origins: cfg.flags.CORSOrigin,
		Catalog: newCatalog(cfg.runs, n.reader.Parent),
		Checks:  n.checks, Durability: cfg.durability,
		KeepAlive: cfg.flags.KeepAlive, WriteTimeout: cfg.flags.WriteLimit, DrainWindow: cfg.flags.Drain,
		Logger: cfg.logger, Hooks: cfg.metrics.edgeHooks(),
	})
	if err == nil && cfg.flags.NATSIngest {
		n.inbox, err = pubjs.NewInbox(pubjs.InboxConfig{
			Log: n.log, Take: n.server.Take, Refuse: n.server.Refusal, Logger: cfg.logger, Hooks: cfg.metrics.inboxHooks()})
	}
	return n, err
}

// stages are the node's parts in the order in which they end.
func (n *node) stages(clients net.Listener) [][]part {
	front := []part{{"edge", func(ctx context.Context) error { return n.server.Run(ctx, clients) }}}
	if n.inbox != nil {
		front = append(front, part{"nats ingest", n.inbox.Run})
	}
	return [][]part{
		front,
		{{"hub", n.hub.Run}, {"auth", n.gate.run}},
		{{"live copies", n.reader.Run}},
	}
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
