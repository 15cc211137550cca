package ws

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
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

// both runs a test with a poller and without.
func both(t *testing.T, fn func(t *testing.T, cfg Config)) {
	t.Run("poller", func(t *testing.T) {
		p, _ := polled(t)
		fn(t, Config{Poll: p})
	})
	t.Run("goroutine", func(t *testing.T) { fn(t, Config{}) })
}

// quiet waits until nobody reads.
func quiet(t testing.TB, s *SocketSink) {
	t.Helper()
	if s.watch != nil {
		until(t, "quiet", func() bool { return s.in.state.Load() == inputQuiet })
	}
}

// ready makes one write of ready frames.
func ready(texts ...string) []byte {
	b := Text.Reset(nil)
	for _, f := range frames(texts...) {
		b = Text.Append(b, f)
	}
	return Text.Finish(b)
}

// fill writes ready frames until the client takes no more, and returns the rest of the last, of which a
// part went out.
func fill(t testing.TB, s *SocketSink, data string) (rest []byte, whole int) {
	t.Helper()
	b := ready(data)
	for range 10000 {
		n, err := s.TryWrite(b)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 && n < len(b) {
			return b[n:], whole
		}
		if n == len(b) { // else the kernel was full between two frames
			whole++
		}
	}
	t.Fatal("the client takes everything")
	return nil, 0
}

// answerClose reads up to the close frame, answers it, and returns what came before.
func (p *peer) answerClose(t testing.TB) (code int, before []got) {
	t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		f, err := p.frame()
		if err != nil {
			t.Errorf("no close frame: %v", err)
			return 0, before
		}
		if f.op == opClose {
			_, _ = p.Write(masked(0x88, f.data))
			return int(binary.BigEndian.Uint16(f.data)), before
		}
		before = append(before, f)
	}
}

// TestReadyFrames holds that frames that were built for many are the same messages as any others, and in
// their order.
func TestReadyFrames(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		s := server(t, cfg, nil)
		p, sink := s.connect(t)
		if sink.Encoding() != Text || Text.Finish(Text.Reset(nil)) != nil {
			t.Fatal("takes no ready frames")
		}
		var want []string
		for _, n := range []int{0, 125, 126, 40000, 70000} {
			texts := []string{strings.Repeat("a", n), "b"}
			b := ready(texts...)
			if n, err := sink.TryWrite(b); n != len(b) || err != nil {
				t.Fatalf("%d of %d, %v", n, len(b), err)
			}
			if err := errors.Join(sink.Write(frames("c")), flushed(sink)); err != nil {
				t.Error(err)
			}
			want = append(append(want, texts...), "c")
		}
		if rest, err := sink.TryKeepAlive(); len(rest) > 0 || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		done := make(chan error, 1)
		go func() { done <- sink.CloseWith(transport.End{Clean: true}) }()
		code, before := p.answerClose(t)
		if err := wait(t, done, "end"); err != nil || code != 1000 {
			t.Errorf("%d, %v", code, err)
		}
		if last := len(before) - 1; last != len(want) || before[last].op != opPing {
			t.Fatalf("%d frames, want %d", len(before), len(want)+1)
		}
		for i, w := range want {
			if before[i].op != opText || string(before[i].data) != w {
				t.Errorf("frame %d: %d bytes, want %d", i, len(before[i].data), len(w))
			}
		}
	})
}

// TestPartAndPings has a client that pings and does not read while a ready frame is half written: no
// pong gets into it.
func TestPartAndPings(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		s := server(t, cfg, nil)
		p, sink := s.connect(t)
		data := strings.Repeat("0123456789", 9000)
		rest, whole := fill(t, sink, data)
		for i := range 50 {
			if _, err := p.Write(masked(0x89, fmt.Append(nil, i))); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "reader", func() bool { return sink.in.state.Load() != inputQuiet })
		if n, err := sink.TryWrite([]byte("x")); n != 0 || err != nil {
			t.Errorf("a frame within a frame: %d, %v", n, err)
		}
		rested := make(chan error, 1)
		go func() { rested <- sink.Rest(rest) }()
		for i := range whole + 1 {
			f, err := p.frame()
			if err != nil || f.op != opText || string(f.data) != data {
				t.Fatalf("frame %d of %d: opcode %d, %d bytes, %v", i, whole+1, f.op, len(f.data), err)
			}
		}
		if err := wait(t, rested, "rest"); err != nil {
			t.Error(err)
		}
		for last := ""; last != "49"; {
			f, err := p.frame()
			if err != nil || f.op != opPong {
				t.Fatalf("%v, %v, want a pong", f, err)
			}
			last = string(f.data)
		}
		p.Close()
		_ = sink.CloseWith(transport.End{})
	})
}

