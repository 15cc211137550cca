package proxy_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/proxy"
)

// BenchmarkAnswers carries a recorded stream (99 text deltas, 14 kB, a flush for each frame) from an
// upstream to a client: directly, through the proxy without a record, and recorded onto a real log.
func BenchmarkAnswers(b *testing.B) {
	_, read := anthropictest.Recorded(b)
	frames := strings.SplitAfter(string(read("anthropic/text-long.sse")), "\n\n")
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", sse)
		for _, f := range frames {
			_, _ = io.WriteString(w, f)
			w.(http.Flusher).Flush()
		}
	}))
	b.Cleanup(up.Close)
	r := startAt(b, map[string]string{"up": up.URL}, func(c *proxy.Config) { c.Logger = nil })
	for _, bench := range []struct{ name, url string }{
		{"direct", up.URL + "/v1/messages"}, {"passed", r.url + "/v1/other"}, {"recorded", r.url + "/v1/messages"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(strings.Join(frames, ""))))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, bench.url, strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
					resp, err := r.http.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			})
		})
	}
	if l := r.losses(); len(l) > 0 {
		b.Errorf("%d losses, first %+v", len(l), l[0])
	}
}
