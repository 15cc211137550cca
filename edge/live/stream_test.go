package live_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

// frames is what a native stream of these events is, byte for byte.
func frames(packs []schema.Pack, after schema.Seq) string {
	var b strings.Builder
	for i := range packs {
		for r, err := range packs[i].Records(after) {
			if err != nil {
				panic(err)
			}
			fmt.Fprintf(&b, "data: %s\nid: %d\n\n", r.Line, r.Seq)
		}
	}
	return b.String()
}

func TestStreamIsByteForByte(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, s := range schematest.All() {
		for _, perPack := range []int{1, 3, 1000} {
			run := fmt.Sprintf("%s-%d", s.Name, perPack)
			packs := h.Fill(run, s, perPack)
			if !packs[len(packs)-1].IsFinal() {
				continue // its stream does not end; TestLive has those
			}
			if got, want := h.Do("GET", "/v1/agent/runs/"+run+"/stream?detail=full", "").Events(t),
				frames(packs, 0); got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", run, got, want)
			}
		}
	}
}

func TestResumeAtEveryCursor(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("run", schematest.Generate(200, 1), 7)
	whole := frames(packs, 0)
	last := packs[len(packs)-1].Last()
	for k := schema.Seq(0); k < last; k++ {
		rest := frames(packs, k)
		prefix := strings.TrimSuffix(whole, rest)
		for _, try := range [][]string{
			{"/v1/agent/runs/run/stream?detail=full", "Last-Event-ID", k.String()},
			{"/v1/agent/runs/run/stream?detail=full&after=" + k.String()},
			{"/v1/agent/runs/run/stream?detail=full&after=999999", "Last-Event-ID", k.String()}, // the header wins
		} {
			got := h.Do("GET", try[0], "", try[1:]...).Events(t)
			if prefix+got != whole {
				t.Fatalf("cursor %d by %v: %d bytes, want %d", k, try, len(got), len(rest))
			}
		}
		if k > 0 {
			got := h.Do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID", schematest.EventID(k)).Events(t)
			if prefix+got != whole {
				t.Fatalf("cursor by id of %d: %d bytes, want %d", k, len(got), len(rest))
			}
		}
	}
	for _, end := range []string{last.String(), schematest.EventID(last)} {
		if a := h.Do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID",
			end); a.Status != http.StatusNoContent || a.Body != "" {
			t.Errorf("resume at the final event %s: %d %q", end, a.Status, a.Body)
		}
	}
	if a := h.Do("GET", "/v1/agent/runs/run/stream?detail=full&after="+last.String(),
		""); a.Status != http.StatusNoContent {
		t.Errorf("resume at the final event by query: %d", a.Status)
	}
}

func TestLive(t *testing.T) {
	h := edgetest.NewHouse(t)
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}},
		"HTTP/2.0": edgetest.H2C()} {
		t.Run(name, func(t *testing.T) {
			defer client.CloseIdleConnections()
			run := "live-" + name[5:6]
			packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: run}, schematest.ByName("children"), 2)
			h.Store(packs[:2])
			r := h.Watch(client, "/v1/agent/runs/"+run+"/stream?detail=full")
			if r.Resp.Proto != name {
				t.Fatalf("served over %s", r.Resp.Proto)
			}
			r.Expect(frames(packs[:2], 0))
			for i := 2; i < len(packs); i++ {
				h.Store(packs[i : i+1])
				r.Expect(frames(packs[i:i+1], 0))
			}
			if rest, err := io.ReadAll(r.B); err != nil || len(rest) > 0 {
				t.Errorf("the end is not clean: %q, %v", rest, err)
			}
		})
	}
}

