package sse

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/poll"
)

// polled runs a poller until the test's end, or until stop. nil where there is none.
func polled(t testing.TB) (p *poll.Poller, stop func()) {
	t.Helper()
	p, err := poll.New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	until(t, "poller", func() bool {
		w, err := p.Add(c, func(*poll.Watch) {})
		if err == nil {
			w.Stop()
		}
		return err == nil || p == nil
	})
	return p, stop
}

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

func wait[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not come", what)
	}
	return v
}

// both runs a test with a poller and without.
func both(t *testing.T, fn func(t *testing.T, cfg Config)) {
	t.Run("poller", func(t *testing.T) {
		p, _ := polled(t)
		fn(t, Config{Poll: p})
	})
	t.Run("goroutine", func(t *testing.T) { fn(t, Config{}) })
}

// takeover is a server that takes each connection over.
type takeover struct {
	srv    *httptest.Server
	sinks  chan *Direct
	gone   chan error
	bodies chan string
}

// wrapped is a response as the edge hands it on.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func direct(t testing.TB, cfg Config) *takeover {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &takeover{sinks: make(chan *Direct, 1000), gone: make(chan error, 1000), bodies: make(chan string, 1000)}
	s.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("body: %v", err)
		}
		s.bodies <- string(b)
		w.Header().Set("X-Request-Id", "req_1")
		w.Header().Add("Vary", "Origin")
		w.Header().Add("Vary", "Accept")
		d, err := tr.OpenDirect(wrapped{w}, r, nil, func(err error) { s.gone <- err })
		if err != nil {
			t.Errorf("open: %v", err)
			return
		}
		s.sinks <- d
	}))
	t.Cleanup(s.srv.Close)
	return s
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

// connect sends a request, and reads nothing. What more it says is in the same piece.
func (s *takeover) connect(t testing.TB, more string) (*net.TCPConn, *Direct) {
	t.Helper()
	c, err := net.Dial("tcp", s.srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, get+more); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), wait(t, s.sinks, "sink")
}

// body reads a response to its end; the hint before the events is cut off.
func body(t testing.TB, c net.Conn) (string, error) {
	t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	return events(t, resp)
}

func events(t testing.TB, resp *http.Response) (string, error) {
	t.Helper()
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	hint, rest, ok := strings.Cut(string(b), "\n\n")
	if !ok || !strings.HasPrefix(hint, "retry: ") {
		t.Errorf("body begins with %.50q", b)
	}
	return rest, err
}

func chunked(frames ...dialect.Frame) []byte {
	b := Plain.Encoding().Reset(nil)
	for _, f := range frames {
		b = Plain.Encoding().Append(b, f)
	}
	return Plain.Encoding().Finish(b)
}

