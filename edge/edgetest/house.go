package edgetest

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

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// FaultyLog is a log that can be told to fail.
type FaultyLog struct {
	*memory.Log
	Down   atomic.Bool // reads and writes fail
	Bad    atomic.Bool // what is read is not a log
	Copies atomic.Bool // watchers get copies of the bytes, as those of a log that is elsewhere

	Stuck atomic.Bool  // what is read of runs that begin with "stuck" does not come
	Waits atomic.Int64 // walks that wait for it
}

func (l *FaultyLog) err() error {
	if l.Down.Load() {
		return fmt.Errorf("broker at 10.1.2.3: no responders: %w: %w", schema.ErrUnavailable, context.DeadlineExceeded)
	}
	if l.Bad.Load() {
		return fmt.Errorf("secret detail: %w", schema.ErrBadPack)
	}
	return nil
}

// Head fails as the log is told to. So do the other methods.
func (l *FaultyLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	if err := l.err(); err != nil {
		return schema.Head{}, err
	}
	return l.Log.Head(ctx, key, lane)
}

// Watch is that of the log. A log that is elsewhere hands out copies.
func (l *FaultyLog) Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	return l.Log.Watch(ctx, key, func(p schema.Pack) {
		if l.Copies.Load() {
			p.Body = bytes.Clone(p.Body)
		}
		fn(p)
	})
}

// Newest fails as the log is told to.
func (l *FaultyLog) Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	if err := l.err(); err != nil {
		return nil, err
	}
	return l.Log.Newest(ctx, keys)
}

// Append fails as the log is told to.
func (l *FaultyLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if err := l.err(); err != nil {
		return 0, err
	}
	return l.Log.Append(ctx, p, after)
}

// Packs fails as the log is told to, or does not come to an end.
func (l *FaultyLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	if err := l.err(); err != nil {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, err) }
	}
	if l.Stuck.Load() && strings.HasPrefix(key.Run, "stuck") {
		return func(yield func(schema.Pack, error) bool) {
			l.Waits.Add(1)
			<-ctx.Done()
			yield(schema.Pack{}, context.Cause(ctx))
		}
	}
	return l.Log.Packs(ctx, key, after, through)
}

// House is a running server over a log in memory.
type House struct {
	T        testing.TB
	Log      *FaultyLog
	Hub      *fanout.Hub
	Appender *producers.Appender
	URL      string
	Addr     string
	Logs     *SyncBuffer
	Client   *http.Client
	Server   *edge.Server
	Stop     func() error // ends the server alone, and gives what Run gave
	Hung     bool         // Run is expected to give up
}

// TenantHeader names the tenant in tests; real deployments take it from a credential.
const TenantHeader = "Test-Tenant"

