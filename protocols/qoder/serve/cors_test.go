package serve_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"agentstream/edge"
)

const origin = "https://app.example"

// TestCORS: a page may do all that the routes of an API take, send what clients' libraries send, and read
// what they read.
func TestCORS(t *testing.T) {
	h := newHouse(t, false, func(c *edge.Config) { c.Origins = []string{origin} })
	has := func(header, name string) bool {
		return slices.ContainsFunc(strings.Split(header, ","),
			func(v string) bool { return strings.EqualFold(strings.TrimSpace(v), name) })
	}
	ask := func(method string) http.Header {
		r, err := http.NewRequestWithContext(t.Context(), method, h.url+"/v1/sessions/s", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "DELETE")
		answer, err := h.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.Header
	}
	a := ask("OPTIONS")
	for _, name := range []string{"GET", "POST", "PATCH", "DELETE"} {
		if !has(a.Get("Access-Control-Allow-Methods"), name) {
			t.Errorf("%s is not allowed", name)
		}
	}
	for _, name := range []string{"anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access",
		"x-stainless-arch", "x-stainless-helper",
		"x-stainless-helper-method", "x-stainless-lang", "x-stainless-os", "x-stainless-package-version",
		"x-stainless-retry-count", "x-stainless-runtime",
		"x-stainless-runtime-version", "x-stainless-timeout", "accept", "authorization", "content-type",
		"idempotency-key", "last-event-id"} {
		if !has(a.Get("Access-Control-Allow-Headers"), name) {
			t.Errorf("%s is not allowed", name)
		}
	}
	a = ask("GET")
	for _, name := range []string{"request-id", "x-should-retry", "idempotency-replayed", "retry-after"} {
		if !has(a.Get("Access-Control-Expose-Headers"), name) {
			t.Errorf("%s is not exposed", name)
		}
	}
}
