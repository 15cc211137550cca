package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
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
	"agentstream/persister/persistertest"
	"agentstream/producers"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// toldLog fails as it is told.
type toldLog struct {
	*memory.Log
	mu   sync.Mutex
	err  error
	keys bool // only idempotency keys fail

	appending error // of every Append
}

func (l *toldLog) fail(err error, keys bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.keys = err, keys
}

func (l *toldLog) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keys {
		return nil
	}
	return l.err
}

func (l *toldLog) Head(ctx context.Context, key schema.RunKey, lane string) (schema.Head, error) {
	if err := l.fault(); err != nil {
		return schema.Head{}, err
	}
	return l.Log.Head(ctx, key, lane)
}

func (l *toldLog) Append(ctx context.Context, p *schema.Pack, after uint64) (uint64, error) {
	l.mu.Lock()
	err := l.appending
	l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return l.Log.Append(ctx, p, after)
}

func (l *toldLog) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	if err := l.fault(); err != nil {
		return func(yield func(schema.Pack, error) bool) { yield(schema.Pack{}, err) }
	}
	return l.Log.Packs(ctx, key, after, through)
}

// toldKeys are idempotency keys that fail with their log.
type toldKeys struct {
	memory.Keys
	log *toldLog
}

func (k *toldKeys) Claim(ctx context.Context, id string, r producers.KeyRecord) (producers.KeyRecord, error) {
	k.log.mu.Lock()
	err := k.log.err
	k.log.mu.Unlock()
	if err != nil {
		return producers.KeyRecord{}, err
	}
	return k.Keys.Claim(ctx, id, r)
}

// toldRuns is a list of runs that fails with the log.
type toldRuns struct {
	*persistertest.Memory
	log *toldLog
}

func (r toldRuns) Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if err := r.log.fault(); err != nil {
		return nil, err
	}
	return r.Memory.Runs(ctx, tenant, q)
}

// costsPath is the route of what days have cost.
const costsPath = "/v1/agent/costs"

// Costs returns a cost of each run and day, as often as asked for.
func (r toldRuns) Costs(_ context.Context, _ string, q schema.CostsQuery) ([]schema.Cost, error) {
	if err := r.log.fault(); err != nil {
		return nil, err
	}
	usd := 0.25
	of := schema.Cost{Seq: q.After + 1, Child: "kid", Day: "2026-02-28", Model: "m", Messages: 2, Unpriced: 1, Input: 3, Output: 4, USD: &usd}
	switch q.By {
	case schema.ByChild:
		of.Seq, of.Day, of.Model = 0, "", ""
	case schema.ByDay:
		of.Seq, of.Child = 0, ""
		return []schema.Cost{of}, nil
	}
	return slices.Repeat([]schema.Cost{of}, q.Limit), nil
}

// byName is byHeader with more kinds of callers.
func byName(r *http.Request) (auth.Caller, error) {
	caller := auth.Caller{Tenant: "acme", Scopes: auth.ScopeAll}
	switch r.Header.Get(edgetest.TenantHeader) {
	case "away":
		return auth.Caller{}, fmt.Errorf("test: %w", auth.ErrUnavailable)
	case "one run":
		caller.Run = "the_only_one"
		return caller, nil
	case "late":
		caller.Expires = time.Now().Add(-time.Minute)
		return caller, nil
	}
	return edgetest.ByTenant(r)
}

// talk is a conversation with servers that is held to the contract.
type talk struct {
	t    testing.TB
	c    *contract
	said []exchange
}

// spoken is a house of a talk.
type spoken struct {
	*edgetest.House
	k     *talk
	told  *toldLog
	blobs *memoryBlobs
}

