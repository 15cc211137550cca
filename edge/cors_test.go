package edge_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"agentstream/edge"
	"agentstream/edge/dialect"
	"agentstream/edge/edgetest"
)

const page = "https://app.example"

func withOrigins(c *edge.Config) { c.Origins = []string{page, "http://localhost:3000"} }

// varies reports whether a cache keeps the answers to different origins apart.
func varies(a edgetest.Reply) bool {
	return slices.ContainsFunc(a.Header.Values("Vary"), func(v string) bool { return strings.Contains(v, "Origin") })
}

// TestPreflight asks for every route, and for paths that there are not: a page must be able to read
// the refusal, too.
func TestPreflight(t *testing.T) {
	m := newMatrix(t, withOrigins)
	paths := []string{"/none", "/v1/agent/runs/a.b/stream", "/v1/agent/runs/run/nothing"}
	for _, rt := range m.table {
		paths = append(paths, strings.ReplaceAll(rt.Path, "{run}", "run"))
	}
	for _, path := range paths {
		a := m.Do("OPTIONS", path, "", "Origin", page, edgetest.TenantHeader, "nobody",
			"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,idempotency-key")
		if a.Status != 204 || a.Body != "" || a.Header.Get("Access-Control-Allow-Origin") != page || !varies(a) {
			t.Errorf("%s: %d %v", path, a.Status, a.Header)
		}
		for _, name := range []string{"Authorization", "Content-Type", "Last-Event-ID", "Idempotency-Key",
			"X-Request-Id", "Detail"} {
			if !strings.Contains(a.Header.Get("Access-Control-Allow-Headers"), name) {
				t.Errorf("%s: %s is not allowed", path, name)
			}
		}
		for _, name := range []string{"GET", "HEAD", "POST"} {
			if !strings.Contains(a.Header.Get("Access-Control-Allow-Methods"), name) {
				t.Errorf("%s: %s is not allowed", path, name)
			}
		}
		for _, origin := range forged {
			a := m.Do("OPTIONS", path, "", "Origin", origin, "Access-Control-Request-Method", "POST")
			if a.Status != 204 || allows(a) || !varies(a) {
				t.Errorf("%s for %s: %d %v", path, origin, a.Status, a.Header)
			}
		}
	}
	if len(m.work.take()) != 0 {
		t.Error("a preflight asks the log")
	}
	// An OPTIONS that is no preflight is a method like any other.
	m.Do("OPTIONS", "/v1/agent/runs", "", "Origin", page).Expect(t, 405, "METHOD-NOT-ALLOWED")
	m.Do("OPTIONS", "/v1/agent/runs", "", "Access-Control-Request-Method", "GET").Expect(t, 405, "METHOD-NOT-ALLOWED")
}

func allows(a edgetest.Reply) bool {
	for name := range a.Header {
		if strings.HasPrefix(name, "Access-Control-") {
			return true
		}
	}
	return false
}

// forged are origins that come close to one of the list.
var forged = []string{
	"https://evil.example", "null", "http://app.example", "https://app.example:443", "https://app.example:8443",
	"https://app.example.evil.example",
	"https://evil.example/https://app.example", "https://xapp.example", "https://app.example/", "HTTPS://APP.EXAMPLE",
	"https://sub.app.example",
	"https://app.example@evil.example", "*", "file://", "http://localhost", "http://localhost:3001",
	"http://127.0.0.1:3000", "https://app.example https://evil.example",
}

// TestCORSHeadersAreOnEveryAnswer: errors and 204 as well, or a page learns nothing of them.
func TestCORSHeadersAreOnEveryAnswer(t *testing.T) {
	h := edgetest.NewHouse(t, withOrigins)
	h.Do("POST", "/v1/agent/runs/run/events", edgetest.GoodLine+"\n"+`{"type":"run.lifecycle","payload":{"state":"done"}}`)
	for _, tt := range []struct {
		method, path, tenant string
		status               int
	}{
		{"GET", "/v1/agent/runs/run", "", 200},
		{"GET", "/v1/agent/runs/run/stream", "", 200},
		{"HEAD", "/v1/agent/runs/run/stream", "", 200},
		{"GET", "/v1/agent/runs/run/stream?after=2", "", 204},
		{"GET", "/v1/agent/runs/run/stream?after=x", "", 400},
		{"GET", "/v1/agent/runs/run", "nobody", 401},
		{"GET", "/v1/agent/runs/run", "reader", 403},
		{"GET", "/v1/agent/runs/run", "broken", 500},
		{"GET", "/v1/agent/runs/none", "", 404},
		{"GET", "/none", "", 404},
		{"DELETE", "/v1/agent/runs/run", "", 405},
		{"GET", "/v1/agent/runs/run/stream?after=9", "", 409},
		{"GET", "/" + strings.Repeat("a", 9<<10), "", 414},
		{"GET", "/healthz", "", 200},
	} {
		headers := []string{"Origin", page}
		if tt.tenant != "" {
			headers = append(headers, edgetest.TenantHeader, tt.tenant)
		}
		a := h.Do(tt.method, tt.path, "", headers...)
		if a.Status != tt.status || a.Header.Get("Access-Control-Allow-Origin") != page || !varies(a) ||
			len(a.Header.Values("Access-Control-Allow-Origin")) != 1 {
			t.Errorf("%s %.40s: %d %v", tt.method, tt.path, a.Status, a.Header)
		}
		for _, name := range []string{"X-Request-Id", "Retry-After", "Location", "Idempotency-Replayed", "Last-Event-ID"} {
			if !strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), name) {
				t.Errorf("%s %.40s: %s is not exposed", tt.method, tt.path, name)
			}
		}
		if a.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%.40s: cookies are let in", tt.path)
		}
		for _, origin := range append([]string{""}, forged...) {
			headers := []string{}
			if tt.tenant != "" {
				headers = append(headers, edgetest.TenantHeader, tt.tenant)
			}
			if origin != "" {
				headers = append(headers, "Origin", origin)
			}
			if a := h.Do(tt.method, tt.path, "", headers...); a.Status != tt.status || allows(a) || !varies(a) {
				t.Errorf("%s %.40s from %q: %d %v", tt.method, tt.path, origin, a.Status, a.Header)
			}
		}
	}
	// Every header of ours that an answer has is exposed, or one that pages may read anyway.
	a := h.Do("POST", "/v1/agent/runs", `{"run_id":"new"}`, "Origin", page, "Content-Type", "application/json")
	free := "Cache-Control Content-Length Content-Type Date Vary X-Content-Type-Options"
	for name := range a.Header {
		if !strings.HasPrefix(name, "Access-Control-") && !strings.Contains(free, name) &&
			!strings.Contains(a.Header.Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("%s is not exposed", name)
		}
	}
}

