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
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// A tenant that is over its limit is told when to come again, and is taken then. Commands, reads and other
// tenants are served meanwhile, and nothing of what is refused is stored.
func TestLimitedTenant(t *testing.T) {
	count := new(edgetest.Refused)
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.IngestLimit = edge.IngestLimit{Events: 50}
		c.TenantLimits = map[string]edge.IngestLimit{"bytes": {Bytes: 2000}}
		c.Hooks.IngestRefused = count.Hook
	})
	const path = "/v1/agent/runs/run/events"
	h.Tell("run", edgetest.Lifecycle("running"))
	if a := h.Do("POST", path, strings.Repeat(edgetest.GoodLine+"\n", 145)); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	last := h.Last("run")
	for _, ask := range []struct{ method, path, body string }{{"POST", path, edgetest.GoodLine},
		{"POST", "/v1/agent/runs", ""}, {"PUT", "/v1/agent/runs/other", ""}} {
		a := h.Do(ask.method, ask.path, ask.body)
		p := a.Expect(t, 429, "RATE-LIMITED")
		if a.Header.Get("Retry-After") != "2" ||
			!strings.HasPrefix(p.Message, "more events a second than this tenant may send") {
			t.Errorf("%s %s: %v %s", ask.method, ask.path, a.Header, p.Message)
		}
	}
	for _, coded := range []string{edgetest.Gzip(t, strings.Repeat(edgetest.GoodLine+"\n", 200)),
		edgetest.Gzip(t, edgetest.GoodLine)} {
		a := h.Do("POST", path, coded, edgetest.TenantHeader, "bytes", "Content-Encoding", "gzip")
		if len(coded) > 150 {
			t.Fatal("the test's body is not small")
		}
		if a.Status != 200 { // what it inflates to counts
			p := a.Expect(t, 429, "RATE-LIMITED")
			if after, _ := strconv.Atoi(a.Header.Get("Retry-After")); after < 3 || !strings.HasPrefix(p.Message, "more bytes") {
				t.Errorf("%d s: %s", after, p.Message)
			}
		}
	}
	if a := h.Do("POST", "/v1/agent/runs/run/pause", ""); a.Status != 202 {
		t.Errorf("a command: %d %s", a.Status, a.Body)
	}
	if a := h.Do("GET", path, ""); a.Status != 200 {
		t.Errorf("a page: %d", a.Status)
	}
	if a := h.Do("POST", path, edgetest.GoodLine, edgetest.TenantHeader, "other"); a.Status != 200 {
		t.Errorf("another tenant: %d %s", a.Status, a.Body)
	}
	h.Do("POST", path, "nonsense", edgetest.TenantHeader, "other").Expect(t, 400, schema.CodeMalformed)
	if h.Last("run") != last+1 || h.Last("other") != 0 || count.Of(dialect.ReasonLimited) != 4 ||
		count.Of(dialect.ReasonMalformed) != 1 {
		t.Errorf("%d behind %d; refused: %v", h.Last("run"), last, count.By)
	}
	time.Sleep(2 * time.Second) // as it was told
	if a := h.Do("POST", path, edgetest.GoodLine); a.Status != 200 {
		t.Errorf("after the wait: %d %s", a.Status, a.Body)
	}
}

// Requests of one tenant that hang fill its own places and no others.
func TestRequestsThatHang(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.IngestLimit.Requests = 2 })
	const path = "/v1/agent/runs/run/events"
	var writers []*io.PipeWriter
	answers := make(chan int, 2)
	hang := func() {
		r, w := io.Pipe()
		req := h.Request("POST", path, "")
		req.Body = r
		writers = append(writers, w)
		go func() {
			resp, err := h.Client.Do(req)
			if err != nil {
				answers <- 0
				return
			}
			resp.Body.Close()
			answers <- resp.StatusCode
		}()
		if _, err := io.WriteString(w, edgetest.GoodLine); err != nil {
			t.Fatal(err)
		}
	}
	hang()
	hang()
	edgetest.Eventually(t, "a third request is refused", func() bool {
		select {
		case code := <-answers: // a third request was before it
			if code != 429 {
				t.Fatalf("one that hung: %d", code)
			}
			hang()
		default:
		}
		a := h.Do("POST", path, edgetest.GoodLine)
		return a.Status == 429 && a.Header.Get("Retry-After") == "1"
	})
	if a := h.Do("POST", path, edgetest.GoodLine, edgetest.TenantHeader, "other"); a.Status != 200 {
		t.Errorf("another tenant: %d %s", a.Status, a.Body)
	}
	for _, w := range writers {
		w.Close()
	}
	for range 2 {
		if got := <-answers; got != 200 {
			t.Errorf("one that hung: %d", got)
		}
	}
	if a := h.Do("POST", path, edgetest.GoodLine); a.Status != 200 {
		t.Errorf("when they are done: %d", a.Status)
	}
}

