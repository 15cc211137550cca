package serve_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/edge/protocol"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/persister"
	"agentstream/persister/sqlite"
	"agentstream/producers"
	"agentstream/protocols/native"
	"agentstream/protocols/qoder"
	"agentstream/protocols/qoder/serve"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

func TestMain(m *testing.M) { edgetest.Main(m, "sessions") }

const (
	cloud  = qoder.BaseCloud + "/sessions"
	v1     = qoder.BaseV1 + "/sessions"
	tenant = edgetest.Tenant
	as     = edgetest.As
)

// spoken is the dialect of the tests.
var spoken = qoder.Dialect{Increments: true}

// keptLog is a log in memory; what is appended to it is persisted before the append is answered.
type keptLog struct {
	*memory.Log
	store *sqlite.Store // nil: nothing is persisted

	mu   sync.Mutex
	in   int    // appends until then is called
	then func() // called once, before an append
	left int    // appends until it takes no more; -1: it takes all
}

// dies lets the log take n more appends, and refuse all that follow, as if the node were gone.
func (l *keptLog) dies(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = n
}

// lives lets the log take appends again.
func (l *keptLog) lives() { l.dies(-1) }

var errDead = errors.New("the node is gone")

func (l *keptLog) dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left--
		return false
	}
	return l.left == 0
}

// when calls fn once, right before the nth append from now on.
func (l *keptLog) when(n int, fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.in, l.then = n, fn
}

func (l *keptLog) due() (fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.in--; l.in == 0 {
		fn = l.then
	}
	return fn
}

func (l *keptLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	if fn := l.due(); fn != nil {
		fn()
	}
	if l.dead() {
		return 0, errDead
	}
	at, err := l.Log.Append(ctx, p, after)
	if err != nil || l.store == nil {
		return at, err
	}
	q := *p
	q.Head = p.Head
	q.Head.Stored = at
	chunks, err := persister.Chunks(q)
	if err == nil {
		_, err = l.store.Append(ctx, chunks)
	}
	return at, err
}

// house is a running server.
type house struct {
	t     testing.TB
	log   *keptLog
	keys  *memory.Keys
	url   string
	http  *http.Client
	store *sqlite.Store
}

