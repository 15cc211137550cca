package rest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/internal/natskit"
	"agentstream/internal/testkit"
	"agentstream/producers"
	"agentstream/schema"
)

// blobHouse is a house that keeps blobs in a JetStream of its own.
func blobHouse(t *testing.T, change ...func(*edge.Config)) (*edgetest.House, *testkit.Server) {
	t.Helper()
	k := testkit.NATS(t)
	b, err := natskit.NewBlobs(k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	h := edgetest.NewHouse(t, append([]func(*edge.Config){func(c *edge.Config) { c.Blobs = b }}, change...)...)
	h.Do("PUT", "/v1/agent/runs/run", `{}`)
	return h, k
}

// noise returns size bytes that look like no others.
func noise(size int) string {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)}).Read(b)
	return string(b)
}

const blobsPath = "/v1/agent/runs/run/blobs"

func TestBlob(t *testing.T) {
	h, _ := blobHouse(t)
	for _, size := range []int{0, 1, 64<<10 + 1, schema.BlobPiece, 3 << 20} {
		body := noise(size)
		want := fmt.Sprintf(`{"blob_ref":%q,"bytes":%d,"content_type":"text/html; charset=utf-8"}`+"\n",
			edgetest.RefOf(body), size)
		for n, status := range []int{201, 200} {
			r := h.Request("PUT", blobsPath, body, "Content-Type", "text/html; charset=utf-8")
			if n == 1 && size > 0 {
				r.ContentLength, r.Header = -1, http.Header{} // chunked, of no type
			}
			resp, err := h.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != status || string(text) != want ||
				resp.Header.Get("Location") != blobsPath+"/"+edgetest.RefOf(body) {
				t.Errorf("%d bytes: %d %s, want %d %s", size, resp.StatusCode, text, status, want)
			}
		}
		a := h.Do("GET", blobsPath+"/"+edgetest.RefOf(body), "")
		if a.Status != 200 || a.Body != body {
			t.Fatalf("%d bytes: %d, %d bytes came back", size, a.Status, len(a.Body))
		}
		for name, value := range map[string]string{
			"Content-Type": "text/html; charset=utf-8", "X-Content-Type-Options": "nosniff",
			"Content-Security-Policy": "sandbox; default-src 'none'",
			"Content-Disposition":     `attachment; filename="` + edgetest.RefOf(body) + `"`,
			"Etag":                    `"` + edgetest.RefOf(body) + `"`, "Cache-Control": "private, no-cache",
			"Content-Length": fmt.Sprint(size),
		} {
			if a.Header.Get(name) != value {
				t.Errorf("%s: %q, want %q", name, a.Header.Get(name), value)
			}
		}
		if a := h.Do("HEAD", blobsPath+"/"+edgetest.RefOf(body), ""); a.Status != 200 ||
			a.Header.Get("Content-Length") != fmt.Sprint(size) {
			t.Errorf("HEAD: %d %v", a.Status, a.Header)
		}
		if a := h.Do("GET", blobsPath+"/"+edgetest.RefOf(body), "", "If-None-Match",
			`"x", W/"`+edgetest.RefOf(body)+`"`); a.Status != 304 || a.Body != "" {
			t.Errorf("If-None-Match: %d %q", a.Status, a.Body)
		}
	}
}

