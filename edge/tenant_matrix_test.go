package edge_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/fanout"
	"agentstream/fanout/memory"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// work counts what is asked of the log and of the catalog.
type work struct {
	mu sync.Mutex
	n  map[string]int
}

func (w *work) add(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n[what]++
}

// take returns what was counted and begins anew.
func (w *work) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.n
	w.n = map[string]int{}
	return n
}

// countedLog counts the work that a request makes.
type countedLog struct {
	*memory.Log
	work *work
}

func (l countedLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	l.work.add("head")
	return l.Log.Head(ctx, key, lane)
}

func (l countedLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack,
	error] {
	l.work.add("packs")
	return l.Log.Packs(ctx, key, after, through)
}

func (l countedLog) Watch(ctx context.Context, key schema.RunKey, fn func(schema.Pack)) (func(), error) {
	l.work.add("watch")
	return l.Log.Watch(ctx, key, fn)
}

func (l countedLog) Newest(ctx context.Context, keys []schema.RunKey) (map[schema.RunKey]schema.Seq, error) {
	l.work.add("newest")
	return l.Log.Newest(ctx, keys)
}

func (l countedLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	l.work.add("append")
	return l.Log.Append(ctx, p, after)
}

// countedCatalog knows the runs of acme and the children that speak in them.
type countedCatalog struct{ work *work }

func (c countedCatalog) Parent(_ context.Context, tenant, child string) (string, error) {
	c.work.add("parent")
	if tenant == "acme" && strings.HasPrefix(child, "there_kid") {
		return "there_kids", nil
	}
	return "", fanout.ErrNotFound
}

func (c countedCatalog) Runs(_ context.Context, tenant string, _ schema.RunsQuery) ([]schema.RunInfo, error) {
	c.work.add("runs")
	if tenant != "acme" {
		return nil, nil
	}
	return []schema.RunInfo{{ID: "there_000", State: schema.StateRunning, Last: 1}}, nil
}

func (c countedCatalog) Costs(_ context.Context, tenant string, q schema.CostsQuery) ([]schema.Cost, error) {
	c.work.add("costs")
	if tenant != "acme" {
		return nil, nil
	}
	return []schema.Cost{{Seq: q.After + 1, Messages: 1}}, nil
}

// matrix is a house of which the routes are known and the work is counted.
type matrix struct {
	*edgetest.House
	log   *memory.Log
	blobs *memoryBlobs
	work  *work
	table []edge.RouteRow
}

