package edge_test

import (
	"net/http"
	"testing"

	"agentstream/edge"
	"agentstream/edge/console"
	"agentstream/edge/edgetest"
)

// A request target is a path, or a URL of HTTP whose path it is; nothing else finds a page or a route.
func TestRequestTargets(t *testing.T) {
	h := edgetest.NewHouse(t, func(c *edge.Config) {
		c.Pages = []edge.Page{{Patterns: console.Patterns,
			Handler: console.Handler(func() console.OIDC { return console.OIDC{} })}}
	})
	for _, tt := range []struct {
		line   string
		status int
	}{
		{"GET evil.example:80", 400}, {"GET evil.example:443", 400}, {"POST evil.example:80", 400},
		{"OPTIONS evil.example:80", 400}, {"GET localhost:1", 400},
		{"GET mailto:a@evil.example", 400}, {"GET javascript:alert(1)", 400}, {"GET evil.example", 400},
		{"GET console/", 400}, {"GET ?x", 400}, {"GET #x", 400},
		{"CONNECT evil.example:80", 400}, {"CONNECT evil.example", 400}, {"CONNECT /console/", 405},
		{"GET *", 400}, {"POST *", 400}, {"OPTIONS *", 200},
		{"GET ftp://evil.example/console/", 400}, {"GET ws://evil.example/console/", 400},
		{"GET file:///console/", 400}, {"GET http:///console/", 400},
		{"GET http:/console/", 400}, {"GET http:console", 400}, {"GET http://me@evil.example/console/", 400},
		{"GET https://me:pass@evil.example/", 400},
		// The host is the client's word for this server (RFC 9112 §3.2.2): the answer depends on the path alone.
		{"GET http://evil.example/healthz", 200}, {"GET HTTP://evil.example:99/healthz", 200},
		{"GET https://evil.example/nowhere", 404},
		{"GET http://evil.example", 404}, {"GET http://evil.example/", 404}, {"GET http://evil.example?x", 404},
		{"GET /", 404},
		{"GET //evil.example/", 404}, {"GET //evil.example/console/", 404}, {"GET ///", 404}, {"GET //", 404},
		{"GET /\\evil.example/", 404}, {"GET \\\\evil.example/", 400},
		{"GET /console/..", 404}, {"GET /console/../healthz", 404}, {"GET /./healthz", 404},
		{"GET /console/%2e%2e", 404}, {"GET /console/%2e%2e%2fhealthz", 404},
		{"GET /console%2f", 404}, {"GET /%2fconsole/", 404}, {"GET /console/%5c..%5cx", 404},
		{"GET /console/..%5cx", 404}, {"GET /console\\index.html", 404},
		{"GET /healthz/", 404}, {"GET /healthz%00", 404}, {"GET /healthz;a", 404}, {"GET /%68ealthz", 404},
		{"GET /console", 302}, {"GET /console/", 200},
	} {
		a := h.Raw(tt.line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if a.Status != tt.status {
			t.Errorf("%s: %d %.200s, want %d", tt.line, a.Status, a.Body, tt.status)
		}
		if to := a.Header.Get("Location"); to != "" && (to != "/console/" || tt.status != http.StatusFound) {
			t.Errorf("%s leads to %q", tt.line, to)
		}
	}
	// HTTP/2 has only paths (RFC 9113 §8.3.1).
	for _, path := range []string{"evil.example:80", "http://evil.example/healthz", "*", "healthz", "\\healthz"} {
		l := hold(t, h.Addr, 1<<20)
		if err := l.open(1, true, ask("GET", path)...); err != nil {
			t.Fatal(err)
		}
		edgetest.Eventually(t, path, func() bool { return l.over.Load() == 1 })
		if l.served.Load() != 0 {
			t.Errorf("%s is served", path)
		}
	}
}