// What may not be: each with its status and code, and nothing is kept of it.
func TestBlobRefused(t *testing.T) {
	h, k := blobHouse(t, func(c *edge.Config) { c.MaxBlobBytes, c.MaxRunBlobBytes = 2<<20, 3<<20 })
	body := noise(100)
	if a := h.Do("PUT", blobsPath, body); a.Status != 201 {
		t.Fatal(a)
	}
	h.Do("PUT", "/v1/agent/runs/other", `{}`)
	h.Do("PUT", "/v1/agent/runs/run", `{}`, edgetest.TenantHeader, "rival")
	for name, c := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		code               string
	}{
		"no run":        {"PUT", "/v1/agent/runs/none/blobs", "x", nil, 404, "NOT-FOUND"},
		"another's run": {"PUT", blobsPath, "x", []string{edgetest.TenantHeader, "third"}, 404, "NOT-FOUND"},
		"bad run":       {"PUT", "/v1/agent/runs/a.b/blobs", "x", nil, 400, "BAD-ID"},
		"no credential": {"PUT", blobsPath, "x", []string{edgetest.TenantHeader, "nobody"}, 401, "UNAUTHORIZED"},
		"too large":     {"PUT", blobsPath, noise(2<<20 + 1), nil, 413, "KAI-STREAM-PROTO-0001"},
		"coded":         {"PUT", blobsPath, "x", []string{"Content-Encoding", "gzip"}, 415, "UNSUPPORTED-MEDIA-TYPE"},
		"bad type":      {"PUT", blobsPath, "x", []string{"Content-Type", "no type"}, 400, "BAD-REQUEST"},
		"type of a header": {"PUT", blobsPath, "x",
			[]string{"Content-Type", `a/b; c="` + strings.Repeat("x", 300) + `"`}, 400, "BAD-REQUEST"},
		"read: no run":    {"GET", "/v1/agent/runs/none/blobs/" + edgetest.RefOf(body), "", nil, 404, "NOT-FOUND"},
		"read: wrong run": {"GET", "/v1/agent/runs/other/blobs/" + edgetest.RefOf(body), "", nil, 404, "NOT-FOUND"},
		"read: rival's": {"GET", blobsPath + "/" + edgetest.RefOf(body), "",
			[]string{edgetest.TenantHeader, "rival"}, 404, "NOT-FOUND"},
		"read: none such":  {"GET", blobsPath + "/" + edgetest.RefOf("y"), "", nil, 404, "NOT-FOUND"},
		"read: no ref":     {"GET", blobsPath + "/x", "", nil, 404, "NOT-FOUND"},
		"read: wildcard":   {"GET", blobsPath + "/*", "", nil, 404, "NOT-FOUND"},
		"read: tail":       {"GET", blobsPath + "/%3E", "", nil, 404, "NOT-FOUND"},
		"read: upper case": {"GET", blobsPath + "/" + strings.ToUpper(edgetest.RefOf(body)), "", nil, 404, "NOT-FOUND"},
		"list":             {"GET", blobsPath, "", nil, 405, "METHOD-NOT-ALLOWED"},
		"write to the ref": {"PUT", blobsPath + "/" + edgetest.RefOf(body), "x", nil, 405, "METHOD-NOT-ALLOWED"},
	} {
		t.Run(name, func(t *testing.T) {
			before := blobCount(t, k)
			h.Do(c.method, c.path, c.body, c.headers...).Expect(t, c.status, c.code)
			if after := blobCount(t, k); after != before {
				t.Errorf("%d messages, %d before", after, before)
			}
		})
	}
	// A body whose size nobody says is refused once it is too large, and one that is too much for its run.
	for n, want := range []string{"more than 2097152 bytes", "1048476 that are left", "1 of 10000"} {
		r := h.Request("PUT", blobsPath, noise(2<<20-n+1))
		if n < 2 {
			r.ContentLength = -1
		}
		resp, err := h.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if n == 1 { // there is room for one of these
			if resp.StatusCode != 201 {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
			continue
		}
		if resp.StatusCode != 413 || n == 0 && !strings.Contains(string(text), want) {
			t.Errorf("%d: %d %s", n, resp.StatusCode, text)
		}
	}
	h.Do("PUT", blobsPath, noise(1<<20)).Expect(t, 413, "KAI-STREAM-PROTO-0001")
	if a := h.Do("GET", blobsPath+"/"+edgetest.RefOf(body), ""); a.Body != body {
		t.Error("the first is not what it was")
	}
}

// All runs of a tenant share its bound, and what another tenant has does not count.
func TestBlobsOfTenant(t *testing.T) {
	h, _ := blobHouse(t, func(c *edge.Config) { c.MaxTenantBlobBytes = 3 << 20 })
	h.Do("PUT", "/v1/agent/runs/second", `{}`)
	h.Do("PUT", "/v1/agent/runs/run", `{}`, edgetest.TenantHeader, "rival")
	for i, path := range []string{blobsPath, "/v1/agent/runs/second/blobs"} {
		if a := h.Do("PUT", path, noise(1<<20+i)); a.Status != 201 {
			t.Fatal(a)
		}
	}
	if p := h.Do("PUT", blobsPath, noise(1<<20+5)).Expect(t, 413, "KAI-STREAM-PROTO-0001"); !strings.Contains(p.Message,
		"1048575 bytes are left of 3145728 for all runs of the tenant") {
		t.Error(p.Message)
	}
	if a := h.Do("PUT", blobsPath, noise(1<<20+5), edgetest.TenantHeader, "rival"); a.Status != 201 {
		t.Errorf("a rival: %d %s", a.Status, a.Body)
	}
	h.Do("POST", "/v1/agent/runs/second/events", toolEnd(noisyText(2<<20))).Expect(t, 413, "KAI-STREAM-PROTO-0001")
	if a := h.Do("PUT", blobsPath, noise(10)); a.Status != 201 {
		t.Errorf("what fits: %d %s", a.Status, a.Body)
	}
}

