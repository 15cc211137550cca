package ws

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// header makes a frame's beginning with a length that need not be true.
func header(first byte, length ...byte) []byte {
	return append(append([]byte{first}, length...), 1, 2, 3, 4)
}

func length16(n uint16) []byte { return binary.BigEndian.AppendUint16([]byte{0x80 | 126}, n) }
func length64(n uint64) []byte { return binary.BigEndian.AppendUint64([]byte{0x80 | 127}, n) }

func repeat(n int, b []byte) []byte { return bytes.Repeat(b, n) }

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

const (
	none = 0 // a close frame without a code
	lost = -1
)

// hostile is what clients must not send, and some of what they may, with the close code that answers
// it. Every case ends with a close: what is taken as it is is followed by the client's own.
var hostile = []struct {
	name string
	send []byte
	code int
}{
	// What they may.
	{"close", closeFrame(1000, "bye"), 1000},
	{"close without a code", masked(0x88, nil), none},
	{"close with a code of the application", closeFrame(4321, ""), 4321},
	{"close with a registered code", closeFrame(3000, "x"), 3000},
	{"going away", closeFrame(1001, ""), 1001},
	{"longest reason", closeFrame(1000, strings.Repeat("x", 123)), 1000},
	{"reason in UTF-8", closeFrame(1000, "é\u2028𝄞"), 1000},
	{"text, then close", join(text("hello"), closeFrame(1000, "")), 1000},
	{"empty text", join(text(""), closeFrame(1000, "")), 1000},
	{"largest text", join(text(strings.Repeat("x", 64<<10)), closeFrame(1000, "")), 1000},
	{"largest text in fragments", join(masked(0x01, make([]byte, 60<<10)), masked(0x80, make([]byte, 4<<10)),
		closeFrame(1000, "")), 1000},
	{"fragments", join(masked(0x01, []byte("a")), masked(0x00, []byte("b")), masked(0x80, []byte("c")),
		closeFrame(1000, "")), 1000},
	{"empty fragments", join(masked(0x01, nil), repeat(1000, masked(0x00, nil)), masked(0x80, nil),
		closeFrame(1000, "")), 1000},
	{"a character over fragments", join(masked(0x01, []byte("\xF0\x9D")), masked(0x00, []byte("\x84")),
		masked(0x80, []byte("\x9E")), closeFrame(1000, "")), 1000},
	{"ping within a message", join(masked(0x01, []byte("a")), masked(0x89, []byte("p")), masked(0x80, []byte("b")),
		closeFrame(1000, "")), 1000},
	{"pong that nobody wants", join(masked(0x8A, []byte("p")), closeFrame(1000, "")), 1000},
	{"longest ping", join(masked(0x89, make([]byte, 125)), closeFrame(1000, "")), 1000},
	{"empty ping", join(masked(0x89, nil), closeFrame(1000, "")), 1000},
	{"text of every size around the lengths",
		join(text(strings.Repeat("x", 125)), text(strings.Repeat("x", 126)), text(strings.Repeat("x", 127)),
			text(strings.Repeat("x", 511)), text(strings.Repeat("x", 513)), closeFrame(1000, "")), 1000},
	{"NUL and controls in text", join(text("\x00\x01\x7F"), closeFrame(1000, "")), 1000},
	{"text behind the close", join(closeFrame(1000, ""), text("late")), 1000},

	// Close frames.
	{"close of one byte", masked(0x88, []byte{3}), 1002},
	{"code 0", closeFrame(0, ""), 1002},
	{"code 999", closeFrame(999, ""), 1002},
	{"code 1004", closeFrame(1004, ""), 1002},
	{"code 1005", closeFrame(1005, ""), 1002},
	{"code 1006", closeFrame(1006, ""), 1002},
	{"code 1015", closeFrame(1015, ""), 1002},
	{"code 1016", closeFrame(1016, ""), 1002},
	{"code 2999", closeFrame(2999, ""), 1002},
	{"code 5000", closeFrame(5000, ""), 1002},
	{"code 65535", closeFrame(65535, ""), 1002},
	{"reason that is not UTF-8", closeFrame(1000, "\xFF"), 1007},
	{"half a character as reason", closeFrame(1000, "\xE2\x82"), 1007},
	{"close in fragments", masked(0x08, []byte{3, 232}), 1002},
	{"close of 126 bytes", masked(0x88, make([]byte, 126)), 1002},

	// Control frames.
	{"ping of 126 bytes", masked(0x89, make([]byte, 126)), 1002},
	{"pong of 126 bytes", masked(0x8A, make([]byte, 126)), 1002},
	{"ping with a length of 64 bits", header(0x89, length64(1<<62)...), 1002},
	{"ping in fragments", masked(0x09, []byte("a")), 1002},
	{"pong in fragments", masked(0x0A, nil), 1002},
	{"opcode 11", masked(0x8B, nil), 1002},
	{"opcode 12", masked(0x8C, []byte("x")), 1002},
	{"opcode 13", masked(0x8D, nil), 1002},
	{"opcode 14", masked(0x8E, nil), 1002},
	{"opcode 15", masked(0x8F, nil), 1002},

	// Data frames.
	{"opcode 3", masked(0x83, nil), 1002},
	{"opcode 4", masked(0x84, []byte("x")), 1002},
	{"opcode 5", masked(0x85, nil), 1002},
	{"opcode 6", masked(0x86, nil), 1002},
	{"opcode 7", masked(0x87, nil), 1002},
	{"reserved bit 1", masked(0xC1, []byte("x")), 1002},
	{"reserved bit 2", masked(0xA1, []byte("x")), 1002},
	{"reserved bit 3", masked(0x91, []byte("x")), 1002},
	{"all reserved bits", masked(0xF1, []byte("x")), 1002},
	{"reserved bit of a ping", masked(0xC9, nil), 1002},
	{"reserved bit of a close", masked(0xD8, []byte{3, 232}), 1002},
	{"no mask", []byte{0x81, 1, 'x'}, 1002},
	{"no mask, empty", []byte{0x81, 0}, 1002},
	{"ping without a mask", []byte{0x89, 0}, 1002},
	{"close without a mask", []byte{0x88, 2, 3, 232}, 1002},
	{"binary", masked(0x82, []byte("x")), 1003},
	{"empty binary", masked(0x82, nil), 1003},
	{"binary in fragments", masked(0x02, []byte("x")), 1003},
	{"binary of the largest length", header(0x82, length64(1<<63-1)...), 1003},
	{"binary within a text", join(masked(0x01, []byte("a")), masked(0x82, []byte("b"))), 1003},
	{"text within a text", join(masked(0x01, []byte("a")), text("b")), 1002},
	{"beginning within a text", join(masked(0x01, []byte("a")), masked(0x01, []byte("b"))), 1002},
	{"continuation of nothing", masked(0x80, []byte("a")), 1002},
	{"continuation of nothing, unfinished", masked(0x00, []byte("a")), 1002},
	{"continuation behind the end", join(masked(0x01, nil), masked(0x80, nil), masked(0x80, nil)), 1002},
	{"continuation behind a text", join(text("a"), masked(0x80, []byte("b"))), 1002},

	// Lengths.
	{"5 in 16 bits", header(0x81, length16(5)...), 1002},
	{"125 in 16 bits", header(0x81, length16(125)...), 1002},
	{"5 in 64 bits", header(0x81, length64(5)...), 1002},
	{"65535 in 64 bits", header(0x81, length64(65535)...), 1002},
	{"topmost bit", header(0x81, length64(1<<63)...), 1002},
	{"all bits", header(0x81, length64(1<<64-1)...), 1002},
	{"one more than the largest", header(0x81, length64(64<<10+1)...), 1009},
	{"1 GiB", header(0x81, length64(1<<30)...), 1009},
	{"largest length of all", header(0x81, length64(1<<63-1)...), 1009},
	{"one more than an int32", header(0x81, length64(1<<31)...), 1009},
	{"4 GiB", header(0x81, length64(1<<32)...), 1009},
	{"fragments that are too large together",
		join(masked(0x01, make([]byte, 60<<10)), masked(0x00, make([]byte, 4<<10+1))), 1009},
	{"fragment that says too much", join(masked(0x01, []byte("a")), header(0x00, length64(1<<40)...)), 1009},
	{"endless fragments", join(masked(0x01, nil), repeat(5000, masked(0x00, []byte("x")))), 1009},
	{"endless empty fragments", join(masked(0x01, nil), repeat(5000, masked(0x00, nil))), 1009},

	// Text.
	{"not UTF-8", text("\xFF"), 1007},
	{"continuation byte alone", text("\x80"), 1007},
	{"half a character", text("a\xE2\x82"), 1007},
	{"half a character at the end of fragments", join(masked(0x01, []byte("\xE2")), masked(0x80, []byte("\x82"))), 1007},
	{"broken character over fragments", join(masked(0x01, []byte("\xE2")), masked(0x00, []byte("x"))), 1007},
	{"broken at once, more to come", masked(0x01, []byte("\xC0\xAF")), 1007},
	{"overlong", text("\xE0\x80\xAF"), 1007},
	{"surrogate", text("\xED\xA0\x80"), 1007},
	{"beyond Unicode", text("\xF4\x90\x80\x80"), 1007},
	{"five bytes", text("\xF8\x88\x80\x80\x80"), 1007},
	{"bad byte far behind", text(strings.Repeat("x", 600) + "\xFF"), 1007},
	{"half a character at the end of a buffer", text(strings.Repeat("x", readBuffer-9) + "\xE2\x82x"), 1007},
	{"bad in a text that has a good beginning", join(text("good"), text("b\xFFd")), 1007},

	// No close at all.
	{"cut in a header", []byte{0x81}, lost},
	{"cut in a length", []byte{0x81, 0xFE, 1}, lost},
	{"cut in a mask", []byte{0x81, 0x81, 1, 2}, lost},
	{"cut in a payload", text("hello")[:8], lost},
	{"cut in a message", masked(0x01, []byte("hello")), lost},
	{"another protocol", []byte("GET / HTTP/1.1\r\n\r\n"), 1002},
	{"nothing", nil, lost},
}

