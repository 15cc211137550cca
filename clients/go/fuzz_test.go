package agentstream

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"agentstream/schema"
)

// FuzzStream gives a client a body that is anything. Whatever it is, numbers only grow, and what is
// missing between two events was said in between.
func FuzzStream(f *testing.F) {
	f.Add([]byte(sse([]string{line(0, 1), line(2, 3), final(0, 4, done)}, "\n")))
	f.Add([]byte(sse([]string{line(0, 1), line(4, 5), line(3, 6)}, "\r\n")))
	f.Add([]byte("id: 7\n\n" + sse([]string{line(0, 8)}, "\r") + expired))
	f.Add([]byte("retry: 0\nid: 3\ndata: {}\n\n" + sse([]string{line(0, 4)}, "\n")))
	f.Fuzz(func(t *testing.T, body []byte) {
		n := 0
		var s *Stream
		enough := Hooks{Retrying: func(error, time.Duration) { s.Close() }} // instead of waiting
		c := client(t, Config{Hooks: enough}, func(*http.Request) (*http.Response, error) {
			if n++; n > 1 {
				return answer(404, "", nil), nil
			}
			return streamed(string(body)), nil
		})
		s = c.Run("r1").Watch(t.Context(), Options{})
		defer s.Close()
		var told *GapError
		last := schema.Seq(0)
		for e, err := range s.All(t.Context()) {
			if gap := new(GapError); errors.As(err, &gap) {
				if gap.After != last {
					t.Fatalf("a gap behind %d is told behind %d", gap.After, last)
				}
				told = gap
				continue
			}
			if err != nil {
				break
			}
			if e.Seq <= last || e.Seq != s.Cursor() {
				t.Fatalf("seq %d behind %d, cursor %d", e.Seq, last, s.Cursor())
			}
			if first := e.First(); first <= last && told == nil || first > max(last, s.through)+1 && told == nil {
				t.Fatalf("seq %d from %d behind %d, and nothing was said", e.Seq, first, last)
			}
			last, told = e.Seq, nil
		}
	})
}
