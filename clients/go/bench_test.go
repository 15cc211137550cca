package agentstream

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkNext reads small events out of large chunks: what a client can take at most.
func BenchmarkNext(b *testing.B) {
	var all []string
	for i := range 2000 {
		all = append(all, line(0, i+1))
	}
	body := sse(all, "\n")
	b.SetBytes(int64(len(body)) / 2000)
	b.ReportAllocs()
	var s *Stream
	for n := 0; b.Loop(); n++ {
		if n%len(all) == 0 {
			if s != nil {
				s.Close()
			}
			c, err := New(Config{BaseURL: "http://x",
				HTTPClient: &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
					resp := streamed("")
					resp.Body = io.NopCloser(strings.NewReader(body))
					return resp, nil
				})}})
			if err != nil {
				b.Fatal(err)
			}
			s = c.Run("r1").Watch(b.Context(), Options{})
		}
		if _, err := s.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
}