func (k *talk) house(change ...func(*edge.Config)) *spoken {
	k.t.Helper()
	s := &spoken{k: k, told: &toldLog{Log: memory.New()}, blobs: new(memoryBlobs)}
	hub, err := fanout.New(fanout.Config{Stream: s.told, Tail: s.told})
	if err != nil {
		k.t.Fatal(err)
	}
	app, err := producers.NewAppender(producers.AppenderConfig{Log: s.told, Keys: &toldKeys{log: s.told}})
	if err != nil {
		k.t.Fatal(err)
	}
	still := func(auth.Caller) error { return nil }
	tickets, err := auth.NewTickets(auth.TicketsConfig{Store: auth.NewMemoryTickets(nil), Still: still})
	if err != nil {
		k.t.Fatal(err)
	}
	shares, err := auth.NewShares(auth.SharesConfig{Secret: make([]byte, 32), Still: still})
	if err != nil {
		k.t.Fatal(err)
	}
	runs := toldRuns{persistertest.NewMemory(), s.told}
	w := persistertest.NewWriter(schema.RunKey{Tenant: "acme", Run: "run_1"}, "20260228")
	persistertest.Put(k.t.(*testing.T), runs.Memory, w.Texts("kid", 2), w.Pack("", persistertest.Lifecycle(schema.StateError)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- hub.Run(ctx) }()
	k.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			k.t.Error(err)
		}
	})
	s.House = edgetest.NewHouse(k.t, append([]func(*edge.Config){func(c *edge.Config) {
		c.Taps, c.Workers = noTaps{s.told}, idleWorkers(k.t, memory.New(), -1)
		c.Hub, c.Appender, c.Tickets, c.Shares, c.Catalog, c.Costs, c.Authenticate, c.Blobs = hub, app, tickets, shares, runs, runs, byName, s.blobs
	}}, change...)...)
	return s
}

// ask sends a request to a path of the contract, about a run, and holds the answer to the contract.
func (s *spoken) ask(method, path, run, query, body string, headers ...string) edgetest.Reply {
	s.k.t.Helper()
	a := s.Do(method, strings.NewReplacer("{run}", run, "{tap}", "bill", "{ref}", edgetest.RefOf("")).Replace(path)+query, body, headers...)
	s.k.heard(exchange{method, path, a})
	return a
}

func (k *talk) heard(x exchange) {
	k.t.Helper()
	k.said = append(k.said, x)
	if err := k.c.verify(x); err != nil {
		k.t.Error(err)
	}
}

// store puts a scenario's packs into the log.
func (s *spoken) store(run string, sc schematest.Scenario, perPack int) []schema.Pack {
	s.T.Helper()
	packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: run}, sc, perPack)
	for i := range packs {
		head, err := s.told.Log.Head(context.Background(), packs[i].Key, "")
		if err == nil {
			_, err = s.told.Log.Append(context.Background(), &packs[i], head.Stored)
		}
		if err != nil {
			s.T.Fatal(err)
		}
	}
	return packs
}

// rows returns the table without WebSockets, whose path is another's.
func rows(t testing.TB) []edge.RouteRow {
	return slices.DeleteFunc(newMatrix(t).table, func(rt edge.RouteRow) bool { return rt.Transport == dialect.WebSocket })
}

// asks returns a body that the route takes, and the headers with it.
func asks(rt edge.RouteRow, run string) (string, []string) {
	_, last, _ := strings.Cut(rt.Path, "{run}/")
	switch {
	case rt.Method == "GET" || last == "tickets" || last == "shares":
		return "", nil
	case rt.Path == edgetest.PublishPath:
		return edgetest.LineOf(run, ""), []string{"Content-Type", "application/x-ndjson"}
	case strings.HasSuffix(rt.Path, "/taps/{tap}"):
		return `{"cursor":"AQ4Tf3cIAQI"}`, []string{"Content-Type", "application/json"}
	case !strings.HasPrefix(rt.Path, edgetest.RunsPath):
		return "{}", []string{"Content-Type", "application/json"}
	case last == "blobs":
		return "", nil
	case rt.Method == "PUT":
		return `{"planning_gate":"off"}`, []string{"Content-Type", "application/json"}
	case rt.Path == edgetest.RunsPath:
		return `{"run_id":"` + run + `"}`, []string{"Content-Type", "application/json"}
	case last == "update":
		return `{"title":"Latency & cost"}`, []string{"Content-Type", "application/json"}
	case last == "events":
		return edgetest.GoodLine, []string{"Content-Type", "application/x-ndjson"}
	}
	return edgetest.Bodies[last], []string{"Content-Type", "application/json"}
}

