package ws

import (
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// TestHandshakes has each side begin the close, the other being quiet.
func TestHandshakes(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.CloseTimeout = 20 * time.Second
		t.Run("client", func(t *testing.T) {
			s := server(t, cfg, nil)
			p, sink := s.connect(t)
			quiet(t, sink)
			if _, err := p.Write(closeFrame(1000, "bye")); err != nil {
				t.Fatal(err)
			}
			if code, _, before := p.closing(t); code != 1000 || len(before) > 0 {
				t.Errorf("%d, %v", code, before)
			}
			if err := wait(t, s.closed, "Closed"); !errors.Is(err, dialect.ErrClientGone) {
				t.Error(err)
			}
			if n, err := sink.TryWrite(ready("x")); n != 0 || !errors.Is(err, dialect.ErrClientGone) {
				t.Errorf("write behind the close: %d, %v", n, err)
			}
			p.Close()
			if err := sink.CloseWith(transport.End{}); !errors.Is(err, dialect.ErrClientGone) {
				t.Error(err)
			}
		})
		t.Run("server", func(t *testing.T) {
			s := server(t, cfg, func([]byte) error { t.Error("received behind End"); return nil })
			p, sink := s.connect(t)
			quiet(t, sink)
			done := make(chan error, 1)
			go func() { done <- sink.CloseWith(transport.End{Close: 1001}) }()
			f, err := p.frame()
			if err != nil || f.op != opClose {
				t.Fatalf("%v, %v", f, err)
			}
			// A message that was on its way, byte by byte, then the answer.
			for _, b := range slices.Concat(text("late"), masked(0x89, nil), masked(0x88, f.data)) {
				if _, err := p.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			if err := wait(t, done, "end"); err != nil {
				t.Error(err)
			}
			if n, err := p.br.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("behind the handshake: %d, %v", n, err)
			}
			if len(s.closed) > 0 {
				t.Errorf("closed: %v", <-s.closed)
			}
		})
		t.Run("both", func(t *testing.T) {
			for range 50 {
				s := server(t, cfg, nil)
				p, sink := s.connect(t)
				var wg sync.WaitGroup
				wg.Go(func() { _, _ = p.Write(closeFrame(1000, "")) })
				wg.Go(func() { _ = sink.CloseWith(transport.End{Close: 1001}) })
				if code, _, _ := p.closing(t); code != 1000 && code != 1001 {
					t.Errorf("code %d", code)
				}
				p.Close()
				wg.Wait()
			}
		})
	})
}

// TestEndWhileReading has End come when the client has sent a part of a frame, or of a message.
func TestEndWhileReading(t *testing.T) {
	for _, tt := range []struct {
		name       string
		part, rest []byte
	}{
		{"in a header", []byte{0x81}, text("hello")[1:]},
		{"in a payload", text("hello")[:8], text("hello")[8:]},
		{"in a message", masked(0x01, []byte("he")), masked(0x80, []byte("llo"))},
		{"in a ping", masked(0x89, []byte("hello"))[:4], masked(0x89, []byte("hello"))[4:]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				for _, goesOn := range []bool{true, false} {
					cfg.CloseTimeout = 20 * time.Second
					if !goesOn {
						cfg.CloseTimeout = 50 * time.Millisecond
					}
					s := server(t, cfg, nil)
					p, sink := s.connect(t)
					quiet(t, sink)
					if _, err := p.Write(tt.part); err != nil {
						t.Fatal(err)
					}
					until(t, "reader", func() bool { return sink.in.state.Load() != inputQuiet })
					done := make(chan error, 1)
					go func() { done <- sink.CloseWith(transport.End{Close: 1001}) }()
					if f, err := p.frame(); err != nil || f.op != opClose {
						t.Fatalf("%v, %v", f, err)
					}
					if goesOn {
						if _, err := p.Write(append(tt.rest, closeFrame(1001, "")...)); err != nil {
							t.Fatal(err)
						}
					}
					if err := wait(t, done, "end"); err != nil {
						t.Error(err)
					}
					if len(s.closed) > 0 {
						t.Errorf("closed: %v", <-s.closed)
					}
				}
			})
		})
	}
}

// TestByteByByte sends messages so that each byte is an event of its own.
func TestByteByByte(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		received := make(chan string, 100)
		s := server(t, cfg, func(b []byte) error { received <- string(b); return nil })
		p, sink := s.connect(t)
		long := strings.Repeat("é", 100)
		sent := slices.Concat(text("one"), masked(0x01, []byte("frag")), masked(0x89, []byte("ping")), masked(0x00, nil),
			masked(0x00, []byte("men")), masked(0x8A, []byte("pong")), masked(0x80, []byte("ts")), text(""), text(long))
		for i, b := range sent {
			if i%3 == 0 {
				quietOrBusy(sink)
			}
			if _, err := p.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"one", "fragments", "", long} {
			if got := wait(t, received, "message"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if f, err := p.frame(); err != nil || f.op != opPong || string(f.data) != "ping" {
			t.Errorf("%v, %v", f, err)
		}
		quiet(t, sink)
		if _, err := p.Write(text("last")); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, received, "message"); got != "last" {
			t.Errorf("%q", got)
		}
		p.Close()
		_ = wait(t, s.closed, "Closed")
		_ = sink.CloseWith(transport.End{})
	})
}

