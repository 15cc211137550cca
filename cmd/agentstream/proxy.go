package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agentstream/adapters/proxy"
	agentstream "agentstream/clients/go"
	"agentstream/cmd/agentstream/internal/cli"
	"agentstream/cmd/agentstream/internal/node"
	"agentstream/cmd/agentstream/internal/process"
	"agentstream/cmd/agentstream/internal/publish"
	"agentstream/edge"
	"agentstream/persister/postgres"
	"agentstream/producers"
	pubjs "agentstream/producers/natsjs"
	"agentstream/schema"
)

// ProxyCmd stands between agents and model providers and writes a run beside every call.
type ProxyCmd struct {
	cli.NATSFlags
	cli.PostgresFlags
	Edge        string `help:"Write through the HTTP API of a server instead of to NATS." env:"AGENTSTREAM_PROXY_EDGE" placeholder:"URL"`
	EdgeToken   string `help:"Bearer token for --edge." env:"AGENTSTREAM_PROXY_EDGE_TOKEN" placeholder:"TOKEN"`
	Listen      string `help:"Address for agents." default:"127.0.0.1:8090" env:"AGENTSTREAM_PROXY_LISTEN" placeholder:"HOST:PORT"`
	AdminListen string `help:"Address for /metrics, /debug/pprof and health; off switches it off. Never expose it." default:"127.0.0.1:8091" env:"AGENTSTREAM_PROXY_ADMIN_LISTEN" placeholder:"HOST:PORT"`
	process.AdminFlags
	process.RedactFlags
	process.SealFlags
	TLS          process.TLSFlags `embed:"" prefix:"tls-" envprefix:"AGENTSTREAM_PROXY_TLS_"`
	InsecureOpen bool             `help:"Listen on an address that others reach. The proxy asks nobody who they are." env:"AGENTSTREAM_PROXY_INSECURE_OPEN"`
	process.SpanFlags
	UpstreamFlags
	Tenant      []string      `help:"Tenants that agents may name in Agentstream-Tenant; the first is that of those who name none." default:"default" env:"AGENTSTREAM_PROXY_TENANT"`
	Requests    string        `help:"What is kept of requests: all (the user's last message, and results of tools) or none." enum:"all,none" default:"all" env:"AGENTSTREAM_PROXY_REQUESTS"`
	IdleEnd     time.Duration `help:"End a named run that nobody has written to for so long; 0 never." default:"0" env:"AGENTSTREAM_PROXY_IDLE_END"`
	RetryHold   time.Duration `help:"How long at least a call that failed in a way that clients repeat by themselves waits for its repeat, before it counts as failed; 0 not at all." default:"5s" env:"AGENTSTREAM_PROXY_RETRY_HOLD"`
	ToolHold    time.Duration `help:"How long a run with a generated id waits for the results of the tools that its model has called, before it ends; 0 not at all." default:"5m" env:"AGENTSTREAM_PROXY_TOOL_HOLD"`
	CallBuffer  int           `help:"Bytes of one call that may wait for the log." default:"4194304" env:"AGENTSTREAM_PROXY_CALL_BUFFER"`
	TotalBuffer int           `help:"The same of all calls." default:"67108864" env:"AGENTSTREAM_PROXY_TOTAL_BUFFER"`
	DrainDelay  time.Duration `help:"How long a shutdown goes on taking calls, not ready, before it waits for those under way." default:"0s" env:"AGENTSTREAM_PROXY_DRAIN_DELAY"`
	Drain       time.Duration `help:"How long a shutdown waits for calls, and again for what is not stored yet." default:"10s" env:"AGENTSTREAM_PROXY_DRAIN"`
}

// UpstreamFlags say where calls go.
type UpstreamFlags struct {
	Upstream []string `help:"An API that calls are handed on to. With one, paths are the API's own; with several they begin with /NAME." env:"AGENTSTREAM_PROXY_UPSTREAM" placeholder:"NAME=URL"`
}

func (f *UpstreamFlags) parse() (list []proxy.Upstream, err error) {
	for _, text := range f.Upstream {
		name, address, ok := strings.Cut(text, "=")
		u, perr := url.Parse(address)
		if !ok || perr != nil {
			return nil, fmt.Errorf("--upstream must be NAME=URL, not %.40q", name) // the rest may hold a password
		}
		list = append(list, proxy.Upstream{Name: name, URL: u})
	}
	return list, nil
}

