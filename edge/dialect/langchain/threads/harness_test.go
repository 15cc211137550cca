package threads_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lxzan/gws"
	"go.uber.org/goleak"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect/langchain/langchaintest"
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

// talker is a client of a session's socket.
type talker struct {
	gws.BuiltinEventHandler
	t    testing.TB
	conn *gws.Conn

	mu     sync.Mutex
	frames []string
	at     int
	closed chan struct{}
	err    error
	pongs  atomic.Int64
	pause  pause
	asked  int      // commands
	early  []object // events before the answer to one
}

func (k *talker) OnMessage(_ *gws.Conn, m *gws.Message) {
	defer m.Close()
	k.pause.wait()
	if err := langchaintest.Valid(m.Bytes()); err != nil {
		k.t.Error(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frames = append(k.frames, string(m.Bytes()))
}

func (k *talker) OnPong(*gws.Conn, []byte) { k.pongs.Add(1) }

func (k *talker) OnClose(_ *gws.Conn, err error) {
	k.err = err
	close(k.closed)
}

// eventsOf is where the events of a thread are.
func eventsOf(thread string) string { return "/threads/" + thread + "/stream/events" }

// dial opens a socket; headers are name, value, …
func (n *node) dial(at string, headers ...string) *talker {
	n.t.Helper()
	k, resp, err := n.tryDial(at, headers...)
	if err != nil {
		n.t.Fatal(err, resp)
	}
	return k
}

func (n *node) tryDial(at string, headers ...string) (*talker, *http.Response, error) {
	n.t.Helper()
	k := &talker{t: n.t, closed: make(chan struct{})}
	o := &gws.ClientOption{Addr: "ws://" + n.host + at, ReadMaxPayloadSize: 16 << 20}
	if p := n.all.pipes; p != nil {
		o.NewDialer = func() (gws.Dialer, error) { return p, nil }
	}
	o.RequestHeader = http.Header{}
	for i := 0; i+1 < len(headers); i += 2 {
		o.RequestHeader.Set(headers[i], headers[i+1])
	}
	conn, resp, err := gws.NewClient(k, o)
	if err != nil {
		return nil, resp, err
	}
	k.conn = conn
	go conn.ReadLoop()
	n.t.Cleanup(func() { _ = conn.NetConn().Close(); <-k.closed })
	return k, resp, nil
}

func (k *talker) say(text string) {
	k.t.Helper()
	if err := k.conn.WriteString(text); err != nil {
		k.t.Fatal(err)
	}
}

// stops reading until what it returns is called.
func (k *talker) stops() (wake func()) { return k.pause.stop() }

// next returns the next frame.
func (k *talker) next() (o object) {
	k.t.Helper()
	eventually(k.t, "a frame comes", func() bool {
		k.mu.Lock()
		more := len(k.frames) > k.at
		k.mu.Unlock()
		select {
		case <-k.closed:
			if !more {
				k.t.Fatalf("closed by %v behind %d frames", k.err, k.at)
			}
		default:
		}
		return more
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := json.Unmarshal([]byte(k.frames[k.at]), &o); err != nil {
		k.t.Fatalf("%v: %s", err, k.frames[k.at])
	}
	k.at++
	return o
}

// ends waits for the close.
func (k *talker) ends(code uint16, reason string) {
	k.t.Helper()
	select {
	case <-k.closed:
	case <-time.After(30 * time.Second):
		k.t.Fatal("the server does not close")
	}
	ce := new(gws.CloseError)
	if !errors.As(k.err, &ce) || ce.Code != code || !strings.Contains(string(ce.Reason), reason) {
		k.t.Fatalf("closed by %v, want %d %s", k.err, code, reason)
	}
}

// ask sends a command and returns its answer; what comes before it fails the test, unless it is an event.
func (k *talker) ask(method, params string) object {
	k.t.Helper()
	k.asked++
	if params == "" {
		params = "{}"
	}
	k.say(fmt.Sprintf(`{"id":%d,"method":%q,"params":%s}`, k.asked, method, params))
	for {
		o := k.next()
		if o.str("type") == "event" {
			k.early = append(k.early, o)
			continue
		}
		if o["id"] != float64(k.asked) {
			k.t.Fatalf("%s %s: %v", method, params, o)
		}
		if o.str("type") == "success" {
			b, _ := json.Marshal(o["result"])
			if err := langchaintest.ValidResult(method, b); err != nil {
				k.t.Error(err)
			}
		}
		return o
	}
}

// watch is a stream of SSE. It is read all the time.
type watch struct {
	t      testing.TB
	resp   *http.Response
	cancel context.CancelFunc

	mu    sync.Mutex
	items []item
	at    int
	done  chan struct{}
	err   error // io.EOF at a clean end
	pause pause
}

// pause stops a reader.
type pause struct {
	mu   sync.Mutex
	hold chan struct{} // reading waits for it; nil: it does not
}

func (p *pause) wait() {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

func (p *pause) stop() (wake func()) {
	hold := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = hold
	return sync.OnceFunc(func() { close(hold) })
}

// item is an event or a comment.
type item struct{ event, id, data, comment string }

// watch opens a stream of a thread's events.
func (n *node) watch(path, body string, headers ...string) *watch {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, "POST", "http://"+n.host+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := &watch{t: n.t, cancel: cancel, done: make(chan struct{})}
	if w.resp, err = n.http.Do(r); err != nil {
		n.t.Fatal(err)
	}
	if w.resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(w.resp.Body)
		n.t.Fatalf("%s %s: %d %s", path, body, w.resp.StatusCode, b)
	}
	go w.read()
	n.t.Cleanup(w.close)
	return w
}

// stops reading until what it returns is called.
func (w *watch) stops() (wake func()) { return w.pause.stop() }

func (w *watch) close() { w.cancel(); <-w.done; w.resp.Body.Close() }

func (w *watch) read() {
	defer close(w.done)
	lines := bufio.NewReader(w.resp.Body)
	var now item
	for {
		w.pause.wait()
		line, err := lines.ReadString('\n')
		if err != nil {
			w.err = err
			return
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "":
			if line == "\n" {
				if now != (item{}) {
					w.mu.Lock()
					w.items = append(w.items, now)
					w.mu.Unlock()
				}
				now = item{}
			} else {
				now.comment = value
			}
		case "event":
			now.event = value
		case "data":
			now.data = value
		case "id":
			now.id = value
		}
	}
}

// next returns the next event or comment, but not signs of life.
func (w *watch) next() item {
	w.t.Helper()
	for {
		eventually(w.t, "an event or a comment comes", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.items) > w.at {
				return true
			}
			select {
			case <-w.done:
				w.t.Fatalf("it ends with %v behind %d", w.err, w.at)
			default:
			}
			return false
		})
		w.mu.Lock()
		got := w.items[w.at]
		w.mu.Unlock()
		if w.at++; got.comment != "keepalive" {
			return got
		}
	}
}

// replayed reads the events up to the end of the replay.
func (w *watch) replayed() (list []item) {
	w.t.Helper()
	for {
		i := w.next()
		if strings.HasPrefix(i.comment, "replayed ") {
			return list
		}
		list = append(list, i)
	}
}

// count returns how many events and comments came, signs of life too.
func (w *watch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.items)
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