// TestLockHeld holds that nobody waits for the reader, which may be answering a ping.
func TestLockHeld(t *testing.T) {
	s := server(t, Config{}, nil)
	p, sink := s.connect(t)
	sink.out.mu.Lock()
	if n, err := sink.TryWrite(ready("a")); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	ping, err := sink.TryKeepAlive()
	if len(ping) != 10 || err != nil {
		t.Errorf("%q, %v", ping, err)
	}
	sink.out.mu.Unlock()
	if err := errors.Join(sink.Rest(ready("a")), sink.Rest(ping)); err != nil {
		t.Error(err)
	}
	if f, err := p.frame(); err != nil || string(f.data) != "a" {
		t.Errorf("%v, %v", f, err)
	}
	if f, err := p.frame(); err != nil || f.op != opPing || !bytes.HasSuffix(ping, f.data) {
		t.Errorf("%v, %v", f, err)
	}
	p.Close()
	_ = sink.CloseWith(transport.End{})
}

// TestTryKeepAlive has clients that answer and such that do not. Where nobody reads, the next ping finds
// that out.
func TestTryKeepAlive(t *testing.T) {
	const limit = 400 * time.Millisecond // on a busy machine also the client that answers is slow
	both(t, func(t *testing.T, cfg Config) {
		cfg.WriteTimeout, cfg.CloseTimeout = limit, limit
		s := server(t, cfg, nil)
		p, sink := s.connect(t)
		silent, lost := s.connect(t)
		quiet(t, lost)
		begun := time.Now()
		if rest, err := lost.TryKeepAlive(); len(rest) > 0 || err != nil {
			t.Fatalf("%q, %v", rest, err)
		}
		for time.Since(begun) < 3*limit {
			if rest, err := sink.TryKeepAlive(); len(rest) > 0 || err != nil {
				t.Fatalf("a client that answers: %q, %v", rest, err)
			}
			f, err := p.frame()
			if err != nil || f.op != opPing {
				t.Fatalf("%v, %v", f, err)
			}
			if _, err := p.Write(masked(0x8A, f.data)); err != nil {
				t.Fatal(err)
			}
			until(t, "pong", func() bool { sink.in.mu.Lock(); defer sink.in.mu.Unlock(); return sink.in.until.IsZero() })
		}
		if cfg.Poll == nil {
			if err := wait(t, s.closed, "Closed"); !errors.Is(err, dialect.ErrClientGone) {
				t.Errorf("closed: %v", err)
			}
		} else if len(s.closed) > 0 {
			t.Errorf("closed: %v", <-s.closed)
		}
		if _, err := lost.TryKeepAlive(); !errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("a client that does not answer: %v", err)
		}
		_ = lost.CloseWith(transport.End{Close: 1001}) // returns
		silent.Close()
		p.Close()
		_ = sink.CloseWith(transport.End{})
	})
}

// TestEndBehindAPart holds that no close frame is written into a frame that is not whole.
func TestEndBehindAPart(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		s := server(t, cfg, nil)
		p, sink := s.connect(t)
		data := strings.Repeat("x", 90000)
		_, whole := fill(t, sink, data)
		if err := sink.CloseWith(transport.End{Close: 1001}); err == nil {
			t.Error("the word got through")
		}
		for range whole {
			if f, err := p.frame(); errors.Is(err, syscall.ECONNRESET) {
				break
			} else if err != nil || string(f.data) != data {
				t.Fatalf("opcode %d, %v", f.op, err)
			}
		}
		if f, err := p.frame(); err == nil {
			t.Errorf("opcode %d, %d bytes", f.op, len(f.data))
		}
	})
}

// TestViolationWithinAPart has the client break the protocol while a ready frame is half written.
func TestViolationWithinAPart(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.WriteTimeout, cfg.CloseTimeout = time.Minute, 100*time.Millisecond
		s := server(t, cfg, nil)
		p, sink := s.connect(t)
		rest, whole := fill(t, sink, strings.Repeat("x", 90000))
		if _, err := p.Write(masked(0x82, []byte("x"))); err != nil {
			t.Fatal(err)
		}
		until(t, "reader", func() bool { return sink.in.left.Load() })
		if err := sink.Rest(rest); !errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("rest: %v", err)
		}
		bad := new(ProtocolError)
		if err := wait(t, s.closed, "Closed"); !errors.As(err, &bad) || bad.Code != closeUnsupported {
			t.Errorf("closed: %v", err)
		}
		if err := sink.CloseWith(transport.End{Close: 1003}); !errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("end: %v", err)
		}
		for i := 0; ; i++ {
			f, err := p.frame()
			if err != nil {
				break
			}
			if f.op != opText || i >= whole {
				t.Fatalf("frame %d of %d: opcode %d", i, whole, f.op)
			}
		}
	})
}