// check refuses flags that cannot be served.
func (c *ProxyCmd) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("--listen must be HOST:PORT, not %q", c.Listen)
	}
	if !node.Loopback(host) && !c.InsecureOpen {
		return fmt.Errorf("--listen %q: whoever reaches it may write to the runs of %s; say --insecure-open if that is meant", c.Listen, strings.Join(c.Tenant, ", "))
	}
	if c.Edge != "" && len(c.Tenant) > 1 {
		return errors.New("--edge: the token decides the tenant there; name one --tenant")
	}
	return nil
}

// Run serves until ctx ends, lets calls finish, and stores what is left of them.
//
//	agents ─▶ HTTP server ─▶ proxy ─▶ upstreams      stages end from the left:
//	                           │                     server, recorders, admin,
//	                           ▼                     then the connection below
//	                     NATS, or an edge
func (c *ProxyCmd) Run(ctx context.Context, log *slog.Logger) error {
	if err := c.check(); err != nil {
		return err
	}
	ups, err := c.parse()
	if err != nil {
		return err
	}
	m := process.NewMetrics()
	tls, err := c.TLS.Open("tls", m, log)
	if err != nil {
		return err
	}
	tracer, sending, err := c.SpanFlags.Open("proxy", m, log)
	if err != nil {
		return err
	}
	var sink opener
	pm := newProxyMetrics(m.Registry)
	p, err := proxy.New(proxy.Config{ // before anything is waited for: it refuses what cannot be served
		Upstreams: ups, Tenants: c.Tenant, Open: func(ctx context.Context, key schema.RunKey) (proxy.Sink, error) { return sink(ctx, key) }, Requests: proxy.Requests(c.Requests), IdleEnd: c.IdleEnd, RetryHold: c.RetryHold, ToolHold: c.ToolHold, Trace: openProxySpans(tracer),
		CallBytes: c.CallBuffer, TotalBytes: c.TotalBuffer, Grace: c.Drain, Logger: log, Hooks: pm.hooks(),
	})
	if err != nil {
		return err
	}
	pm.watch(m.Registry, p)
	open, checks, done, err := c.sinks(ctx, m, log)
	if err != nil || open == nil {
		return err
	}
	defer done()
	sink = open
	if tls != nil {
		checks = append(checks, process.CertificateCheck("certificate", tls))
	}
	ln, err := process.Listen(ctx, "--listen", c.Listen)
	if err != nil {
		return err
	}
	f := process.FilesHere()
	f.Clients /= 2 // each of them has a connection to a provider as well
	d := process.LimitClients(ln, tls, f, m, log)
	stages := [][]process.Part{
		{{Name: "proxy server", Run: func(ctx context.Context) error { return c.serve(ctx, d, p) }}},
		{{Name: "recorders", Run: p.Run}},
	}
	operators, err := process.OpenOperators(ctx, c.AdminListen, c.AdminFlags, m, log)
	if err != nil {
		ln.Close()
		return err
	}
	defer operators.Close()
	a := &process.Admin{Metrics: m, Log: log, Checks: checks, Leaving: func() bool { return ctx.Err() != nil }}
	stages = append(stages, sending, operators.Parts(a))
	log.Info("proxy: serving", "listen", ln.Addr().String(), "admin", c.AdminListen, "upstreams",
		strings.Join(upstreamNames(ups), ","), "tenants", strings.Join(c.Tenant, ","))
	return process.RunStages(ctx, stages...)
}

func upstreamNames(ups []proxy.Upstream) (names []string) {
	for _, u := range ups {
		names = append(names, u.Name)
	}
	return names
}

// serve answers agents until ctx ends, then waits for the calls under way.
func (c *ProxyCmd) serve(ctx context.Context, ln *process.LimitListener, h http.Handler) error {
	defer ln.Wait()
	if !c.InsecureOpen { // then it is at a loopback address, where pages of others reach it by a browser of this machine
		h = process.Guard(h, ln.Addr())
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		Protocols: process.Protocols()}
	// of calls that are broken off the runs say so
	return process.ServeHTTP(ctx, srv, ln, process.Ending{Delay: c.DrainDelay, Drain: c.Drain})
}

// opener opens the way to the log for a run.
type opener = func(context.Context, schema.RunKey) (proxy.Sink, error)

