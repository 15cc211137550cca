package transport_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A buffer is used again when it is small, and let go when it has grown.
func TestBuffers(t *testing.T) {
	var pool transport.Buffers
	b := pool.Get()
	*b = append(*b, "text"...)
	pool.Put(b)
	pool.Put(nil)
	if got := pool.Get(); len(*got) != 0 {
		t.Errorf("a buffer that is not empty: %q", *got)
	}
	grown := make([]byte, 0, 3*transport.Chunk)
	pool.Put(&grown)
	for range 8 {
		if got := pool.Get(); cap(*got) > 2*transport.Chunk {
			t.Errorf("a buffer of %d bytes is kept", cap(*got))
		}
	}
}

// Frames that are ready leave room for what stands around them, and nothing is sealed.
func TestEncoding(t *testing.T) {
	plain := &transport.Encoding{Append: func(dst []byte, f dialect.Frame) []byte { return append(dst, f.Data...) }}
	framed := &transport.Encoding{Append: plain.Append, Headroom: 3,
		Seal: func(buf []byte) []byte { copy(buf, "<<<"); return buf }}
	for _, c := range []struct {
		e     *transport.Encoding
		texts []string
		want  string
	}{
		{plain, nil, ""}, {plain, []string{"a", "b"}, "ab"}, {framed, nil, ""}, {framed, []string{"a"}, "<<<a"},
	} {
		buf := c.e.Reset([]byte("old"))
		for _, text := range c.texts {
			buf = c.e.Append(buf, dialect.Frame{Data: []byte(text)})
		}
		if got := c.e.Finish(buf); string(got) != c.want || (got == nil) != (c.want == "") {
			t.Errorf("%d frames: %q, want %q", len(c.texts), got, c.want)
		}
	}
}

// The text of an end has what there is.
func TestEndText(t *testing.T) {
	for want, e := range map[string]transport.End{"C: m": {Code: "C", Message: "m"}, "C": {Code: "C"},
		"m": {Message: "m"}, "": {}} {
		if got := e.Text(); got != want {
			t.Errorf("%+v: %q", e, got)
		}
	}
}

// slow is a response whose writes fail, or take no deadline.
type slow struct {
	http.ResponseWriter
	deadline error
}

func (s slow) SetWriteDeadline(time.Time) error { return s.deadline }
func (s slow) FlushError() error                { return nil }

// What a write fails with is a client that is slow or one that is gone; a response without deadlines says so.
func TestResponseErrors(t *testing.T) {
	cut := errors.New("cut")
	for name, c := range map[string]struct {
		timeout  time.Duration
		deadline error
		write    error
		want     error
	}{
		"well":         {time.Hour, nil, nil, nil},
		"gone":         {time.Hour, nil, cut, dialect.ErrClientGone},
		"slow":         {-time.Hour, nil, cut, dialect.ErrSlowClient},
		"no deadlines": {time.Hour, http.ErrNotSupported, nil, http.ErrNotSupported},
	} {
		rec := httptest.NewRecorder()
		var w io.Writer = rec
		if c.write != nil {
			w = failing{c.write}
		}
		r := transport.NewResponse("test", w, http.NewResponseController(slow{rec, c.deadline}), c.timeout)
		n, err := r.Write(bytes.Repeat([]byte("x"), transport.Chunk+1))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if c.want != nil {
			continue
		}
		if err := r.Flush(); err != nil || n != transport.Chunk+1 || r.Count() != int64(n) || r.Count() != 0 ||
			rec.Body.Len() != n {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// A request of HTTP/1.1 is answered while its body is open, and its end comes whole or not at all.
func TestDuplex(t *testing.T) {
	for name, why := range map[string]error{"whole": nil, "cut": errors.New("cut")} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if !transport.CanDuplex(w, r) {
					t.Error("it cannot be taken over")
					return
				}
				w.Header().Set("X-Own", "yes")
				d, err := transport.OpenDuplex(w, r, time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				for lines := bufio.NewScanner(d); lines.Scan(); {
					if _, err := d.Write([]byte("re: " + lines.Text() + "\n")); err != nil {
						t.Error(err)
					}
				}
				_ = d.CloseWith(why)
			}))
			defer srv.Close()
			body, sent := io.Pipe()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.WriteString(sent, "one\n") }()
			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			if line, err := lines.ReadString('\n'); line != "re: one\n" || err != nil || resp.Header.Get("X-Own") != "yes" {
				t.Errorf("%q, %v, %v", line, err, resp.Header)
			}
			go func() {
				_, _ = io.WriteString(sent, "two\n")
				_ = sent.Close()
			}()
			rest, err := io.ReadAll(lines)
			if !strings.HasPrefix("re: two\n", string(rest)) || (err == nil) != (why == nil) || why == nil && len(rest) == 0 {
				t.Errorf("the rest is %q, %v", rest, err)
			}
		})
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	if transport.CanDuplex(httptest.NewRecorder(), r) {
		t.Error("a response without a connection can be taken over")
	}
}
