package ws

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// fragments makes one message of frames, with pings between them.
func fragments(data string) (b []byte) {
	first := byte(0x01)
	for {
		n := rand.IntN(len(data) + 1)
		if n == len(data) || rand.IntN(4) == 0 {
			return append(b, masked(first|0x80, []byte(data))...)
		}
		b = append(b, masked(first, []byte(data[:n]))...)
		b = append(b, masked(0x89, []byte("ping"))...)
		data, first = data[n:], 0x00
	}
}

// TestConversations has clients that send messages, in one piece with the request and in fragments, and are
// answered while events are written by others, without waiting and with. Messages come in their order, and so do
// answers and events, between whole frames.
func TestConversations(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		const conns, messages, events = 10, 200, 200
		s := serverOf(t, cfg, Options{Received: func(s *SocketSink, msg []byte) error {
			n, rest, _ := strings.Cut(string(msg), " ")
			return s.Reply(frames("re "+n, "re "+n+" "+rest))
		}})
		var wg sync.WaitGroup
		for range conns {
			pad := func(i int) string { return strings.Repeat("é", i*i%5000) }
			p, sink := s.connect(t, text("0 "+pad(0))...)
			answered := make(chan struct{})
			wg.Go(func() { // the edge
				for i := range events {
					if i%2 == 0 {
						b := ready(fmt.Sprintf("event %d %s", i, pad(i)))
						n, err := sink.TryWrite(b)
						if err == nil && n < len(b) {
							err = sink.Rest(b[n:])
						}
						if err != nil {
							t.Error(err)
						}
					} else if err := errors.Join(sink.Write(frames(fmt.Sprintf("event %d %s", i, pad(i)))),
						flushed(sink)); err != nil {
						t.Error(err)
					}
				}
				<-answered
				if err := sink.CloseWith(transport.End{Clean: true, Last: frames("bye")}); err != nil {
					t.Error(err)
				}
				if err := sink.Reply(frames("late")); !errors.Is(err, dialect.ErrClientGone) {
					t.Errorf("an answer behind the end: %v", err)
				}
			})
			wg.Go(func() {
				for i := 1; i < messages; i++ {
					if _, err := p.Write(fragments(fmt.Sprintf("%d %s", i, pad(i)))); err != nil {
						t.Error(err)
						return
					}
				}
			})
			wg.Go(func() {
				_ = p.SetReadDeadline(time.Now().Add(time.Minute))
				event, answer, head := 0, 0, true
				for {
					f, err := p.frame()
					if err != nil {
						t.Errorf("behind %d events and %d answers: %v", event, answer, err)
						return
					}
					want := fmt.Sprintf("event %d %s", event, pad(event))
					switch got := string(f.data); {
					case f.op == opPong:
					case f.op == opClose:
						if event != events || answer != messages {
							t.Errorf("%d events, %d answers", event, answer)
						}
						_, _ = p.Write(masked(0x88, f.data))
						return
					case got == "bye":
					case got == want:
						event++
						if !head {
							t.Error("an event within an answer")
						}
					case head && got == fmt.Sprintf("re %d", answer):
						head = false
					case !head && got == fmt.Sprintf("re %d %s", answer, pad(answer)):
						if head, answer = true, answer+1; answer == messages {
							close(answered)
						}
					default:
						t.Errorf("%.40q behind %d events and %d answers", got, event, answer)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestSlowReceiver holds that a client that sends faster than its messages are dealt with is slowed down, that
// nothing is lost or queued, and that its pongs, which nobody can read, are not late.
func TestSlowReceiver(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		const size = 32 << 10
		cfg.WriteTimeout = 2 * time.Second // also what a client has for its pong, on a busy machine
		begun, goOn := make(chan struct{}, 1), make(chan struct{})
		var received atomic.Int64
		s := serverOf(t, cfg, Options{Received: func(s *SocketSink, msg []byte) error {
			if n, err := strconv.Atoi(strings.TrimLeft(string(msg[:10]), " ")); err != nil || int64(n) != received.Load() {
				t.Errorf("message %d, %v, want %d", n, err, received.Load())
			}
			if received.Load() == 0 {
				begun <- struct{}{}
				<-goOn
			}
			received.Add(1)
			return nil
		}})
		p, sink := s.connect(t)
		message := func(i int) []byte { return text(fmt.Sprintf("%10d", i) + strings.Repeat("x", size)) }
		if _, err := p.Write(message(0)); err != nil {
			t.Fatal(err)
		}
		wait(t, begun, "message")
		// A ping that the client answers at once.
		if rest, err := sink.TryKeepAlive(); len(rest) > 0 || err != nil {
			t.Fatalf("%q, %v", rest, err)
		}
		f, err := p.frame()
		if err != nil || f.op != opPing {
			t.Fatalf("%v, %v", f, err)
		}
		if _, err := p.Write(masked(0x8A, f.data)); err != nil {
			t.Fatal(err)
		}
		until(t, "the pong's time", func() bool { sink.in.mu.Lock(); defer sink.in.mu.Unlock(); return time.Now().After(sink.in.until) })
		if _, err := sink.TryKeepAlive(); err != nil {
			t.Errorf("a pong that nobody could read is late: %v", err)
		}
		sent, part := 1, []byte(nil)
		for {
			b := message(sent)
			_ = p.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
			n, err := p.Write(b)
			if err != nil {
				part = b[n:]
				break
			}
			if sent++; sent > 10000 {
				t.Fatal("the server takes everything")
			}
		}
		if received.Load() != 0 {
			t.Error("messages are dealt with at the same time")
		}
		_ = p.SetWriteDeadline(time.Time{})
		go func() { // the second ping's pong is on its way behind the messages
			_, _ = p.Write(append(part, masked(0x8A, []byte{0, 0, 0, 0, 0, 0, 0, 2})...))
		}()
		close(goOn)
		until(t, "rest", func() bool { return received.Load() == int64(sent+1) || len(s.closed) > 0 })
		if len(s.closed) > 0 {
			t.Errorf("closed behind %d of %d messages: %v", received.Load(), sent+1, <-s.closed)
		}
		p.Close()
		_ = sink.CloseWith(transport.End{})
	})
}

// TestMessageLimitOfAStream has streams of one transport that take messages of other sizes.
func TestMessageLimitOfAStream(t *testing.T) {
	for _, most := range []int{0, 10, 200 << 10} {
		limit := most
		if most == 0 {
			limit = 100 // the transport's
		}
		for over := range 2 {
			for _, whole := range []bool{true, false} {
				received := make(chan string, 1)
				s := serverOf(t, Config{MaxMessage: 100},
					Options{MaxMessage: most, Received: func(_ *SocketSink, msg []byte) error {
						received <- string(msg)
						return nil
					}})
				p, sink := s.connect(t)
				data := strings.Repeat("x", limit+over)
				b := text(data)
				if !whole {
					b = append(masked(0x01, []byte(data[:5])), masked(0x80, []byte(data[5:]))...)
				}
				if _, err := p.Write(b); err != nil {
					t.Fatal(err)
				}
				if over == 0 {
					if got := wait(t, received, "message"); got != data {
						t.Errorf("%d bytes, want %d", len(got), len(data))
					}
				} else {
					code, reason, _ := p.closing(t)
					if code != closeTooBig || !strings.Contains(reason, strconv.Itoa(limit)) {
						t.Errorf("%d %q", code, reason)
					}
					if len(received) > 0 {
						t.Errorf("%d bytes of %d", len(<-received), limit)
					}
				}
				p.Close()
				_ = sink.CloseWith(transport.End{})
			}
		}
	}
}

// TestReplyToAClientThatLeaves has answers to one that is gone, and to one that does not read.
func TestReplyToAClientThatLeaves(t *testing.T) {
	s := serverOf(t, Config{WriteTimeout: 100 * time.Millisecond, CloseTimeout: 50 * time.Millisecond},
		Options{Received: func(s *SocketSink, msg []byte) error {
			for {
				if err := s.Reply(frames(strings.Repeat("y", 64<<10))); err != nil {
					return err
				}
			}
		}})
	for _, want := range []error{dialect.ErrSlowClient, dialect.ErrClientGone} {
		p, sink := s.connect(t, text("ask")...)
		if want == dialect.ErrClientGone { // it is the row's
			p.Close()
		}
		if err := wait(t, s.closed, "Closed"); !errors.Is(err, want) {
			t.Errorf("closed with %v, want %v", err, want)
		}
		_ = sink.CloseWith(transport.End{})
		p.Close()
	}
}

// TestIdleConversationIsSmall counts what a silent connection costs that has had a conversation: heap and
// stacks, its client's in this process with it.
func TestIdleConversationIsSmall(t *testing.T) {
	const conns, most = 2000, 8 << 10
	poller, _ := polled(t)
	if poller == nil {
		t.Skip("there is no poller here")
	}
	s := serverOf(t, Config{Poll: poller}, Options{Received: func(s *SocketSink, msg []byte) error {
		return s.Reply(frames("re " + string(msg)))
	}})
	ask, answer := text(strings.Repeat("x", 20<<10)), make([]byte, 4+3+20<<10)
	open := func() (net.Conn, *SocketSink) {
		c, err := net.Dial("tcp", s.srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Write([]byte(upgrade + "\r\n")); err != nil {
			t.Fatal(err)
		}
		br := bufio.NewReaderSize(c, 16)
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", resp, err)
		}
		if _, err := c.Write(ask); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(br, answer); err != nil ||
			!bytes.HasSuffix(answer, []byte("re "+strings.Repeat("x", 20<<10))) {
			t.Fatalf("%.20q, %v", answer, err)
		}
		return c, wait(t, s.sinks, "sink")
	}
	memory := func() uint64 {
		for range 3 { // pools let go of what they hold with the second
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	c, sink := open() // what is made once
	quiet(t, sink)
	clients, sinks := []net.Conn{c}, []*SocketSink{sink}
	before, goroutines := memory(), runtime.NumGoroutine()
	for range conns {
		c, sink := open()
		clients, sinks = append(clients, c), append(sinks, sink)
	}
	for _, sink := range sinks {
		quiet(t, sink)
	}
	until(t, "rest", func() bool { return runtime.NumGoroutine() <= goroutines+3 })
	each := (memory() - before) / conns
	t.Logf("%d bytes for each of %d connections", each, conns)
	if each > most {
		t.Errorf("%d bytes for each connection, want at most %d", each, most)
	}
	for i, sink := range sinks {
		clients[i].Close()
		_ = sink.CloseWith(transport.End{})
	}
}