func TestReopenedRunGoesOn(t *testing.T) {
	h := edgetest.NewHouse(t)
	post := func(body string) {
		t.Helper()
		if a := h.Do("POST", "/v1/agent/runs/again/events", body); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	post(`{"type":"run.lifecycle","payload":{"state":"done"}}`)
	if a := h.Do("GET", "/v1/agent/runs/again/stream?detail=full", "", "Last-Event-ID",
		"1"); a.Status != http.StatusNoContent {
		t.Fatalf("ended run: %d", a.Status)
	}
	post(`{"type":"run.lifecycle","payload":{"state":"running"}}`)
	r := h.Watch(http.DefaultClient, "/v1/agent/runs/again/stream?detail=full", "Last-Event-ID", "1")
	if got, err := r.Next(); err != nil || !strings.HasSuffix(got, "id: 2\n\n") {
		t.Fatalf("%q, %v", got, err)
	}
	post(`{"type":"run.lifecycle","payload":{"state":"error","reason":"x"}}`)
	rest, err := io.ReadAll(r.B)
	if err != nil || !strings.HasSuffix(string(rest), "id: 3\n\n") {
		t.Fatalf("%q, %v", rest, err)
	}
}

// TestBehindTheEnd: what follows the end of a run is shown to those who come back, and is no reason to come back for
// those from whom it is hidden.
func TestBehindTheEnd(t *testing.T) {
	h := edgetest.NewHouse(t)
	post := func(body string) {
		t.Helper()
		if a := h.Do("POST", "/v1/agent/runs/late/events", body); a.Status != http.StatusOK {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	get := func(query, after string) (int, string) {
		a := h.Do("GET", "/v1/agent/runs/late/stream"+query, "", "Last-Event-ID", after)
		return a.Status, a.Body
	}
	post(`{"type":"text.delta","payload":{"text":"a"}}`)
	post(`{"type":"run.lifecycle","payload":{"state":"done"}}`)
	post(`{"type":"session.updated","payload":{"title":"x"}}`)
	post(`{"type":"command.message","payload":{"content":"be brief","role":"system"}}`)
	for _, query := range []string{"", "?detail=full"} {
		if status, body := get(query, "2"); status != http.StatusOK || !strings.HasSuffix(body, "id: 4\n\n") {
			t.Errorf("%s: %d %q", query, status, body)
		}
		if status, body := get(query, "4"); status != http.StatusNoContent {
			t.Errorf("%s: %d %q behind all", query, status, body)
		}
	}
	for _, query := range []string{"?types=text.delta", "?profile=koder-1", "?child=kid"} {
		if status, body := get(query, "1"); status != http.StatusOK || !strings.HasSuffix(body, "id: 2\n\n") {
			t.Errorf("%s: %d %q", query, status, body)
		}
		if status, body := get(query, "2"); status != http.StatusNoContent {
			t.Errorf("%s: %d %q behind the end", query, status, body)
		}
	}
	if a := h.Do("POST", "/v1/agent/runs/late/events",
		`{"type":"text.delta","payload":{"text":"b"}}`); a.Status != http.StatusConflict {
		t.Errorf("a straggler: %d %s", a.Status, a.Body)
	}
	if a := h.Do("GET", "/v1/agent/runs/late", ""); !strings.Contains(a.Body, `"state":"done"`) ||
		!strings.Contains(a.Body, `"last_seq":4`) {
		t.Error(a.Body)
	}
}

// TestKeepAliveOnlyWhenIdle runs server, hub and client on a clock of their own.
func TestKeepAliveOnlyWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := edgetest.NewPipes()
		h := edgetest.NewHouseOn(t, ln, ln.Client())
		begun := time.Now()
		post := func(n int) {
			if a := h.Do("POST", "/v1/agent/runs/run/events",
				edgetest.GoodLine); a.Body != fmt.Sprintf("{\"first_seq\":%d,\"last_seq\":%[1]d}\n", n) {
				t.Fatalf("%d %s", a.Status, a.Body)
			}
		}
		// at is what comes next and when, in seconds since the beginning.
		at := func(r *edgetest.EventReader, second int, suffix string) {
			t.Helper()
			got, err := r.Next()
			if err != nil || !strings.HasSuffix(got, suffix) || time.Since(begun) != time.Duration(second)*time.Second {
				t.Fatalf("after %v: %q, %v, want %q after %d s", time.Since(begun), got, err, suffix, second)
			}
		}
		post(1)
		r := h.Watch(h.Client, "/v1/agent/runs/run/stream?detail=full")
		at(r, 0, "id: 1\n\n")
		at(r, 15, ": keepalive\n\n")
		at(r, 30, ": keepalive\n\n")
		time.Sleep(10 * time.Second)
		post(2)
		at(r, 40, "id: 2\n\n")
		at(r, 55, ": keepalive\n\n")
		for i := range 10 { // a busy stream needs none
			time.Sleep(14 * time.Second)
			post(3 + i)
			at(r, 55+14*(i+1), fmt.Sprintf("id: %d\n\n", 3+i))
		}
		at(r, 210, ": keepalive\n\n")
		r.Resp.Body.Close()
	})
}

