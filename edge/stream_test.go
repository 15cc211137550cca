package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var hint = regexp.MustCompile(`^retry: \d+\n\n`)

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

// body checks headers and hint, and returns the rest.
func (a answer) events(t testing.TB) string {
	t.Helper()
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("status %d, %s: %s", a.status, a.header.Get("Content-Type"), a.body)
	}
	loc := hint.FindStringIndex(a.body)
	if loc == nil {
		t.Fatalf("no hint: %q", a.body[:min(len(a.body), 80)])
	}
	return a.body[loc[1]:]
}

func TestStreamIsByteForByte(t *testing.T) {
	h := newHouse(t)
	for _, s := range schematest.All() {
		for _, perPack := range []int{1, 3, 1000} {
			run := fmt.Sprintf("%s-%d", s.Name, perPack)
			packs := h.fill(run, s, perPack)
			if !packs[len(packs)-1].Ended() {
				continue // its stream does not end; TestLive has those
			}
			if got, want := h.do("GET", "/v1/agent/runs/"+run+"/stream?detail=full", "").events(t), frames(packs, 0); got != want {
				t.Errorf("%s: got\n%s\nwant\n%s", run, got, want)
			}
		}
	}
}

func TestResumeAtEveryCursor(t *testing.T) {
	h := newHouse(t)
	packs := h.fill("run", schematest.Generate(200, 1), 7)
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
			got := h.do("GET", try[0], "", try[1:]...).events(t)
			if prefix+got != whole {
				t.Fatalf("cursor %d by %v: %d bytes, want %d", k, try, len(got), len(rest))
			}
		}
		if k > 0 {
			got := h.do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID", schematest.EventID(k)).events(t)
			if prefix+got != whole {
				t.Fatalf("cursor by id of %d: %d bytes, want %d", k, len(got), len(rest))
			}
		}
	}
	for _, end := range []string{last.String(), schematest.EventID(last)} {
		if a := h.do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID", end); a.status != http.StatusNoContent || a.body != "" {
			t.Errorf("resume at the final event %s: %d %q", end, a.status, a.body)
		}
	}
	if a := h.do("GET", "/v1/agent/runs/run/stream?detail=full&after="+last.String(), ""); a.status != http.StatusNoContent {
		t.Errorf("resume at the final event by query: %d", a.status)
	}
}

// reader takes a live stream event by event.
type reader struct {
	t    testing.TB
	resp *http.Response
	b    *bufio.Reader
}

func (h *house) watch(c *http.Client, path string, headers ...string) *reader {
	h.t.Helper()
	resp, err := c.Do(h.request("GET", path, "", headers...))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		h.t.Fatalf("stream: %d %s", resp.StatusCode, b)
	}
	r := &reader{h.t, resp, bufio.NewReader(resp.Body)}
	if got, err := r.next(); err != nil || !hint.MatchString(got) {
		h.t.Fatalf("no hint: %q %v", got, err)
	}
	return r
}

// next returns the text up to and with the next blank line.
func (r *reader) next() (string, error) {
	var b strings.Builder
	for {
		line, err := r.b.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\n" {
			return b.String(), err
		}
	}
}

func (r *reader) expect(want string) {
	r.t.Helper()
	for want != "" {
		got, err := r.next()
		if err != nil || !strings.HasPrefix(want, got) {
			r.t.Fatalf("got %q, %v, want %q", got, err, want)
		}
		want = want[len(got):]
	}
}

func h2c() *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: tr}
}

func TestLive(t *testing.T) {
	h := newHouse(t)
	for name, client := range map[string]*http.Client{"HTTP/1.1": {Transport: &http.Transport{}}, "HTTP/2.0": h2c()} {
		t.Run(name, func(t *testing.T) {
			defer client.CloseIdleConnections()
			run := "live-" + name[5:6]
			packs := schematest.Packs(schema.RunKey{Tenant: "acme", Run: run}, schematest.Named("children"), 2)
			h.store(packs[:2])
			r := h.watch(client, "/v1/agent/runs/"+run+"/stream?detail=full")
			if r.resp.Proto != name {
				t.Fatalf("served over %s", r.resp.Proto)
			}
			r.expect(frames(packs[:2], 0))
			for i := 2; i < len(packs); i++ {
				h.store(packs[i : i+1])
				r.expect(frames(packs[i:i+1], 0))
			}
			if rest, err := io.ReadAll(r.b); err != nil || len(rest) > 0 {
				t.Errorf("the end is not clean: %q, %v", rest, err)
			}
		})
	}
}

