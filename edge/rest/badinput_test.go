package rest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
	"agentstream/edge/edgetest"
	"agentstream/schema"
)

// hostileIDs are run ids, as they stand in a path, that must be refused before anything is looked up.
var hostileIDs = []string{
	".", "..", "a.b", "*", "%2A", "%3E", "a*", "agent.%3E", "%20", "a%20b", "a%20", "%20a", "%09", "%0A", "%0D%0A",
	"a%0D%0Ab",
	"%00", "a%00", "a%2Fb", "%2F", "..%2F..%2Fetc%2Fpasswd", "%2e%2e", "%2E%2E%2F", "a%5Cb", "%252e%252e", "a%25", "-",
	"%7F", "%80", "%FF%FE", "%C3%A9", "%E2%80%8B", "%E2%80%A8", "%F0%9F%98%80", "a%26b", "a%3Fb", "a%23b", "a;b", "a:b",
	"a@b",
	"a,b", "a=b", "a+b", "a~b", "$SYS", "_INBOX.x", "a'b", "a%22b", "a%3Cb", "a%7Cb", "(a)", "!a",
	strings.Repeat("a", 129), strings.Repeat("a", 4000), "",
}

func TestHostileRunIDs(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, id := range hostileIDs {
		for _, tail := range []string{"", "/stream", "/events"} {
			a := h.Raw("GET /v1/agent/runs/" + id + tail + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if a.Expect(t, 400, "BAD-ID"); a.Header.Get("Location") != "" {
				t.Errorf("%q leads to %q", id, a.Header.Get("Location"))
			}
		}
		body := `{"type":"progress"}`
		h.Raw(fmt.Sprintf("POST /v1/agent/runs/%s/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", id, len(body), body)).Expect(t, 400, "BAD-ID")
		plain, err := url.PathUnescape(id)
		if err != nil {
			t.Fatal(err)
		}
		doc, err := json.Marshal(map[string]string{"run_id": plain})
		if err != nil {
			t.Fatal(err)
		}
		h.Do("POST", "/v1/agent/runs", string(doc)).Expect(t, 400, "BAD-ID")
	}
	// The longest good one, and one of every kind of byte, do pass.
	for _, id := range []string{strings.Repeat("a", 128), "aZ09_-", "--", "_"} {
		if a := h.Do("POST", "/v1/agent/runs/"+id+"/events", `{"type":"progress"}`); a.Status != 200 {
			t.Errorf("%q: %d %s", id, a.Status, a.Body)
		}
	}
}

func TestHostilePaths(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/agent", "/v1/agent/runs/a/b/stream", "/v1/agent/runs/a/stream/", "/v1/agent/runs/a/stream/x",
		"//v1/agent/runs/a", "/v1//agent/runs/a", "/v1/agent/runs/a/../stream/x", "/v1/agent/runs/a/STREAM",
		"/V1/agent/runs/a/stream",
		"/v1/agent%2Fruns/a", "/%76%31/agent/runs/a", "/metrics", "/debug/pprof/", "/healthz/", "/favicon.ico",
	} {
		a := h.Raw("GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		a.Expect(t, 404, "NOT-FOUND")
	}
	for _, m := range []struct{ method, path, allow string }{
		{"PUT", "/v1/agent/runs", "GET, HEAD, POST"}, {"DELETE", "/v1/agent/runs/a", "GET, HEAD, PUT"},
		{"POST", "/v1/agent/runs/a", "GET, HEAD, PUT"},
		{"PATCH", "/v1/agent/runs/a/events", "GET, HEAD, POST"}, {"POST", "/v1/agent/runs/a/stream", "GET, HEAD"},
		{"OPTIONS", "/v1/agent/runs/a/stream", "GET, HEAD"}, {"POST", "/healthz", "GET, HEAD"},
		{"BREW", "/readyz", "GET, HEAD"},
		{"TRACE", "/v1/agent/runs", "GET, HEAD, POST"},
	} {
		a := h.Raw(m.method + " " + m.path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if a.Expect(t, 405, "METHOD-NOT-ALLOWED"); a.Header.Get("Allow") != m.allow {
			t.Errorf("%s %s: allow %q", m.method, m.path, a.Header.Get("Allow"))
		}
	}
}

func TestHostileCursors(t *testing.T) {
	h := edgetest.NewHouse(t)
	h.Do("POST", "/v1/agent/runs/run/events", `{"type":"progress"}`)
	for _, c := range []string{
		"-1", "+1", "1.0", "1e3", "0x1", " 1", "1 ", "1 2", "one", "null", "NaN", "∞", "١", "9007199254740992",
		"99999999999999999999", "-0", "1,2", "1_000",
		"evt_", "evt_*", "evt_a.b", "evt_" + strings.Repeat("a", 200), "*", ">", "{}", "\"1\"", "1;2", "%31",
		strings.Repeat("1", 4000),
	} {
		q := "?after=" + url.QueryEscape(c)
		h.Do("GET", "/v1/agent/runs/run/stream"+q, "").Expect(t, 400, "BAD-CURSOR")
		h.Do("GET", "/v1/agent/runs/run/events"+q, "").Expect(t, 400, "BAD-CURSOR")
		if strings.TrimSpace(c) == c { // HTTP takes white space off a header's value
			h.Do("GET", "/v1/agent/runs/run/stream", "", "Last-Event-ID", c).Expect(t, 400, "BAD-CURSOR")
		}
	}
	h.Do("GET", "/v1/agent/runs/run/stream?after=0&after=1", "").Expect(t, 400, "BAD-CURSOR")
	h.Do("GET", "/v1/agent/runs/run/stream", "", "Last-Event-ID", "0", "Last-Event-ID", "1").Expect(t, 400, "BAD-CURSOR")
	for _, q := range []string{"detail=half", "detail=FULL", "after=%zz", "a;b=c"} {
		h.Do("GET", "/v1/agent/runs/run/stream?"+q, "").Expect(t, 400, "BAD-REQUEST")
	}
	h.Do("GET", "/v1/agent/runs/run/stream", "", "Detail", "half").Expect(t, 400, "BAD-REQUEST")
	for _, q := range []string{"limit=0", "limit=-1", "limit=1001", "limit=x", "limit=1.5", "limit=1&limit=2",
		"after=0&after=1", "after=%", "limit=99999999999999999999"} {
		h.Do("GET", "/v1/agent/runs/run/events?"+q, "").Expect(t, 400, "BAD-REQUEST")
	}
}

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
	{"second line cut short", edgetest.GoodLine + "\n" + `{"type":`, 400, schema.CodeMalformed, 2, ""},
	{"two on a line", edgetest.GoodLine + edgetest.GoodLine, 400, schema.CodeMalformed, 1, ""},
	{"trailing comma", "[" + edgetest.GoodLine + ",]", 400, schema.CodeMalformed, 1, ""},
	{"array in NDJSON", edgetest.GoodLine + "\n[" + edgetest.GoodLine + "]", 400, schema.CodeMalformed, 2, ""},
	{"number", "1", 400, schema.CodeMalformed, 1, ""},
	{"null", "null", 400, schema.CodeMalformed, 1, ""},
	{"string in array", `[` + edgetest.GoodLine + `,"x"]`, 400, schema.CodeMalformed, 2, ""},
	{"empty lines are counted", "\n\r\n" + edgetest.GoodLine + "\n\n{}", 400, schema.CodeUnknownType, 5, ""},
	{"no type", `{"payload":{}}`, 400, schema.CodeUnknownType, 1, ""},
	{"unknown type", `{"type":"text.delt","payload":{"text":"x"}}`, 400, schema.CodeUnknownType, 1, ""},
	{"unknown type in line 3", edgetest.GoodLine + "\n" + edgetest.GoodLine + "\n" + `{"type":"nope"}`, 400,
		schema.CodeUnknownType, 3, ""},
	{"type with a dot at the end of custom", `{"type":"custom."}`, 400, schema.CodeUnknownType, 1, ""},
	{"type with a line break", `{"type":"custom.a\nb"}`, 400, schema.CodeUnknownType, 1, ""},
	{"type is a number", `{"type":1}`, 400, schema.CodeMalformed, 1, ""},
	{"type over-long", `{"type":"custom.` + strings.Repeat("a", 200) + `"}`, 400, schema.CodeUnknownType, 1, ""},
	{"invalid UTF-8 in text", "{\"type\":\"text.delta\",\"payload\":{\"text\":\"\xff\"}}", 400, schema.CodeMalformed, 1,
		""},
	{"invalid UTF-8 in a name", "{\"type\":\"progress\",\"\xc3\x28\":1}", 400, schema.CodeMalformed, 1, ""},
	{"raw NUL", "{\"type\":\"text.delta\",\"payload\":{\"text\":\"a\x00b\"}}", 400, schema.CodeMalformed, 1, ""},
	{"raw NUL between tokens", "{\"type\":\"progress\"\x00}", 400, schema.CodeMalformed, 1, ""},
	{"raw control character", "{\"type\":\"text.delta\",\"payload\":{\"text\":\"a\x1bb\"}}", 400, schema.CodeMalformed,
		1, ""},
	{"byte order mark", "\ufeff" + edgetest.GoodLine, 400, schema.CodeMalformed, 1, ""},
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
	{"second seq not the next", "\n" + `{"type":"progress","seq":1}` + "\n\n" + `{"type":"progress","seq":1}`, 409,
		"SEQ-MISMATCH", 4, ""},
	{"first_seq", `{"type":"progress","first_seq":1}`, 400, schema.CodeMalformed, 1, ""},
	{"path with a foreign byte", `{"type":"progress","path":["a","b.c"]}`, 400, schema.CodeMalformed, 1, ""},
	{"path too deep", `{"type":"progress","path":[` + strings.Repeat(`"a",`, 40) + `"a"]}`, 400, schema.CodeMalformed,
		1, ""},
	{"actor over-long", `{"type":"progress","actor":"` + strings.Repeat("a", 300) + `"}`, 400, schema.CodeMalformed, 1,
		""},
	{"nested too deep", `{"type":"progress","payload":{"a":` + strings.Repeat("[", 500) + strings.Repeat("]", 500) +
		`}}`, 400, schema.CodeMalformed, 1, ""},
	{"event too large", `{"type":"text.delta","payload":{"text":"` + strings.Repeat("x", schema.MaxEventBytes) + `"}}`,
		413, schema.CodeMalformed, 1, ""},
	{"lifecycle without state", `{"type":"run.lifecycle","payload":{}}`, 400, schema.CodeMalformed, 1, ""},
	{"lifecycle in no state", `{"type":"run.lifecycle","payload":{"state":"finished"}}`, 400, schema.CodeMalformed, 1, ""},
	{"behind the end", `{"type":"run.lifecycle","payload":{"state":"done"}}` + "\n\n" + edgetest.GoodLine, 409,
		"RUN-ENDED", 3, ""},
	{"tool.start without call_id", edgetest.GoodLine + "\n" + `{"type":"tool.start","payload":{"tool":"x"}}`, 400,
		schema.CodeMalformed, 2, "/payload"},
	{"tool.start with an empty tool", `{"type":"tool.start","payload":{"call_id":"c","tool":""}}`, 400,
		schema.CodeMalformed, 1, "/payload/tool"},
	{"tool.end with ok as text", `[` + edgetest.GoodLine + `,{"type":"tool.end","payload":{"call_id":"c","ok":"yes"}}]`,
		400, schema.CodeMalformed, 2, "/payload/ok"},
	{"tool.end with a negative time", `{"type":"tool.end","payload":{"call_id":"c","ok":true,"duration_ms":-1}}`, 400,
		schema.CodeMalformed, 1, "/payload/duration_ms"},
	{"step of no kind", `{"type":"step.boundary","payload":{"step_index":0,"step_kind":"x"}}`, 400,
		schema.CodeMalformed, 1, "/payload/step_kind"},
	{"step with a broken index", `{"type":"step.boundary","payload":{"step_index":1.5,"step_kind":"plan"}}`, 400,
		schema.CodeMalformed, 1, "/payload/step_index"},
	{"child.spawn of a wildcard", `{"type":"child.spawn","payload":{"child_id":"*"}}`, 400, schema.CodeMalformed, 1,
		"/payload/child_id"},
	{"plan with a nameless step", `{"type":"plan.proposal","payload":{"plan":{"id":"p","steps":[{"id":"a","title":"t"},{"id":"b","title":7}]}}}`, 400, schema.CodeMalformed, 1, "/payload/plan/steps/1/title"},
	{"message of no role", `{"type":"message.start","payload":{"message_id":"m","role":"god"}}`, 400,
		schema.CodeMalformed, 1, "/payload/role"},
	{"control without payload", `{"type":"tool.start"}`, 400, schema.CodeMalformed, 1, "/payload"},
}

func TestBadBodies(t *testing.T) {
	h := edgetest.NewHouse(t)
	for _, tt := range badBodies {
		t.Run(tt.name, func(t *testing.T) {
			h := *h
			h.T = t
			p := h.Do("POST", "/v1/agent/runs/bad/events", tt.body).Expect(t, tt.status, tt.code)
			if p.Line != tt.line || p.Field != tt.field {
				t.Errorf("line %d, field %q, want %d, %q (%s)", p.Line, p.Field, tt.line, tt.field, p.Message)
			}
			if h.Last("bad") != 0 {
				t.Errorf("something of a refused request is stored: %d", h.Last("bad"))
			}
			h.Do("GET", "/v1/agent/runs/bad", "").Expect(t, 404, "NOT-FOUND")
		})
	}
}

func TestBadRequestsAroundGoodBodies(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.MaxBodyBytes = 1 << 20; c.BodyTimeout = 200 * time.Millisecond })
	const path = "/v1/agent/runs/bad/events"
	for _, ct := range []string{"application/xml", "multipart/form-data; boundary=x",
		"application/x-www-form-urlencoded", "text/html", "application/json; charset=latin1", ";;",
		"application/json, text/plain"} {
		h.Do("POST", path, edgetest.GoodLine, "Content-Type", ct).Expect(t, 415, "UNSUPPORTED-MEDIA-TYPE")
	}
	for _, enc := range []string{"br", "deflate", "identity, gzip"} {
		h.Do("POST", path, edgetest.GoodLine, "Content-Encoding", enc).Expect(t, 415, "UNSUPPORTED-MEDIA-TYPE")
	}
	for _, key := range []string{"", " ", "a\tb", "ü", strings.Repeat("k", 256)} {
		a := h.Raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nIdempotency-Key: %s\r\nContent-Length: %d\r\n\r\n%s", path, key, len(edgetest.GoodLine), edgetest.GoodLine))
		a.Expect(t, 400, "BAD-REQUEST")
	}
	h.Do("POST", path, edgetest.GoodLine, "Idempotency-Key", "a", "Idempotency-Key", "b").Expect(t, 400, "BAD-REQUEST")

	// Too large, said and unsaid.
	big := strings.Repeat(edgetest.GoodLine+"\n", 1<<20/len(edgetest.GoodLine)+1)
	h.Do("POST", path, big).Expect(t, 413, schema.CodeMalformed)
	r := h.Request("POST", path, "")
	r.Body = io.NopCloser(strings.NewReader(big)) // of unknown length: chunked
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	edgetest.Reply{Status: resp.StatusCode, Header: resp.Header, Body: string(b), Last: resp.Close}.Expect(t, 413,
		schema.CodeMalformed)
	h.Raw("POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n").Expect(t, 413, schema.CodeMalformed)

	// A body that does not come, and one that is not what its framing says.
	slow := h.Raw("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n" + edgetest.GoodLine)
	if slow.Expect(t, 408, "REQUEST-TIMEOUT"); !slow.Last {
		t.Error("the connection of a slow sender is kept")
	}
	h.Raw("POST "+path+" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"+edgetest.GoodLine).Expect(t,
		400, "BAD-REQUEST")

	// Who asks.
	a := h.Do("POST", path, edgetest.GoodLine, edgetest.TenantHeader, "nobody")
	if a.Expect(t, 401, "UNAUTHORIZED"); a.Header.Get("WWW-Authenticate") != "Bearer" {
		t.Error("401 does not say how")
	}
	h.Do("POST", path, edgetest.GoodLine, edgetest.TenantHeader, "reader").Expect(t, 403, "FORBIDDEN")
	h.Do("POST", path, edgetest.GoodLine, edgetest.TenantHeader, "broken").Expect(t, 500, "INTERNAL")
	h.Do("POST", path, edgetest.GoodLine, edgetest.TenantHeader, "bad tenant").Expect(t, 500, "INTERNAL")
	h.Do("GET", "/v1/agent/runs/bad/stream", "", edgetest.TenantHeader, "nobody").Expect(t, 401, "UNAUTHORIZED")
	for _, body := range []string{"[]", "1", `"x"`, "{", `{"run_id":7}`, `{"planning_gate":"maybe"}`,
		`{"planning_gate":1}`, "\xff"} {
		h.Do("POST", "/v1/agent/runs", body).Expect(t, 400, "BAD-REQUEST")
	}
	h.Do("POST", "/v1/agent/runs", `{"run_id":"bad"}`, "Content-Type", "application/x-ndjson").Expect(t, 415,
		"UNSUPPORTED-MEDIA-TYPE")

	// Size of what is around.
	h.Do("GET", "/v1/agent/runs/bad?x="+strings.Repeat("y", 9<<10), "").Expect(t, 414, "URI-TOO-LONG")
	flood := "GET /v1/agent/runs/bad HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 64<<10) + "\r\n\r\n"
	if a := h.Raw(flood); a.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("oversized headers: %d", a.Status)
	}
	if h.Last("bad") != 0 {
		t.Errorf("something of a refused request is stored: %d", h.Last("bad"))
	}
	if strings.Contains(h.Logs.String(), "yyyy") || strings.Contains(h.Logs.String(), "text.delta") {
		t.Error("raw targets or payloads are in the log")
	}
}

