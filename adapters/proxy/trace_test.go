package proxy_test

import (
	"net/http"
	"strings"
	"testing"
)

// A call's traceparent goes on to the model, and is kept with its events but for deltas. What is none by the rules of
// the W3C goes nowhere, and a tracestate only with one, as long as it is short.
func TestTraceGoesOn(t *testing.T) {
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	long := "a=" + strings.Repeat("x", 511)
	for name, tt := range map[string]struct {
		sent        []string
		kept, state string
	}{
		"none":            {},
		"one":             {[]string{"traceparent", parent, "tracestate", "a=1"}, parent, "a=1"},
		"a long state":    {[]string{"traceparent", parent, "tracestate", long}, parent, ""},
		"a state alone":   {[]string{"tracestate", "a=1"}, "", ""},
		"zeros":           {[]string{"traceparent", strings.Replace(parent, "00f067aa0ba902b7", "0000000000000000", 1), "tracestate", "a=1"}, "", ""},
		"something else":  {[]string{"traceparent", `"},"payload":{"x`}, "", ""},
		"a later version": {[]string{"traceparent", "cc" + parent[2:] + "-x"}, "cc" + parent[2:] + "-x", ""},
	} {
		var got http.Header
		r := start(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			got = req.Header.Clone()
			replay([]byte(answer("msg_1", "hello")), sse).ServeHTTP(w, req)
		}))
		headers := append([]string{"Agentstream-Run", "run"}, tt.sent...)
		resp, _ := r.post("/up/v1/messages", `{"model":"claude","stream":true,"messages":[{"role":"user","content":"hi"}]}`,
			headers...)
		if resp.StatusCode != http.StatusOK || got.Get("Traceparent") != tt.kept || got.Get("Tracestate") != tt.state {
			t.Errorf("%s: %d, the model got %q and %q", name, resp.StatusCode, got.Get("Traceparent"), got.Get("Tracestate"))
		}
		want := ""
		if tt.kept != "" {
			want = parent
		}
		for i, e := range r.calls("run", 1) {
			expect := want
			if strings.HasSuffix(e.Type, ".delta") {
				expect = ""
			}
			if e.Trace() != expect || expect == "" && len(e.Extra) > 0 {
				t.Errorf("%s: event %d, %s, has %q, %s", name, i, e.Type, e.Trace(), e.Extra)
			}
		}
		r.stop()
	}
}