// One tenant sends as fast as it can with sixteen connections. Another, that sends now and then, is never refused,
// and while it waits the flood has a few answers for each of its connections, not ever more.
func TestFloodCostsOthersNothing(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Logger = nil
		c.IngestLimit = edge.IngestLimit{Events: 200, Bytes: 1 << 20, Requests: 4}
	})
	var taken, refused, answered atomic.Int64 // of the flood
	// steady returns how many answers the flood had while a request was under way, of nine in ten at most.
	steady := func(run string) int64 {
		var meanwhile []int64
		for range 100 {
			before := answered.Load()
			if a := h.Do("POST", "/v1/agent/runs/"+run+"/events", edgetest.GoodLine, edgetest.TenantHeader,
				"steady"); a.Status != 200 {
				t.Fatalf("%d %s", a.Status, a.Body)
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
				r := h.Request("POST", fmt.Sprint("/v1/agent/runs/flood", w, "/events"),
					strings.Repeat(edgetest.GoodLine+"\n", 20), edgetest.TenantHeader, "flood")
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
	t.Logf("%d answers of the flood during a request; the flood: %d events taken in %v, %d requests refused", beside,
		taken.Load(), took, refused.Load())
	if most := int64(200*(took.Seconds()+1)) + 5*20; taken.Load() > most || refused.Load() == 0 {
		t.Errorf("the flood got %d events through in %v, %d at most", taken.Load(), took, most)
	}
	if beside > 10*16 {
		t.Errorf("during a request the flood's 16 clients had %d answers", beside)
	}
}

// A tenant that has as many streams as it may is told so in the words of each transport, and when to come again. Other
// tenants have their own, a tenant's own limit counts before that of all, and a place that is left is there again.
func TestStreamsOfATenant(t *testing.T) {
	h := edgetest.NewHouse(t, edgetest.Talking, func(c *edge.Config) {
		c.MaxStreams, c.IngestLimit, c.TenantLimits = 100, edge.IngestLimit{Streams: 2}, map[string]edge.IngestLimit{"many": {Streams: 5}}
	})
	const path = "/v1/agent/runs/run/stream?detail=full"
	for _, tenant := range []string{"acme", "many", "other"} {
		h.Must("run", "progress", "{}", edgetest.TenantHeader, tenant)
	}
	k := h.Talk()
	watch := h.MustTap("sse", path, 0)
	for _, carrier := range []string{"sse", "ws"} {
		if _, err := h.Tap(carrier, path, 0); err == nil || !strings.HasPrefix(err.Error(), "429 ") ||
			!strings.Contains(err.Error(), "more streams at once than this tenant may open") {
			t.Errorf("%s: %v", carrier, err)
		}
	}
	if _, err := h.Tap("ws", "/talk/lobby", 0); err == nil || !strings.HasPrefix(err.Error(), "429 ") {
		t.Errorf("a conversation: %v", err)
	}
	for _, ask := range []struct{ method, path string }{{"GET", path}, {"GET", "/v1/agent/runs/run/replay.jsonl"}} {
		a := h.Do(ask.method, ask.path, "")
		if a.Expect(t, 429, "RATE-LIMITED"); a.Header.Get("Retry-After") != "5" {
			t.Errorf("%s %s: Retry-After %q", ask.method, ask.path, a.Header.Get("Retry-After"))
		}
	}
	open := h.Request("POST", edgetest.PublishPath, "", "Content-Type", "application/x-ndjson")
	open.Body, open.ContentLength = io.NopCloser(strings.NewReader(edgetest.LineOf("run", ""))), -1
	if resp, err := h.Client.Do(open); err != nil || resp.StatusCode != 429 {
		t.Errorf("a publish stream: %+v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	conn, err := grpc.NewClient(h.Addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := edgetest.RPC(t, conn, edgetest.StreamRequest("run", 0,
		true)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("gRPC: %v", err)
	}
	subscribe := func(id, want string) {
		t.Helper()
		if m := k.Ask(nil, `{"do":"subscribe","id":"%s","run":"run","after":1}`, id); m.Re+m.Error != want {
			t.Fatalf("%s: %s, want %s", id, m.Raw, want)
		}
	}
	subscribe("first", "subscribe") // which is the conversation's own place
	subscribe("second", "RATE-LIMITED")
	for range 5 {
		h.MustTap("sse", path, 0, edgetest.TenantHeader, "many")
	}
	if _, err := h.Tap("sse", path, 0, edgetest.TenantHeader, "many"); err == nil ||
		!strings.HasPrefix(err.Error(), "429 ") {
		t.Errorf("the tenant's own limit: %v", err)
	}
	h.MustTap("sse", path, 0, edgetest.TenantHeader, "other")
	watch.Tcp.Close()
	edgetest.Eventually(t, "the place is free again", func() bool { return h.Server.Census().Streams == 7 })
	subscribe("second", "subscribe")
	if m := k.Ask(nil, `{"do":"unsubscribe","id":"second"}`); m.Re != "unsubscribe" {
		t.Fatal(m.Raw)
	}
	h.MustTap("sse", path, 0)
}
