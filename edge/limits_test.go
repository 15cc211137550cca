package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/schema"
)

// refused counts what Hooks.IngestRefused is told.
type refused struct {
	mu sync.Mutex
	by map[dialect.Reason]int
}

func (r *refused) hook(reason dialect.Reason) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[dialect.Reason]int{}
	}
	r.by[reason]++
}

func (r *refused) of(reason dialect.Reason) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[reason]
}

// A tenant that is over its limit is told when to come again, and is taken then. Commands, reads and other
// tenants are served meanwhile, and nothing of what is refused is stored.
func TestLimitedTenant(t *testing.T) {
	count := new(refused)
	h := newHouse(t, func(c *edge.Config) {
		c.IngestLimit = edge.IngestLimit{Events: 50}
		c.TenantLimits = map[string]edge.IngestLimit{"bytes": {Bytes: 2000}}
		c.Hooks.IngestRefused = count.hook
	})
	const path = "/v1/agent/runs/run/events"
	h.tell("run", lifecycle("running"))
	if a := h.do("POST", path, strings.Repeat(good+"\n", 145)); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	last := h.last("run")
	for _, ask := range []struct{ method, path, body string }{{"POST", path, good}, {"POST", "/v1/agent/runs", ""}, {"PUT", "/v1/agent/runs/other", ""}} {
		a := h.do(ask.method, ask.path, ask.body)
		p := a.expect(t, 429, "RATE-LIMITED")
		if a.header.Get("Retry-After") != "2" || !strings.HasPrefix(p.Message, "more events a second than this tenant may send") {
			t.Errorf("%s %s: %v %s", ask.method, ask.path, a.header, p.Message)
		}
	}
	for _, coded := range []string{gzipped(t, strings.Repeat(good+"\n", 200)), gzipped(t, good)} {
		a := h.do("POST", path, coded, tenantHeader, "bytes", "Content-Encoding", "gzip")
		if len(coded) > 150 {
			t.Fatal("the test's body is not small")
		}
		if a.status != 200 { // what it inflates to counts
			p := a.expect(t, 429, "RATE-LIMITED")
			if after, _ := strconv.Atoi(a.header.Get("Retry-After")); after < 3 || !strings.HasPrefix(p.Message, "more bytes") {
				t.Errorf("%d s: %s", after, p.Message)
			}
		}
	}
	if a := h.do("POST", "/v1/agent/runs/run/pause", ""); a.status != 202 {
		t.Errorf("a command: %d %s", a.status, a.body)
	}
	if a := h.do("GET", path, ""); a.status != 200 {
		t.Errorf("a page: %d", a.status)
	}
	if a := h.do("POST", path, good, tenantHeader, "other"); a.status != 200 {
		t.Errorf("another tenant: %d %s", a.status, a.body)
	}
	h.do("POST", path, "nonsense", tenantHeader, "other").expect(t, 400, schema.CodeMalformed)
	if h.last("run") != last+1 || h.last("other") != 0 || count.of(dialect.ReasonLimited) != 4 || count.of(dialect.ReasonMalformed) != 1 {
		t.Errorf("%d behind %d; refused: %v", h.last("run"), last, count.by)
	}
	time.Sleep(2 * time.Second) // as it was told
	if a := h.do("POST", path, good); a.status != 200 {
		t.Errorf("after the wait: %d %s", a.status, a.body)
	}
}