func bodied(rt edge.RouteRow) bool {
	return rt.Method != "GET" && strings.HasPrefix(rt.Path, edgetest.RunsPath) && !strings.HasSuffix(rt.Path, "/tickets") && !strings.HasSuffix(rt.Path, "/shares")
}

// isBlobs reports whether a route takes blobs, whose bodies are of any type.
func isBlobs(rt edge.RouteRow) bool { return strings.HasSuffix(rt.Path, "/blobs") }

// excused are promises that a test cannot make a server keep.
func excused(promise string) bool {
	if strings.HasSuffix(promise, " 410 KEY-GONE") { // of a tenant whose key was deleted: TestEncryptedAtRest of cmd/agentstream
		return true
	}
	switch promise {
	case "POST " + edgetest.PublishPath + " 503 SHUTTING-DOWN", "GET " + workPath + " 503 SHUTTING-DOWN": // of a node that takes no connections any more
		return true
	case "GET " + auditPath + " 410 KAI-STREAM-CONN-0002": // as of any run: the routes are one
		return true
	case "GET /v1/agent/runs/{run}/stream 401 CREDENTIAL-EXPIRED": // only when the credential ends between two lines of code
		return true
	case "PUT /v1/agent/runs/{run}/blobs 410 KAI-STREAM-CONN-0002", "GET /v1/agent/runs/{run}/blobs/{ref} 410 KAI-STREAM-CONN-0002":
		return true // a run that has expired whole is known by an archive alone: TestBlobsGoWithTheirRun of cmd/agentstream
	}
	return false
}

// refusals are those that every route has for every caller.
func (k *talk) refusals(h *spoken, table []edge.RouteRow) {
	for _, rt := range table {
		body, headers := asks(rt, "ended")
		ask := func(run, query, tenant string) edgetest.Reply {
			return h.ask(rt.Method, rt.Path, run, query, body, append([]string{edgetest.TenantHeader, tenant}, headers...)...)
		}
		ask("ended", "?x="+strings.Repeat("x", 9<<10), "").Expect(k.t, 414, "URI-TOO-LONG")
		if rt.Needs == 0 {
			continue
		}
		ask("ended", "", "nobody").Expect(k.t, 401, "UNAUTHORIZED")
		ask("ended", "", "reader").Expect(k.t, 403, "FORBIDDEN")
		ask("ended", "", "broken").Expect(k.t, 500, "INTERNAL")
		ask("ended", "", "bad tenant").Expect(k.t, 500, "INTERNAL")
		ask("ended", "", "away").Expect(k.t, 503, "AUTH-UNAVAILABLE")
		if !strings.HasPrefix(rt.Path, edgetest.RunsPath) {
			continue
		}
		if rt.Path != edgetest.RunsPath || rt.Method == "POST" {
			ask("ended", "", "one run").Expect(k.t, 404, "NOT-FOUND")
		}
		if strings.Contains(rt.Path, "{run}") {
			ask("a.b", "", "").Expect(k.t, 400, "BAD-ID")
			begins := rt.Method == "PUT" && !isBlobs(rt) || rt.Method == "POST" && strings.HasSuffix(rt.Path, "/events")
			if !begins {
				ask("missing", "", "").Expect(k.t, 404, "NOT-FOUND")
				ask("ended", "", "rival").Expect(k.t, 404, "NOT-FOUND")
			}
		}
		if rt.Method == "GET" {
			for _, run := range []string{"ended", "missing"} {
				h.ask("HEAD", rt.Path, run, "", "")
			}
		}
	}
	h.ask("GET", "/nowhere", "", "", "").Expect(k.t, 404, "NOT-FOUND")
	h.ask("PUT", edgetest.RunsPath+"/{run}/events", "ended", "", "").Expect(k.t, 405, "METHOD-NOT-ALLOWED")
	h.ask("GET", "/nowhere", "", "?x="+strings.Repeat("x", 9<<10), "").Expect(k.t, 414, "URI-TOO-LONG")
}