func TestReopenedRunGoesOn(t *testing.T) {
	h := newHouse(t)
	post := func(body string) {
		t.Helper()
		if a := h.do("POST", "/v1/agent/runs/again/events", body); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	post(`{"type":"run.lifecycle","payload":{"state":"done"}}`)
	if a := h.do("GET", "/v1/agent/runs/again/stream?detail=full", "", "Last-Event-ID", "1"); a.status != http.StatusNoContent {
		t.Fatalf("ended run: %d", a.status)
	}
	post(`{"type":"run.lifecycle","payload":{"state":"running"}}`)
	r := h.watch(http.DefaultClient, "/v1/agent/runs/again/stream?detail=full", "Last-Event-ID", "1")
	if got, err := r.next(); err != nil || !strings.HasSuffix(got, "id: 2\n\n") {
		t.Fatalf("%q, %v", got, err)
	}
	post(`{"type":"run.lifecycle","payload":{"state":"error","reason":"x"}}`)
	rest, err := io.ReadAll(r.b)
	if err != nil || !strings.HasSuffix(string(rest), "id: 3\n\n") {
		t.Fatalf("%q, %v", rest, err)
	}
}

// TestBehindTheEnd: what follows the end of a run is shown to those who come back, and is no reason to come back for
// those from whom it is hidden.
func TestBehindTheEnd(t *testing.T) {
	h := newHouse(t)
	post := func(body string) {
		t.Helper()
		if a := h.do("POST", "/v1/agent/runs/late/events", body); a.status != http.StatusOK {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	get := func(query, after string) (int, string) {
		a := h.do("GET", "/v1/agent/runs/late/stream"+query, "", "Last-Event-ID", after)
		return a.status, a.body
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
	if a := h.do("POST", "/v1/agent/runs/late/events", `{"type":"text.delta","payload":{"text":"b"}}`); a.status != http.StatusConflict {
		t.Errorf("a straggler: %d %s", a.status, a.body)
	}
	if a := h.do("GET", "/v1/agent/runs/late", ""); !strings.Contains(a.body, `"state":"done"`) || !strings.Contains(a.body, `"last_seq":4`) {
		t.Error(a.body)
	}
}

// TestKeepAliveOnlyWhenIdle runs server, hub and client on a clock of their own.
func TestKeepAliveOnlyWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		h := newHouseOn(t, ln, ln.client())
		begun := time.Now()
		post := func(n int) {
			if a := h.do("POST", "/v1/agent/runs/run/events", good); a.body != fmt.Sprintf("{\"first_seq\":%d,\"last_seq\":%[1]d}\n", n) {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		// at is what comes next and when, in seconds since the beginning.
		at := func(r *reader, second int, suffix string) {
			t.Helper()
			got, err := r.next()
			if err != nil || !strings.HasSuffix(got, suffix) || time.Since(begun) != time.Duration(second)*time.Second {
				t.Fatalf("after %v: %q, %v, want %q after %d s", time.Since(begun), got, err, suffix, second)
			}
		}
		post(1)
		r := h.watch(h.client, "/v1/agent/runs/run/stream?detail=full")
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
		r.resp.Body.Close()
	})
}

func TestCursorsThatCannotBeServed(t *testing.T) {
	h := newHouse(t)
	packs := h.fill("run", schematest.Named("plain"), 1)
	last := packs[len(packs)-1].Last()
	p := h.do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID", (last+1).String()).expect(t, 409, "CURSOR-AHEAD")
	if p.LastSeq != int(last) {
		t.Errorf("newest is %d, said %d", last, p.LastSeq)
	}
	h.do("GET", "/v1/agent/runs/run/stream?detail=full&after=9007199254740991", "").expect(t, 409, "CURSOR-AHEAD")
	h.do("GET", "/v1/agent/runs/run/stream?detail=full", "", "Last-Event-ID", "evt_01ARZ3NDEKTSV4RRFFQ69G5FAV").expect(t, 400, "BAD-CURSOR")
	h.do("GET", "/v1/agent/runs/run/events?after="+(last+1).String(), "").expect(t, 409, "CURSOR-AHEAD")

	h.log.Expire(schema.RunKey{Tenant: "acme", Run: "run"}, 4)
	for _, k := range []string{"", "0", "1", "2", "3"} {
		for _, path := range []string{"/stream?detail=full&after=", "/events?after=", "/events?limit=1&after="} {
			if p := h.do("GET", "/v1/agent/runs/run"+path+k, "").expect(t, 410, schema.CodeCursorExpired); p.FirstSeq != 5 {
				t.Errorf("%s%s: first kept is 5, said %d", path, k, p.FirstSeq)
			}
		}
	}
	if got, want := h.do("GET", "/v1/agent/runs/run/stream?detail=full&after=4", "").events(t), frames(packs, 4); got != want {
		t.Errorf("what is kept: %q, want %q", got, want)
	}
}

// TestForeignIsMissing compares whole answers: a run of another tenant and one that does not exist.
func TestForeignIsMissing(t *testing.T) {
	h := newHouse(t)
	h.fill("theirs", schematest.Named("plain"), 1)
	for _, tt := range []struct{ method, tail, body string }{
		{"GET", "", ""}, {"GET", "/stream", ""}, {"GET", "/stream?after=3", ""}, {"GET", "/stream?after=99999", ""},
		{"GET", "/stream?detail=full&after=evt_01ARZ3NDEKTSV4RRFFQ69G5FAV", ""},
		{"GET", "/events", ""}, {"GET", "/events?after=3", ""}, {"GET", "/events?after=99999", ""},
	} {
		ask := func(run string) answer {
			return h.do(tt.method, "/v1/agent/runs/"+run+tt.tail, tt.body, tenantHeader, "other", "X-Request-Id", "same")
		}
		foreign, missing := ask("theirs"), ask("nothing")
		foreign.expect(t, 404, "NOT-FOUND")
		foreign.header.Del("Date")
		missing.header.Del("Date")
		if foreign.body != missing.body || fmt.Sprint(foreign.header) != fmt.Sprint(missing.header) {
			t.Errorf("%s: %v %q differs from %v %q", tt.tail, foreign.header, foreign.body, missing.header, missing.body)
		}
	}
	// The same id in another tenant is another run.
	if a := h.do("POST", "/v1/agent/runs/theirs/events", `{"type":"progress"}`, tenantHeader, "other"); a.status != 200 || !strings.Contains(a.body, `"first_seq":1,`) {
		t.Errorf("%d %s", a.status, a.body)
	}
}

func TestHead(t *testing.T) {
	h := newHouse(t)
	h.fill("run", schematest.Named("plain"), 1)
	for path, want := range map[string]int{
		"/v1/agent/runs/run/stream?detail=full": 200, "/v1/agent/runs/none/stream?detail=full": 404, "/v1/agent/runs/run": 200,
		"/v1/agent/runs/run/events": 200, "/healthz": 200, "/nothing": 404,
	} {
		if a := h.do("HEAD", path, ""); a.status != want || a.body != "" {
			t.Errorf("HEAD %s: %d %q", path, a.status, a.body)
		}
	}
	if a := h.do("HEAD", "/v1/agent/runs/run/stream?detail=full", ""); a.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%v", a.header)
	}
}

func TestStreamLimit(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.MaxStreams = 1 })
	h.do("POST", "/v1/agent/runs/run/events", `{"type":"progress"}`)
	ctx, cancel := context.WithCancel(t.Context())
	req := h.request("GET", "/v1/agent/runs/run/stream?detail=full", "").WithContext(ctx)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	a := h.do("GET", "/v1/agent/runs/run/stream?detail=full", "")
	if a.expect(t, 503, "BUSY"); a.header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	cancel()
	eventually(t, "the place is free again", func() bool {
		return h.do("HEAD", "/v1/agent/runs/run/stream?detail=full", "").status == 200
	})
}