// ByTenant returns the caller that TenantHeader names, of acme without one.
func ByTenant(r *http.Request) (auth.Caller, error) {
	switch t := r.Header.Get(TenantHeader); t {
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

// NewHouse starts a server, which ends with the test.
func NewHouse(t testing.TB, change ...func(*edge.Config)) *House {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return NewHouseOn(t, ln, http.DefaultClient, change...)
}

// NewHouseOn serves ln; client reaches it.
func NewHouseOn(t testing.TB, ln net.Listener, client *http.Client, change ...func(*edge.Config)) *House {
	t.Helper()
	client = readable(t, client)
	h := &House{T: t, Client: client, Log: &FaultyLog{Log: memory.New()}, Logs: new(SyncBuffer)}
	var err error
	if h.Hub, err = fanout.New(fanout.Config{Stream: h.Log, Tail: h.Log, CacheFresh: time.Nanosecond,
		CacheBytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	h.Appender, err = producers.NewAppender(producers.AppenderConfig{Log: h.Log, Keys: &memory.Keys{}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := edge.Config{
		Hub: h.Hub, Appender: h.Appender, Protocols: []protocol.Protocol{native.Protocol()},
		Authenticate: ByTenant, DrainWindow: time.Millisecond,
		Logger: slog.New(slog.NewJSONHandler(h.Logs, nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	srv, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Server = srv
	h.Addr = ln.Addr().String()
	h.URL = "http://" + h.Addr
	ctx, cancel := context.WithCancel(context.Background())
	hubCtx, stopHub := context.WithCancel(context.Background())
	served, hubbed := make(chan error, 1), make(chan error, 1)
	go func() { served <- srv.Run(ctx, ln) }()
	go func() { hubbed <- h.Hub.Run(hubCtx) }()
	h.Stop = sync.OnceValue(func() error {
		client.CloseIdleConnections() // a server that drains waits five seconds for one on which nothing was asked
		cancel()
		return <-served
	})
	t.Cleanup(func() {
		if err := h.Stop(); (err != nil) != h.Hung && !t.Failed() {
			t.Errorf("server: %v", err)
		}
		stopHub()
		if err := <-hubbed; err != nil {
			t.Errorf("hub: %v", err)
		}
	})
	return h
}

// SyncBuffer takes log lines.
type SyncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps log lines. It is safe for concurrent use.
func (s *SyncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

// String returns what was written.
func (s *SyncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Fill stores a scenario as run "run" of tenant acme.
func (h *House) Fill(run string, s schematest.Scenario, perPack int) []schema.Pack {
	h.T.Helper()
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: run}, s, perPack)
	h.Store(packs)
	return packs
}

// Store appends packs behind what their run has.
func (h *House) Store(packs []schema.Pack) {
	h.T.Helper()
	for i := range packs {
		head, err := h.Log.Log.Head(context.Background(), packs[i].Key, "")
		if err != nil {
			h.T.Fatal(err)
		}
		if _, err := h.Log.Log.Append(context.Background(), &packs[i], head.Stored); err != nil {
			h.T.Fatal(err)
		}
	}
}

// Last is the newest seq of a run of acme, 0 for none.
func (h *House) Last(run string) schema.Seq {
	h.T.Helper()
	head, err := h.Log.Log.Head(context.Background(), schema.RunKey{Tenant: "acme", Run: run}, "")
	if err != nil {
		h.T.Fatal(err)
	}
	return head.Last
}

// Request builds one; headers are name, value, name, value …
func (h *House) Request(method, path, body string, headers ...string) *http.Request {
	h.T.Helper()
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(h.T.Context(), method, h.URL+path, rd)
	if err != nil {
		h.T.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// Reply is a response that was read whole.
type Reply struct {
	Status int
	Header http.Header
	Body   string
	Last   bool // the server closes the connection behind it
}

// Do sends a request, and reads the response whole.
func (h *House) Do(method, path, body string, headers ...string) Reply {
	h.T.Helper()
	resp, err := h.Client.Do(h.Request(method, path, body, headers...))
	if err != nil {
		h.T.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.T.Fatalf("%s %s: %v after %q", method, path, err, b)
	}
	return Reply{resp.StatusCode, resp.Header, string(b), resp.Close}
}

// Problem is the body of a refusal.
type Problem struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Line      int    `json:"line"`
	Field     string `json:"field"`
	FirstSeq  int    `json:"first_seq"`
	LastSeq   int    `json:"last_seq"`
	Stored    int    `json:"stored"`
	RequestID string `json:"request_id"`
}

// Problem reads the body of a refusal.
func (a Reply) Problem(t testing.TB) Problem {
	t.Helper()
	var p struct{ Error Problem }
	dec := json.NewDecoder(strings.NewReader(a.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		t.Fatalf("status %d, not an error body: %v: %q", a.Status, err, a.Body)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/json" {
		t.Errorf("error has content type %q", ct)
	}
	return p.Error
}

// Expect fails the test unless the response is this refusal, with a text and its id.
func (a Reply) Expect(t testing.TB, status int, code string) Problem {
	t.Helper()
	if a.Status != status {
		t.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	p := a.Problem(t)
	if p.Code != code {
		t.Errorf("code %q, want %q (%s)", p.Code, code, p.Message)
	}
	if p.Message == "" || p.RequestID == "" || p.RequestID != a.Header.Get("X-Request-Id") {
		t.Errorf("error lacks text or id: %+v", p)
	}
	return p
}

// Speak makes a server speak dialects that have no routes, on the streams that they declare (Streams), or on the native
// ones.
func Speak(list ...dialect.Dialect) (all []protocol.Protocol) {
	for _, d := range list {
		p := native.Protocol()
		p.Dialect = d
		if own, ok := d.(interface{ Streams() []protocol.Stream }); ok {
			p.Streams = own.Streams()
		}
		all = append(all, p)
	}
	return all
}
