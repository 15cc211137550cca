package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentstream/cmd/agentstream/internal/archive"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/edge"
	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/console"
	limitjs "agentstream/edge/limits/natsjs"
	"agentstream/edge/protocol"
	"agentstream/edge/reference"
	"agentstream/edge/secure"
	"agentstream/fanout"
	fanjs "agentstream/fanout/natsjs"
	"agentstream/internal/fair"
	"agentstream/internal/natskit"
	"agentstream/internal/spans"
	"agentstream/persister"
	"agentstream/persister/blob"
	perjs "agentstream/persister/natsjs"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/protocols/agui"
	"agentstream/protocols/aisdk"
	langgraphserve "agentstream/protocols/langgraph/serve"
	metisserve "agentstream/protocols/metis/serve"
	"agentstream/protocols/native"
	nimiserve "agentstream/protocols/nimi/serve"
	"agentstream/protocols/openai"
	"agentstream/protocols/otlp"
	"agentstream/protocols/qoder"
	qoderserve "agentstream/protocols/qoder/serve"
	"agentstream/schema"
	"agentstream/schema/redact"
	"agentstream/schema/seal"
)

// Archive is a store as the read and the write side see it.
type Archive interface {
	Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error)
	Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	Blob(ctx context.Context, key schema.RunKey, ref string) (schema.Blob, iter.Seq2[[]byte, error], error)
	Ping(ctx context.Context) error
}

var _ Archive = (*blob.Archive)(nil)

// Node is an edge: what dev and the edge role have in common.
//
//	                      ┌─▶ appender ──────────▶ log (JetStream)
//	clients ─▶ edge.Server┤                          │ direct get, copies
//	                      └─▶ hub ◀── log reader ◀───┘
//	                           ▲
//	                           └── archive (SQLite, PostgreSQL)
//
// What agents publish over NATS goes from the inbox to edge.Server as well, which appends it.
type Node struct {
	server    *edge.Server
	hub       *fanout.Hub
	traces    *otlp.Ingest
	reader    *fanjs.Log
	Log       *pubjs.Log
	appender  *producers.Appender
	protocols []protocol.Protocol // all that clients may speak
	Archive   Archive             // nil: there is none
	inbox     *pubjs.Inbox        // nil: events are not taken over NATS
	gate      *Gate
	Checks    []edge.Check
	Stored    func() []persister.Status // how far the archive has come; nil: another process writes it
	Storing   func() error              // returns why the archive takes nothing; nil: another process writes it
	Redact    *redact.File              // what is hidden in events; nil: nothing
	Keys      *seal.Keys                // what is encrypted, and opened; nil: nothing
	files     process.Files
	tls       *secure.Files // of clients; nil: there are none
	streams   *Inspector
	spans     []process.Part // that send spans
	Tracer    *spans.Tracer  // of this process's own work; nil: there are no spans
	metrics   *process.Metrics
	logger    *slog.Logger
}

// Config is what a node is made of. Archive and Runs, which are one store, may be nil.
type Config struct {
	Conn     *nats.Conn // for writing and for reading history
	Live     *nats.Conn // for live copies: its error handler is the reader's
	Embedded bool       // the server of nc is in this process
	Alone    bool       // this process alone writes and reads the log, which was declared as such
	Archive  Archive
	Letters  archive.DeadLetters // the archive's; nil: there is none
	Losses   archive.Losses      // the archive's, where there are Letters
	Runs     edge.Catalog        // the archive's list of runs
	Costs    edge.Costs          // what models have cost, as the archive has it; nil: that is not known
	Offsets  perjs.Offsets       // of the log, as the archive has them; nil: there is none
	Stored   archive.Changes     // the archive's runs, where there are Offsets
	Objects  *archive.Blobs      // of runs; nil: there are none
	// whether this program reads the archive's tables; the zero Check: nobody changes them meanwhile
	Tables     edge.Check
	Layout     natskit.Layout // of the log, as it was found
	Room       *DiskMonitor   // of the disk below the log; nil: it is not ours
	Flags      *ListenFlags
	Durability string
	Memory     process.Budget
	Metrics    *process.Metrics
	Logger     *slog.Logger
	Requests   slog.Level // of the lines for requests
}

// Leaving reports whether the node goes away.
func (n *Node) Leaving() bool { return n.server.Leaving() }