// sinks returns the way to the log, what to ask about its health, and what to do at the end; nothing when ctx ends
// before.
func (c *ProxyCmd) sinks(ctx context.Context, m *process.Metrics, log *slog.Logger) (open opener, checks []edge.Check,
	done func(), err error) {
	rules, err := c.OpenRules(m, log)
	if err != nil {
		return nil, nil, nil, err
	}
	keys, err := c.OpenSealing()
	if err != nil {
		return nil, nil, nil, err
	}
	if c.Edge != "" {
		client, err := agentstream.New(agentstream.Config{BaseURL: c.Edge, Token: c.EdgeToken, Logger: log,
			UserAgent: "agentstream-proxy/" + cli.Version()})
		if err != nil {
			return nil, nil, nil, fmt.Errorf("--edge: %w", err)
		}
		publisher := client.Publisher()
		open = func(_ context.Context, key schema.RunKey) (proxy.Sink, error) {
			return &edgeSink{client: client, publisher: publisher, run: key.Run}, nil
		}
		return open, nil, client.Close, nil
	}
	start := &node.Start{AdminListen: c.AdminListen, Flags: c.AdminFlags, Metrics: m, Log: log}
	conns, err := start.Dial(ctx, &c.NATSFlags, "proxy")
	if err != nil || ctx.Err() != nil {
		return nil, nil, nil, err
	}
	nc := conns[0]
	var l *pubjs.Log
	err = start.Await(ctx, func(ctx context.Context) (err error) {
		l, err = pubjs.OpenWith(ctx, nc, pubjs.Config{Seal: keys})
		return err
	})
	if err != nil || ctx.Err() != nil {
		nc.Close()
		return nil, nil, nil, err
	}
	cfg := producers.Config{Log: l, Redact: rules, Seal: keys, Logger: log, Hooks: m.ProducerHooks(log)}
	done = nc.Close
	if c.Postgres == "" {
		log.Warn("no --postgres: a run that is older than the stream's window must not be gone on with")
	} else {
		store, err := postgres.Open(ctx, postgres.Config{DSN: c.Postgres, Fresh: cli.FreshDSN(c.Postgres), Logger: log})
		if err != nil {
			nc.Close()
			return nil, nil, nil, err
		}
		cfg.Archive = openedRows{store, keys}
		done = func() { nc.Close(); store.Close() }
	}
	return proxy.Publishers(cfg), []edge.Check{{Name: "nats", Run: node.NATSCheck(nc), Optional: true}}, done, nil
}

// edgeSink writes to a run through the HTTP API.
type edgeSink struct {
	client    *agentstream.Client
	publisher *agentstream.Publisher // of all runs
	run       string
}

// Send stores the events in order, in batches that are each stored whole or not at all. Of several, the
// first may be stored when there is an error. Nothing of the events is kept: a batch is a copy.
func (s *edgeSink) Send(ctx context.Context, events ...schema.Event) (at producers.Receipt, err error) {
	for len(events) > 0 {
		var body []byte
		n := 0
		for n < len(events) && n < publish.MaxBatchEvents && events[n].ChildID == events[0].ChildID {
			more := append(agentstream.AppendNew(body, &events[n]), '\n')
			if n > 0 && len(more) > publish.MaxBatchBytes {
				break // one that is larger goes alone
			}
			body = more
			n++
		}
		r, err := s.publisher.AppendLines(ctx, s.run, body)
		if err != nil {
			return at, err
		}
		if at.First == 0 {
			at.First = r.First
		}
		at.Last = r.Last
		events = events[n:]
	}
	return at, nil
}

// Close has nothing to let go of.
func (s *edgeSink) Close(context.Context) error { return nil }

// Standing asks the server.
func (s *edgeSink) Standing(ctx context.Context) (proxy.Standing, error) {
	run, err := s.client.Run(s.run).Info(ctx)
	if errors.Is(err, agentstream.ErrNotFound) {
		return proxy.Standing{}, nil
	}
	return proxy.Standing{Last: run.LastSeq, State: run.State}, err
}

// Events asks the server for pages. A server that is away is asked again, until ctx ends.
func (s *edgeSink) Events(ctx context.Context, after, through schema.Seq, take func(*schema.Event)) error {
	for after < through {
		page, err := s.client.Run(s.run).Events(ctx,
			agentstream.PageQuery{After: after, Limit: pageOfEvents, Types: proxy.MemoryTypes()})
		switch {
		case errors.Is(err, agentstream.ErrNotFound):
			return nil
		case err != nil:
			return fmt.Errorf("read %s behind %d: %w", s.run, after, err)
		}
		for i := range page.Events {
			if page.Events[i].Seq <= through {
				take(&page.Events[i])
			}
		}
		if page.Next <= after {
			return nil
		}
		after = page.Next
	}
	return nil
}

// pageOfEvents is how many events are read with one request.
const pageOfEvents = 1000