func TestHostileContentSurvives(t *testing.T) {
	h := edgetest.NewHouse(t)
	for i, text := range []string{`\u0000`, `\ud800`, `\udc00\ud800`, `\r\n\r\ndata: forged`, `\u2028`, `</script>`,
		`é`, "\u2028\u0085", `\"`, `\\`, `𝕏`, `\/`, `&<>`} {
		run := fmt.Sprintf("run_%d", i)
		body := `{"type":"text.delta","payload":{ "text":"` + text +
			`", "n": 12345678901234567890.10e+400 ,"a":1,"a":2}}` + "\n" + `{"type":"run.lifecycle","payload":{"state":"done"}}`
		if a := h.Do("POST", "/v1/agent/runs/"+run+"/events", body); a.Status != 200 {
			t.Errorf("%s: %d %s", text, a.Status, a.Body)
			continue
		}
		got := h.Do("GET", "/v1/agent/runs/"+run+"/stream", "").Events(t)
		if want := `"payload":{ "text":"` + text + `", "n": 12345678901234567890.10e+400 ,"a":1,"a":2}}` +
			"\nid: 1\n\n"; !strings.Contains(got, want) {
			t.Errorf("%s: payload is not as it was sent: %q", text, got)
		}
		if strings.Count(got, "\n\n") != 2 {
			t.Errorf("%s: not two events: %q", text, got)
		}
	}
}