// faults are the log's, and those of the idempotency keys, which a writer does not try again.
func (k *talk) faults(h *spoken, table []edge.RouteRow) {
	defer h.told.fail(nil, false)
	for code, err := range map[string]error{
		"UNAVAILABLE": schema.ErrUnavailable, "SHUTTING-DOWN": fanout.ErrClosed, "CONFLICT": producers.ErrFenced, "UNANSWERED": schema.ErrUnanswered, "STORAGE-FULL": schema.ErrFull,
	} {
		writes := code == "CONFLICT" || code == "UNANSWERED" || code == "STORAGE-FULL"
		for i, rt := range table {
			list := rt.Path == edgetest.RunsPath && rt.Method == "GET" || rt.Path == costsPath
			if rt.Path == workPath { // it waits for the log
				continue
			}
			if rt.Needs == 0 || rt.Path == "/v1/agent/whoami" || rt.Path == edgetest.PublishPath || rt.Needs == auth.ScopeOperate || rt.Transport == dialect.GRPC || writes && !bodied(rt) || list && code == "SHUTTING-DOWN" {
				continue
			}
			body, headers := asks(rt, fmt.Sprintf("run_%d", i))
			if bodied(rt) {
				headers = append(headers, "Idempotency-Key", fmt.Sprint(code, i))
			}
			appends := rt.Method == "POST" && (rt.Path == edgetest.RunsPath || strings.HasSuffix(rt.Path, "/events")) // are patient with the log
			switch {
			case isBlobs(rt) && code == "STORAGE-FULL":
				h.told.fail(nil, false)
				h.blobs.fail(fmt.Errorf("test: %w", err))
				h.ask(rt.Method, rt.Path, "ended", "", "").Expect(k.t, 503, code)
				h.blobs.fail(nil)
				continue
			case isBlobs(rt) && writes: // it appends nothing
				continue
			case rt.Method == "PUT" && !isBlobs(rt):
				k.putFaults(code, err, writes)
				continue
			}
			h.told.fail(fmt.Errorf("test: %w", err), writes || appends)
			h.ask(rt.Method, rt.Path, "ended", "", body, headers...).Expect(k.t, 503, code)
		}
	}
}

// putFaults are those of a route that has no key: of its append, or, where it is remembered that the run
// exists, of the question where that stands.
func (k *talk) putFaults(code string, err error, writes bool) {
	h := k.house(func(c *edge.Config) { c.LogTimeout = 20 * time.Millisecond })
	put := func() edgetest.Reply { return h.ask("PUT", edgetest.RunsPath+"/{run}", "run", "", "") }
	if err = fmt.Errorf("test: %w", err); writes {
		h.told.appending = err
	} else {
		put()
		h.told.fail(err, false)
	}
	put().Expect(k.t, 503, code)
}