func newMatrix(t testing.TB, change ...func(*edge.Config)) *matrix {
	t.Helper()
	m := &matrix{log: memory.New(), work: &work{n: map[string]int{}}}
	m.blobs = &memoryBlobs{work: m.work}
	counted := countedLog{m.log, m.work}
	hub, err := fanout.New(fanout.Config{Stream: counted, Tail: counted})
	if err != nil {
		t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: counted, Keys: &memory.Keys{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	still := func(auth.Caller) error { return nil }
	tickets, err := auth.NewTickets(auth.TicketsConfig{Store: auth.NewMemoryTickets(nil), Still: still})
	if err != nil {
		t.Fatal(err)
	}
	shares, err := auth.NewShares(auth.SharesConfig{Secret: make([]byte, 32), Still: still})
	if err != nil {
		t.Fatal(err)
	}
	var cfg edge.Config
	own := func(c *edge.Config) {
		c.Taps, c.Workers = noTaps{}, idleWorkers(t, m.log, -1)
		c.Hub, c.Appender, c.Catalog, c.Tickets, c.Shares, c.Blobs, c.Costs, c.Operator = hub, app, countedCatalog{m.work}, tickets, shares, m.blobs, countedCatalog{m.work}, &letterbox{}
		for _, f := range change {
			f(c)
		}
		cfg = *c
	}
	m.House = edgetest.NewHouse(t, own)
	srv, err := edge.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.table = srv.Table()
	if len(m.table) < 15 {
		t.Fatalf("only %d routes", len(m.table))
	}
	return m
}

// has stores an open run of a tenant, with an empty blob.
func (m *matrix) has(tenant, run string) {
	m.T.Helper()
	m.put(schematest.Packs(schema.RunKey{Tenant: tenant, Run: run}, schematest.ByName("plain"), 3)[:1])
	if _, _, err := m.blobs.Put(context.Background(), schema.RunKey{Tenant: tenant, Run: run}, "text/plain",
		schema.BlobPieces(nil)); err != nil {
		m.T.Fatal(err)
	}
}

// put stores packs behind what their run has.
func (m *matrix) put(packs []schema.Pack) {
	m.T.Helper()
	for i := range packs {
		head, err := m.log.Head(context.Background(), packs[i].Key, "")
		if err != nil {
			m.T.Fatal(err)
		}
		if _, err := m.log.Append(context.Background(), &packs[i], head.Stored); err != nil {
			m.T.Fatal(err)
		}
	}
}

// beyond asks streams for what is not there yet, so that they end.
const beyond = "?after=99999"

// body is a request body that the route takes.
func (m *matrix) body(rt edge.RouteRow, run, query string) string {
	switch {
	case rt.Transport == dialect.GRPC:
		after := uint64(0)
		if query == beyond {
			after = 99999
		}
		msg := edgetest.StreamRequest(run, after, false)
		return string(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(msg)))) + string(msg)
	case rt.Method != "POST":
		return ""
	case strings.HasSuffix(rt.Path, "/events"):
		return edgetest.GoodLine
	case strings.HasSuffix(rt.Path, "/runs"):
		return `{"run_id":"` + run + `"}`
	case strings.HasSuffix(rt.Path, "/answer"):
		return `{"request_id":"q1","answer":"yes"}`
	case strings.HasSuffix(rt.Path, "/messages"):
		return `{"content":"hello"}`
	case strings.HasSuffix(rt.Path, "/update"):
		return `{"title":"mine"}`
	case strings.HasSuffix(rt.Path, "/redirect"):
		return `{"instruction":"elsewhere"}`
	}
	return ""
}

// ask sends the request of a route about a run, and returns the answer with everything replaced that
// belongs to this one request.
func (m *matrix) ask(client *http.Client, rt edge.RouteRow, method, run, query string, headers ...string) string {
	m.T.Helper()
	r := m.Request(method, strings.NewReplacer("{run}", run, "{ref}", edgetest.RefOf("")).Replace(rt.Path)+query,
		m.body(rt, run, query), headers...)
	switch {
	case rt.Transport == dialect.GRPC:
		r.Header.Set("Content-Type", "application/grpc")
		r.Header.Set("Te", "trailers")
	case rt.Transport == dialect.WebSocket:
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket",
			"Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key":     "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": "koder-agent-stream-v1"} {
			r.Header.Set(name, value)
		}
	case method == "POST" || method == "PUT":
		r.Header.Set("Content-Type", "application/json")
		if strings.HasSuffix(rt.Path, "/events") {
			r.Header.Set("Content-Type", "application/x-ndjson")
		}
	}
	resp, err := client.Do(r)
	if err != nil {
		m.T.Fatalf("%s %s: %v", method, rt.Pattern, err)
	}
	defer resp.Body.Close()
	var body []byte
	if resp.StatusCode != http.StatusSwitchingProtocols {
		if body, err = io.ReadAll(resp.Body); err != nil {
			m.T.Fatalf("%s %s: %v", method, rt.Pattern, err)
		}
	}
	return told(resp, body, run)
}

var changing = regexp.MustCompile(`(evt|req|tkt)_[0-9A-Za-z]+|\d{4}-\d\d-\d\dT[0-9:.]+Z`)

// told is all that a client is told by an answer.
func told(resp *http.Response, body []byte, run string) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %d\n", resp.Proto, resp.StatusCode)
	for _, h := range []http.Header{resp.Header, resp.Trailer} {
		for _, name := range slices.Sorted(maps.Keys(h)) {
			if name != "Date" && name != "X-Request-Id" {
				fmt.Fprintf(&b, "%s: %q\n", name, h[name])
			}
		}
	}
	fmt.Fprintf(&b, "\n%q", body)
	return changing.ReplaceAllString(strings.ReplaceAll(b.String(), run, "RUN"), "SOME")
}