func TestRequestID(t *testing.T) {
	h := edgetest.NewHouse(t)
	if a := h.Do("GET", "/healthz", "", "X-Request-Id", "abc_DEF-1"); a.Header.Get("X-Request-Id") != "abc_DEF-1" {
		t.Errorf("%v", a.Header)
	}
	for _, id := range []string{"", "a b", "a\"b", "%0a", strings.Repeat("a", 200), "a;b"} {
		if got := h.Do("GET", "/healthz", "", "X-Request-Id", id).Header.Get("X-Request-Id"); !strings.HasPrefix(got,
			"req_") {
			t.Errorf("%q: %q", id, got)
		}
	}
}

func TestLogUnavailable(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) { c.LogTimeout = 200 * time.Millisecond })
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine)
	h.Log.Down.Store(true)
	for _, req := range [][2]string{
		{"GET", "/v1/agent/runs/run"}, {"GET", "/v1/agent/runs/run/events"}, {"GET", "/v1/agent/runs/run/stream"},
		{"POST", "/v1/agent/runs/run/events"},
		{"GET", "/v1/agent/runs/run/stream?after=evt_01ARZ3NDEKTSV4RRFFQ69G5FAV"},
	} {
		body := ""
		if req[0] == "POST" {
			body = edgetest.GoodLine
		}
		a := h.Do(req[0], req[1], body)
		if a.Expect(t, 503, "UNAVAILABLE"); a.Header.Get("Retry-After") == "" || strings.Contains(a.Body, "10.1.2.3") {
			t.Errorf("%s: %v %s", req, a.Header, a.Body)
		}
	}
	h.Log.Down.Store(false)
	h.Log.Bad.Store(true)
	if a := h.Do("POST", "/v1/agent/runs/run/events",
		edgetest.GoodLine); strings.Contains(a.Expect(t, 500, "INTERNAL").Message, "secret") {
		t.Errorf("%s", a.Body)
	}
	if n := strings.Count(h.Logs.String(), "secret detail"); n != 1 {
		t.Errorf("an internal error is logged %d times", n)
	}
	h.Log.Bad.Store(false)
	if head, err := h.Hub.Head(context.Background(), schema.RunKey{Tenant: "acme", Run: "run"}); err != nil ||
		head.Last != 1 {
		t.Errorf("head %v, %v", head.Last, err)
	}
}