// reads are the answers of what only reads.
func (k *talk) reads(h *spoken) {
	h.ask("GET", "/healthz", "", "", "")
	h.ask("GET", "/readyz", "", "", "")
	sick := k.house(func(c *edge.Config) {
		c.Catalog, c.Costs, c.Durability = nil, nil, "none"
		c.Checks = []edge.Check{{Name: "nats", Run: func(context.Context) error { return errors.New("away") }}}
	})
	sick.ask("GET", "/readyz", "", "", "")
	sick.ask("GET", edgetest.RunsPath, "", "", "").Expect(k.t, 501, "NO-CATALOG")
	sick.ask("GET", costsPath, "", "", "").Expect(k.t, 501, "NO-CATALOG")
	sick.store("ended", schematest.ByName("plain"), 5)
	sick.ask("GET", edgetest.RunsPath+"/{run}/costs", "ended", "", "").Expect(k.t, 501, "NO-CATALOG")
	h.ask("GET", edgetest.RunsPath+"/{run}/costs", "ended", "?cursor=c:kid", "").Expect(k.t, 400, "BAD-CURSOR")
	h.ask("GET", edgetest.RunsPath+"/{run}/costs", "ended", "?by=child&cursor=7", "").Expect(k.t, 400, "BAD-CURSOR")
	for _, query := range []string{"", "?since=2026-01-01T00:00:00Z&until=2026-02-01T00:00:00%2B02:00"} {
		if a := h.ask("GET", costsPath, "", query, ""); a.Status != 200 {
			k.t.Errorf("costs of days%s: %d %s", query, a.Status, a.Body)
		}
	}
	for _, query := range []string{"?until=0001-01-02T00:00:00Z", "?until=9999-12-31T23:59:59-10:00", "?since=2024-01-01T00:00:00Z&until=2026-01-01T00:00:00Z", "?since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z"} {
		h.ask("GET", costsPath, "", query, "").Expect(k.t, 400, "BAD-REQUEST")
	}
	if a := h.ask("GET", edgetest.RunsPath, "", "?state=error,done&limit=1&order=started&since=2020-01-01T00:00:00Z", ""); !strings.Contains(a.Body, `"run_1"`) {
		k.t.Errorf("list: %s", a.Body)
	}
	if a := h.ask("GET", "/v1/agent/whoami", "", "", ""); a.Status != 200 {
		k.t.Errorf("whoami: %d", a.Status)
	}
	h.ask("GET", edgetest.RunsPath, "", "?cursor=!", "").Expect(k.t, 400, "BAD-CURSOR")
	h.ask("GET", edgetest.RunsPath, "", "?state=asleep", "").Expect(k.t, 400, "BAD-REQUEST")
	page := h.k.house()
	page.store("old", schematest.ByName("children"), 3)
	page.told.Log.Expire(schema.RunKey{Tenant: "acme", Run: "old"}, 6)
	for _, path := range []string{"/events", "/steps", "/snapshot", "/replay.jsonl", "/stream"} {
		page.ask("GET", edgetest.RunsPath+"/{run}"+path, "old", "", "").Expect(k.t, 410, schema.CodeCursorExpired)
	}
	page.ask("GET", edgetest.RunsPath+"/{run}", "old", "", "")
	for path, ahead := range map[string]string{"/events": "after", "/steps": "after", "/snapshot": "at", "/replay.jsonl": "through", "/stream": "after"} {
		h.ask("GET", edgetest.RunsPath+"/{run}"+path, "ended", "?"+ahead+"=9999", "").Expect(k.t, 409, "CURSOR-AHEAD")
		h.ask("GET", edgetest.RunsPath+"/{run}"+path, "ended", "?"+ahead+"=x", "").Expect(k.t, 400, "BAD-CURSOR")
	}
	for path, query := range map[string]string{"/events": "?limit=0", "/steps": "?limit=0", "/costs": "?limit=0", "/snapshot": "?at=0", "/replay.jsonl": "?nested=perhaps", "/stream": "?detail=half"} {
		h.ask("GET", edgetest.RunsPath+"/{run}"+path, "ended", query, "").Expect(k.t, 400, "BAD-REQUEST")
	}
	for _, ask := range []string{"", "/events", "/events?order=desc&limit=3", "/events?types=none", "/events?from_step=0", "/steps", "/steps?limit=1", "/costs", "/costs?by=child&limit=2", "/costs?cursor=3", "/snapshot", "/snapshot?at=3", "/replay.jsonl", "/replay.jsonl?types=none",
		"/stream", "/stream?from_step=1", "/stream?event=type", "/stream?profile=koder-1", "/stream?detail=full", "/stream?types=tool.*", "/stream?after=9999999"} {
		path, query, _ := strings.Cut(ask, "?")
		h.ask("GET", edgetest.RunsPath+"/{run}"+path, "ended", "?"+query, "", "X-Request-Id", "mine")
	}
	for _, coding := range []string{"gzip", "zstd", "br"} {
		h.ask("HEAD", edgetest.RunsPath+"/{run}/replay.jsonl", "ended", "", "", "Accept-Encoding", coding)
	}
	newest := h.told.newest(k.t, "ended")
	if a := h.ask("GET", edgetest.RunsPath+"/{run}/stream", "ended", "", "", "Last-Event-ID", newest.String()); a.Status != 204 {
		k.t.Errorf("behind the end: %d", a.Status)
	}
	h.ask("POST", edgetest.RunsPath+"/{run}/tickets", "ended", "", "")
	h.ask("POST", edgetest.RunsPath+"/{run}/shares", "ended", "?ttl=1h", "")
	h.ask("POST", edgetest.RunsPath+"/{run}/shares", "ended", "?ttl=721h", "").Expect(k.t, 400, "BAD-REQUEST")
	h.ask("POST", edgetest.RunsPath+"/{run}/tickets", "ended", "", "", edgetest.TenantHeader, "late").Expect(k.t, 401, "CREDENTIAL-EXPIRED")
	for version, status := range map[string]int{"13": 101, "12": 426} {
		a := h.Raw("GET /v1/agent/runs/ended/stream HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
			"Sec-WebSocket-Protocol: koder-agent-stream-v1\r\nSec-WebSocket-Version: " + version + "\r\n\r\n")
		if k.heard(exchange{"GET", edgetest.RunsPath + "/{run}/stream", a}); a.Status != status {
			k.t.Errorf("version %s: %d", version, a.Status)
		}
	}
}

