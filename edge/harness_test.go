package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faultyLog is a log that can be told to fail.
type faultyLog struct {
	*memory.Log
	down   atomic.Bool // reads and writes fail
	bad    atomic.Bool // what is read is not a log
	copies atomic.Bool // watchers get copies of the bytes, as those of a log that is elsewhere

	stuck atomic.Bool  // what is read of runs that begin with "stuck" does not come
	waits atomic.Int64 // walks that wait for it
}

func (l *faultyLog) err() error {
	if l.down.Load() {
		return fmt.Errorf("broker at 10.1.2.3: no responders: %w: %w", schema.ErrUnavailable, context.DeadlineExceeded)
	}
	if l.bad.Load() {
		return fmt.Errorf("secret detail: %w", schema.ErrBadPack)
	}
	return nil
}

func (l *faultyLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	if err := l.err(); err != nil {
		return schema.Head{}, err
	}
	return l.Log.Head(ctx, key, lane)
}

func (l *faultyLog) Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	return l.Log.Watch(ctx, key, func(p schema.Pack) {
		if l.copies.Load() {
			p.Body = bytes.Clone(p.Body)
		}
		fn(p)
	})
}

func (l *faultyLog) Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Log.Newest(ctx, keys)
}

func (l *faultyLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if err := l.err(); err != nil {
		return 0, err
	}
	return l.Log.Append(ctx, p, after)
}

func (l *faultyLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	if err := l.err(); err != nil {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, err) }
	}
	if l.stuck.Load() && strings.HasPrefix(key.Run, "stuck") {
		return func(yield func(schema.Pack, error) bool) {
			l.waits.Add(1)
			<-ctx.Done()
			yield(schema.Pack{}, context.Cause(ctx))
		}
	}
	return l.Log.Packs(ctx, key, after, through)
}

// house is a running server over a log in memory.
type house struct {
	t      testing.TB
	log    *faultyLog
	hub    *fanout.Hub
	app    *producers.Appender
	url    string
	addr   string
	logs   *syncBuffer
	client *http.Client
	srv    *edge.Server
	stop   func() error // ends the server alone, and gives what Run gave
	hung   bool         // Run is expected to give up
}

// tenantHeader names the tenant in tests; real deployments take it from a credential.
const tenantHeader = "Test-Tenant"

func byHeader(r *http.Request) (auth.Caller, error) {
	switch t := r.Header.Get(tenantHeader); t {
	case "":
		return auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll}, nil
	case "nobody":
		return auth.Caller{}, fmt.Errorf("test: %w", auth.ErrUnauthorized)
	case "reader":
		return auth.Caller{}, fmt.Errorf("test: %w", auth.ErrForbidden)
	case "broken":
		return auth.Caller{}, fmt.Errorf("key server at 10.0.0.7 is away")
	case "bad tenant":
		return auth.Caller{Tenant: "a.b.>", Scopes: auth.ScopeAll}, nil
	default:
		return auth.Caller{Tenant: t, Scopes: auth.ScopeAll}, nil
	}
}

func newHouse(t testing.TB, change ...func(*edge.Config)) *house {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newHouseOn(t, ln, http.DefaultClient, change...)
}