// newHouse makes a server over a log in memory; with a list of sessions when listed.
func newHouse(t testing.TB, listed bool, change ...func(*edge.Config)) *house {
	t.Helper()
	h := &house{t: t, log: &keptLog{Log: memory.New(), left: -1}, keys: &memory.Keys{},
		http: &http.Client{Transport: &http.Transport{}}}
	cfg := edge.Config{
		Protocols:    []protocol.Protocol{serve.Protocol(spoken), native.Protocol()},
		Authenticate: edgetest.ByHeader, DrainWindow: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	if listed {
		path := filepath.Join(t.TempDir(), "kept.db")
		store, err := openStore(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		h.store, h.log.store, cfg.Catalog = store, store, store
	}
	var err error
	if cfg.Hub, err = fanout.New(fanout.Config{Stream: h.log, Tail: h.log, CacheFresh: time.Nanosecond,
		CacheBytes: 4 << 20}); err != nil {
		t.Fatal(err)
	}
	if cfg.Appender, err = producers.NewAppender(producers.AppenderConfig{Log: h.log, Keys: h.keys}); err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(&cfg)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.url = "http://" + ln.Addr().String()
	edgetest.Serve(t, cfg, ln, h.http)
	return h
}

func openStore(ctx context.Context, path string) (*sqlite.Store, error) {
	if _, err := sqlite.Migrate(ctx, path, false); err != nil {
		return nil, err
	}
	return sqlite.Open(ctx, sqlite.Config{Path: path})
}

// answer is a response that was read whole.
type answer struct{ edgetest.Answer }

// do asks; headers are name, value, name, value …
func (h *house) do(method, path, body string, headers ...string) answer {
	h.t.Helper()
	return answer{edgetest.Do(h.t, h.http, method, h.url+path, body, headers...)}
}

// refused holds that a request was refused in the dialect's words; typ "" is any.
func (a answer) refused(status int, typ string) {
	a.T.Helper()
	var o struct {
		Type      string
		RequestID string `json:"request_id"`
		Error     struct{ Type, Message string }
	}
	if err := json.Unmarshal([]byte(a.Body), &o); err != nil || a.Status != status || o.Type != "error" ||
		o.Error.Type == "" || typ != "" && o.Error.Type != typ || o.Error.Message == "" || o.RequestID == "" {
		a.T.Errorf("%s: %d, want %d %s: %s", a.Asked, a.Status, status, typ, a.Body)
	}
}

// create makes a session and gives its id.
func (h *house) create(body string, headers ...string) string {
	h.t.Helper()
	id, _ := h.do("POST", cloud, body, headers...).OK(200)["id"].(string)
	if id == "" {
		h.t.Fatal("session without id")
	}
	return id
}

const plainBody = `{"agent":"agent_1","environment_id":"env_1","title":"T"}`

func key(run string) schema.RunKey { return schema.RunKey{Tenant: tenant, Run: run} }

// fill stores a scenario as a run.
func (h *house) fill(run string, s schematest.Scenario, perPack int) {
	h.t.Helper()
	for _, p := range schematest.Packs(key(run), s, perPack) {
		head := h.head(run)
		if _, err := h.log.Append(context.Background(), &p, head.Stored); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *house) head(run string) schema.Head {
	h.t.Helper()
	head, err := h.log.Head(context.Background(), key(run), "")
	if err != nil {
		h.t.Fatal(err)
	}
	return head
}

// says appends events to a run as an agent would.
func (h *house) says(run string, events ...schema.Event) {
	h.t.Helper()
	if err := edgetest.Append(h.log, run, events...); err != nil {
		h.t.Fatal(err)
	}
}

var event = edgetest.Event

func of(child string, e schema.Event) schema.Event {
	e.ChildID = child
	return e
}

// types returns the types of a run's events.
func (h *house) types(run string) (types []string) {
	h.t.Helper()
	h.records(run, func(r schema.Record) { types = append(types, string(r.Type)) })
	return types
}

func (h *house) records(run string, fn func(schema.Record)) {
	h.t.Helper()
	for p, err := range h.log.Packs(context.Background(), key(run), 0, schema.MaxSeq) {
		if err != nil {
			h.t.Fatal(err)
		}
		for r, err := range p.Records(0) {
			if err != nil {
				h.t.Fatal(err)
			}
			fn(r)
		}
	}
}

// shown is one frame as its stream shows it.
type shown struct {
	id, typ, data string
	at            time.Time
}

// frames projects a run as its stream is: of the session, or of a thread.
func (h *house) frames(run, thread string) (all []shown) {
	h.t.Helper()
	p := spoken.Projector(qoder.Request(run, thread))
	var out dialect.Frames
	h.records(run, func(r schema.Record) {
		out.Reset()
		if err := p.Project(&out, r); err != nil {
			h.t.Fatal(err)
		}
		_, ts, _ := r.Envelope()
		at, err := time.Parse(time.RFC3339Nano, string(ts))
		if err != nil {
			h.t.Fatal(err)
		}
		for _, f := range out.List {
			all = append(all, shown{string(f.Token), string(f.Event), string(f.Data), at})
		}
	})
	return all
}

// page is one page of a list.
type page struct {
	Data    []json.RawMessage `json:"data"`
	Next    *string           `json:"next_page"`
	FirstID *string           `json:"first_id"`
	LastID  *string           `json:"last_id"`
	HasMore *bool             `json:"has_more"`
}

func (h *house) page(path string, headers ...string) page {
	h.t.Helper()
	a := h.do("GET", path, "", headers...)
	a.OK(200)
	var p page
	dec := json.NewDecoder(strings.NewReader(a.Body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil || p.Data == nil || p.HasMore == nil {
		h.t.Fatalf("%s: no page: %v: %.300s", path, err, a.Body)
	}
	if *p.HasMore != (p.Next != nil) || (len(p.Data) == 0) != (p.FirstID == nil) ||
		(len(p.Data) == 0) != (p.LastID == nil) {
		h.t.Fatalf("%s: page contradicts itself: %.300s", path, a.Body)
	}
	if len(p.Data) > 0 && (*p.FirstID != idOf(p.Data[0]) || *p.LastID != idOf(p.Data[len(p.Data)-1])) {
		h.t.Fatalf("%s: first_id and last_id are not those of the page: %.300s", path, a.Body)
	}
	return p
}

func idOf(object []byte) string {
	var o struct{ ID string }
	_ = json.Unmarshal(object, &o)
	return o.ID
}

// texts returns objects as they were written.
func texts(objects []json.RawMessage) (all []string) {
	for _, o := range objects {
		all = append(all, string(bytes.TrimSpace(o)))
	}
	return all
}

// same compares two lists and shows where they part.
func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			at := func(l []string) string {
				if i < len(l) {
					return fmt.Sprintf("%.200s", l[i])
				}
				return "nothing"
			}
			t.Fatalf("%s: %d of %d differ from place %d on:\n got %s\nwant %s", what, len(got), len(want), i, at(got), at(want))
		}
	}
}