func TestCursorsThatCannotBeServed(t *testing.T) {
	h := edgetest.NewHouse(t)
	packs := h.Fill("run", schematest.ByName("plain"), 1)
	last := packs[len(packs)-1].Last()
	p := h.Do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID", (last+1).String()).Expect(t, 409,
		"CURSOR-AHEAD")
	if p.LastSeq != int(last) {
		t.Errorf("newest is %d, said %d", last, p.LastSeq)
	}
	h.Do("GET", "/v1/agent/runs/run/stream?detail=full&after=9007199254740991", "").Expect(t, 409, "CURSOR-AHEAD")
	h.Do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID",
		"evt_01ARZ3NDEKTSV4RRFFQ69G5FAV").Expect(t, 400, "BAD-CURSOR")
	h.Do("GET", "/v1/agent/runs/run/events?after="+(last+1).String(), "").Expect(t, 409, "CURSOR-AHEAD")

	h.Log.Expire(schema.RunKey{Tenant: "acme", Run: "run"}, 4)
	for _, k := range []string{"", "0", "1", "2", "3"} {
		for _, path := range []string{"/stream?detail=full&after=", "/events?after=", "/events?limit=1&after="} {
			if p := h.Do("GET", "/v1/agent/runs/run"+path+k, "").Expect(t, 410, schema.CodeCursorExpired); p.FirstSeq != 5 {
				t.Errorf("%s%s: first kept is 5, said %d", path, k, p.FirstSeq)
			}
		}
	}
	if got, want := h.Do("GET", "/v1/agent/runs/run/stream?detail=full&after=4", "").Events(t), frames(packs,
		4); got != want {
		t.Errorf("what is kept: %q, want %q", got, want)
	}
}

// TestForeignIsMissing compares whole answers: a run of another tenant and one that does not exist.
func TestForeignIsMissing(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Fill("theirs", schematest.ByName("plain"), 1)
	for _, tt := range []struct{ method, tail, body string }{
		{"GET", "", ""}, {"GET", "/stream", ""}, {"GET", "/stream?after=3", ""}, {"GET", "/stream?after=99999", ""},
		{"GET", "/stream?detail=full&after=evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", ""},
		{"GET", "/events", ""}, {"GET", "/events?after=3", ""}, {"GET", "/events?after=99999", ""},
	} {
		ask := func(run string) edgetest.Reply {
			return h.Do(tt.method, "/v1/agent/runs/"+run+tt.tail, tt.body, edgetest.TenantHeader, "other",
				"X-Request-Id", "same")
		}
		foreign, missing := ask("theirs"), ask("nothing")
		foreign.Expect(t, 404, "NOT-FOUND")
		foreign.Header.Del("Date")
		missing.Header.Del("Date")
		if foreign.Body != missing.Body || fmt.Sprint(foreign.Header) != fmt.Sprint(missing.Header) {
			t.Errorf("%s: %v %q differs from %v %q", tt.tail, foreign.Header, foreign.Body, missing.Header, missing.Body)
		}
	}
	// The same id in another tenant is another run.
	if a := h.Do("POST", "/v1/agent/runs/theirs/events", `{"type":"progress"}`, edgetest.TenantHeader,
		"other"); a.Status != 200 || !strings.Contains(a.Body, `"first_seq":1,`) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

func TestHead(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Fill("run", schematest.ByName("plain"), 1)
	for path, want := range map[string]int{
		"/v1/agent/runs/run/stream?detail=full": 200, "/v1/agent/runs/none/stream?detail=full": 404,
		"/v1/agent/runs/run":        200,
		"/v1/agent/runs/run/events": 200, "/healthz": 200, "/nothing": 404,
	} {
		if a := h.Do("HEAD", path, ""); a.Status != want || a.Body != "" {
			t.Errorf("HEAD %s: %d %q", path, a.Status, a.Body)
		}
	}
	if a := h.Do("HEAD", "/v1/agent/runs/run/stream?detail=full",
		""); a.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", a.Header)
	}
}