// New opens what a node needs. Nobody is served before the parts of Stages run.
func New(ctx context.Context, cfg Config) (*Node, error) {
	n := &Node{files: process.FilesHere(), metrics: cfg.Metrics, logger: cfg.Logger}
	n.traces = otlp.New(otlp.Config{Settle: cfg.Flags.OTLPSettle, Logger: cfg.Logger})
	n.protocols = cfg.Flags.protocols(n.traces)
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, err
	}
	if n.tls, err = cfg.Flags.TLS.Open("tls", cfg.Metrics, cfg.Logger); err != nil {
		return nil, err
	}
	if n.Redact, err = cfg.Flags.Rules.OpenRules(cfg.Metrics, cfg.Logger); err != nil {
		return nil, err
	}
	if n.Keys, err = cfg.Flags.Sealing.OpenSealing(); err != nil {
		return nil, err
	}
	n.Archive = OpenArchive(n.Keys, cfg.Archive)
	if err = n.openLog(ctx, cfg, js); err != nil {
		return nil, err
	}
	keys, err := pubjs.OpenKeys(ctx, cfg.Conn)
	if err != nil {
		return nil, err
	}
	pace, err := n.open(cfg, keys)
	if err != nil {
		return nil, err
	}
	if n.gate, err = NewGate(ctx, cfg.Flags, cfg.Conn, n.Keys, cfg.Logger); err != nil {
		return nil, err
	}
	n.streams = NewInspector(js, cfg.Layout, cfg.Offsets, cfg.Metrics)
	n.Checks = append(append(n.dependencies(cfg), n.streams.Checks()...), n.gate.Checks...)
	return n, n.listen(cfg, pace)
}

// openLog opens the log for writing and for reading. Readers get what is written here from the writer.
func (n *Node) openLog(ctx context.Context, cfg Config, js jetstream.JetStream) (err error) {
	log := pubjs.Config{Compare: compareWithAll(js, &cfg), Seal: n.Keys}
	if cfg.Alone {
		if n.reader, err = fanjs.OpenAlone(ctx, cfg.Live, cfg.Conn); err != nil {
			return err
		}
		log.Stored, log.Short = func(p schema.Pack, _ bool) { n.reader.Deliver(p) }, true
	} else {
		if n.reader, err = fanjs.OpenBeside(ctx, cfg.Live, cfg.Conn); err != nil {
			return err
		}
		log.Stored = func(p schema.Pack, copied bool) {
			if n.hub.Deliver(p); copied { // the hub is there before anything is written
				n.reader.Deliver(p)
			}
		}
	}
	log.Missed, log.Copies = n.reader.SignalLoss, n.reader
	if n.Log, err = pubjs.OpenWith(ctx, cfg.Conn, log); err == nil {
		n.reader.Skip(n.Log.ClaimCopy)
	}
	return err
}

// open makes the hub and the appender. The log's pace is nil where nothing bounds its memory.
func (n *Node) open(cfg Config, keys *pubjs.Keys) (pace *paced, err error) {
	hub := fanout.Config{Stream: wholeStream{n.reader, n.Log}, Tail: n.reader, Logger: cfg.Logger,
		Hooks:      cfg.Metrics.FanoutHooks(),
		CacheBytes: int(cfg.Memory.Pages), Handed: cfg.Alone, Open: hubOpen(n.Keys)}
	app := producers.AppenderConfig{Log: n.Log, Keys: pubjs.FailFast(cfg.Conn, keys), Logger: cfg.Logger,
		Redact: n.Redact, Seal: n.Keys, Hooks: cfg.Metrics.ProducerHooks(cfg.Logger)}
	if most := cfg.Flags.TenantKeys; most > 0 {
		app.Quota = fair.NewQuota(most, natskit.KeysTTL)
	}
	app.Appended = countUnread(n.protocols, cfg.Metrics.BadFeed)
	if most := cfg.Memory.Log; most > 0 && cfg.Embedded {
		pace = newPaced(n.Log, most, func(d time.Duration) { cfg.Metrics.Paced.Add(d.Seconds()) })
		app.Log = pace
	}
	if cfg.Room != nil {
		app.Log, app.Keys = guardedLog{app.Log, cfg.Room}, guardedKeys{app.Keys, cfg.Room}
	}
	if cfg.Archive != nil { // a nil archive in an interface would not be nil
		hub.Archive, app.Archive = cfg.Archive, cfg.Archive
		if marks, ok := cfg.Runs.(forgetting); ok {
			app.Archive = GuardArchive(cfg.Archive, marks)
		}
	}
	if cfg.Runs != nil {
		app.Parent = cfg.Runs.Parent
	}
	if n.hub, err = fanout.New(hub); err != nil {
		return nil, err
	}
	n.appender, err = producers.NewAppender(app)
	return pace, err
}