func TestHooks(t *testing.T) {
	var opened, closed, sent, bytes, ingested, done, kept atomic.Int64
	var reason atomic.Value
	h := newHouse(t, func(c *edge.Config) {
		c.KeepAlive = 20 * time.Millisecond
		c.Hooks = edge.Hooks{
			StreamOpened: func(d string, tr dialect.Transport) {
				if d != "native" || tr != dialect.SSE {
					t.Errorf("opened %s over %s", d, tr)
				}
				opened.Add(1)
			},
			StreamClosed: func(_ string, _ dialect.Transport, r dialect.Reason) { reason.Store(r); closed.Add(1) },
			EventsSent:   func(_ string, n int, b int64) { sent.Add(int64(n)); bytes.Add(b) },
			KeptAlive:    func(string) { kept.Add(1) },
			Ingested:     func(n int) { ingested.Add(int64(n)) },
			RequestDone: func(route string, status int, _ time.Duration) {
				if !strings.Contains("POST /v1/agent/runs/{run}/events GET /v1/agent/runs/{run}/stream", route) {
					t.Errorf("route %q", route)
				}
				done.Add(1)
			},
		}
	})
	h.do("POST", "/v1/agent/runs/run/events", "{\"type\":\"progress\"}\n{\"type\":\"progress\"}")
	r := h.watch(http.DefaultClient, "/v1/agent/runs/run/stream?detail=full")
	eventually(t, "keep-alive", func() bool { return kept.Load() > 0 })
	h.do("POST", "/v1/agent/runs/run/events", `{"type":"run.lifecycle","payload":{"state":"done"}}`)
	body, err := io.ReadAll(r.b)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "all requests are reported", func() bool { return done.Load() == 3 })
	if opened.Load() != 1 || closed.Load() != 1 || sent.Load() != 3 || bytes.Load() != int64(len(body)) ||
		ingested.Load() != 3 || reason.Load() != dialect.ReasonEnded {
		t.Errorf("opened %d closed %d sent %d (%d bytes of %d) ingested %d reason %v", opened.Load(), closed.Load(),
			sent.Load(), bytes.Load(), len(body), ingested.Load(), reason.Load())
	}
}