// TestHostileFrames sends each case whole and byte by byte: the close code is the table's, the edge is
// told, and nothing of what was sent comes back.
func TestHostileFrames(t *testing.T) {
	if len(hostile) < 100 {
		t.Fatalf("only %d cases", len(hostile))
	}
	both(t, func(t *testing.T, cfg Config) {
		cfg.CloseTimeout = 5 * time.Second
		sendHostile(t, server(t, cfg, nil))
	})
}

func sendHostile(t *testing.T, s *side) {
	for _, tt := range hostile {
		for _, step := range []int{len(tt.send), 1} {
			if step == 1 && len(tt.send) > 200 {
				step = 997 // across every boundary of the reader's buffer, sooner or later
			}
			t.Run(fmt.Sprintf("%s/%d", tt.name, step), func(t *testing.T) {
				p, sink := s.connect(t)
				for b := tt.send; len(b) > 0; b = b[min(step, len(b)):] {
					if _, err := p.Write(b[:min(step, len(b))]); err != nil {
						break // refused before its end
					}
				}
				if tt.code == lost {
					_ = p.Conn.(*net.TCPConn).CloseWrite()
					if err := wait(t, s.closed, "Closed"); !errors.Is(err, dialect.ErrClientGone) {
						t.Errorf("Closed got %v", err)
					}
					_ = sink.CloseWith(transport.End{Close: 1001})
					return
				}
				code, reason, before := p.closing(t)
				if code != tt.code {
					t.Errorf("closed with %d %q, want %d", code, reason, tt.code)
				}
				for _, f := range before {
					if f.op != opPong {
						t.Errorf("got opcode %d, %q", f.op, f.data)
					}
				}
				p.Close()
				err := wait(t, s.closed, "Closed")
				violation := new(ProtocolError)
				if bad := tt.code >= 1002 && tt.code < 3000; bad != errors.As(err, &violation) || bad && violation.Code != tt.code {
					t.Errorf("Closed got %v", err)
				} else if !bad && !errors.Is(err, dialect.ErrClientGone) || bad && !errors.Is(err, dialect.ErrBadRequest) {
					t.Errorf("Closed got %v", err)
				}
				if err := errors.Join(sink.Write(frames("x")), flushed(sink)); !errors.Is(err, dialect.ErrClientGone) {
					t.Errorf("write: %v", err)
				}
				if err := sink.CloseWith(transport.End{Close: 1000}); !errors.Is(err, dialect.ErrClientGone) {
					t.Errorf("end: %v", err)
				}
			})
		}
	}
}