// quietOrBusy gives the reader time to have read what was sent.
func quietOrBusy(s *SocketSink) {
	for range 200 {
		if s.in.state.Load() == inputQuiet {
			return
		}
		runtime.Gosched()
	}
}

// TestPolledEarlyFrames holds that what came with the request is read, though nothing else may come.
func TestPolledEarlyFrames(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		for _, cut := range []int{0, 3} {
			received := make(chan string, 10)
			s := server(t, cfg, func(b []byte) error { received <- string(b); return nil })
			all := slices.Concat(text("first"), text(strings.Repeat("y", 3000)), masked(0x89, []byte("p")), text("half"))
			p, sink := s.connect(t, all[:len(all)-cut]...)
			if cut == 0 {
				for range 3 {
					wait(t, received, "message")
				}
				quiet(t, sink)
			} else if _, err := p.Write(all[len(all)-cut:]); err != nil {
				t.Fatal(err)
			} else {
				for range 3 {
					wait(t, received, "message")
				}
			}
			if f, err := p.frame(); err != nil || f.op != opPong || string(f.data) != "p" {
				t.Errorf("%v, %v", f, err)
			}
			if _, err := p.Write(text("later")); err != nil {
				t.Fatal(err)
			}
			if got := wait(t, received, "later"); got != "later" {
				t.Errorf("%q", got)
			}
			p.Close()
			_ = sink.CloseWith(transport.End{})
		}
	})
}

// TestPollerEnds holds that connections outlive the poller, in whatever state it leaves them.
func TestPollerEnds(t *testing.T) {
	p, stop := polled(t)
	received := make(chan string, 10)
	s := server(t, Config{Poll: p}, func(b []byte) error { received <- string(b); return nil })
	var peers []*peer
	var sinks []*SocketSink
	for range 4 {
		c, sink := s.connect(t)
		quiet(t, sink)
		peers, sinks = append(peers, c), append(sinks, sink)
	}
	if _, err := peers[1].Write(text("half")[:3]); err != nil {
		t.Fatal(err)
	}
	stop()
	for _, b := range [][]byte{text("half"), text("half")[3:], text("half")} {
		if _, err := peers[0].Write(b); err != nil {
			t.Fatal(err)
		}
		if got := wait(t, received, "message"); got != "half" {
			t.Errorf("%q", got)
		}
		peers = append(peers[1:], peers[0])
	}
	for i, sink := range sinks {
		if n, err := sink.TryWrite(ready("x")); n != 3 || err != nil {
			t.Errorf("connection %d: %d, %v", i, n, err)
		}
	}
	sinks[3].conn.Close() // and one that is closed from here
	for i := range 3 {
		peers[i+1].Close()
	}
	for range sinks {
		if err := wait(t, s.closed, "Closed"); !errors.Is(err, dialect.ErrClientGone) {
			t.Error(err)
		}
	}
	for _, sink := range sinks {
		_ = sink.CloseWith(transport.End{})
	}
}

// TestIdleHoldsNoGoroutine counts goroutines of connections that wait.
func TestIdleHoldsNoGoroutine(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		const conns = 60
		s := server(t, cfg, nil)
		before := runtime.NumGoroutine()
		var sinks []*SocketSink
		var peers []*peer
		for range conns {
			p, sink := s.connect(t)
			sinks, peers = append(sinks, sink), append(peers, p)
		}
		most := 3 // the test server's own
		if cfg.Poll == nil {
			most += conns
		}
		until(t, "rest", func() bool { return runtime.NumGoroutine() <= before+most })
		for i, sink := range sinks {
			peers[i].Close()
			_ = sink.CloseWith(transport.End{})
		}
	})
}

// TestPokedWhileReading has more come while the reader is busy: it looks once more, and is called for what
// comes later.
func TestPokedWhileReading(t *testing.T) {
	p, _ := polled(t)
	if p == nil {
		t.Skip("there is no poller here")
	}
	received, goOn := make(chan string, 10), make(chan struct{})
	s := server(t, Config{Poll: p}, func(b []byte) error { received <- string(b); <-goOn; return nil })
	c, sink := s.connect(t, text("early")...)
	next := func(want string) {
		t.Helper()
		if got := wait(t, received, want); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	say := func(s string) {
		t.Helper()
		if _, err := c.Write(text(s)); err != nil {
			t.Fatal(err)
		}
	}
	next("early")
	say("within")
	until(t, "poke", func() bool { return sink.in.state.Load() == inputPoked })
	goOn <- struct{}{}
	next("within")
	goOn <- struct{}{}
	quiet(t, sink)
	say("later")
	next("later")
	close(goOn)
	c.Close()
	_ = wait(t, s.closed, "Closed")
	_ = sink.CloseWith(transport.End{})
}

// TestNothingIsHeld holds that a connection that is over is held by nobody.
func TestNothingIsHeld(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.CloseTimeout = 50 * time.Millisecond
		s := server(t, cfg, nil)
		for _, byClient := range []bool{true, false} {
			p, sink := s.connect(t)
			quiet(t, sink)
			if byClient {
				p.Close()
				_ = wait(t, s.closed, "Closed")
			}
			_ = sink.CloseWith(transport.End{})
			p.Close()
			held := weak.Make(sink)
			until(t, "its memory", func() bool { runtime.GC(); return held.Value() == nil })
		}
	})
}