// countUnread returns what counts the events of feeds that no client is shown, by their feeds.
func countUnread(all []protocol.Protocol, count func(feed string)) func(schema.RunKey, []schema.Event) {
	return func(key schema.RunKey, events []schema.Event) {
		for _, p := range all {
			for i := range events {
				if p.Unread == nil {
					break
				}
				if feed := p.Unread(key.Run, &events[i]); feed != "" {
					count(feed)
				}
			}
		}
	}
}

// listen makes what clients speak to.
func (n *Node) listen(cfg Config, pace *paced) error {
	all, tenants, err := cfg.Flags.Limits()
	if err != nil {
		return err
	}
	streams := cfg.Flags.streams(n.files, cfg.Memory)
	shareStreams(&all, tenants, streams, !n.gate.many)
	bodies, err := cfg.Flags.bodyMemory(cfg.Memory)
	if err != nil {
		return err
	}
	blobs, bounds, err := cfg.blobs(pace, n.Keys)
	if err != nil {
		return err
	}
	pages, err := cfg.Flags.pages(n.gate.jwt)
	if err != nil {
		return err
	}
	var op edge.Operator
	if cfg.Letters != nil {
		op = &operator{letters: cfg.Letters, losses: cfg.Losses, status: func() []persister.Status {
			if n.Stored == nil {
				return nil
			}
			return n.Stored()
		}}
	}
	answering, err := n.openWorkers(cfg)
	if err != nil {
		return err
	}
	var bus edge.LimitBus
	if !cfg.Alone {
		bus = limitjs.NewBus(cfg.Conn)
	}
	cfg.Metrics.SetTenants(cfg.Flags.TenantMetrics)
	taps, err := n.taps(&cfg)
	if err != nil {
		return err
	}
	tracer, parts, err := cfg.Flags.SpanFlags.Open("edge", cfg.Metrics, cfg.Logger)
	if err != nil {
		return err
	}
	n.Tracer, n.spans = tracer, parts
	n.server, err = edge.New(edge.Config{
		Trace:    openSpans(tracer),
		Taps:     taps,
		LimitBus: bus,
		Operator: op, Version: cli.Version(),
		Pages:       pages,
		IngestLimit: all, TenantLimits: tenants, BodyMemory: bodies, StateBytes: int(cfg.Memory.State), MaxStreams: streams,
		Hub: n.hub, Appender: n.appender, Blobs: blobs, Redact: n.Redact.Output, MaxBlobBytes: bounds.one, MaxRunBlobBytes: bounds.run,
		MaxTenantBlobBytes: bounds.tenant,
		Protocols:          n.protocols,
		Authenticate:       n.gate.Authenticate, Still: n.gate.Still, Tickets: n.gate.Tickets, Shares: n.gate.Shares,
		Workers: answering, Origins: cfg.Flags.CORSOrigin,
		Catalog: newCatalog(cfg.Runs, n.reader.Parent), Costs: cfg.Costs,
		Audit:  n.audit(&cfg),
		Checks: n.Checks, Durability: cfg.Durability,
		KeepAlive: cfg.Flags.KeepAlive, WriteTimeout: cfg.Flags.WriteLimit, DrainDelay: cfg.Flags.DrainDelay,
		DrainWindow: cfg.Flags.Drain,
		Logger:      cfg.Logger, Requests: cfg.Requests, Hooks: cfg.Metrics.EdgeHooks(),
	})
	if err == nil && cfg.Flags.NATSIngest {
		n.inbox, err = pubjs.NewInbox(pubjs.InboxConfig{
			MaxPending: int(min(bodies/2, 64<<20)), Log: n.Log, Take: n.server.StorePosts, Refuse: n.server.Refusal,
			Logger: cfg.Logger, Hooks: cfg.Metrics.InboxHooks()})
	}
	if err == nil && !cfg.Alone {
		err = n.heedRedactions(cfg.Conn)
	}
	return err
}

// heedRedactions lets the node forget runs whose stored events have another content now. It ends with the connection.
func (n *Node) heedRedactions(nc *nats.Conn) error {
	_, err := nc.Subscribe(natskit.RedactedSubject, func(m *nats.Msg) {
		tenant, run, _ := strings.Cut(string(m.Data), "/")
		key := schema.RunKey{Tenant: tenant, Run: run}
		if key.Validate() == nil {
			n.server.Forget(key)
		}
	})
	return err
}