// TestDirectReadsTheSame holds that a client of net/http reads the same over a connection that was taken
// over as through the server.
func TestDirectReadsTheSame(t *testing.T) {
	big := `{"t":"` + strings.Repeat("é", 90<<10) + `"}`
	broken := strings.Repeat("{\r\n\"a\":\n1}", 10<<10)
	batches := [][]dialect.Frame{
		nil,
		{frame("a", "{}", "1"), frame("", "[]", ""), frame("b", "{\n\"x\":\r1}", "2\x00")},
		{frame("big", big, "3")},
		{frame("a", "{}", "4"), frame("big", big, ""), frame("big", big, "5"), frame("z", "{}", "6")},
		{frame("lines", broken, "7"), frame("z", "", "8")},
		{frame("edge", strings.Repeat("x", chunk-1), "9"), frame("edge", strings.Repeat("y", chunk), "10"),
			frame("z", "{}", "11")},
	}
	for n := range 300 {
		batches[1] = append(batches[1], frame("m", strings.Repeat("z", n), "12"))
	}
	say := func(s transport.Sink) {
		for i, fs := range batches {
			if err := s.Write(fs); err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
			if n, err := s.Flush(); err != nil || (n == 0) != (len(fs) == 0) {
				t.Errorf("flush of batch %d: %d, %v", i, n, err)
			}
			if err := s.KeepAlive(); err != nil {
				t.Error(err)
			}
		}
	}
	last := []dialect.Frame{frame("stream.error", "{}", "")}
	plain := serve(t, Config{}, func(s *EventSink) {
		say(s)
		if err := s.CloseWith(transport.End{Clean: true, Last: last}); err != nil {
			t.Error(err)
		}
	})
	want, err := events(t, plain)
	if err != nil {
		t.Fatal(err)
	}
	both(t, func(t *testing.T, cfg Config) {
		s := direct(t, cfg)
		go func() {
			d := <-s.sinks
			say(d)
			if err := d.CloseWith(transport.End{Clean: true, Last: last}); err != nil {
				t.Error(err)
			}
		}()
		resp, err := s.srv.Client().Get(s.srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		for k := range plain.Header {
			if k != "Date" && resp.Header.Get(k) != plain.Header.Get(k) {
				t.Errorf("%s: %q, want %q", k, resp.Header.Get(k), plain.Header.Get(k))
			}
		}
		if _, err := http.ParseTime(resp.Header.Get("Date")); err != nil {
			t.Error(err)
		}
		if h := resp.Header; h.Get("X-Request-Id") != "req_1" || len(h.Values("Vary")) != 2 || !resp.Close ||
			resp.StatusCode != 200 {
			t.Errorf("%s, close %v, %v", resp.Status, resp.Close, h)
		}
		got, err := events(t, resp)
		if err != nil || got != want {
			t.Errorf("%d bytes, %v, want %d", len(got), err, len(want))
		}
	})
}

// TestReadyFramesReadTheSame holds that frames that were built for many are the same events.
func TestReadyFramesReadTheSame(t *testing.T) {
	s := direct(t, Config{})
	c, d := s.connect(t, "")
	if d.Encoding() != Plain.Encoding() {
		t.Fatal("takes no ready frames")
	}
	if b := Plain.Encoding().Finish(Plain.Encoding().Reset(nil)); b != nil {
		t.Errorf("nothing is %q", b) // it would end the body
	}
	fs := []dialect.Frame{frame("a", "{}", "1"), frame("b", strings.Repeat("x", 5000), "")}
	var want []byte
	for range 3 {
		want = Plain.Append(Plain.Append(want, fs[0]), fs[1])
		b := chunked(fs...)
		if n, err := d.TryWrite(b); n != len(b) || err != nil {
			t.Errorf("%d of %d, %v", n, len(b), err)
		}
		want = append(want, ": keepalive\n\n"...)
		if rest, err := d.TryKeepAlive(); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		want = Plain.Append(want, fs[0])
		if err := errors.Join(d.Write(fs[:1]), flushDirect(d)); err != nil {
			t.Error(err)
		}
	}
	if err := d.CloseWith(transport.End{Clean: true}); err != nil {
		t.Error(err)
	}
	if got, err := body(t, c); err != nil || got != string(want) {
		t.Errorf("%q, %v", got, err)
	}
}

func flushDirect(d *Direct) error {
	_, err := d.Flush()
	return err
}

// TestDirectEnds holds that a client can tell a stream that is complete from one that broke off.
func TestDirectEnds(t *testing.T) {
	last := []dialect.Frame{frame("stream.error", "{}", "")}
	for _, tt := range []struct {
		name string
		end  transport.End
		body string
		err  error
	}{
		{"clean", transport.End{Clean: true}, "", nil},
		{"clean with a last frame", transport.End{Clean: true, Last: last}, "event: stream.error\ndata: {}\n\n", nil},
		{"broken off", transport.End{Code: "SHUTTING-DOWN"}, "", io.ErrUnexpectedEOF},
		{"clean with last frames", transport.End{Clean: true,
			Last: []dialect.Frame{frame("a", "{}", "7"), frame("", "[]", "")}},
			"event: a\ndata: {}\nid: 7\n\ndata: []\n\n", nil},
		{"broken off with a last frame", transport.End{Last: last}, "event: stream.error\ndata: {}\n\n", io.ErrUnexpectedEOF},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				s := direct(t, cfg)
				c, d := s.connect(t, "")
				// What was written and not flushed is not sent: no other sink does.
				if err := errors.Join(d.Write([]dialect.Frame{frame("a", "{}", "1")}), flushDirect(d),
					d.Write([]dialect.Frame{frame("lost", "{}", "2")})); err != nil {
					t.Fatal(err)
				}
				if err := d.CloseWith(tt.end); err != nil {
					t.Error(err)
				}
				if got, err := body(t, c); got != "event: a\ndata: {}\nid: 1\n\n"+tt.body || !errors.Is(err, tt.err) {
					t.Errorf("%q, %v", got, err)
				}
				if len(s.gone) > 0 {
					t.Errorf("gone: %v", <-s.gone)
				}
			})
		})
	}
}