// TestViolationWhileWriting holds that a close frame never lands within another frame: the client breaks
// the protocol while it does not read a large message.
func TestViolationWhileWriting(t *testing.T) {
	s := server(t, Config{WriteTimeout: time.Minute, CloseTimeout: 200 * time.Millisecond}, nil)
	p, sink := s.connect(t)
	data := bytes.Repeat([]byte("x"), 32<<20)
	wrote := make(chan error, 1)
	go func() { wrote <- sink.Write([]dialect.Frame{{Data: data}}) }()
	if _, err := p.br.Peek(20); err != nil { // it is under way
		t.Fatal(err)
	}
	if _, err := p.Write(masked(0x82, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, wrote, "write"); !errors.Is(err, dialect.ErrClientGone) { // and not ErrSlowClient, a minute later
		t.Errorf("write: %v", err)
	}
	_ = wait(t, s.closed, "Closed")
	if err := sink.CloseWith(transport.End{Close: 1000}); err == nil {
		t.Error("a word got through in the middle of a frame")
	}
	if f, err := p.frame(); err == nil {
		t.Errorf("frame of %d bytes was whole", len(f.data))
	}
}

// TestDrainIsBounded has a client that goes on sending after it has broken the protocol.
func TestDrainIsBounded(t *testing.T) {
	s := server(t, Config{CloseTimeout: 300 * time.Millisecond}, nil)
	p, sink := s.connect(t)
	go func() {
		for b := repeat(1000, masked(0x82, []byte("x"))); ; {
			if _, err := p.Write(b); err != nil {
				return
			}
		}
	}()
	_ = wait(t, s.closed, "Closed")
	_ = sink.CloseWith(transport.End{Close: 1000}) // returns
}

// TestLengthAllocatesNothing holds that what a header says costs nothing, only what follows does.
func TestLengthAllocatesNothing(t *testing.T) {
	tr, err := New(Config{MaxMessage: 1 << 31})
	if err != nil {
		t.Fatal(err)
	}
	sent := append(header(0x81, length64(1<<30)...), make([]byte, 100)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := &SocketSink{t: tr, conn: &script{in: sent, step: 1000}, done: make(chan struct{}),
		o: Options{Received: func(*SocketSink, []byte) error { return nil }}}
	s.out.open = true
	s.serve()
	runtime.ReadMemStats(&after)
	n := after.TotalAlloc - before.TotalAlloc
	t.Logf("%d bytes are allocated for a message that says it has 1 GiB and brings 100 bytes", n)
	if n > 16<<10 {
		t.Errorf("%d bytes", n)
	}
}

// TestIdleConnection prints what a connection costs that only waits: the sink, its reading goroutine and
// their stacks. The request's own goroutine has ended; in the edge one more waits beside it.
func TestIdleConnection(t *testing.T) {
	s := server(t, Config{}, nil)
	const conns = 500
	measure := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	first, firstSink := s.connect(t) // what is made once
	before := measure()
	var peers []*peer
	var sinks []*SocketSink
	for range conns {
		p, sink := s.connect(t)
		p.br = nil // the test's own
		peers, sinks = append(peers, p), append(sinks, sink)
	}
	each := (measure() - before) / conns
	t.Logf("%d bytes of heap and stack for an idle connection, the client's end and its file descriptor included", each)
	if each > 16<<10 && os.Getenv("CI") == "" {
		t.Errorf("%d bytes", each)
	}
	for i := range append(peers, first) {
		append(peers, first)[i].Close()
	}
	for _, sink := range append(sinks, firstSink) {
		_ = sink.CloseWith(transport.End{})
	}
}

// FuzzInput holds that no bytes of a client do anything but end the connection, and that what is taken
// as text is UTF-8.
func FuzzInput(f *testing.F) {
	for _, tt := range hostile {
		if len(tt.send) < 200 {
			f.Add(tt.send, uint8(7))
		}
	}
	tr, err := New(Config{MaxMessage: 1000})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sent []byte, step uint8) {
		c := &script{in: sent, step: int(step)}
		s := &SocketSink{t: tr, conn: c, done: make(chan struct{})}
		s.out.open = true
		told := 0
		s.o = Options{
			Received: func(_ *SocketSink, b []byte) error {
				if len(b) > 1000 || !bytes.Equal(bytes.ToValidUTF8(b, []byte("?")), b) {
					t.Fatalf("received %q", b)
				}
				return nil
			},
			Closed: func(error) { told++ },
		}
		s.serve()
		if told != 1 || !c.closed {
			t.Fatalf("told %d times, closed %v", told, c.closed)
		}
		// What went out are whole frames: pongs, and at most one close at the end.
		for b := c.out; len(b) > 0; {
			if len(b) < 2 || b[1] > maxControl || len(b) < 2+int(b[1]) || b[0] != 0x80|opPong && b[0] != 0x80|opClose {
				t.Fatalf("sent %x", c.out)
			}
			n := 2 + int(b[1])
			if b[0] == 0x80|opClose && len(b) != n {
				t.Fatalf("something behind the close: %x", c.out)
			}
			b = b[n:]
		}
	})
}

// script is a connection whose client's part is known.
type script struct {
	net.Conn
	in     []byte
	step   int
	out    []byte
	closed bool
}

func (c *script) Read(b []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, net.ErrClosed
	}
	n := copy(b, c.in[:min(len(c.in), c.step+1)])
	c.in = c.in[n:]
	return n, nil
}
func (c *script) Write(b []byte) (int, error)      { c.out = append(c.out, b...); return len(b), nil }
func (c *script) Close() error                     { c.closed = true; return nil }
func (c *script) CloseWrite() error                { return nil }
func (c *script) SetReadDeadline(time.Time) error  { return nil }
func (c *script) SetWriteDeadline(time.Time) error { return nil }