// statusOf takes the HTTP status, and the gRPC status where there is one, out of what was told.
func statusOf(text string) string {
	line, rest, _ := strings.Cut(text, "\n")
	if _, code, ok := strings.Cut(rest, "Grpc-Status: [\""); ok {
		return "grpc " + strings.SplitN(code, `"`, 2)[0]
	}
	return strings.Fields(line)[1]
}

// questions are ways to ask a route, beyond the plain one.
func questions(rt edge.RouteRow) []string {
	if rt.Method != "GET" {
		return []string{""}
	}
	return []string{"", "?after=0", "?after=1", "?after=999999", "?detail=full", "?snapshot=true", "?child=-",
		"?types=text.delta",
		"?order=desc", "?at=1", "?speed=1000", "?limit=1", "?last_event_id=1", "?after=evt_01K0000000000000000000000A"}
}

// TestTenantMatrix asks every route, over every transport, about a run of another tenant and about a
// run that does not exist. The answers must be one: status, headers, body, and the work that they
// take, which is what time can tell.
func TestTenantMatrix(t *testing.T) {
	m := newMatrix(t)
	clients := map[string]*http.Client{"1.1": m.Client, "2": edgetest.H2C()}
	n, asked := 0, 0
	for _, rt := range m.table {
		if rt.Needs == 0 {
			continue
		}
		for version, client := range clients {
			if rt.Transport == dialect.GRPC && version == "1.1" || rt.Transport == dialect.WebSocket && version == "2" {
				continue
			}
			methods := []string{rt.Method}
			if rt.Method == "GET" && rt.Transport != dialect.WebSocket {
				methods = append(methods, "HEAD")
			}
			for _, method := range methods {
				for _, query := range questions(rt) {
					n++
					asked++
					m.compare(client, rt, method, query, n)
				}
			}
		}
	}
	t.Logf("%d routes, %d questions, each about a foreign, a missing and an own run", len(m.table), asked)
	if logs := m.Logs.String(); strings.Contains(logs, `"level":"ERROR"`) {
		t.Errorf("errors were logged:\n%.2000s", logs)
	}
}

// compare asks about three runs whose ids are equally long: of another tenant, of nobody, and of one's
// own, which must be answered otherwise wherever the id is read at all.
func (m *matrix) compare(client *http.Client, rt edge.RouteRow, method, query string, n int) {
	m.T.Helper()
	there, never, own := fmt.Sprintf("there_%05d", n), fmt.Sprintf("never_%05d", n), fmt.Sprintf("owned_%05d", n)
	m.has("acme", there)
	m.has("zeta", own)
	name := method + " " + rt.Path + query + " " + string(rt.Transport)
	zeta := []string{edgetest.TenantHeader, "zeta"}
	m.work.take()
	foreign := m.ask(client, rt, method, there, query, zeta...)
	foreignWork := m.work.take()
	missing := m.ask(client, rt, method, never, query, zeta...)
	missingWork := m.work.take()
	if foreign != missing {
		m.T.Errorf("%s: a foreign run is answered\n%s\na missing one\n%s", name, foreign, missing)
	}
	if !maps.Equal(foreignWork, missingWork) {
		m.T.Errorf("%s: a foreign run takes %v, a missing one %v", name, foreignWork, missingWork)
	}
	if !strings.Contains(rt.Path, "{run}") &&
		(rt.Transport != dialect.GRPC || strings.HasSuffix(rt.Path, "/Publish")) || rt.Transport == dialect.WebSocket &&
		query != "" {
		return
	}
	if strings.HasSuffix(rt.Path, "/events") && method == "POST" || method == "PUT" &&
		strings.HasSuffix(rt.Path, "{run}") {
		if s := statusOf(foreign); s != "200" && method == "POST" || s != "201" && method == "PUT" {
			m.T.Errorf("%s: %s", name, foreign)
		}
		return // begins a run of zeta's own, whoever else has one of that name
	}
	if s := statusOf(foreign); s != "404" && s != "grpc 5" && s != "400" {
		m.T.Errorf("%s: a foreign run is answered %s", name, foreign)
	}
	if query == "" && rt.Transport == "" { // open runs' streams do not end
		if answer := m.ask(client, rt, method, own, query, zeta...); statusOf(answer) == "404" {
			m.T.Errorf("%s: an own run is answered as a missing one: the comparison shows nothing", name)
		}
	}
}