// newHouseOn serves ln; client reaches it.
func newHouseOn(t testing.TB, ln net.Listener, client *http.Client, change ...func(*edge.Config)) *house {
	t.Helper()
	h := &house{t: t, client: client, log: &faultyLog{Log: memory.New()}, logs: new(syncBuffer)}
	var err error
	if h.hub, err = fanout.New(fanout.Config{Stream: h.log, Tail: h.log, CacheFresh: time.Nanosecond, CacheBytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	h.app, err = producers.NewAppender(producers.AppenderConfig{Log: h.log, Keys: &memory.Keys{}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := edge.Config{
		Hub: h.hub, Appender: h.app, Protocols: []protocol.Protocol{{Dialect: native.Dialect{}}},
		Authenticate: byHeader, DrainWindow: time.Millisecond,
		Logger: slog.New(slog.NewJSONHandler(h.logs, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	srv, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.srv = srv
	h.addr = ln.Addr().String()
	h.url = "http://" + h.addr
	ctx, cancel := context.WithCancel(context.Background())
	hubCtx, stopHub := context.WithCancel(context.Background())
	served, hubbed := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.Run(ctx, ln) }()
	go func() { hubbed <- h.hub.Run(hubCtx) }()
	h.stop = sync.OnceValue(func() error {
		client.CloseIdleConnections() // a server that drains waits five seconds for one on which nothing was asked
		cancel()
		return <-served
	})
	t.Cleanup(func() {
		if err := h.stop(); (err != nil) != h.hung && !t.Failed() {
			t.Errorf("server: %v", err)
		}
		stopHub()
		if err := <-hubbed; err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	return h
}

// syncBuffer takes log lines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// fill stores a scenario as run "run" of tenant acme.
func (h *house) fill(run string, s schematest.Scenario, perPack int) []schema.Pack {
	h.t.Helper()
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: run}, s, perPack)
	h.store(packs)
	return packs
}

// store appends packs behind what their run has.
func (h *house) store(packs []schema.Pack) {
	h.t.Helper()
	for i := range packs {
		head, err := h.log.Log.Head(context.Background(), packs[i].Key, "")
		if err != nil {
			h.t.Fatal(err)
		}
		if _, err := h.log.Log.Append(context.Background(), &packs[i], head.Stored); err != nil {
			h.t.Fatal(err)
		}
	}
}

// last is the newest seq of a run of acme, 0 for none.
func (h *house) last(run string) schema.Seq {
	h.t.Helper()
	head, err := h.log.Log.Head(context.Background(), schema.RunKey{Tenant: "acme", Run: run}, "")
	if err != nil {
		h.t.Fatal(err)
	}
	return head.Last
}

// request builds one; headers are name, value, name, value …
func (h *house) request(method, path, body string, headers ...string) *http.Request {
	h.t.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, rd)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// answer is a response that was read whole.
type answer struct {
	status int
	header http.Header
	body   string
	last   bool // the server closes the connection behind it
}

func (h *house) do(method, path, body string, headers ...string) answer {
	h.t.Helper()
	resp, err := h.client.Do(h.request(method, path, body, headers...))
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatalf("%s %s: %v after %q", method, path, err, b)
	}
	return answer{resp.StatusCode, resp.Header, string(b), resp.Close}
}

// problem is the body of a refusal.
type problem struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Line      int    `json:"line"`
	Field     string `json:"field"`
	FirstSeq  int    `json:"first_seq"`
	LastSeq   int    `json:"last_seq"`
	Stored    int    `json:"stored"`
	RequestID string `json:"request_id"`
}

func (a answer) problem(t testing.TB) problem {
	t.Helper()
	var p struct{ Error problem }
	dec := json.NewDecoder(strings.NewReader(a.body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("status %d, not an error body: %v: %q", a.status, err, a.body)
	}
	if ct := a.header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("error has content type %q", ct)
	}
	return p.Error
}

func (a answer) expect(t testing.TB, status int, code string) problem {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	p := a.problem(t)
	if p.Code != code {
		t.Errorf("code %q, want %q (%s)", p.Code, code, p.Message)
	}
	if p.Message == "" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		t.Errorf("error lacks text or id: %+v", p)
	}
	return p
}

// eventually polls until ok; the deadline is far beyond what a loaded machine needs.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks
	}
}

// pipes is a listener in memory, for tests with a clock of their own: a socket's goroutine is never
// durably blocked.
type pipes struct{ *edgetest.Pipes }

func newPipes() *pipes { return &pipes{edgetest.NewPipes()} }

func (p *pipes) client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: p.DialContext}}
}

func (p *pipes) dial(ctx context.Context) (net.Conn, error) { return p.DialContext(ctx, "", "") }

// speak makes a server speak dialects that have no routes.
func speak(list ...dialect.Dialect) (all []protocol.Protocol) {
	for _, d := range list {
		all = append(all, protocol.Protocol{Dialect: d})
	}
	return all
}