func (l *toldLog) newest(t testing.TB, run string) schema.Seq {
	head, err := l.Log.Head(context.Background(), schema.RunKey{Tenant: "acme", Run: run}, "")
	if err != nil {
		t.Fatal(err)
	}
	return head.Last
}

// limits are what a server refuses to do much of.
func (k *talk) limits(table []edge.RouteRow) {
	small := k.house(func(c *edge.Config) { c.MaxBlobBytes = 200; c.MaxBodyBytes, c.MaxFoldBytes, c.MaxStreams = 200, 1, 1 })
	small.store("run", schematest.Scenario{Events: schematest.ByName("plain").Events[:5]}, 2)
	slow := k.house(func(c *edge.Config) { c.BodyTimeout = 20 * time.Millisecond })
	slow.store("run", schematest.Scenario{Events: schematest.ByName("plain").Events[:1]}, 1)
	for _, rt := range table {
		if !bodied(rt) {
			continue
		}
		small.ask(rt.Method, rt.Path, "run", "", strings.Repeat(" ", 201)).Expect(k.t, 413, schema.CodeMalformed)
		if !isBlobs(rt) {
			small.ask(rt.Method, rt.Path, "run", "", "x", "Content-Type", "text/html").Expect(k.t, 415, "UNSUPPORTED-MEDIA-TYPE")
		}
		small.ask(rt.Method, rt.Path, "run", "", "x", "Content-Encoding", "br").Expect(k.t, 415, "UNSUPPORTED-MEDIA-TYPE")
		if rt.Needs == auth.ScopeWrite {
			once := k.house(func(c *edge.Config) { c.IngestLimit.Events = 1 })
			body, headers := asks(rt, "run")
			if isBlobs(rt) {
				once = k.house(func(c *edge.Config) { c.IngestLimit.Bytes = 1 })
				once.store("run", schematest.Scenario{Events: schematest.ByName("plain").Events[:1]}, 1)
				body = "more than one"
			}
			once.ask(rt.Method, rt.Path, "run", "", body, headers...)
			once.ask(rt.Method, rt.Path, "run", "", body, headers...).Expect(k.t, 429, "RATE-LIMITED")
		}
		r, w := io.Pipe()
		req := slow.Request(rt.Method, strings.ReplaceAll(rt.Path, "{run}", "run"), "")
		req.Body = r
		resp, err := slow.Client.Do(req)
		if err != nil {
			k.t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close(), w.Close()); err != nil {
			k.t.Fatal(err)
		}
		a := edgetest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Last: resp.Close}
		a.Expect(k.t, 408, "REQUEST-TIMEOUT")
		k.heard(exchange{rt.Method, rt.Path, a})
	}
	small.ask("GET", edgetest.RunsPath+"/{run}/snapshot", "run", "", "").Expect(k.t, 413, schema.CodeMalformed)
	small.ask("GET", edgetest.RunsPath+"/{run}/stream", "run", "?snapshot=true", "").Expect(k.t, 413, schema.CodeMalformed)
	small.Watch(small.Client, "/v1/agent/runs/run/stream") // takes the one place
	for _, path := range []string{"/stream", "/replay.jsonl"} {
		small.ask("GET", edgetest.RunsPath+"/{run}"+path, "run", "", "").Expect(k.t, 503, "BUSY")
	}
}