// TestNotDirect has what must go through the HTTP server, and then does.
func TestNotDirect(t *testing.T) {
	tr, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if d, err := tr.OpenDirect(w, r, nil, func(error) { t.Error("gone") }); d != nil || !errors.Is(err, ErrNotDirect) {
			t.Errorf("%s: %v, %v", r.Proto, d, err)
			return
		}
		s, err := tr.Open(w, nil)
		if err != nil {
			t.Error(err)
			return
		}
		if err := errors.Join(s.Write([]dialect.Frame{frame("a", r.Proto, "1")}), flush(s),
			s.CloseWith(transport.End{Clean: true})); err != nil {
			t.Error(err)
		}
	})
	check := func(t *testing.T, resp *http.Response, proto string) {
		t.Helper()
		if got, err := events(t, resp); err != nil || got != "event: a\ndata: "+proto+"\nid: 1\n\n" {
			t.Errorf("%q, %v", got, err)
		}
	}
	t.Run("HTTP/1.0", func(t *testing.T) {
		srv := httptest.NewServer(h)
		defer srv.Close()
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "GET / HTTP/1.0\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		check(t, resp, "HTTP/1.0")
	})
	for _, proto := range []string{"HTTP/2.0", "HTTP/1.1"} {
		t.Run(proto+" over TLS", func(t *testing.T) {
			srv := httptest.NewUnstartedServer(h)
			srv.EnableHTTP2 = proto == "HTTP/2.0"
			srv.StartTLS()
			defer srv.Close()
			resp, err := srv.Client().Get(srv.URL)
			if err != nil {
				t.Fatal(err)
			}
			check(t, resp, proto)
		})
	}
	t.Run("h2c", func(t *testing.T) {
		srv := httptest.NewUnstartedServer(h)
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		srv.Start()
		defer srv.Close()
		ct := &http.Transport{Protocols: srv.Config.Protocols}
		defer ct.CloseIdleConnections()
		resp, err := (&http.Client{Transport: ct}).Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		check(t, resp, "HTTP/2.0")
	})
	t.Run("no connection below", func(t *testing.T) {
		r := httptest.NewRequest("GET", "/", nil)
		if d, err := tr.OpenDirect(httptest.NewRecorder(), r, nil, nil); d != nil || !errors.Is(err, ErrNotDirect) {
			t.Errorf("%v, %v", d, err)
		}
	})
}

// fill writes ready frames until the client takes no more, and returns the rest of the last.
func fill(t testing.TB, d *Direct, fs ...dialect.Frame) (rest []byte, whole int) {
	t.Helper()
	b := chunked(fs...)
	for ; whole < 10000; whole++ {
		n, err := d.TryWrite(b)
		if err != nil {
			t.Fatal(err)
		}
		if n < len(b) {
			return b[n:], whole
		}
	}
	t.Fatal("the client takes everything")
	return nil, 0
}

// TestTryWriteAndRest has a client that does not read for a while: what it gets in the end is exact.
func TestTryWriteAndRest(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		s := direct(t, cfg)
		c, d := s.connect(t, "")
		f := frame("x", strings.Repeat("0123456789", 3000), "1")
		rest, whole := fill(t, d, f)
		if n, err := d.TryWrite(rest); n >= len(rest) || err != nil { // full is full
			t.Errorf("%d, %v", n, err)
		} else {
			rest = rest[n:]
		}
		rested := make(chan error, 1)
		go func() { rested <- d.Rest(rest) }()
		got := make(chan string, 1)
		go func() {
			b, err := body(t, c)
			if err != nil {
				t.Error(err)
			}
			got <- b
		}()
		if err := wait(t, rested, "rest"); err != nil {
			t.Fatal(err)
		}
		b := chunked(frame("y", "{}", "2"))
		if n, err := d.TryWrite(b); n != len(b) || err != nil {
			if err = errors.Join(err, d.Rest(b[n:])); err != nil {
				t.Error(err)
			}
		}
		if err := d.CloseWith(transport.End{Clean: true}); err != nil {
			t.Error(err)
		}
		want := strings.Repeat(string(Plain.Append(nil, f)), whole+1) + "event: y\ndata: {}\nid: 2\n\n"
		if b := wait(t, got, "body"); b != want {
			t.Errorf("%d bytes, want %d", len(b), len(want))
		}
	})
}

