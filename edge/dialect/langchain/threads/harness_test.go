package threads_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect/langchain/threads"
	"agentstream/edge/dialect/native"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	tenant = "acme"
)

// gated is a log in memory before whose appends something can be done.
type gated struct {
	*memory.Log

	mu   sync.Mutex
	then func()
}

// once calls fn right before the next append.
func (l *gated) once(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.then = fn
}

func (l *gated) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	l.mu.Lock()
	fn := l.then
	l.then = nil
	l.mu.Unlock()
	if fn != nil {
		fn()
	}
	return l.Log.Append(ctx, p, after)
}

// pipes is a listener without a network, for tests on a clock of their own.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "pipe"} }

// Dial opens a connection.
func (p *pipes) Dial(string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// shared is what nodes have in common.
type shared struct {
	pipes   *pipes // in place of the network; nil: there is one
	log     *gated
	keys    *memory.Keys
	tickets *auth.MemoryTickets
}

// node is a running server.
type node struct {
	t    testing.TB
	all  *shared
	srv  *edge.Server
	host string
	http *http.Client
	stop func() // ends it, once
}

// as names the caller of a request; real deployments take it from a credential.
const as = "Test-Caller"

func byHeader(r *http.Request) (auth.Caller, error) {
	caller := auth.Caller{Tenant: tenant, Scopes: auth.ScopeAll, Subject: "ann"}
	switch name, value, _ := strings.Cut(r.Header.Get(as), ":"); name {
	case "tenant":
		caller.Tenant = value
	case "may":
		scopes, err := auth.ParseScopes(strings.Split(value, ","))
		caller.Scopes = scopes
		return caller, err
	case "nobody":
		return caller, auth.ErrUnauthorized
	}
	return caller, nil
}

// byKey lets in who has the secret as a bearer token.
func byKey(r *http.Request) (auth.Caller, error) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		return auth.Caller{}, auth.ErrUnauthorized
	}
	return auth.Caller{Tenant: tenant, Scopes: auth.ScopeAll}, nil
}

// start makes a node over a log of its own.
func start(t testing.TB, cfg threads.Config, change ...func(*edge.Config)) *node {
	t.Helper()
	return share().node(t, cfg, change...)
}

func share() *shared {
	return &shared{log: &gated{Log: memory.New()}, keys: &memory.Keys{}, tickets: auth.NewMemoryTickets(nil)}
}

// node makes another node over the same log.
func (all *shared) node(t testing.TB, own threads.Config, change ...func(*edge.Config)) *node {
	t.Helper()
	n := &node{t: t, all: all, http: &http.Client{Transport: &http.Transport{}}}
	cfg := edge.Config{
		Protocols:    []protocol.Protocol{{Dialect: native.Dialect{}}, threads.Protocol(own)},
		Authenticate: byHeader, DrainWindow: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	var err error
	if cfg.Hub, err = fanout.New(fanout.Config{Stream: all.log, Tail: all.log, CacheFresh: time.Nanosecond, CacheBytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	if cfg.Appender, err = producers.NewAppender(producers.AppenderConfig{Log: all.log, Keys: all.keys}); err != nil {
		t.Fatal(err)
	}
	cfg.Tickets, err = auth.NewTickets(auth.TicketsConfig{Store: all.tickets, Still: func(auth.Caller) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&cfg)
	}
	if n.srv, err = edge.New(cfg); err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if p := all.pipes; p != nil {
		_ = ln.Close()
		ln, n.http.Transport = p, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return p.Dial("", "") }}
	}
	n.host = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	hubCtx, stopHub := context.WithCancel(context.Background())
	served, hubbed := make(chan error, 1), make(chan error, 1)
	go func() { served <- n.srv.Run(ctx, ln) }()
	go func() { hubbed <- cfg.Hub.Run(hubCtx) }()
	n.stop = sync.OnceFunc(func() {
		n.http.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil && !t.Failed() {
			t.Errorf("server: %v", err)
		}
		stopHub()
		if err := <-hubbed; err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

// answer is a response that was read whole.
type answer struct {
	t      testing.TB
	asked  string
	status int
	header http.Header
	body   string
}

// do asks; headers are name, value, name, value …
func (n *node) do(method, path, body string, headers ...string) answer {
	n.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, "http://"+n.host+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	resp, err := n.http.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return answer{n.t, method + " " + path + " " + body, resp.StatusCode, resp.Header, string(b)}
}

// ok holds that a request went well and reads the answer.
func (a answer) ok(status int) (o object) {
	a.t.Helper()
	if err := json.Unmarshal([]byte(a.body), &o); err != nil || a.status != status {
		a.t.Fatalf("%s: %d, want %d: %v: %s", a.asked, a.status, status, err, a.body)
	}
	return o
}

// refused holds that a request was refused in the protocol's form.
func (a answer) refused(status int, code string) {
	a.t.Helper()
	var o struct{ Error, Message string }
	if err := json.Unmarshal([]byte(a.body), &o); err != nil || a.status != status || o.Error != code || o.Message == "" {
		a.t.Errorf("%s: %d, want %d %s: %s", a.asked, a.status, status, code, a.body)
	}
}

// object is a JSON object that was read.
type object map[string]any

// str returns the text at a path of names; "" where there is none.
func (o object) str(names ...string) string {
	s, _ := o.at(names...).(string)
	return s
}

func (o object) at(names ...string) (v any) {
	v = map[string]any(o)
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// says appends events to a run as an agent would.
func (n *node) says(run string, events ...schema.Event) {
	n.t.Helper()
	if err := n.append(run, events...); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) append(run string, events ...schema.Event) error {
	app, err := producers.NewAppender(producers.AppenderConfig{Log: n.all.log})
	if err != nil {
		return err
	}
	for i := range events {
		if err := events[i].Prepare(run); err != nil {
			return err
		}
	}
	_, err = app.Append(context.Background(), schema.RunKey{Tenant: tenant, Run: run}, events, producers.AppendOptions{})
	return err
}

func event(typ, payload string) schema.Event {
	return schema.Event{Type: typ, Payload: []byte(payload)}
}

// log reads a log in short, as langchaintest.AllChannels is written.
func log(text string) (events []schema.Event) {
	for line := range strings.Lines(text) {
		typ, payload, _ := strings.Cut(strings.TrimSpace(line), " ")
		if typ == "" {
			continue
		}
		if payload == "" {
			payload = "{}"
		}
		e := event(typ, payload)
		if child, t, ok := strings.Cut(typ, ":"); ok {
			e.ChildID, e.Type = child, t
		}
		events = append(events, e)
	}
	return events
}

// types returns the types of a run's records.
func (n *node) types(run string) (types []string) {
	n.t.Helper()
	for p, err := range n.all.log.Packs(context.Background(), schema.RunKey{Tenant: tenant, Run: run}, 0, schema.MaxSeq) {
		if err != nil {
			n.t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				n.t.Fatal(err)
			}
			types = append(types, string(r.Type))
		}
	}
	return types
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}