// TestForeignChildIsMissing has the same for a child by its own id, which the catalog knows or the log says to be one.
// What writes begins a run of the caller's own.
func TestForeignChildIsMissing(t *testing.T) {
	m := newMatrix(t)
	m.has("acme", "there_kids")
	zeta := []string{edgetest.TenantHeader, "zeta"}
	for i, rt := range m.table {
		if rt.Needs == 0 || rt.Transport == dialect.GRPC || rt.Path == "/v1/agent/runs" && rt.Method == "GET" {
			continue
		}
		m.ask(m.Client, rt, rt.Method, fmt.Sprintf("never_warm%02d", i), "", zeta...)
		spawned, never := fmt.Sprintf("there_kit%02d", i), fmt.Sprintf("never_kit%02d", i)
		if err := m.log.Adopt(t.Context(), schema.RunKey{Tenant: "acme", Run: "there_kids"}, spawned); err != nil {
			t.Fatal(err)
		}
		for foreign, missing := range map[string]string{fmt.Sprintf("there_kid%02d", i): fmt.Sprintf("never_kid%02d",
			i), spawned: never} {
			m.work.take()
			foreign := m.ask(m.Client, rt, rt.Method, foreign, "", zeta...)
			a := m.work.take()
			missing := m.ask(m.Client, rt, rt.Method, missing, "", zeta...)
			b := m.work.take()
			if foreign != missing || !maps.Equal(a, b) {
				t.Errorf("%s: %v\n%s\n%v\n%s", rt.Pattern, a, foreign, b, missing)
			}
		}
	}
}

// TestOneRunCredential asks every route with a credential that is for one run, about another run of
// the tenant and about a run that does not exist.
func TestOneRunCredential(t *testing.T) {
	m := newMatrix(t, func(c *edge.Config) {
		c.Authenticate = func(*http.Request) (auth.Caller, error) {
			return auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll, Run: "mine_00000"}, nil
		}
	})
	m.has("acme", "mine_00000")
	for i, rt := range m.table {
		client := m.Client
		if rt.Transport == dialect.GRPC {
			client = edgetest.H2C()
		}
		if rt.Needs == 0 || rt.Path == "/v1/agent/whoami" { // it says which run the credential is for
			continue
		}
		other, never := fmt.Sprintf("other_%04d", i), fmt.Sprintf("never_%04d", i)
		m.has("acme", other)
		m.work.take()
		a, aw := m.ask(client, rt, rt.Method, other, ""), m.work.take()
		b, bw := m.ask(client, rt, rt.Method, never, ""), m.work.take()
		if a != b || !maps.Equal(aw, bw) {
			t.Errorf("%s: another run is answered %v\n%s\na missing one %v\n%s", rt.Pattern, aw, a, bw, b)
		}
		if s := statusOf(a); s != "404" && s != "grpc 5" {
			t.Errorf("%s: %s", rt.Pattern, a)
		}
		if len(aw) != 0 {
			t.Errorf("%s: the log is asked about runs that the credential is not for: %v", rt.Pattern, aw)
		}
	}
}

// TestTimingOfForeignRuns prints how long the answers take. The same work is asserted above; the
// times of this machine decide nothing.
func TestTimingOfForeignRuns(t *testing.T) {
	m := newMatrix(t)
	m.has("acme", "there_time")
	rt := m.table[slices.IndexFunc(m.table,
		func(r edge.RouteRow) bool { return r.Pattern == "GET /v1/agent/runs/{run}/events" })]
	took := map[string][]time.Duration{}
	for range 400 {
		for _, run := range []string{"there_time", "never_time"} {
			begun := time.Now()
			m.ask(m.Client, rt, "GET", run, "", edgetest.TenantHeader, "zeta")
			took[run] = append(took[run], time.Since(begun))
		}
	}
	for _, run := range []string{"there_time", "never_time"} {
		slices.Sort(took[run])
		t.Logf("%s: median %v, p90 %v", run, took[run][200], took[run][360])
	}
}