// Posts over NATS share the limit. What is over it is refused, with all that follows, so that nothing overtakes.
func TestLimitedPosts(t *testing.T) {
	count := new(refused)
	h := newHouse(t)
	s := h.taker(func(c *edge.Config) {
		c.IngestLimit = edge.IngestLimit{Events: 3, Requests: 1}
		c.Hooks.IngestRefused = count.hook
	})
	answers := s.Take(t.Context(), runOf("run"), postsOf(aDelta, "nonsense", aDelta+"\n"+aDelta, aDelta, "more nonsense", aDelta), nil)
	var fates []string
	for _, a := range answers {
		f, _, _ := strings.Cut(fate(a), ":")
		fates = append(fates, f)
	}
	limited := "429 20015 RATE-LIMITED"
	want := []string{"1-1 of 1, again false", "400 20001 KAI-STREAM-PROTO-0001", "2-3 of 2, again false", limited, limited, limited}
	if !slices.Equal(fates, want) || h.last("run") != 3 || answers[3].Refusal.Retry != 1 || count.of(dialect.ReasonLimited) != 3 {
		t.Errorf("%q, %d events, %+v, %v", fates, h.last("run"), answers[3].Refusal, count.by)
	}
	if a := s.Take(t.Context(), runOf("run"), postsOf(aDelta), nil)[0]; a.Refusal == nil || a.Refusal.Number != 20015 {
		t.Errorf("the next: %s", fate(a))
	}
	if a := s.Take(t.Context(), schema.RunKey{Tenant: "other", Run: "run"}, postsOf(aDelta), nil)[0]; a.Refusal != nil {
		t.Errorf("another tenant: %s", fate(a))
	}
}

// Requests of one tenant that hang fill its own places and no others.
func TestRequestsThatHang(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.IngestLimit.Requests = 2 })
	const path = "/v1/agent/runs/run/events"
	var writers []*io.PipeWriter
	answers := make(chan int, 2)
	for range 2 {
		r, w := io.Pipe()
		req := h.request("POST", path, "")
		req.Body = r
		writers = append(writers, w)
		go func() {
			resp, err := h.client.Do(req)
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
		if _, err := io.WriteString(w, good); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "a third request is refused", func() bool {
		a := h.do("POST", path, good)
		return a.status == 429 && a.header.Get("Retry-After") == "1"
	})
	if a := h.do("POST", path, good, tenantHeader, "other"); a.status != 200 {
		t.Errorf("another tenant: %d %s", a.status, a.body)
	}
	for _, w := range writers {
		w.Close()
	}
	for range writers {
		if got := <-answers; got != 200 {
			t.Errorf("one that hung: %d", got)
		}
	}
	if a := h.do("POST", path, good); a.status != 200 {
		t.Errorf("when they are done: %d", a.status)
	}
}

// One tenant sends as fast as it can with sixteen connections. Another, that sends now and then, is never refused,
// and while it waits the flood has a few answers for each of its connections, not ever more.
func TestFloodCostsOthersNothing(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) {
		c.Logger = nil
		c.IngestLimit = edge.IngestLimit{Events: 200, Bytes: 1 << 20, Requests: 4}
	})
	var taken, refused, answered atomic.Int64 // of the flood
	// steady returns how many answers the flood had while a request was under way, of nine in ten at most.
	steady := func(run string) int64 {
		var meanwhile []int64
		for range 100 {
			before := answered.Load()
			if a := h.do("POST", "/v1/agent/runs/"+run+"/events", good, tenantHeader, "steady"); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			meanwhile = append(meanwhile, answered.Load()-before)
			time.Sleep(6 * time.Millisecond) // under its rate
		}
		slices.Sort(meanwhile)
		return meanwhile[90]
	}
	steady("alone")
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 16, MaxIdleConnsPerHost: 16}}
	defer client.CloseIdleConnections()
	var stop atomic.Bool
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for !stop.Load() {
				r := h.request("POST", fmt.Sprint("/v1/agent/runs/flood", w, "/events"), strings.Repeat(good+"\n", 20), tenantHeader, "flood")
				resp, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				answered.Add(1)
				if resp.Body.Close(); resp.StatusCode == 200 {
					taken.Add(20)
				} else if refused.Add(1); resp.StatusCode != 429 {
					t.Errorf("flood: %d", resp.StatusCode)
				}
			}
		})
	}
	began := time.Now()
	beside := steady("beside")
	stop.Store(true)
	took := time.Since(began)
	wg.Wait()
	t.Logf("%d answers of the flood during a request; the flood: %d events taken in %v, %d requests refused", beside, taken.Load(), took, refused.Load())
	if most := int64(200*(took.Seconds()+1)) + 5*20; taken.Load() > most || refused.Load() == 0 {
		t.Errorf("the flood got %d events through in %v, %d at most", taken.Load(), took, most)
	}
	if beside > 10*16 {
		t.Errorf("during a request the flood's 16 clients had %d answers", beside)
	}
}