func TestStreamLimit(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.MaxStreams = 1 })
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"progress"}`)
	ctx, cancel := context.WithCancel(t.Context())
	req := h.Request("GET", "/v1/agent/runs/run/stream?detail=full", "").WithContext(ctx)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := h.Do("GET", "/v1/agent/runs/run/stream?detail=full", "")
	if a.Expect(t, 503, "BUSY"); a.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	cancel()
	edgetest.Eventually(t, "the place is free again", func() bool {
		return h.Do("HEAD", "/v1/agent/runs/run/stream?detail=full", "").Status == 200
	})
}

func TestHooks(t *testing.T) {
	var opened, closed, sent, bytes, ingested, done, kept, opening, delivered atomic.Int64
	var reason atomic.Value
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.KeepAlive = 20 * time.Millisecond
		c.Hooks = edge.Hooks{
			StreamOpened: func(d string, tr dialect.Transport) {
				if d != "native" || tr != dialect.SSE {
					t.Errorf("opened %s over %s", d, tr)
				}
				opened.Add(1)
			},
			StreamClosed:  func(_ string, _ dialect.Transport, r dialect.Reason) { reason.Store(r); closed.Add(1) },
			EventsSent:    func(_ string, n int, b int64) { sent.Add(int64(n)); bytes.Add(b) },
			KeptAlive:     func(string) { kept.Add(1) },
			Ingested:      func(n int) { ingested.Add(int64(n)) },
			RequestOpened: func() { opening.Add(1) },
			Delivered: func(d string, after time.Duration) {
				if d != "native" || after < 0 || after > time.Minute {
					t.Errorf("delivered by %s after %v", d, after)
				}
				delivered.Add(1)
			},
			RequestDone: func(r edge.RequestEnd) {
				if !strings.Contains("POST /v1/agent/runs/{run}/events GET /v1/agent/runs/{run}/stream", r.Route) ||
					r.Events == 0 ||
					r.Tenant == "" || r.Sent == 0 || r.Stream != strings.HasPrefix(r.Route, "GET") {
					t.Errorf("request %+v", r)
				}
				done.Add(1)
			},
		}
	})
	h.Do("POST", "/v1/agent/runs/run/events", "{\"type\":\"progress\"}\n{\"type\":\"progress\"}")
	r := h.Watch(http.DefaultClient, "/v1/agent/runs/run/stream?detail=full")
	edgetest.Eventually(t, "keep-alive", func() bool { return kept.Load() > 0 })
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"done"}}`)
	body, err := io.ReadAll(r.B)
	if err != nil {
		t.Fatal(err)
	}
	edgetest.Eventually(t, "all requests are reported", func() bool { return done.Load() == 3 })
	if opening.Load() != 3 || delivered.Load() == 0 {
		t.Errorf("%d requests were opened, records delivered %d times", opening.Load(), delivered.Load())
	}
	if opened.Load() != 1 || closed.Load() != 1 || sent.Load() != 3 || bytes.Load() != int64(len(body)) ||
		ingested.Load() != 3 || reason.Load() != dialect.ReasonEnded {
		t.Errorf("opened %d closed %d sent %d (%d bytes of %d) ingested %d reason %v", opened.Load(), closed.Load(),
			sent.Load(), bytes.Load(), len(body), ingested.Load(), reason.Load())
	}
}
