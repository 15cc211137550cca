package ws

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lxzan/gws"
	"go.uber.org/goleak"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const protocol = "test-v1"

// unwrapper is a response as the edge hands it on.
type unwrapper struct{ http.ResponseWriter }

func (u unwrapper) Unwrap() http.ResponseWriter { return u.ResponseWriter }

// side is a server that opens each request and hands the sink over.
type side struct {
	srv     *httptest.Server
	tr      *Transport
	sinks   chan *SocketSink
	errs    chan error // of Open
	closed  chan error // what Closed got
	release chan struct{}
}

func server(t testing.TB, cfg Config, received func([]byte) error) *side {
	t.Helper()
	if received == nil {
		return serverOf(t, cfg, Options{})
	}
	return serverOf(t, cfg, Options{Received: func(_ *SocketSink, msg []byte) error { return received(msg) }})
}

func serverOf(t testing.TB, cfg Config, o Options) *side {
	t.Helper()
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s := &side{tr: tr, sinks: make(chan *SocketSink, 10000), errs: make(chan error, 10000),
		closed: make(chan error, 10000), release: make(chan struct{})}
	o.Subprotocols, o.Closed = []string{protocol}, func(err error) { s.closed <- err }
	s.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Request-Id", "req_1")
		w.Header().Set("Content-Type", "application/json")
		sink, err := tr.Open(unwrapper{w}, r, o)
		if err != nil {
			s.errs <- err
			if errors.Is(err, dialect.ErrBadRequest) {
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"error":{}}`)
			}
			return
		}
		s.sinks <- sink
	}))
	t.Cleanup(s.srv.Close)
	return s
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

const upgrade = "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: other, test-v1\r\n"

// peer is a client that can send anything.
type peer struct {
	net.Conn
	br *bufio.Reader
}

// connect upgrades; early is sent in one piece with the request.
func (s *side) connect(t testing.TB, early ...byte) (*peer, *SocketSink) {
	t.Helper()
	conn, err := net.Dial("tcp", s.srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := conn.Write(append([]byte(upgrade+"\r\n"), early...)); err != nil {
		t.Fatal(err)
	}
	p := &peer{conn, bufio.NewReader(conn)}
	resp, err := http.ReadResponse(p.br, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %s", resp.Status)
	}
	return p, wait(t, s.sinks, "sink")
}

// got is one frame from the server.
type got struct {
	op   byte
	data []byte
}

// frame reads one frame; servers' are never masked and here never in fragments.
func (p *peer) frame() (f got, err error) {
	var h [8]byte
	if _, err := io.ReadFull(p.br, h[:2]); err != nil {
		return f, err
	}
	if h[0]&0xF0 != 0x80 || h[1]&0x80 != 0 {
		return f, fmt.Errorf("frame begins with %x", h[:2])
	}
	f.op = h[0] & 0xF
	n := int(h[1])
	switch n {
	case 126:
		_, err = io.ReadFull(p.br, h[:2])
		n = int(binary.BigEndian.Uint16(h[:]))
	case 127:
		_, err = io.ReadFull(p.br, h[:8])
		n = int(binary.BigEndian.Uint64(h[:]))
	}
	if err != nil {
		return f, err
	}
	f.data = make([]byte, n)
	_, err = io.ReadFull(p.br, f.data)
	return f, err
}

// closing reads up to the close frame, gives its code (0: none) and reason, and sees that the
// connection ends behind it.
func (p *peer) closing(t testing.TB) (code int, reason string, before []got) {
	t.Helper()
	_ = p.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		f, err := p.frame()
		if err != nil {
			t.Fatalf("no close frame: %v", err)
		}
		if f.op != opClose {
			before = append(before, f)
			continue
		}
		if len(f.data) >= 2 {
			code, reason = int(binary.BigEndian.Uint16(f.data)), string(f.data[2:])
		}
		if n, err := p.br.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("behind the close frame: %d bytes, %v", n, err)
		}
		return code, reason, before
	}
}

// masked makes a client's frame. first is the first byte.
func masked(first byte, data []byte) []byte {
	b := []byte{first}
	switch n := len(data); {
	case n <= 125:
		b = append(b, 0x80|byte(n))
	case n <= 0xFFFF:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	key := [4]byte{0x12, 0x34, 0x56, 0x78}
	b = append(b, key[:]...)
	at := len(b)
	b = append(b, data...)
	unmask(b[at:], key, 0)
	return b
}

func text(s string) []byte { return masked(0x81, []byte(s)) }

func closeFrame(code int, reason string) []byte {
	return masked(0x88, append(binary.BigEndian.AppendUint16(nil, uint16(code)), reason...))
}

func frames(texts ...string) (list []dialect.Frame) {
	for _, s := range texts {
		list = append(list, dialect.Frame{Data: []byte(s)})
	}
	return list
}

func TestFramesArrive(t *testing.T) {
	var want []string
	for _, n := range []int{0, 1, 125, 126, 0xFFFF, 0x10000, chunk - maxHeader, chunk - maxHeader + 1, chunk, 300 << 10,
		7} {
		want = append(want, strings.Repeat("x", n))
	}
	s := server(t, Config{}, nil)
	p, sink := s.connect(t)
	go func() {
		defer sink.CloseWith(transport.End{Clean: true, Code: "ENDED", Message: "the run has ended"})
		if n, err := sink.Flush(); n != 0 || err != nil {
			t.Errorf("flush of nothing: %d, %v", n, err)
		}
		if err := errors.Join(sink.Write(nil), sink.Write(frames(want[:3]...)), sink.Write(frames(want[3:]...))); err != nil {
			t.Error(err)
		}
		size := 0
		for _, w := range want {
			size += len(appendHeader(nil, opText, len(w))) + len(w)
		}
		if n, err := sink.Flush(); n != int64(size) || err != nil {
			t.Errorf("flush: %d, %v, want %d", n, err, size)
		}
		if err := sink.KeepAlive(); err != nil {
			t.Error(err)
		}
	}()
	for i, w := range want {
		f, err := p.frame()
		if err != nil || f.op != opText || string(f.data) != w {
			t.Fatalf("frame %d: opcode %d, %d bytes, %v, want %d bytes", i, f.op, len(f.data), err, len(w))
		}
	}
	f, err := p.frame()
	if err != nil || f.op != opPing {
		t.Fatalf("%v, %v, want a ping", f, err)
	}
	if _, err := p.Write(masked(0x8A, f.data)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.br.Peek(1); err != nil { // a client that closes before it is told so is answered in its own words
		t.Fatal(err)
	}
	if _, err := p.Write(closeFrame(1000, "")); err != nil {
		t.Fatal(err)
	}
	if code, reason, _ := p.closing(t); code != 1000 || reason != "ENDED: the run has ended" {
		t.Errorf("closed with %d %q", code, reason)
	}
}

// TestClientLibrary has a client that is not ours read the frames, answer a ping and the close.
func TestClientLibrary(t *testing.T) {
	s := server(t, Config{}, nil)
	var mu sync.Mutex
	var messages []string
	ended := make(chan error, 1)
	c, resp, err := gws.NewClient(&events{message: func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		messages = append(messages, string(b))
	}, closed: func(err error) { ended <- err }}, &gws.ClientOption{
		Addr: "ws" + strings.TrimPrefix(s.srv.URL, "http") + "/x", CheckUtf8Enabled: true,
		RequestHeader:     http.Header{"Sec-Websocket-Protocol": {protocol}},
		PermessageDeflate: gws.PermessageDeflate{Enabled: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	go c.ReadLoop()
	if resp.Header.Get("X-Request-Id") != "req_1" || resp.Header.Get("Content-Type") != "" ||
		resp.Header.Get("Sec-Websocket-Extensions") != "" {
		t.Errorf("headers %v", resp.Header)
	}
	sink := wait(t, s.sinks, "sink")
	big := strings.Repeat("é", 200<<10)
	if err := errors.Join(sink.Write(frames("one", big)), sink.KeepAlive(), sink.Write(frames("two"))); err != nil {
		t.Fatal(err)
	}
	if err := sink.CloseWith(transport.End{Close: 1008, Code: "CREDENTIAL-EXPIRED"}); err != nil {
		t.Fatal(err)
	}
	bye := new(gws.CloseError)
	if err := wait(t, ended, "close"); !errors.As(err, &bye) || bye.Code != 1008 ||
		string(bye.Reason) != "CREDENTIAL-EXPIRED" {
		t.Errorf("client was closed with %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(messages, []string{"one", big, "two"}) {
		t.Errorf("%d messages", len(messages))
	}
}

type events struct {
	gws.BuiltinEventHandler
	message func([]byte)
	closed  func(error)
}

func (e *events) OnMessage(_ *gws.Conn, m *gws.Message) { e.message(m.Bytes()); m.Close() }
func (e *events) OnClose(_ *gws.Conn, err error)        { e.closed(err) }
func (e *events) OnPing(c *gws.Conn, data []byte)       { _ = c.WritePong(data) }

// TestEnds has what an end becomes on the wire.
func TestEnds(t *testing.T) {
	long := strings.Repeat("é", 100)
	for _, tt := range []struct {
		end    transport.End
		code   int
		reason string
	}{
		{transport.End{Clean: true, Close: 1000}, 1000, ""},
		{transport.End{Clean: true}, 1000, ""},
		{transport.End{}, 1011, ""},
		{transport.End{Close: 1001, Code: "SHUTTING-DOWN", Message: "this node is shutting down"}, 1001,
			"SHUTTING-DOWN: this node is shutting down"},
		{transport.End{Close: 1008, Message: "only this"}, 1008, "only this"},
		{transport.End{Close: 1008, Code: "C", Message: long, Last: []dialect.Frame{{Data: []byte("{}")}}}, 1008,
			"C: " + long[:120]},
		{transport.End{Close: 4401, Message: `{"error":"in the protocol's words"}`,
			Last: []dialect.Frame{{Event: []byte("x"), Data: []byte("one"), Token: []byte("1")}, {}}}, 4401,
			`{"error":"in the protocol's words"}`},
		{transport.End{Clean: true, Close: 4000, Code: "DONE"}, 4000, "DONE"},
		{transport.End{Close: 1008, Message: "a\xff" + long}, 1008, "a\uFFFD" + long[:118]},
		{transport.End{Close: 1005}, 1011, ""}, // no code of these may stand in a frame
		{transport.End{Clean: true, Close: 66536}, 1011, ""},
	} {
		s := server(t, Config{}, nil)
		p, sink := s.connect(t)
		if err := sink.Write(frames("last")); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- sink.CloseWith(tt.end) }()
		if f, err := p.frame(); err != nil || string(f.data) != "last" {
			t.Errorf("%v, %v", f, err)
		}
		for _, last := range tt.end.Last {
			if f, err := p.frame(); err != nil || f.op != opText || string(f.data) != string(last.Data) {
				t.Errorf("%v, %v", f, err)
			}
		}
		f, err := p.frame()
		if err != nil || f.op != opClose || len(f.data) < 2 || len(f.data) > maxControl {
			t.Fatalf("%v, %v", f, err)
		}
		if code, reason := int(binary.BigEndian.Uint16(f.data)), string(f.data[2:]); code != tt.code ||
			reason != tt.reason || !utf8.ValidString(reason) {
			t.Errorf("%d %q, want %d %q", code, reason, tt.code, tt.reason)
		}
		if _, err := p.Write(masked(0x88, f.data)); err != nil {
			t.Fatal(err)
		}
		if err := wait(t, done, "end"); err != nil {
			t.Error(err)
		}
		select {
		case err := <-s.closed:
			t.Errorf("Closed got %v after End", err)
		default:
		}
	}
}

// TestEndWithoutAnswer holds that a client that never answers a close costs no more than the time-out.
func TestEndWithoutAnswer(t *testing.T) {
	s := server(t, Config{CloseTimeout: 100 * time.Millisecond}, nil)
	p, sink := s.connect(t)
	begun := time.Now()
	if err := sink.CloseWith(transport.End{Close: 1001}); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took < 90*time.Millisecond {
		t.Errorf("took %v", took)
	}
	if code, _, _ := p.closing(t); code != 1001 {
		t.Errorf("code %d", code)
	}
}

// TestEarlyFrames holds that what a client sends in one piece with its request is not lost.
func TestEarlyFrames(t *testing.T) {
	received := make(chan string, 10)
	s := server(t, Config{}, func(b []byte) error { received <- string(b); return nil })
	long := strings.Repeat("y", 3000)
	p, sink := s.connect(t, slices.Concat(text("first"), text(long), text("half")[:5])...)
	if _, err := p.Write(append(text("half")[5:], text("last")...)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", long, "half", "last"} {
		if got := wait(t, received, want[:4]); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	p.Close()
	_ = sink.CloseWith(transport.End{})
}

// TestReceivedRefuses holds that a refused message ends the connection in the edge's words.
func TestReceivedRefuses(t *testing.T) {
	refusal := errors.New("not that")
	n := 0
	s := server(t, Config{}, func([]byte) error { n++; return refusal })
	p, sink := s.connect(t)
	if _, err := p.Write(slices.Concat(text("a"), text("b"))); err != nil {
		t.Fatal(err)
	}
	if err := wait(t, s.closed, "Closed"); !errors.Is(err, refusal) {
		t.Error(err)
	}
	done := make(chan error, 1)
	go func() { done <- sink.CloseWith(transport.End{Close: 1008, Code: "NO"}) }()
	f, err := p.frame()
	if err != nil || f.op != opClose || string(f.data[2:]) != "NO" {
		t.Errorf("%v, %v", f, err)
	}
	p.Close()
	if err := wait(t, done, "end"); err != nil || n != 1 {
		t.Errorf("%v, %d messages were received", err, n)
	}
}

// TestSlowClient has a client that never reads: the sink fails within the time-out, keeps nothing, and
// other connections do not notice.
func TestSlowClient(t *testing.T) {
	const limit = 300 * time.Millisecond
	s := server(t, Config{WriteTimeout: limit}, nil)
	_, sink := s.connect(t)
	other, fine := s.connect(t)
	data := bytes.Repeat([]byte("x"), 100<<10)
	before := heap()
	var sent int64
	begun := time.Now()
	var err error
	for range 1000 {
		var n int64
		if err = sink.Write([]dialect.Frame{{Data: data}, {Data: data[:100]}}); err == nil {
			n, err = sink.Flush()
		}
		if sent += n; err != nil {
			break
		}
	}
	took := time.Since(begun)
	grown := heap() - min(before, heap())
	if !errors.Is(err, dialect.ErrSlowClient) {
		t.Errorf("write: %v", err)
	}
	t.Logf("%d bytes were sent before the cut after %v; heap grew by %d bytes", sent, took.Round(time.Millisecond), grown)
	if grown > 1<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	if err := sink.CloseWith(transport.End{Close: 1008}); err == nil {
		t.Error("the end is told to a client that does not read")
	}
	if err := errors.Join(fine.Write(frames("hello")), flushed(fine)); err != nil {
		t.Error(err)
	}
	if f, err := other.frame(); err != nil || string(f.data) != "hello" {
		t.Errorf("%v, %v", f, err)
	}
	other.Close()
	_ = fine.CloseWith(transport.End{})
}

func flushed(s *SocketSink) error {
	_, err := s.Flush()
	return err
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestPings has clients that answer pings, answer late, answer something else, and not at all.
func TestPings(t *testing.T) {
	const limit = 250 * time.Millisecond
	for _, tt := range []struct {
		name   string
		answer func(first, second []byte) []byte
		gone   bool
	}{
		{"the newest", func(_, second []byte) []byte { return masked(0x8A, second) }, false},
		{"both", func(first, second []byte) []byte { return append(masked(0x8A, first), masked(0x8A, second)...) }, false},
		{"none", func(_, _ []byte) []byte { return nil }, true},
		{"another", func(_, _ []byte) []byte { return masked(0x8A, []byte("12345678")) }, true},
		{"one that was never sent", func(_, _ []byte) []byte { return masked(0x8A, []byte{0, 0, 0, 0, 0, 0, 0, 3}) }, true},
		{"empty", func(_, _ []byte) []byte { return masked(0x8A, nil) }, true},
		{"only the older", func(first, _ []byte) []byte { return masked(0x8A, first) }, true},
		{"text", func(_, _ []byte) []byte { return text("I am here") }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := server(t, Config{WriteTimeout: limit}, nil)
			p, sink := s.connect(t)
			if err := errors.Join(sink.KeepAlive(), sink.KeepAlive()); err != nil {
				t.Fatal(err)
			}
			first, err1 := p.frame()
			second, err2 := p.frame()
			if err := errors.Join(err1, err2); err != nil || first.op != opPing || bytes.Equal(first.data, second.data) {
				t.Fatalf("%v, %v, %v", first, second, err)
			}
			if _, err := p.Write(tt.answer(first.data, second.data)); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-s.closed:
				if !tt.gone || !errors.Is(err, dialect.ErrClientGone) {
					t.Errorf("Closed got %v", err)
				}
				wait(t, sink.done, "end of the reading goroutine")
				if err := errors.Join(sink.Write(frames("x")), flushed(sink)); !errors.Is(err, dialect.ErrClientGone) {
					t.Errorf("write: %v", err)
				}
			case <-time.After(4 * limit):
				if tt.gone {
					t.Error("the client is still taken for alive")
				}
				if err := errors.Join(sink.Write(frames("x")), flushed(sink)); err != nil {
					t.Error(err)
				}
			}
			p.Close()
			_ = sink.CloseWith(transport.End{})
		})
	}
}

// TestPingFlood holds that pings are answered with their own payload, and a flood of them with few
// pongs.
func TestPingFlood(t *testing.T) {
	s := server(t, Config{}, nil)
	p, sink := s.connect(t)
	if _, err := p.Write(masked(0x89, []byte("hello"))); err != nil {
		t.Fatal(err)
	}
	if f, err := p.frame(); err != nil || f.op != opPong || string(f.data) != "hello" {
		t.Errorf("%v, %v", f, err)
	}
	const pings = 20000
	go func() {
		var b []byte
		for i := range pings {
			b = append(b, masked(0x89, fmt.Append(nil, i))...)
		}
		_, _ = p.Write(b)
	}()
	pongs := 0
	for last := ""; last != fmt.Sprint(pings-1); pongs++ {
		f, err := p.frame()
		if err != nil || f.op != opPong {
			t.Fatalf("%v, %v", f, err)
		}
		last = string(f.data)
	}
	if pongs > pings/10 {
		t.Errorf("%d pongs for %d pings", pongs, pings)
	}
	p.Close()
	_ = sink.CloseWith(transport.End{})
}
