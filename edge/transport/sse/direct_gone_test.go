package sse

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"weak"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/poll"
)

// TestGone holds that a client that leaves is noticed, once, while nothing is written to it.
func TestGone(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(*net.TCPConn) error
	}{
		{"FIN", (*net.TCPConn).Close},
		{"half", (*net.TCPConn).CloseWrite},
		{"RST", func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				s := direct(t, cfg)
				c, d := s.connect(t, "")
				if err := tt.leave(c); err != nil {
					t.Fatal(err)
				}
				if err := wait(t, s.gone, "gone"); !errors.Is(err, dialect.ErrClientGone) {
					t.Errorf("gone: %v", err)
				}
				_ = d.CloseWith(transport.End{})
				if len(s.gone) > 0 {
					t.Errorf("gone again: %v", <-s.gone)
				}
			})
		})
	}
}

// TestGoneAndEnd has clients leave while their streams end: nobody is told behind End.
func TestGoneAndEnd(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		tr, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var told atomic.Int64
		type stream struct {
			d    *Direct
			over *atomic.Bool
		}
		streams := make(chan stream, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			over := new(atomic.Bool)
			d, err := tr.OpenDirect(w, r, nil, func(error) {
				told.Add(1)
				runtime.Gosched()
				if over.Load() {
					t.Error("gone behind End")
				}
			})
			if err != nil {
				t.Error(err)
			}
			streams <- stream{d, over}
		}))
		defer srv.Close()
		for range 300 {
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(c, get); err != nil {
				t.Fatal(err)
			}
			st := wait(t, streams, "stream")
			var wg sync.WaitGroup
			wg.Go(func() { c.Close() })
			wg.Go(func() { _ = st.d.CloseWith(transport.End{}); st.over.Store(true) })
			wg.Wait()
		}
		t.Logf("%d of 300 were told", told.Load())
	})
}

// TestTalker has clients that say things that nobody asked them for.
func TestTalker(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		s := direct(t, cfg)
		c, d := s.connect(t, strings.Repeat(get, 20)+"\x00garbage")
		for range 20 {
			// All of it together fits into what the kernel holds, so that nothing comes behind the end.
			if _, err := io.WriteString(c, strings.Repeat(get+"\xff\x00", 50)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(d.Write([]dialect.Frame{frame("a", "{}", "1")}), flushDirect(d)); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.CloseWith(transport.End{Clean: true}); err != nil {
			t.Error(err)
		}
		if got, err := body(t, c); err != nil || got != strings.Repeat("event: a\ndata: {}\nid: 1\n\n", 20) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if len(s.gone) > 0 || len(s.sinks) > 0 {
			t.Errorf("%d told, %d more requests", len(s.gone), len(s.sinks))
		}
	})
}

// TestFlood has a client that says much more than any buffer holds, and is missed when it has left.
func TestFlood(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		s := direct(t, cfg)
		c, d := s.connect(t, "")
		flood := bytes.Repeat([]byte("x"), 1<<20)
		for range 16 {
			if _, err := c.Write(flood); err != nil {
				t.Fatal(err)
			}
			b := chunked(frame("a", "{}", "1"))
			if n, err := d.TryWrite(b); n < len(b) || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if len(s.gone) > 0 {
			t.Errorf("gone: %v", <-s.gone)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		wait(t, s.gone, "gone")
		_ = d.CloseWith(transport.End{})
	})
}

