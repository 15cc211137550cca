package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func frame(event, data, token string) dialect.Frame {
	f := dialect.Frame{Event: []byte(event), Data: []byte(data)}
	if token != "" {
		f.Token = []byte(token)
	}
	return f
}

func TestAppendFrame(t *testing.T) {
	for _, tt := range []struct{ name, event, data, token, want string }{
		{"whole", "text.delta", `{"a":1}`, "7", "event: text.delta\ndata: {\"a\":1}\nid: 7\n\n"},
		{"not the last of its event", "x", `{}`, "", "event: x\ndata: {}\n\n"},
		{"no name", "", `{}`, "1", "data: {}\nid: 1\n\n"},
		{"line feed in data", "x", "{\n\"a\":\n1}", "1", "event: x\ndata: { \"a\": 1}\nid: 1\n\n"},
		{"forged frame by CR", "x", "{}\r\rdata: forged\r\r", "1", "event: x\ndata: {}  data: forged  \nid: 1\n\n"},
		{"forged frame by CR LF", "x", "{}\r\n\r\nevent: forged", "1", "event: x\ndata: {}    event: forged\nid: 1\n\n"},
		{"forged name", "x\ndata: forged\n\n", `{}`, "1", "event: x data: forged  \ndata: {}\nid: 1\n\n"},
		{"forged id", "x", `{}`, "1\n\ndata: forged", "event: x\ndata: {}\nid: 1  data: forged\n\n"},
		{"NUL in id", "x", `{}`, "1\x00", "event: x\ndata: {}\nid: 1 \n\n"},
		{"escapes are content", "x", `{"t":"a\nb\r\u0000"}`, "1", "event: x\ndata: {\"t\":\"a\\nb\\r\\u0000\"}\nid: 1\n\n"},
		{"unicode separators do not end a line", "x", "{\"t\":\"\u2028\u2029\u0085\"}", "1",
			"event: x\ndata: {\"t\":\"\u2028\u2029\u0085\"}\nid: 1\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := []byte("before ")
			got := string(Plain.Append(before, frame(tt.event, tt.data, tt.token)))
			if got != "before "+tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// FuzzAppendFrame holds that one frame is one event for a reader, whatever is in it.
func FuzzAppendFrame(f *testing.F) {
	f.Add("text.delta", `{"a":1}`, "1")
	f.Add("x\n\ny", "a\r\rb", "\x00\r\n")
	f.Add("", "", "")
	f.Fuzz(func(t *testing.T, event, data, token string) {
		got := Plain.Append(nil, frame(event, data, token))
		// Every line end counts for a reader: LF, CR, CR LF.
		text := strings.ReplaceAll(string(got), "\r\n", "\n")
		text = strings.ReplaceAll(text, "\r", "\n")
		body, ok := strings.CutSuffix(text, "\n\n")
		if !ok || strings.Contains(body, "\n\n") || bytes.IndexByte(got, '\r') >= 0 || bytes.IndexByte(got, 0) >= 0 {
			t.Fatalf("not one event: %q", got)
		}
		for line := range strings.SplitSeq(body, "\n") {
			if !strings.HasPrefix(line, "event: ") && !strings.HasPrefix(line, "data: ") && !strings.HasPrefix(line, "id: ") {
				t.Fatalf("foreign line %q in %q", line, got)
			}
		}
	})
}

// serve runs fn as the handler of one request and gives the response.
func serve(t *testing.T, cfg Config, fn func(*EventSink)) *http.Response {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := tr.Open(w, nil)
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		defer s.CloseWith(transport.End{})
		fn(s)
	}))
	t.Cleanup(srv.Close)
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func TestHeadersHintAndFrames(t *testing.T) {
	resp := serve(t, Config{Retry: 2 * time.Second}, func(s *EventSink) {
		frames := []dialect.Frame{frame("a", "{}", "1"), frame("b", "[]", "2")}
		if err := errors.Join(s.Write(frames), flush(s), s.KeepAlive(), flush(s)); err != nil {
			t.Error(err)
		}
	})
	for k, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no",
	} {
		if got := resp.Header.Get(k); got != want {
			t.Errorf("%s: %q, want %q", k, got, want)
		}
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^retry: ([23]\d{3}|4000)\n\nevent: a\ndata: \{\}\nid: 1\n\nevent: b\ndata: \[\]\nid: 2\n\n: keepalive\n\n$`)
	if !want.Match(body) {
		t.Errorf("body %q", body)
	}
}

func TestHintIsJittered(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		resp := serve(t, Config{}, func(*EventSink) {})
		body, _ := io.ReadAll(resp.Body)
		seen[string(body)] = true
	}
	if len(seen) < 5 {
		t.Errorf("20 clients were given %d different hints", len(seen))
	}
}

// recorder counts the writes that reach the connection.
type recorder struct {
	http.ResponseWriter
	writes, flushes int
	largest         int
}

func (r *recorder) Write(b []byte) (int, error) {
	r.writes++
	r.largest = max(r.largest, len(b))
	return r.ResponseWriter.Write(b)
}
func (r *recorder) FlushError() error {
	r.flushes++
	return http.NewResponseController(r.ResponseWriter).Flush()
}
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func TestOneWritePerBatchAndChunks(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	big := `{"t":"` + strings.Repeat("x", 500<<10) + `"}`
	var want bytes.Buffer
	done := make(chan recorder, 1)
	small := []dialect.Frame{frame("a", "{}", "1"), frame("b", "{}", "2"), frame("c", "{}", "3")}
	mixed := []dialect.Frame{frame("a", "{}", "4"), frame("b", big, "5"), frame("c", "{}", "6")}
	many := make([]dialect.Frame, 300)
	for i := range many {
		many[i] = frame("m", `{"t":"`+strings.Repeat("y", 1000)+`"}`, "7")
	}
	for _, fs := range [][]dialect.Frame{small, mixed, many} {
		for _, f := range fs {
			want.Write(Plain.Append(nil, f))
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w}
		s, err := tr.Open(rec, nil)
		if err != nil {
			t.Error(err)
			return
		}
		rec.writes, rec.flushes = 0, 0
		if err := errors.Join(s.Write(small), flush(s)); err != nil || rec.writes != 1 || rec.flushes != 1 {
			t.Errorf("a small batch took %d writes and %d flushes: %v", rec.writes, rec.flushes, err)
		}
		if err := errors.Join(s.Write(mixed), flush(s), s.Write(many), flush(s)); err != nil {
			t.Error(err)
		}
		done <- *rec
	}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := bytes.Cut(body, []byte("\n\n"))
	if !bytes.Equal(rest, want.Bytes()) {
		t.Errorf("%d bytes differ from the %d expected", len(rest), want.Len())
	}
	if rec := <-done; rec.largest > chunk {
		t.Errorf("a write of %d bytes under one deadline", rec.largest)
	}
}

// TestSlowClientIsCut has a client that never reads: the sink gives up after the write time-out, and
// holds next to nothing while it waits.
func TestSlowClientIsCut(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "h2c"} {
		t.Run(proto, func(t *testing.T) {
			tr, err := New(Config{WriteTimeout: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			result := make(chan error, 1)
			var sent atomic.Int64
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s, err := tr.Open(w, nil)
				if err != nil {
					result <- err
					return
				}
				defer s.CloseWith(transport.End{})
				f := []dialect.Frame{frame("x", strings.Repeat("y", 30<<10), "1")}
				for err == nil {
					var n int64
					if err = s.Write(f); err == nil {
						n, err = s.Flush()
					}
					if err == nil {
						sent.Add(n)
					}
				}
				result <- err
			}))
			srv.Config.Protocols = new(http.Protocols)
			srv.Config.Protocols.SetHTTP1(true)
			srv.Config.Protocols.SetUnencryptedHTTP2(true)
			srv.Start()
			defer srv.Close()
			stop := open(t, srv, proto)
			defer stop()
			select {
			case err := <-result:
				if !errors.Is(err, dialect.ErrSlowClient) {
					t.Errorf("ended with %v after %d bytes", err, sent.Load())
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("still writing after %d bytes", sent.Load())
			}
		})
	}
}

// open sends a request and reads nothing of the answer.
func open(t *testing.T, srv *httptest.Server, proto string) (stop func()) {
	if proto == "HTTP/1.1" {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		return func() { c.Close() }
	}
	tr := &http.Transport{Protocols: new(http.Protocols)}
	tr.Protocols.SetUnencryptedHTTP2(true)
	resp, err := (&http.Client{Transport: tr}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	return func() { resp.Body.Close(); tr.CloseIdleConnections() }
}

// TestIdleStreamSurvives holds that no deadline is left behind: on HTTP/2 it would reset the stream.
func TestIdleStreamSurvives(t *testing.T) {
	tr, err := New(Config{WriteTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := tr.Open(w, nil)
		if err != nil {
			t.Error(err)
			return
		}
		<-release
		if err := errors.Join(s.Write([]dialect.Frame{frame("late", "{}", "1")}), flush(s)); err != nil {
			t.Error(err)
		}
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	ct := &http.Transport{Protocols: new(http.Protocols)}
	ct.Protocols.SetUnencryptedHTTP2(true)
	defer ct.CloseIdleConnections()
	resp, err := (&http.Client{Transport: ct}).Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	// The write deadline is the kernel's clock, which no fake one moves.
	timer := time.AfterFunc(200*time.Millisecond, func() { close(release) })
	defer timer.Stop()
	body, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasSuffix(string(body), "event: late\ndata: {}\nid: 1\n\n") {
		t.Errorf("%q, %v", body, err)
	}
}

func TestClientGone(t *testing.T) {
	result := make(chan error, 1)
	gone := make(chan struct{})
	resp := serve(t, Config{}, func(s *EventSink) {
		<-gone
		var err error
		for err == nil { // the kernel takes some before it learns of the reset
			err = s.KeepAlive()
			runtime.Gosched()
		}
		result <- err
	})
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	close(gone)
	if err := <-result; !errors.Is(err, dialect.ErrClientGone) {
		t.Errorf("ended with %v", err)
	}
}

func TestBuffersAreReused(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := tr.Open(w, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer s.CloseWith(transport.End{})
		f := []dialect.Frame{frame("x", `{"t":"abc"}`, "1")}
		allocs := testing.AllocsPerRun(100, func() {
			if err := errors.Join(s.Write(f), flush(s)); err != nil {
				t.Error(err)
			}
		})
		// net/http's own bookkeeping of deadlines and chunks is not ours.
		if s.buf != nil || allocs > 4 {
			t.Errorf("%v allocations for a batch, buffer held %v", allocs, s.buf != nil)
		}
	}))
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, resp.Body)
}

func TestNoDeadlinesIsAnError(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder() // knows no deadlines
	if _, err := tr.Open(w, nil); !errors.Is(err, http.ErrNotSupported) || w.Flushed {
		t.Errorf("open: %v, flushed %v", err, w.Flushed)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []Config{{WriteTimeout: -1}, {Retry: -1}, {Retry: time.Microsecond}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

func flush(s *EventSink) error {
	_, err := s.Flush()
	return err
}