func blobCount(t *testing.T, k *testkit.Server) uint64 {
	t.Helper()
	s, err := k.JS.Stream(t.Context(), natskit.BlobStream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// A store that is full refuses with 503 and says so.
func TestBlobStorageFull(t *testing.T) {
	h, k := blobHouse(t)
	if err := natskit.Declare(t.Context(), k.JS, natskit.Layout{BlobBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	a := h.Do("PUT", blobsPath, noise(2<<20))
	p := a.Expect(t, 503, "STORAGE-FULL")
	if !a.Last {
		t.Error("the connection, with the rest of a body on it, is kept for the next request")
	}
	if !strings.Contains(p.Message, "nothing was stored") {
		t.Error(p.Message)
	}
	line := toolEnd(noisyText(2 << 20))
	h.Do("POST", "/v1/agent/runs/run/events", line).Expect(t, 503, "STORAGE-FULL")
	if h.Last("run") != 1 {
		t.Error("an event was stored whose output was not")
	}
	if a := h.Do("PUT", blobsPath, "small"); a.Status != 201 {
		t.Errorf("small: %d %s", a.Status, a.Body)
	}
}

// Two hundred blobs that stall take no more than bodies may; other tenants are served.
func TestStalledBlobs(t *testing.T) {
	var held, most atomic.Int64
	const budget = 32 << 20
	h, _ := blobHouse(t, func(c *edge.Config) {
		c.BodyMemory, c.BodyWait = budget, 100*time.Millisecond
		c.Hooks.BodyBytes = func(n int64) {
			held.Store(n)
			for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
			}
		}
	})
	h.Do("PUT", "/v1/agent/runs/run", `{}`, edgetest.TenantHeader, "modest")
	var refused atomic.Int64
	var conns []net.Conn
	var answered sync.WaitGroup
	grown := heapPeak(func() {
		for range 200 {
			c := edgetest.StallBlob(t, h, "run", 1<<20, 300<<10) // more than is trusted, less than a piece
			conns = append(conns, c)
			answered.Go(func() {
				_ = c.SetReadDeadline(time.Now().Add(2 * time.Second))
				if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && resp.StatusCode == 429 &&
					resp.Header.Get("Retry-After") != "" {
					refused.Add(1)
				}
			})
		}
		if a := h.Do("PUT", blobsPath, noise(100<<10), edgetest.TenantHeader, "modest"); a.Status != 201 {
			t.Errorf("another tenant: %d %s", a.Status, a.Body)
		}
		answered.Wait()
	})
	t.Logf("200 stalled blobs: %d MiB more, %d KiB reckoned at most, %d refused", grown>>20, most.Load()>>10,
		refused.Load())
	if most.Load() > budget || grown > 2*budget {
		t.Errorf("%d MiB are reckoned, %d MiB are taken, %d MiB may be", most.Load()>>20, grown>>20, budget>>20)
	}
	if refused.Load() == 0 {
		t.Error("none was told why")
	}
	for _, c := range conns {
		c.Close()
	}
	edgetest.Eventually(t, "all is given back", func() bool { return held.Load() == 0 })
}

// noisyText is a JSON string of about size bytes, which is no other's.
func noisyText(size int) string {
	return `"` + strings.Repeat(`line \"1\" of ünïcödé, `, size/26) + fmt.Sprint(size) + `"`
}

func toolEnd(output string) string {
	return `{"type":"tool.end","payload":{"call_id":"c1","ok":true,"output":` + output + `,"duration_ms":12}}`
}

// A child's blobs are its root's, whoever names it by which id: the stream of either has the events that name them.
func TestBlobsOfAChild(t *testing.T) {
	k := testkit.NATS(t)
	b, err := natskit.NewBlobs(k.Conn)
	if err != nil {
		t.Fatal(err)
	}
	h := childNode(t, k, func(c *edge.Config) { c.Blobs = b })
	h.Spawn("root", "kid")
	output, page := noisyText(600<<10), noise(100)
	if a := h.Do("POST", "/v1/agent/runs/kid/events", toolEnd(output)); a.Status != http.StatusOK {
		t.Fatal(a.Status, a.Body)
	}
	a := h.Do("PUT", "/v1/agent/runs/kid/blobs", page)
	if want := "/v1/agent/runs/kid/blobs/" + edgetest.RefOf(page); a.Status != http.StatusCreated ||
		a.Header.Get("Location") != want {
		t.Fatal(a.Status, a.Header, a.Body)
	}
	for _, body := range []string{output, page} {
		for _, run := range []string{"root", "kid"} {
			if a := h.Do("GET", "/v1/agent/runs/"+run+"/blobs/"+edgetest.RefOf(body), ""); a.Status != http.StatusOK ||
				a.Body != body {
				t.Errorf("%s: %d, %d bytes of %d", run, a.Status, len(a.Body), len(body))
			}
		}
	}
	for method, path := range map[string]string{"PUT": "/v1/agent/runs/nobody/blobs",
		"GET": "/v1/agent/runs/nobody/blobs/" + edgetest.RefOf(page)} {
		if a := h.Do(method, path, page); a.Status != http.StatusNotFound {
			t.Errorf("%s of no run: %d", method, a.Status)
		}
	}
}

// An output that is too large for an event is moved into a blob: the event keeps its place, says where it is, and a
// repeat under its key gives the same answer.
func TestOutputIsMoved(t *testing.T) {
	h, k := blobHouse(t)
	small := `{"type":"text.delta","payload":{"text":"x"}}`
	for name, output := range map[string]string{
		"text":   noisyText(600 << 10),
		"object": `{"rows":[` + strings.Repeat(`{"a":[1,2,3.50]},`, 40<<10) + `null]}`,
	} {
		for form, body := range map[string]string{
			"lines": small + "\n" + toolEnd(output) + "\n\n" + small + "\n",
			"array": "[" + small + ",\n " + toolEnd(output) + "," + small + "]",
		} {
			t.Run(name+" "+form, func(t *testing.T) {
				first := h.Last("run") + 1
				var answers []string
				for range 2 {
					a := h.Do("POST", "/v1/agent/runs/run/events", body, "Idempotency-Key", name+form)
					if a.Status != 200 {
						t.Fatal(a.Status, a.Body)
					}
					answers = append(answers, a.Body)
				}
				if want := fmt.Sprintf(`{"first_seq":%d,"last_seq":%d}`+"\n", first, first+2); answers[0] != want ||
					answers[1] != want {
					t.Errorf("answers %q, want %q", answers, want)
				}
				var page struct {
					Events []struct {
						Type    string
						Payload struct {
							Output  json.RawMessage
							Ref     string `json:"blob_ref"`
							Bytes   int    `json:"output_bytes"`
							Preview string `json:"output_preview"`
						}
					}
				}
				a := h.Do("GET", fmt.Sprintf("/v1/agent/runs/run/events?after=%d", first-1), "")
				if err := json.Unmarshal([]byte(a.Body), &page); err != nil || len(page.Events) != 3 {
					t.Fatalf("%v: %s", err, clipped(a.Body))
				}
				e := page.Events[1]
				if e.Type != "tool.end" || e.Payload.Output != nil || e.Payload.Ref != edgetest.RefOf(output) ||
					e.Payload.Bytes != len(output) {
					t.Errorf("stored %+v", e)
				}
				var plain string
				if json.Unmarshal([]byte(output), &plain) != nil {
					plain = output
				}
				if n := len(e.Payload.Preview); n < 1500 || n > 2<<10 || !strings.HasPrefix(plain, e.Payload.Preview) {
					t.Errorf("preview of %d bytes: %q", n, e.Payload.Preview)
				}
				got := h.Do("GET", blobsPath+"/"+e.Payload.Ref, "")
				if got.Body != output || got.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%d bytes of %s came back, want %d", len(got.Body), got.Header.Get("Content-Type"), len(output))
				}
			})
		}
	}
	if n := blobCount(t, k); n != 5 { // a mark, and two messages for each of two outputs
		t.Errorf("%d messages", n)
	}
}

// A body that is larger than others may be is taken when its outputs can be moved, and only then.
func TestLargeBodyIsMoved(t *testing.T) {
	h, k := blobHouse(t, func(c *edge.Config) { c.MaxBlobBytes = 12 << 20 })
	output := noisyText(10 << 20)
	if a := h.Do("POST", "/v1/agent/runs/fresh/events", toolEnd(output)); a.Status != 200 { // a run may begin with it
		t.Fatal(a.Status, a.Body)
	}
	if a := h.Do("GET", "/v1/agent/runs/fresh/blobs/"+edgetest.RefOf(output), ""); a.Body != output {
		t.Errorf("%d: %d bytes", a.Status, len(a.Body))
	}
	before := blobCount(t, k)
	for name, body := range map[string]string{
		"many small":     strings.Repeat(`{"type":"text.delta","payload":{"text":"x"}}`+"\n", 300_000),
		"over the bound": toolEnd(noisyText(13 << 20)),
		"another type":   `{"type":"custom.x","payload":{"output":` + noisyText(10<<20) + `}}`,
		"two outputs":    strings.Replace(toolEnd(noisyText(600<<10)), `"ok"`, `"output":1,"ok"`, 1),
		"has a blob":     strings.Replace(toolEnd(noisyText(600<<10)), `"ok"`, `"blob_ref":"x","ok"`, 1),
		"large error":    strings.Replace(toolEnd(`1`), `"ok"`, `"error":`+noisyText(600<<10)+`,"ok"`, 1),
	} {
		t.Run(name, func(t *testing.T) {
			h.Do("POST", "/v1/agent/runs/run/events", body).Expect(t, 413, "KAI-STREAM-PROTO-0001")
			if h.Last("run") != 1 || blobCount(t, k) != before {
				t.Error("something was stored")
			}
		})
	}
	// What is refused for another reason leaves nothing of a run that has not begun.
	h.Do("POST", "/v1/agent/runs/none/events",
		toolEnd(noisyText(600<<10))+"\n"+`{"type":"text.delta","payload":{}}`).Expect(t, 400, "KAI-STREAM-PROTO-0001")
	h.Do("POST", "/v1/agent/runs/none/events",
		strings.Replace(toolEnd(noisyText(700<<10)), `{"type"`, `{"seq":7,"type"`, 1)).Expect(t, 409, "SEQ-MISMATCH")
	if n := blobCount(t, k); n != before+1 { // the mark of a run that was about to begin
		t.Errorf("%d messages, %d before", n, before)
	}
}

// What comes over NATS is moved as well, and what is refused leaves nothing of a run that has not begun.
func TestTakeMovesOutputs(t *testing.T) {
	h, k := blobHouse(t)
	output := noisyText(600 << 10)
	answers := h.Server.StorePosts(t.Context(), schema.RunKey{Tenant: "acme", Run: "run"},
		[]producers.Post{{Body: []byte(toolEnd(output))}, {Body: []byte(edgetest.GoodLine)}}, nil)
	for _, a := range answers {
		if a.Refusal != nil {
			t.Fatal(a.Refusal)
		}
	}
	if a := h.Do("GET", blobsPath+"/"+edgetest.RefOf(output), ""); a.Body != output {
		t.Errorf("%d: %d bytes", a.Status, len(a.Body))
	}
	before := blobCount(t, k)
	for _, body := range []string{
		strings.Replace(toolEnd(noisyText(700<<10)), `{"type"`, `{"seq":7,"type"`, 1),
		toolEnd(noisyText(600<<10)) + "\n" + strings.Replace(edgetest.GoodLine, `{"type"`, `{"seq":9,"type"`, 1),
	} {
		refused := h.Server.StorePosts(t.Context(), schema.RunKey{Tenant: "acme", Run: "none"},
			[]producers.Post{{Body: []byte(body)}}, nil)
		if refused[0].Refusal == nil || refused[0].Refusal.Code != "SEQ-MISMATCH" {
			t.Errorf("%+v", refused[0])
		}
	}
	if n := blobCount(t, k); n != before+1 { // the mark of a run that was about to begin
		t.Errorf("%d messages, %d before", n, before)
	}
}

func clipped(s string) string { return s[:min(len(s), 2000)] }