// A tenant that has as many streams as it may is told so in the words of each transport, and when to come again. Other tenants have
// their own, a tenant's own limit counts before that of all, and a place that is left is there again.
func TestStreamsOfATenant(t *testing.T) {
	h := newHouse(t, talking, func(c *edge.Config) {
		c.MaxStreams, c.IngestLimit, c.TenantLimits = 100, edge.IngestLimit{Streams: 2}, map[string]edge.IngestLimit{"many": {Streams: 5}}
	})
	const path = "/v1/agent/runs/run/stream?detail=full"
	for _, tenant := range []string{"acme", "many", "other"} {
		h.must("run", "progress", "{}", tenantHeader, tenant)
	}
	k := h.talk()
	watch := h.mustTap("sse", path, 0)
	for _, carrier := range []string{"sse", "ws"} {
		if _, err := h.tap(carrier, path, 0); err == nil || !strings.HasPrefix(err.Error(), "429 ") || !strings.Contains(err.Error(), "more streams at once than this tenant may open") {
			t.Errorf("%s: %v", carrier, err)
		}
	}
	if _, err := h.tap("ws", "/talk/lobby", 0); err == nil || !strings.HasPrefix(err.Error(), "429 ") {
		t.Errorf("a conversation: %v", err)
	}
	for _, ask := range []struct{ method, path string }{{"GET", path}, {"GET", "/v1/agent/runs/run/replay.jsonl"}} {
		a := h.do(ask.method, ask.path, "")
		if a.expect(t, 429, "RATE-LIMITED"); a.header.Get("Retry-After") != "5" {
			t.Errorf("%s %s: Retry-After %q", ask.method, ask.path, a.header.Get("Retry-After"))
		}
	}
	open := h.request("POST", publishPath, "", "Content-Type", "application/x-ndjson")
	open.Body, open.ContentLength = io.NopCloser(strings.NewReader(lineOf("run", ""))), -1
	if resp, err := h.client.Do(open); err != nil || resp.StatusCode != 429 {
		t.Errorf("a publish stream: %+v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	conn, err := grpc.NewClient(h.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := rpc(t, conn, streamRequest("run", 0, true)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC: %v", err)
	}
	subscribe := func(id, want string) {
		t.Helper()
		if m := k.ask(nil, `{"do":"subscribe","id":"%s","run":"run","after":1}`, id); m.Re+m.Error != want {
			t.Fatalf("%s: %s, want %s", id, m.raw, want)
		}
	}
	subscribe("first", "subscribe") // which is the conversation's own place
	subscribe("second", "RATE-LIMITED")
	for range 5 {
		h.mustTap("sse", path, 0, tenantHeader, "many")
	}
	if _, err := h.tap("sse", path, 0, tenantHeader, "many"); err == nil || !strings.HasPrefix(err.Error(), "429 ") {
		t.Errorf("the tenant's own limit: %v", err)
	}
	h.mustTap("sse", path, 0, tenantHeader, "other")
	watch.tcp.Close()
	eventually(t, "the place is free again", func() bool { return h.srv.Census().Streams == 7 })
	subscribe("second", "subscribe")
	if m := k.ask(nil, `{"do":"unsubscribe","id":"second"}`); m.Re != "unsubscribe" {
		t.Fatal(m.raw)
	}
	h.mustTap("sse", path, 0)
}