// TestNoOriginsNoCORS: without a list there is none of it.
func TestNoOriginsNoCORS(t *testing.T) {
	h := edgetest.NewHouse(t)
	if a := h.Do("GET", "/healthz", "", "Origin", page); allows(a) || varies(a) {
		t.Errorf("%v", a.Header)
	}
	h.Do("OPTIONS", "/v1/agent/runs", "", "Origin", page, "Access-Control-Request-Method", "GET").Expect(t, 405,
		"METHOD-NOT-ALLOWED")
}

// TestForgedOriginOpensNoWebSocket: 403 before the upgrade, whatever credential comes with it, and a
// ticket is not used up.
func TestForgedOriginOpensNoWebSocket(t *testing.T) {
	g := newGuarded(t, withOrigins)
	ticket := g.ticket("run", staticToken)
	at := "/v1/agent/runs/run/stream?after=99999&ticket="
	for _, origin := range forged {
		_, resp, err := g.Dial(at+ticket, "Origin", origin)
		if err == nil || resp == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %v %v", origin, resp, err)
		}
		if _, resp, err := g.Dial("/v1/agent/runs/run/stream", "Origin", origin, "Authorization",
			"Bearer "+staticToken); err == nil || resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s with a token: %v %v", origin, resp, err)
		}
	}
	// 409 is behind the door.
	if _, resp, err := g.Dial(at+ticket, "Origin", page); err == nil || resp.StatusCode != http.StatusConflict {
		t.Errorf("the listed origin: %v %v", resp, err)
	}
	for _, origin := range []string{"", "http://" + g.Addr, "https://" + g.Addr} {
		headers := []string{"Authorization", "Bearer " + staticToken}
		if origin != "" {
			headers = append(headers, "Origin", origin)
		}
		if _, resp, err := g.Dial("/v1/agent/runs/run/stream?after=99999", headers...); err == nil ||
			resp.StatusCode != http.StatusConflict {
			t.Errorf("%q: %v %v", origin, resp, err)
		}
	}
	for _, rt := range g.table {
		if rt.Transport == dialect.WebSocket {
			return
		}
	}
	t.Error("no route is a WebSocket: nothing was tested")
}

func TestOriginAllowed(t *testing.T) {
	h := edgetest.NewHouse(t)
	srv, err := edge.New(edge.Config{Hub: h.Hub, Appender: h.Appender, Origins: []string{page}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		host    string
		origins []string
		want    bool
	}{
		{"api.example", nil, true},
		{"api.example", []string{page}, true},
		{"api.example", []string{"https://api.example"}, true},
		{"api.example:443", []string{"https://api.example"}, true},
		{"api.example:80", []string{"http://api.example"}, true},
		{"API.example", []string{"https://api.example"}, true},
		{"[::1]:8080", []string{"http://[::1]:8080"}, true},
		{"[::1]", []string{"http://[::1]"}, true},
		{"api.example:8080", []string{"https://api.example"}, false},
		{"api.example", []string{"https://api.example:8080"}, false},
		{"api.example:80", []string{"https://api.example"}, false},
		{"api.example", []string{"https://evil.example"}, false},
		{"api.example", []string{"null"}, false},
		{"api.example", []string{""}, false},
		{"api.example", []string{page, page}, false},
		{"api.example", []string{"https://api.example", "https://evil.example"}, false},
		{"", []string{"https://"}, false},
		{"", []string{"null"}, false},
		{"file", []string{"file://"}, false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = tt.host
		if tt.origins != nil {
			r.Header["Origin"] = tt.origins
		}
		if got := edge.OriginAllowed(srv, r); got != tt.want {
			t.Errorf("%s at %q: %v", tt.origins, tt.host, got)
		}
	}
	for _, bad := range []string{"*", "", "null", "app.example", "https://app.example/", "https://*.example",
		"https://app.example:443", "http://app.example:80",
		"ftp://app.example", "https://App.example", "https://u@app.example", "https://app.example/path",
		"https://app.example?x"} {
		if _, err := edge.New(edge.Config{Hub: h.Hub, Appender: h.Appender, Origins: []string{bad}}); err == nil ||
			!strings.Contains(err.Error(), "origin") {
			t.Errorf("%q is an origin: %v", bad, err)
		}
	}
}