// audit makes the trail of who did what; nil where nobody says who they are, or nothing is to be recorded.
func (n *Node) audit(cfg *Config) *audit.Trail {
	if cfg.Flags.Open() || !cfg.Flags.Audit {
		return nil
	}
	return audit.New(audit.Config{Log: n.appender, Logger: cfg.Logger, Written: cfg.Metrics.AuditWritten,
		Failed: cfg.Metrics.AuditFailed})
}

// protocols returns all that clients may speak.
func (f *ListenFlags) protocols(traces *otlp.Ingest) []protocol.Protocol {
	return []protocol.Protocol{native.Protocol(), qoderserve.Protocol(qoder.Dialect{Increments: f.Increments}),
		metisserve.Protocol(f.metis()),
		langgraphserve.Protocol(langgraphserve.Config{}), nimiserve.Protocol(nimiserve.Config{Version: cli.Version()}),
		aisdk.Protocol(),
		agui.Protocol(), openai.Protocol(), traces.Protocol()}
}

// pages returns what is served to everybody. tokens is nil when none are accepted.
func (f *ListenFlags) pages(tokens *auth.JWT) ([]edge.Page, error) {
	contracts, err := reference.Handler(cli.Version())
	if err != nil {
		return nil, err
	}
	pages := []edge.Page{{Patterns: reference.Patterns, Handler: contracts}}
	if f.Console {
		sign := func() console.OIDC {
			at := tokens.SignIn()
			return console.OIDC{Issuer: f.OIDCIssuer, Authorize: at.Authorize, Token: at.Token, ClientID: f.OIDCClient,
				Scope: f.OIDCScope, Audience: cmp.Or(f.Audience...)}
		}
		pages = append(pages, edge.Page{Patterns: console.Patterns, Handler: console.Handler(sign)})
	}
	return pages, nil
}

// dependencies are the checks of what the node stands on.
func (n *Node) dependencies(cfg Config) []edge.Check {
	checks := []edge.Check{{Name: "nats", Run: NATSCheck(cfg.Conn)}}
	if cfg.Room != nil {
		checks = append(checks, edge.Check{Name: "disk", Run: func(context.Context) error { return cfg.Room.err() }})
	}
	if cfg.Archive != nil {
		checks = append(checks, edge.Check{Name: "log", Run: wholeCheck(n.Log)}, edge.Check{
			// Without it, live streams and runs within the window are served all the same.
			Name: "archive", Run: n.checkArchive, Optional: true})
	}
	if cfg.Tables.Run != nil {
		checks = append(checks, cfg.Tables)
	}
	if n.tls != nil {
		checks = append(checks, process.CertificateCheck("certificate", n.tls))
	}
	return checks
}

// Stages are the node's parts in the order in which they end.
func (n *Node) Stages(clients net.Listener) [][]process.Part {
	front := []process.Part{{Name: "edge", Run: func(ctx context.Context) error { return n.serve(ctx, clients) }},
		{Name: "traces", Run: n.settle}}
	if n.inbox != nil {
		front = append(front, process.Part{Name: "nats ingest", Run: n.inbox.Run})
	}
	return [][]process.Part{
		front,
		append([]process.Part{{Name: "hub", Run: n.hub.Run}, {Name: "auth", Run: n.gate.run}}, n.spans...),
		{{Name: "live copies", Run: n.reader.Run}, {Name: "streams", Run: n.streams.Run}},
	}
}

// settle appends what the traces say that have come to this node.
func (n *Node) settle(ctx context.Context) error {
	cfg := otlp.SettlerConfig{Log: n.Log, Appender: n.appender, Settle: n.traces.Settle()}
	if n.Archive != nil { // a nil archive in an interface would not be nil
		cfg.Past = n.Archive
	}
	return n.traces.Run(ctx, otlp.NewSettler(cfg))
}

// checkArchive returns why the archive cannot be read, or cannot be written where that happens here.
func (n *Node) checkArchive(ctx context.Context) error {
	if err := n.Archive.Ping(ctx); err != nil || n.Storing == nil {
		return err
	}
	return n.Storing()
}

// serve lets as many clients in as there are descriptors for.
func (n *Node) serve(ctx context.Context, clients net.Listener) error {
	d := process.LimitClients(clients, n.tls, n.files, n.metrics, n.logger)
	defer d.Wait()
	return n.server.Run(ctx, d)
}

// NATSCheck returns a check of readiness: whether the servers answer.
func NATSCheck(nc *nats.Conn) func(context.Context) error {
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
