package proxy_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/anthropic/anthropictest"
	"agentstream/adapters/proxy"
)

// recordedUpstream starts an upstream that answers with a recorded stream, a flush for each frame, and returns the
// stream's bytes.
func recordedUpstream(b *testing.B) (up *httptest.Server, size int64) {
	b.Helper()
	_, read := anthropictest.Recordings(b)
	stream := string(read("anthropic/text-long.sse"))
	frames := strings.SplitAfter(stream, "\n\n")
	up = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.Header().Set("Content-Type", sse)
		for _, f := range frames {
			_, _ = io.WriteString(w, f)
			w.(http.Flusher).Flush()
		}
	}))
	b.Cleanup(up.Close)
	return up, int64(len(stream))
}

// BenchmarkAnswers carries a recorded stream (99 text deltas, 14 kB, a flush for each frame) from an
// upstream to a client: directly, through the proxy without a record, and recorded onto a real log.
func BenchmarkAnswers(b *testing.B) {
	up, size := recordedUpstream(b)
	r := startAt(b, map[string]string{"up": up.URL}, func(c *proxy.Config) { c.Logger = nil })
	for _, bench := range []struct{ name, url string }{
		{"direct", up.URL + "/v1/messages"}, {"passed", r.url + "/v1/other"}, {"recorded", r.url + "/v1/messages"},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, bench.url,
						strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
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

// BenchmarkFirstToken is how long a client waits for the first piece of text: directly, and recorded by the proxy. Both
// are measured in turn, in pairs, one request at a time, so that what else the machine does meets both. Times are in
// µs; ratio is of the medians, added the median of what the proxy adds within a pair.
func BenchmarkFirstToken(b *testing.B) {
	up, _ := recordedUpstream(b)
	r := startAt(b, map[string]string{"up": up.URL}, func(c *proxy.Config) { c.Logger = nil })
	first := func(url string) time.Duration {
		begun := time.Now()
		resp, err := r.http.Post(url, "application/json",
			strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		took := time.Duration(0)
		for {
			line, err := in.ReadSlice('\n')
			if took == 0 && bytes.Contains(line, []byte("text_delta")) {
				took = time.Since(begun)
			}
			if err != nil {
				return took
			}
		}
	}
	urls := [2]string{up.URL + "/v1/messages", r.url + "/v1/messages"}
	var took [2][]float64
	var added []float64
	for n := 0; b.Loop(); n++ {
		var pair [2]float64
		for i := range urls {
			i = (i + n) % 2
			pair[i] = float64(first(urls[i]).Nanoseconds()) / 1000
			took[i] = append(took[i], pair[i])
		}
		added = append(added, pair[1]-pair[0])
	}
	at := func(list []float64, q float64) float64 {
		slices.Sort(list)
		return list[int(q*float64(len(list)-1))]
	}
	b.ReportMetric(at(took[0], 0.5), "direct-p50-µs")
	b.ReportMetric(at(took[0], 0.99), "direct-p99-µs")
	b.ReportMetric(at(took[1], 0.5), "recorded-p50-µs")
	b.ReportMetric(at(took[1], 0.99), "recorded-p99-µs")
	b.ReportMetric(at(added, 0.5), "added-p50-µs")
	b.ReportMetric(at(added, 0.99), "added-p99-µs")
	b.ReportMetric(at(took[1], 0.5)/at(took[0], 0.5), "ratio")
	if l := r.losses(); len(l) > 0 {
		b.Errorf("%d losses, first %+v", len(l), l[0])
	}
}