// TestKeepAliveToAFullClient holds that what does not go out of a keep-alive is the rest.
func TestKeepAliveToAFullClient(t *testing.T) {
	s := direct(t, Config{})
	c, d := s.connect(t, "")
	_ = d.conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	var rest []byte
	n := 0
	for ; len(rest) == 0; n++ {
		var err error
		if rest, err = d.TryKeepAlive(); err != nil || n > 1<<20 {
			t.Fatalf("%d went out, %v", n, err)
		}
	}
	go func() {
		if err := errors.Join(d.Rest(rest), d.CloseWith(transport.End{Clean: true})); err != nil {
			t.Error(err)
		}
	}()
	if got, err := body(t, c); err != nil || got != strings.Repeat(": keepalive\n\n", n) {
		t.Errorf("%d bytes, %v, want %d keep-alives", len(got), err, n)
	}
}

// TestDirectSlowClient has a client that does not read for longer than it may.
func TestDirectSlowClient(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.WriteTimeout = 100 * time.Millisecond
		s := direct(t, cfg)
		c, d := s.connect(t, "")
		rest, _ := fill(t, d, frame("x", strings.Repeat("y", 60<<10), "1"))
		begun := time.Now()
		if err := d.Rest(append(rest, bytes.Repeat([]byte("z"), 8<<20)...)); !errors.Is(err, dialect.ErrSlowClient) ||
			errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("rest: %v", err)
		}
		if took := time.Since(begun); took < 90*time.Millisecond {
			t.Errorf("took %v", took)
		}
		if err := d.CloseWith(transport.End{Clean: true}); !errors.Is(err, dialect.ErrSlowClient) {
			t.Errorf("end: %v", err)
		}
		if got, err := body(t, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d bytes, then %v", len(got), err)
		}
	})
}

// TestEndBehindAPart holds that nothing is written into a chunk that is not whole.
func TestEndBehindAPart(t *testing.T) {
	s := direct(t, Config{WriteTimeout: time.Minute})
	c, d := s.connect(t, "")
	fill(t, d, frame("x", strings.Repeat("y", 60<<10), "1"))
	last := []dialect.Frame{frame("stream.error", "{}", "")}
	if err := d.CloseWith(transport.End{Clean: true, Last: last}); !errors.Is(err, dialect.ErrSlowClient) {
		t.Errorf("end: %v", err)
	}
	if got, err := body(t, c); err == nil || strings.Contains(got, "stream.error") {
		t.Errorf("%d bytes, then %v", len(got), err)
	}
}

// TestCut has a write that waits for its client cut from elsewhere.
func TestCut(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.WriteTimeout = time.Minute
		s := direct(t, cfg)
		_, d := s.connect(t, "")
		rest, _ := fill(t, d, frame("x", strings.Repeat("y", 60<<10), "1"))
		rested := make(chan error, 1)
		go func() { rested <- d.Rest(append(rest, make([]byte, 8<<20)...)) }()
		d.Cut()
		if err := wait(t, rested, "rest"); !errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("rest: %v", err)
		}
		if err := d.CloseWith(transport.End{Clean: true}); !errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("end: %v", err)
		}
	})
}

// TestNoDeadlineIsLeft holds that a write that does not wait is not late because of one that did.
func TestNoDeadlineIsLeft(t *testing.T) {
	const limit = 30 * time.Millisecond
	s := direct(t, Config{WriteTimeout: limit})
	c, d := s.connect(t, "")
	if err := errors.Join(d.Write([]dialect.Frame{frame("a", "{}", "1")}), flushDirect(d)); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * limit) // the deadline is the runtime's own clock
	b := chunked(frame("b", "{}", "2"))
	if n, err := d.TryWrite(b); n != len(b) || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if rest, err := d.TryKeepAlive(); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if err := d.CloseWith(transport.End{Clean: true}); err != nil {
		t.Error(err)
	}
	if got, err := body(t, c); err != nil ||
		got != "event: a\ndata: {}\nid: 1\n\nevent: b\ndata: {}\nid: 2\n\n: keepalive\n\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestTryWriteAllocatesNothing holds for what is done for each of many clients.
func TestTryWriteAllocatesNothing(t *testing.T) {
	s := direct(t, Config{})
	c, d := s.connect(t, "")
	go func() {
		var b [64 << 10]byte
		for {
			if _, err := c.Read(b[:]); err != nil {
				return
			}
		}
	}()
	b := chunked(frame("a", `{"t":"abc"}`, "1"))
	if allocs := testing.AllocsPerRun(200, func() {
		if n, err := d.TryWrite(b); n < len(b) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if rest, err := d.TryKeepAlive(); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	_ = d.CloseWith(transport.End{})
	c.Close()
}