// calls are the routes of gRPC, and pages of other origins.
func (k *talk) calls(h *spoken, table []edge.RouteRow) {
	two := edgetest.H2C()
	defer two.CloseIdleConnections()
	for _, rt := range table {
		if strings.HasPrefix(rt.Path, "/v1/") || rt.Method != "POST" {
			continue
		}
		if a := h.ask("POST", rt.Path, "", "", "{}", "Content-Type", "application/json"); a.Status != 415 {
			k.t.Errorf("%s: %d", rt.Path, a.Status)
		}
		for _, ctype := range []string{"application/grpc-web", "application/grpc-web+proto", "application/grpc", "application/grpc+proto"} {
			s := *h.House
			if !strings.Contains(ctype, "web") {
				s.Client = two
			}
			want := 200
			if strings.Contains(rt.Path, "Reflection") && s.Client != two {
				want = 505
			}
			a := s.Do("POST", rt.Path, "\x00\x00\x00\x00\x00", "Content-Type", ctype, "Te", "trailers", "Grpc-Timeout", "50m")
			if k.heard(exchange{"POST", rt.Path, a}); a.Status != want {
				k.t.Errorf("%s %s: %d", rt.Path, ctype, a.Status)
			}
		}
	}
	const page = "https://app.example"
	open := k.house(func(c *edge.Config) { c.Origins = []string{page} })
	open.store("ended", schematest.ByName("plain"), 5)
	for _, origin := range []string{page, "https://other.example"} {
		for _, tenant := range []string{"", "nobody"} {
			for _, path := range []string{"", "/events", "/steps", "/stream", "/replay.jsonl", "/snapshot"} {
				open.ask("GET", edgetest.RunsPath+"/{run}"+path, "ended", "", "", "Origin", origin, edgetest.TenantHeader, tenant)
			}
		}
	}
}

// changed shows that what was said tells a wrong contract from the right one.
func (k *talk) changed() {
	text, table := string(contractYAML(k.t)), newMatrix(k.t).table
	for _, tt := range []struct{ was, now string }{
		{"type: object", "type: thing"}, {"'#/components/schemas/Seq'", "'#/components/schemas/None'"}, // no OpenAPI
		{"/v1/agent/runs/{run}/pause:", "/v1/agent/runs/{run}/wait:"}, {"  /healthz:", "  /health:"}, // routes
		{"- bearer: [command]", "- bearer: [write]"}, {"security: []", "security: [{bearer: [read]}]"},
		{"        '204':\n", "        '205':\n"}, {"        '202':\n", "        '203':\n"}, // statuses
		{"enum: [CURSOR-AHEAD]", "enum: [CURSOR-BEYOND]"}, {"enum: [UNAVAILABLE, AUTH-UNAVAILABLE]", "enum: [UNAVAILABLE, AUTH-UNAVAILABLE, BUSY]"}, // codes
		{"text/event-stream:", "text/events:"}, {"application/x-ndjson:\n              schema:\n                type: string\n                description: One Event", "application/jsonl:\n              schema:\n                type: string\n                description: One Event"},
		{"            Last-Seq:", "            First-Seq:"}, {"const: Bearer", "const: Basic"}, {"enum: [no-store, 'no-store, no-transform']", "enum: [no-store]"},
		{"      required: [run_id, state, last_seq, started_at, updated_at, ended_at]", "      required: [run_id, state, last_seq, started_at, updated_at, ended_at, day]"},
		{"        has_more: {type: boolean}", "        more: {type: boolean}"}, {"expires_at:", "expires:"}, {"next_cursor:", "cursor:"},
		{"x-items: events/any.schema.json", "x-items: snapshot.schema.json"}, {"x-body: snapshot.schema.json", "x-body: events/none.schema.json"},
	} {
		if !strings.Contains(text, tt.was) {
			k.t.Errorf("the contract has no %q", tt.was)
			continue
		}
		c, err := parseContract([]byte(strings.ReplaceAll(text, tt.was, tt.now)))
		if err == nil {
			err = k.again(c, table)
		}
		if err == nil {
			k.t.Errorf("a contract with %q for %q fits as well", tt.now, tt.was)
		}
	}
	if c, err := parseContract([]byte(text)); err != nil || k.again(c, table) != nil {
		k.t.Errorf("the contract itself does not fit: %v", err)
	}
}

// again holds what was said to another contract.
func (k *talk) again(c *contract, table []edge.RouteRow) error {
	if err := c.routes(table); err != nil {
		return err
	}
	for _, x := range k.said {
		if err := c.verify(x); err != nil {
			return err
		}
	}
	return c.kept()
}
