package edgetest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/schema"
)

// Tenant is that of all callers who do not say another one.
const Tenant = "acme"

// As is the header that names the caller of a request: "tenant:NAME", "run:ID", "may:SCOPE,SCOPE" or "nobody". Real
// deployments take the caller from a credential.
const As = "Test-Caller"

// ByHeader authenticates by the header As. Who has none is ann, who may everything.
func ByHeader(r *http.Request) (auth.Caller, error) {
	caller := auth.Caller{Tenant: Tenant, Scopes: auth.ScopeAll, Subject: "ann"}
	switch name, value, _ := strings.Cut(r.Header.Get(As), ":"); name {
	case "tenant":
		caller.Tenant = value
	case "run":
		caller.Run = value
	case "may":
		scopes, err := auth.ParseScopes(strings.Split(value, ","))
		caller.Scopes = scopes
		return caller, err
	case "nobody":
		return caller, auth.ErrUnauthorized
	}
	return caller, nil
}

// HookLog is a log in memory before whose appends something can be done.
type HookLog struct {
	*memory.Log

	mu   sync.Mutex
	then func()
}

// Once calls fn right before the next append.
func (l *HookLog) Once(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.then = fn
}

// Append stores a pack.
func (l *HookLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	l.mu.Lock()
	fn := l.then
	l.then = nil
	l.mu.Unlock()
	if fn != nil {
		fn()
	}
	return l.Log.Append(ctx, p, after)
}

// Nodes is what nodes have in common.
type Nodes struct {
	Pipes   *Pipes // in place of the network; nil: there is one
	Log     *HookLog
	Keys    *memory.Keys
	Tickets *auth.MemoryTickets
}

// Share makes a log that nodes can stand on.
func Share() *Nodes {
	return &Nodes{Log: &HookLog{Log: memory.New()}, Keys: &memory.Keys{}, Tickets: auth.NewMemoryTickets(nil)}
}

// Node is a running edge.
type Node struct {
	T     testing.TB
	Nodes *Nodes
	Edge  *edge.Server
	Host  string
	HTTP  *http.Client
	Stop  func() // ends it, once
}

// Start runs a node that speaks a protocol. It ends with the test.
func (all *Nodes) Start(t testing.TB, own protocol.Protocol, change ...func(*edge.Config)) *Node {
	t.Helper()
	cfg, err := all.config(own)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&cfg)
	}
	n := &Node{T: t, Nodes: all, HTTP: &http.Client{Transport: &http.Transport{}}}
	var ln net.Listener = all.Pipes
	if p := all.Pipes; p != nil {
		n.HTTP.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return p.Dial("", "") }}
	} else if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	n.Host = ln.Addr().String()
	n.Edge, n.Stop = Serve(t, cfg, ln, n.HTTP)
	return n
}

// Check returns why no node can speak a protocol.
func (all *Nodes) Check(own protocol.Protocol) error {
	cfg, err := all.config(own)
	if err == nil {
		_, err = edge.New(cfg)
	}
	return err
}

// config is that of a node that speaks a protocol besides the native one.
func (all *Nodes) config(own protocol.Protocol) (cfg edge.Config, err error) {
	cfg = edge.Config{
		Protocols:    []protocol.Protocol{native.Protocol(), own},
		Authenticate: ByHeader, DrainWindow: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	if cfg.Hub, err = fanout.New(fanout.Config{Stream: all.Log, Tail: all.Log, CacheFresh: time.Nanosecond,
		CacheBytes: 4 << 20}); err != nil {
		return cfg, err
	}
	if cfg.Appender, err = producers.NewAppender(producers.AppenderConfig{Log: all.Log, Keys: all.Keys}); err != nil {
		return cfg, err
	}
	cfg.Tickets, err = auth.NewTickets(auth.TicketsConfig{Store: all.Tickets,
		Still: func(auth.Caller) error { return nil }})
	return cfg, err
}

// Serve runs an edge, and its hub, until stop is called or the test has ended. Connections that client keeps are closed
// before.
func Serve(t testing.TB, cfg edge.Config, ln net.Listener, client *http.Client) (srv *edge.Server, stop func()) {
	t.Helper()
	srv, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	hubCtx, stopHub := context.WithCancel(context.Background())
	served, hubbed := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.Run(ctx, ln) }()
	go func() { hubbed <- cfg.Hub.Run(hubCtx) }()
	stop = sync.OnceFunc(func() {
		client.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil && !t.Failed() {
			t.Errorf("server: %v", err)
		}
		stopHub()
		if err := <-hubbed; err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	t.Cleanup(stop)
	return srv, stop
}

// Pipes is a listener without a network, for tests on a clock of their own.
type Pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewPipes makes one.
func NewPipes() *Pipes { return &Pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

// Accept waits for a connection.
func (p *Pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close lets nobody in any more.
func (p *Pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

// Addr is a name.
func (p *Pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

// Dial is DialContext without a context.
func (p *Pipes) Dial(network, address string) (net.Conn, error) {
	return p.DialContext(context.Background(), network, address)
}

// DialContext opens a connection, whatever the address.
func (p *Pipes) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Client returns a client that reaches the listener.
func (p *Pipes) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: p.DialContext}}
}