// TestUnreadTalk holds that what a client said and nobody read yet does not cost it the end of the body.
func TestUnreadTalk(t *testing.T) {
	p, _ := polled(t)
	s := direct(t, Config{Poll: p})
	c, d := s.connect(t, "")
	busy, busyClient := s.connect(t, "")
	entered, leave := make(chan struct{}), make(chan struct{})
	w, err := p.Add(busy, func(*poll.Watch) { close(entered); <-leave })
	if err != nil {
		t.Fatal(err)
	}
	defer busyClient.CloseWith(transport.End{})
	defer w.Stop()
	defer close(leave)
	<-entered // its answer is there to read: the poller looks at nobody else
	if _, err := io.WriteString(c, strings.Repeat("x", 20<<10)); err != nil {
		t.Fatal(err)
	}
	f := frame("a", strings.Repeat("y", 40<<10), "1")
	b := chunked(f, f, f, f)
	if n, err := d.TryWrite(b); n != len(b) || err != nil {
		t.Fatalf("%d of %d, %v", n, len(b), err)
	}
	if err := d.CloseWith(transport.End{Clean: true}); err != nil {
		t.Error(err)
	}
	if got, err := body(t, c); err != nil || got != strings.Repeat(string(Plain.Append(nil, f)), 4) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestIdleHoldsNoGoroutine counts goroutines of connections that wait.
func TestIdleHoldsNoGoroutine(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		const conns = 60
		s := direct(t, cfg)
		before := runtime.NumGoroutine()
		var sinks []*Direct
		for range conns {
			_, d := s.connect(t, "")
			sinks = append(sinks, d)
		}
		most := 3 // the test server's own
		if cfg.Poll == nil {
			most += conns
		}
		until(t, "rest", func() bool { return runtime.NumGoroutine() <= before+most })
		for _, d := range sinks {
			_ = d.CloseWith(transport.End{})
		}
	})
}

// TestPollerEnds holds that streams outlive the poller: their clients get events, and are missed when
// they leave.
func TestPollerEnds(t *testing.T) {
	p, stop := polled(t)
	s := direct(t, Config{Poll: p})
	c, d := s.connect(t, "")
	other, od := s.connect(t, "")
	stop()
	if len(s.gone) > 0 {
		t.Fatalf("the poller's end is taken for the client's: %v", <-s.gone)
	}
	if _, err := io.WriteString(other, "something"); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Direct{d, od} {
		b := chunked(frame("a", "{}", "1"))
		if n, err := d.TryWrite(b); n != len(b) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	c.Close()
	if err := wait(t, s.gone, "gone"); !errors.Is(err, dialect.ErrClientGone) {
		t.Error(err)
	}
	_ = d.CloseWith(transport.End{})
	if err := od.CloseWith(transport.End{Clean: true}); err != nil {
		t.Error(err)
	}
	if got, err := body(t, other); err != nil || got != "event: a\ndata: {}\nid: 1\n\n" {
		t.Errorf("%q, %v", got, err)
	}
	if len(s.gone) > 0 {
		t.Errorf("gone: %v", <-s.gone)
	}
}

// TestNotTCP holds that a connection of another kind is served, but takes no ready frames.
func TestNotTCP(t *testing.T) {
	p, _ := polled(t)
	tr, err := New(Config{Poll: p})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("unix", t.TempDir()+"/s")
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d, err := tr.OpenDirect(w, r, nil, func(error) {})
		if err != nil || d.Encoding() != nil {
			t.Errorf("%v", err)
			return
		}
		if err := errors.Join(d.Write([]dialect.Frame{frame("a", "{}", "1")}), flushDirect(d), d.KeepAlive(),
			d.CloseWith(transport.End{Clean: true})); err != nil {
			t.Error(err)
		}
	}))
	srv.Listener.Close()
	srv.Listener = ln
	srv.Start()
	defer srv.Close()
	c, err := net.Dial("unix", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, get); err != nil {
		t.Fatal(err)
	}
	if got, err := body(t, c); err != nil || got != "event: a\ndata: {}\nid: 1\n\n: keepalive\n\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestNothingIsHeld holds that a connection that is over is held by nobody.
func TestNothingIsHeld(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		s := direct(t, cfg)
		for _, byClient := range []bool{true, false} {
			c, d := s.connect(t, "")
			if byClient {
				c.Close()
				_ = wait(t, s.gone, "gone")
			}
			_ = d.CloseWith(transport.End{Clean: true})
			held := weak.Make(d)
			until(t, "its memory", func() bool { runtime.GC(); return held.Value() == nil })
		}
	})
}