// TestRestToASlowClient has clients that do not read: too long, and until they are cut.
func TestRestToASlowClient(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		cfg.WriteTimeout = 100 * time.Millisecond
		s := server(t, cfg, nil)
		p, sink := s.connect(t)
		rest, _ := fill(t, sink, strings.Repeat("x", 90000))
		replied := make(chan error, 1)
		go func() { replied <- sink.Reply(frames("waits, or comes behind it")) }()
		if err := sink.Rest(append(rest, make([]byte, 8<<20)...)); !errors.Is(err, dialect.ErrSlowClient) {
			t.Errorf("rest: %v", err)
		}
		if err := wait(t, replied, "reply"); !errors.Is(err, dialect.ErrSlowClient) || errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("a reply that has waited: %v", err)
		}
		if _, err := sink.TryWrite(rest); !errors.Is(err, dialect.ErrSlowClient) {
			t.Errorf("write behind a failure: %v", err)
		}
		if err := sink.CloseWith(transport.End{Close: 1008}); err == nil {
			t.Error("a word got through")
		}
		if _, err := io.Copy(io.Discard, p.br); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client sees %v", err)
		}

		cfg.WriteTimeout = time.Minute
		s = server(t, cfg, nil)
		p, sink = s.connect(t)
		rest, _ = fill(t, sink, strings.Repeat("x", 90000))
		rested := make(chan error, 1)
		go func() { rested <- sink.Rest(append(rest, make([]byte, 8<<20)...)) }()
		sink.Cut()
		if err := wait(t, rested, "rest"); !errors.Is(err, dialect.ErrClientGone) {
			t.Errorf("rest: %v", err)
		}
		if err := sink.CloseWith(transport.End{Close: 1008}); err == nil {
			t.Error("a word got through")
		}
		if _, err := io.Copy(io.Discard, p.br); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the client sees %v", err)
		}
	})
}

// TestEverythingAtOnce has many clients that read, speak and ping while ready frames are written to them
// without waiting, and the rest with.
func TestEverythingAtOnce(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		const conns, messages = 20, 400
		s := server(t, cfg, func([]byte) error { return nil })
		var wg sync.WaitGroup
		for range conns {
			p, sink := s.connect(t)
			wg.Go(func() { // the view
				for i := range messages {
					b := ready(fmt.Sprintf("%d %s", i, strings.Repeat("z", i*7)))
					n, err := sink.TryWrite(b)
					if err == nil && n < len(b) {
						err = sink.Rest(b[n:])
					}
					if err == nil && i%50 == 0 {
						var rest []byte
						if rest, err = sink.TryKeepAlive(); err == nil && len(rest) > 0 {
							err = sink.Rest(rest)
						}
					}
					if err != nil {
						t.Errorf("message %d: %v", i, err)
						return
					}
				}
				if err := sink.CloseWith(transport.End{Clean: true}); err != nil {
					t.Error(err)
				}
			})
			var out sync.Mutex
			stop := make(chan struct{})
			wg.Go(func() { // the client's words
				for {
					select {
					case <-stop:
						return
					default:
					}
					out.Lock()
					_, _ = p.Write(masked([]byte{0x81, 0x89}[rand.IntN(2)], []byte("hello")))
					out.Unlock()
					runtime.Gosched()
				}
			})
			wg.Go(func() { // the client's ears
				defer close(stop)
				for i := 0; ; {
					f, err := p.frame()
					switch {
					case err != nil:
						t.Errorf("frame %d: %v", i, err)
						return
					case f.op == opText:
						if !bytes.HasPrefix(f.data, fmt.Appendf(nil, "%d ", i)) {
							t.Errorf("%.10q, want %d", f.data, i)
						}
						i++
					case f.op == opPing || f.op == opClose:
						out.Lock()
						_, _ = p.Write(masked(map[byte]byte{opPing: 0x8A, opClose: 0x88}[f.op], f.data))
						out.Unlock()
						if f.op == opClose {
							if i != messages {
								t.Errorf("%d messages", i)
							}
							return
						}
					case f.op != opPong:
						t.Errorf("opcode %d", f.op)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestTryWriteAllocatesNothing holds for what is done for each of many clients.
func TestTryWriteAllocatesNothing(t *testing.T) {
	p, _ := polled(t)
	s := server(t, Config{Poll: p}, nil)
	c, sink := s.connect(t)
	go func() {
		var b [64 << 10]byte
		for {
			if _, err := c.Conn.Read(b[:]); err != nil {
				return
			}
		}
	}()
	quiet(t, sink)
	b := ready(`{"t":"abc"}`)
	if allocs := testing.AllocsPerRun(200, func() {
		if n, err := sink.TryWrite(b); n < len(b) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	c.Close()
	_ = sink.CloseWith(transport.End{})
}
