package edge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/schema"
)

// raw sends a request as it stands, past every client that would tidy it up.
func (h *house) raw(text string) answer {
	h.t.Helper()
	c, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.WriteString(c, text); err != nil {
		h.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		h.t.Fatalf("%.200q: %v", text, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatalf("%.200q: %v", text, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b), resp.Close}
}

// hostileIDs are run ids, as they stand in a path, that must be refused before anything is looked up.
var hostileIDs = []string{
	".", "..", "a.b", "*", "%2A", "%3E", "a*", "agent.%3E", "%20", "a%20b", "a%20", "%20a", "%09", "%0A", "%0D%0A", "a%0D%0Ab",
	"%00", "a%00", "a%2Fb", "%2F", "..%2F..%2Fetc%2Fpasswd", "%2e%2e", "%2E%2E%2F", "a%5Cb", "%252e%252e", "a%25", "-",
	"%7F", "%80", "%FF%FE", "%C3%A9", "%E2%80%8B", "%E2%80%A8", "%F0%9F%98%80", "a%26b", "a%3Fb", "a%23b", "a;b", "a:b", "a@b",
	"a,b", "a=b", "a+b", "a~b", "$SYS", "_INBOX.x", "a'b", "a%22b", "a%3Cb", "a%7Cb", "(a)", "!a", strings.Repeat("a", 129), strings.Repeat("a", 4000), "",
}

func TestHostileRunIDs(t *testing.T) {
	h := newHouse(t)
	for _, id := range hostileIDs {
		for _, tail := range []string{"", "/stream", "/events"} {
			a := h.raw("GET /v1/agent/runs/" + id + tail + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if a.expect(t, 400, "BAD-ID"); a.header.Get("Location") != "" {
				t.Errorf("%q leads to %q", id, a.header.Get("Location"))
			}
		}
		body := `{"type":"progress"}`
		h.raw(fmt.Sprintf("POST /v1/agent/runs/%s/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)).expect(t, 400, "BAD-ID")
		plain, err := url.PathUnescape(id)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(map[string]string{"run_id": plain})
		if err != nil {
			t.Fatal(err)
		}
		h.do("POST", "/v1/agent/runs", string(doc)).expect(t, 400, "BAD-ID")
	}
	// The longest good one, and one of every kind of byte, do pass.
	for _, id := range []string{strings.Repeat("a", 128), "aZ09_-", "--", "_"} {
		if a := h.do("POST", "/v1/agent/runs/"+id+"/events", `{"type":"progress"}`); a.status != 200 {
			t.Errorf("%q: %d %s", id, a.status, a.body)
		}
	}
}

func TestHostilePaths(t *testing.T) {
	h := newHouse(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/agent", "/v1/agent/runs/a/b/stream", "/v1/agent/runs/a/stream/", "/v1/agent/runs/a/stream/x",
		"//v1/agent/runs/a", "/v1//agent/runs/a", "/v1/agent/runs/a/../stream/x", "/v1/agent/runs/a/STREAM", "/V1/agent/runs/a/stream",
		"/v1/agent%2Fruns/a", "/%76%31/agent/runs/a", "/metrics", "/debug/pprof/", "/healthz/", "/favicon.ico",
	} {
		a := h.raw("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		a.expect(t, 404, "NOT-FOUND")
	}
	for _, m := range []struct{ method, path, allow string }{
		{"PUT", "/v1/agent/runs", "GET, HEAD, POST"}, {"DELETE", "/v1/agent/runs/a", "GET, HEAD, PUT"}, {"POST", "/v1/agent/runs/a", "GET, HEAD, PUT"},
		{"PATCH", "/v1/agent/runs/a/events", "GET, HEAD, POST"}, {"POST", "/v1/agent/runs/a/stream", "GET, HEAD"},
		{"OPTIONS", "/v1/agent/runs/a/stream", "GET, HEAD"}, {"POST", "/healthz", "GET, HEAD"}, {"BREW", "/readyz", "GET, HEAD"},
		{"TRACE", "/v1/agent/runs", "GET, HEAD, POST"},
	} {
		a := h.raw(m.method + " " + m.path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if a.expect(t, 405, "METHOD-NOT-ALLOWED"); a.header.Get("Allow") != m.allow {
			t.Errorf("%s %s: allow %q", m.method, m.path, a.header.Get("Allow"))
		}
	}
}

func TestHostileCursors(t *testing.T) {
	h := newHouse(t)
	h.do("POST", "/v1/agent/runs/run/events", `{"type":"progress"}`)
	for _, c := range []string{
		"-1", "+1", "1.0", "1e3", "0x1", " 1", "1 ", "1 2", "one", "null", "NaN", "∞", "١", "9007199254740992", "99999999999999999999", "-0", "1,2", "1_000",
		"evt_", "evt_*", "evt_a.b", "evt_" + strings.Repeat("a", 200), "*", ">", "{}", "\"1\"", "1;2", "%31", strings.Repeat("1", 4000),
	} {
		q := "?after=" + url.QueryEscape(c)
		h.do("GET", "/v1/agent/runs/run/stream"+q, "").expect(t, 400, "BAD-CURSOR")
		h.do("GET", "/v1/agent/runs/run/events"+q, "").expect(t, 400, "BAD-CURSOR")
		if strings.TrimSpace(c) == c { // HTTP takes white space off a header's value
			h.do("GET", "/v1/agent/runs/run/stream", "", "Last-Event-ID", c).expect(t, 400, "BAD-CURSOR")
		}
	}
	h.do("GET", "/v1/agent/runs/run/stream?after=0&after=1", "").expect(t, 400, "BAD-CURSOR")
	h.do("GET", "/v1/agent/runs/run/stream", "", "Last-Event-ID", "0", "Last-Event-ID", "1").expect(t, 400, "BAD-CURSOR")
	for _, q := range []string{"detail=half", "detail=FULL", "after=%zz", "a;b=c"} {
		h.do("GET", "/v1/agent/runs/run/stream?"+q, "").expect(t, 400, "BAD-REQUEST")
	}
	h.do("GET", "/v1/agent/runs/run/stream", "", "Detail", "half").expect(t, 400, "BAD-REQUEST")
	for _, q := range []string{"limit=0", "limit=-1", "limit=1001", "limit=x", "limit=1.5", "limit=1&limit=2", "after=0&after=1", "after=%", "limit=99999999999999999999"} {
		h.do("GET", "/v1/agent/runs/run/events?"+q, "").expect(t, 400, "BAD-REQUEST")
	}
}

const good = `{"type":"text.delta","payload":{"text":"x"}}`

// badBodies are refused whole. line 0: the refusal is not about a line.
var badBodies = []struct {
	name, body string
	status     int
	code       string
	line       int
	field      string
}{
	{"empty", "", 400, schema.CodeMalformed, 1, ""},
	{"white space", " \n\n ", 400, schema.CodeMalformed, 1, ""},
	{"empty array", "[]", 400, schema.CodeMalformed, 1, ""},
	{"not JSON", "hello", 400, schema.CodeMalformed, 1, ""},
	{"cut short", `{"type":"progress"`, 400, schema.CodeMalformed, 1, ""},
	{"second line cut short", good + "\n" + `{"type":`, 400, schema.CodeMalformed, 2, ""},
	{"two on a line", good + good, 400, schema.CodeMalformed, 1, ""},
	{"trailing comma", "[" + good + ",]", 400, schema.CodeMalformed, 1, ""},
	{"array in NDJSON", good + "\n[" + good + "]", 400, schema.CodeMalformed, 2, ""},
	{"number", "1", 400, schema.CodeMalformed, 1, ""},
	{"null", "null", 400, schema.CodeMalformed, 1, ""},
	{"string in array", `[` + good + `,"x"]`, 400, schema.CodeMalformed, 2, ""},
	{"empty lines are counted", "\n\r\n" + good + "\n\n{}", 400, schema.CodeUnknownType, 5, ""},
	{"no type", `{"payload":{}}`, 400, schema.CodeUnknownType, 1, ""},
	{"unknown type", `{"type":"text.delt","payload":{"text":"x"}}`, 400, schema.CodeUnknownType, 1, ""},
	{"unknown type in line 3", good + "\n" + good + "\n" + `{"type":"nope"}`, 400, schema.CodeUnknownType, 3, ""},
	{"type with a dot at the end of custom", `{"type":"custom."}`, 400, schema.CodeUnknownType, 1, ""},
	{"type with a line break", `{"type":"custom.a\nb"}`, 400, schema.CodeUnknownType, 1, ""},
	{"type is a number", `{"type":1}`, 400, schema.CodeMalformed, 1, ""},
	{"type over-long", `{"type":"custom.` + strings.Repeat("a", 200) + `"}`, 400, schema.CodeUnknownType, 1, ""},
	{"invalid UTF-8 in text", "{\"type\":\"text.delta\",\"payload\":{\"text\":\"\xff\"}}", 400, schema.CodeMalformed, 1, ""},
	{"invalid UTF-8 in a name", "{\"type\":\"progress\",\"\xc3\x28\":1}", 400, schema.CodeMalformed, 1, ""},
	{"raw NUL", "{\"type\":\"text.delta\",\"payload\":{\"text\":\"a\x00b\"}}", 400, schema.CodeMalformed, 1, ""},
	{"raw NUL between tokens", "{\"type\":\"progress\"\x00}", 400, schema.CodeMalformed, 1, ""},
	{"raw control character", "{\"type\":\"text.delta\",\"payload\":{\"text\":\"a\x1bb\"}}", 400, schema.CodeMalformed, 1, ""},
	{"byte order mark", "\ufeff" + good, 400, schema.CodeMalformed, 1, ""},
	{"payload is a string", `{"type":"progress","payload":"x"}`, 400, schema.CodeMalformed, 1, ""},
	{"payload is an array", `{"type":"progress","payload":[]}`, 400, schema.CodeMalformed, 1, ""},
	{"payload is null", `{"type":"progress","payload":null}`, 400, schema.CodeMalformed, 1, ""},
	{"delta without payload", `{"type":"text.delta"}`, 400, schema.CodeMalformed, 1, ""},
	{"delta without text", `{"type":"text.delta","payload":{}}`, 400, schema.CodeMalformed, 1, ""},
	{"text is a number", `{"type":"text.delta","payload":{"text":1}}`, 400, schema.CodeMalformed, 1, ""},
	{"field twice", `{"type":"progress","type":"progress"}`, 400, schema.CodeMalformed, 1, ""},
	{"foreign run_id", `{"type":"progress","run_id":"run_other"}`, 400, schema.CodeMalformed, 1, ""},
	{"run_id with a wildcard", `{"type":"progress","run_id":"*"}`, 400, schema.CodeMalformed, 1, ""},
	{"child_id with a dot", `{"type":"progress","child_id":"a.b"}`, 400, schema.CodeMalformed, 1, ""},
	{"child_id >", `{"type":"progress","child_id":">"}`, 400, schema.CodeMalformed, 1, ""},
	{"child_id is the run", `{"type":"progress","child_id":"bad"}`, 400, schema.CodeMalformed, 1, ""},
	{"child_id of the root lane", `{"type":"progress","child_id":"-"}`, 400, schema.CodeMalformed, 1, ""},
	{"id with a space", `{"type":"progress","id":"evt a"}`, 400, schema.CodeMalformed, 1, ""},
	{"ts is no time", `{"type":"progress","ts":"yesterday"}`, 400, schema.CodeMalformed, 1, ""},
	{"ts with a line break", `{"type":"progress","ts":"2026-01-02T03:04:05Z\n"}`, 400, schema.CodeMalformed, 1, ""},
	{"seq 0", `{"type":"progress","seq":0}`, 400, schema.CodeMalformed, 1, ""},
	{"seq -1", `{"type":"progress","seq":-1}`, 400, schema.CodeMalformed, 1, ""},
	{"seq is text", `{"type":"progress","seq":"1"}`, 400, schema.CodeMalformed, 1, ""},
	{"seq too large", `{"type":"progress","seq":9007199254740992}`, 400, schema.CodeMalformed, 1, ""},
	{"seq not the next", `{"type":"progress","seq":7}`, 409, "SEQ-MISMATCH", 1, ""},
	{"second seq not the next", "\n" + `{"type":"progress","seq":1}` + "\n\n" + `{"type":"progress","seq":1}`, 409, "SEQ-MISMATCH", 4, ""},
	{"first_seq", `{"type":"progress","first_seq":1}`, 400, schema.CodeMalformed, 1, ""},
	{"path with a foreign byte", `{"type":"progress","path":["a","b.c"]}`, 400, schema.CodeMalformed, 1, ""},
	{"path too deep", `{"type":"progress","path":[` + strings.Repeat(`"a",`, 40) + `"a"]}`, 400, schema.CodeMalformed, 1, ""},
	{"actor over-long", `{"type":"progress","actor":"` + strings.Repeat("a", 300) + `"}`, 400, schema.CodeMalformed, 1, ""},
	{"nested too deep", `{"type":"progress","payload":{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) + `}}`, 400, schema.CodeMalformed, 1, ""},
	{"event too large", `{"type":"text.delta","payload":{"text":"` + strings.Repeat("x", schema.MaxEventBytes) + `"}}`, 413, schema.CodeMalformed, 1, ""},
	{"lifecycle without state", `{"type":"run.lifecycle","payload":{}}`, 400, schema.CodeMalformed, 1, ""},
	{"lifecycle in no state", `{"type":"run.lifecycle","payload":{"state":"finished"}}`, 400, schema.CodeMalformed, 1, ""},
	{"behind the end", `{"type":"run.lifecycle","payload":{"state":"done"}}` + "\n\n" + good, 409, "RUN-ENDED", 3, ""},
	{"tool.start without call_id", good + "\n" + `{"type":"tool.start","payload":{"tool":"x"}}`, 400, schema.CodeMalformed, 2, "/payload"},
	{"tool.start with an empty tool", `{"type":"tool.start","payload":{"call_id":"c","tool":""}}`, 400, schema.CodeMalformed, 1, "/payload/tool"},
	{"tool.end with ok as text", `[` + good + `,{"type":"tool.end","payload":{"call_id":"c","ok":"yes"}}]`, 400, schema.CodeMalformed, 2, "/payload/ok"},
	{"tool.end with a negative time", `{"type":"tool.end","payload":{"call_id":"c","ok":true,"duration_ms":-1}}`, 400, schema.CodeMalformed, 1, "/payload/duration_ms"},
	{"step of no kind", `{"type":"step.boundary","payload":{"step_index":0,"step_kind":"x"}}`, 400, schema.CodeMalformed, 1, "/payload/step_kind"},
	{"step with a broken index", `{"type":"step.boundary","payload":{"step_index":1.5,"step_kind":"plan"}}`, 400, schema.CodeMalformed, 1, "/payload/step_index"},
	{"child.spawn of a wildcard", `{"type":"child.spawn","payload":{"child_id":"*"}}`, 400, schema.CodeMalformed, 1, "/payload/child_id"},
	{"plan with a nameless step", `{"type":"plan.proposal","payload":{"plan":{"id":"p","steps":[{"id":"a","title":"t"},{"id":"b","title":7}]}}}`, 400, schema.CodeMalformed, 1, "/payload/plan/steps/1/title"},
	{"message of no role", `{"type":"message.start","payload":{"message_id":"m","role":"god"}}`, 400, schema.CodeMalformed, 1, "/payload/role"},
	{"control without payload", `{"type":"tool.start"}`, 400, schema.CodeMalformed, 1, "/payload"},
}

func TestBadBodies(t *testing.T) {
	h := newHouse(t)
	for _, tt := range badBodies {
		t.Run(tt.name, func(t *testing.T) {
			h := *h
			h.t = t
			p := h.do("POST", "/v1/agent/runs/bad/events", tt.body).expect(t, tt.status, tt.code)
			if p.Line != tt.line || p.Field != tt.field {
				t.Errorf("line %d, field %q, want %d, %q (%s)", p.Line, p.Field, tt.line, tt.field, p.Message)
			}
			if h.last("bad") != 0 {
				t.Errorf("something of a refused request is stored: %d", h.last("bad"))
			}
			h.do("GET", "/v1/agent/runs/bad", "").expect(t, 404, "NOT-FOUND")
		})
	}
}

func TestBadRequestsAroundGoodBodies(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.MaxBodyBytes = 1 << 20; c.BodyTimeout = 200 * time.Millisecond })
	const path = "/v1/agent/runs/bad/events"
	for _, ct := range []string{"application/xml", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/html", "application/json; charset=latin1", ";;", "application/json, text/plain"} {
		h.do("POST", path, good, "Content-Type", ct).expect(t, 415, "UNSUPPORTED-MEDIA-TYPE")
	}
	for _, enc := range []string{"br", "deflate", "identity, gzip"} {
		h.do("POST", path, good, "Content-Encoding", enc).expect(t, 415, "UNSUPPORTED-MEDIA-TYPE")
	}
	for _, key := range []string{"", " ", "a\tb", "ü", strings.Repeat("k", 256)} {
		a := h.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s", path, key, len(good), good))
		a.expect(t, 400, "BAD-REQUEST")
	}
	h.do("POST", path, good, "Idempotency-Key", "a", "Idempotency-Key", "b").expect(t, 400, "BAD-REQUEST")

	// Too large, said and unsaid.
	big := strings.Repeat(good+"\n", 1<<20/len(good)+1)
	h.do("POST", path, big).expect(t, 413, schema.CodeMalformed)
	r := h.request("POST", path, "")
	r.Body = io.NopCloser(strings.NewReader(big)) // of unknown length: chunked
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	answer{resp.StatusCode, resp.Header, string(b), resp.Close}.expect(t, 413, schema.CodeMalformed)
	h.raw("POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n").expect(t, 413, schema.CodeMalformed)

	// A body that does not come, and one that is not what its framing says.
	slow := h.raw("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + good)
	if slow.expect(t, 408, "REQUEST-TIMEOUT"); !slow.last {
		t.Error("the connection of a slow sender is kept")
	}
	h.raw("POST "+path+" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"+good).expect(t, 400, "BAD-REQUEST")

	// Who asks.
	a := h.do("POST", path, good, tenantHeader, "nobody")
	if a.expect(t, 401, "UNAUTHORIZED"); a.header.Get("WWW-Authenticate") != "Bearer" {
		t.Error("401 does not say how")
	}
	h.do("POST", path, good, tenantHeader, "reader").expect(t, 403, "FORBIDDEN")
	h.do("POST", path, good, tenantHeader, "broken").expect(t, 500, "INTERNAL")
	h.do("POST", path, good, tenantHeader, "bad tenant").expect(t, 500, "INTERNAL")
	h.do("GET", "/v1/agent/runs/bad/stream", "", tenantHeader, "nobody").expect(t, 401, "UNAUTHORIZED")
	for _, body := range []string{"[]", "1", `"x"`, "{", `{"run_id":7}`, `{"planning_gate":"maybe"}`, `{"planning_gate":1}`, "\xff"} {
		h.do("POST", "/v1/agent/runs", body).expect(t, 400, "BAD-REQUEST")
	}
	h.do("POST", "/v1/agent/runs", `{"run_id":"bad"}`, "Content-Type", "application/x-ndjson").expect(t, 415, "UNSUPPORTED-MEDIA-TYPE")

	// Size of what is around.
	h.do("GET", "/v1/agent/runs/bad?x="+strings.Repeat("y", 9<<10), "").expect(t, 414, "URI-TOO-LONG")
	flood := "GET /v1/agent/runs/bad HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n"
	if a := h.raw(flood); a.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("oversized headers: %d", a.status)
	}
	if h.last("bad") != 0 {
		t.Errorf("something of a refused request is stored: %d", h.last("bad"))
	}
	if strings.Contains(h.logs.String(), "yyyy") || strings.Contains(h.logs.String(), "text.delta") {
		t.Error("raw targets or payloads are in the log")
	}
}

func TestHostileContentSurvives(t *testing.T) {
	h := newHouse(t)
	for i, text := range []string{`\u0000`, `\ud800`, `\udc00\ud800`, `\r\n\r\ndata: forged`, `\u2028`, `</script>`, `é`, "\u2028\u0085", `\"`, `\\`, `𝕏`, `\/`, `&<>`} {
		run := fmt.Sprintf("run_%d", i)
		body := `{"type":"text.delta","payload":{ "text":"` + text + `", "n": 12345678901234567890.10e+400 ,"a":1,"a":2}}` + "\n" + `{"type":"run.lifecycle","payload":{"state":"done"}}`
		if a := h.do("POST", "/v1/agent/runs/"+run+"/events", body); a.status != 200 {
			t.Errorf("%s: %d %s", text, a.status, a.body)
			continue
		}
		got := h.do("GET", "/v1/agent/runs/"+run+"/stream", "").events(t)
		if want := `"payload":{ "text":"` + text + `", "n": 12345678901234567890.10e+400 ,"a":1,"a":2}}` + "\nid: 1\n\n"; !strings.Contains(got, want) {
			t.Errorf("%s: payload is not as it was sent: %q", text, got)
		}
		if strings.Count(got, "\n\n") != 2 {
			t.Errorf("%s: not two events: %q", text, got)
		}
	}
}

func TestRequestID(t *testing.T) {
	h := newHouse(t)
	if a := h.do("GET", "/healthz", "", "X-Request-Id", "abc_DEF-1"); a.header.Get("X-Request-Id") != "abc_DEF-1" {
		t.Errorf("%v", a.header)
	}
	for _, id := range []string{"", "a b", "a\"b", "%0a", strings.Repeat("a", 200), "a;b"} {
		if got := h.do("GET", "/healthz", "", "X-Request-Id", id).header.Get("X-Request-Id"); !strings.HasPrefix(got, "req_") {
			t.Errorf("%q: %q", id, got)
		}
	}
}

func TestLogUnavailable(t *testing.T) {
	h := newHouse(t, func(c *edge.Config) { c.LogTimeout = 200 * time.Millisecond })
	h.do("POST", "/v1/agent/runs/run/events", good)
	h.log.down.Store(true)
	for _, req := range [][2]string{
		{"GET", "/v1/agent/runs/run"}, {"GET", "/v1/agent/runs/run/events"}, {"GET", "/v1/agent/runs/run/stream"}, {"POST", "/v1/agent/runs/run/events"},
		{"GET", "/v1/agent/runs/run/stream?after=evt_01ARZ3NDEKTSV4RRFFQ69G5FAV"},
	} {
		body := ""
		if req[0] == "POST" {
			body = good
		}
		a := h.do(req[0], req[1], body)
		if a.expect(t, 503, "UNAVAILABLE"); a.header.Get("Retry-After") == "" || strings.Contains(a.body, "10.1.2.3") {
			t.Errorf("%s: %v %s", req, a.header, a.body)
		}
	}
	h.log.down.Store(false)
	h.log.bad.Store(true)
	if a := h.do("POST", "/v1/agent/runs/run/events", good); strings.Contains(a.expect(t, 500, "INTERNAL").Message, "secret") {
		t.Errorf("%s", a.body)
	}
	if n := strings.Count(h.logs.String(), "secret detail"); n != 1 {
		t.Errorf("an internal error is logged %d times", n)
	}
	h.log.bad.Store(false)
	if head, err := h.hub.Head(context.Background(), schema.RunKey{Tenant: "acme", Run: "run"}); err != nil || head.Last != 1 {
		t.Errorf("head %v, %v", head.Last, err)
	}
}
