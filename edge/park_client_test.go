package edge_test

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentstream/edge/live"
	"agentstream/schema"
)

// tap is a client on a connection of its own that is read by hand: what nobody takes stays in the server's
// buffers.
type tap struct {
	t    testing.TB
	tcp  net.Conn
	r    *bufio.Reader // behind the head; of SSE, what the chunks hold
	ws   bool
	mute bool // answers no pings

	signs  int    // keep-alives: comments or pings
	code   int    // of the WebSocket's close frame; 0: none came
	reason string // with it
}

// errClosed is the end of a WebSocket by a close frame.
var errClosed = errors.New("closed")

// tap opens a stream over "sse" or "ws". A window of 0 is the system's.
func (h *house) tap(carrier, path string, window int, headers ...string) (*tap, error) {
	d := net.Dialer{Timeout: 20 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
		if window == 0 {
			return nil
		}
		var serr error
		// Before the handshake, or the window that it has agreed on stays.
		return errors.Join(c.Control(func(fd uintptr) {
			serr = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, window)
		}), serr)
	}}
	conn, err := d.Dial("tcp", h.addr)
	if err != nil {
		return nil, err
	}
	return h.tapOn(conn, carrier, path, headers...)
}

// tapOn is tap on a connection.
func (h *house) tapOn(conn net.Conn, carrier, path string, headers ...string) (*tap, error) {
	k := &tap{t: h.t, tcp: conn, ws: carrier == "ws"}
	head := "GET " + path + " HTTP/1.1\r\nHost: x\r\n"
	if k.ws {
		head += "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	for i := 0; i+1 < len(headers); i += 2 {
		head += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, head+"\r\n"); err != nil {
		return nil, err
	}
	k.r = bufio.NewReaderSize(conn, 512)
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if k.ws && resp.StatusCode == 101 {
		return k, nil
	}
	if resp.StatusCode != 200 || k.ws {
		b, _ := io.ReadAll(resp.Body)
		conn.Close()
		return nil, fmt.Errorf("%d %s", resp.StatusCode, b)
	}
	k.r = bufio.NewReaderSize(httputil.NewChunkedReader(k.r), 512) // resp.Body would read ahead
	return k, nil
}

func (h *house) mustTap(carrier, path string, window int, headers ...string) *tap {
	h.t.Helper()
	k, err := h.tap(carrier, path, window, headers...)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { k.tcp.Close() })
	return k
}

// next returns the next event's line. io.EOF is a clean end of SSE, errClosed a close frame.
func (k *tap) next() (string, error) {
	if k.ws {
		return k.message()
	}
	line := ""
	for {
		text, err := k.r.ReadString('\n')
		if err != nil {
			return text, err
		}
		switch name, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ": "); name {
		case "":
			if line != "" {
				return line, nil
			}
			if value != "" { // a comment
				k.signs++
				return "", nil
			}
		case "data":
			line = value
		}
	}
}

// message is next of a WebSocket. "" is a ping.
func (k *tap) message() (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(k.r, head[:]); err != nil {
		return "", err
	}
	n := uint64(head[1])
	var err error
	switch n {
	case 126:
		var b [2]byte
		_, err = io.ReadFull(k.r, b[:])
		n = uint64(binary.BigEndian.Uint16(b[:]))
	case 127:
		var b [8]byte
		_, err = io.ReadFull(k.r, b[:])
		n = binary.BigEndian.Uint64(b[:])
	}
	if err != nil || n > 8<<20 {
		return "", errors.Join(err, fmt.Errorf("frame of %d bytes", n))
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(k.r, body); err != nil {
		return "", err
	}
	switch head[0] {
	case 0x81:
		return string(body), nil
	case 0x89:
		k.signs++
		if !k.mute {
			_, err = k.tcp.Write(append([]byte{0x8A, 0x80 | byte(n), 0, 0, 0, 0}, body...))
		}
		return "", err
	case 0x88:
		if n >= 2 {
			k.code, k.reason = int(binary.BigEndian.Uint16(body)), string(body[2:])
		}
		_, _ = k.tcp.Write(append([]byte{0x88, 0x80 | byte(n), 0, 0, 0, 0}, body...))
		return "", errClosed
	}
	return "", fmt.Errorf("frame begins with %x", head)
}

// event is next without keep-alives.
func (k *tap) event() (string, error) {
	for {
		line, err := k.next()
		if line != "" || err != nil {
			return line, err
		}
	}
}

// take reads events up to the one with this seq.
func (k *tap) take(seq schema.Seq) {
	k.t.Helper()
	for {
		line, err := k.event()
		if err != nil {
			k.t.Fatalf("waiting for %d: %v", seq, err)
		}
		if r, err := schema.ScanLine([]byte(line)); err != nil || r.Seq > seq {
			k.t.Fatalf("waiting for %d: %v: %s", seq, err, line)
		} else if r.Seq == seq {
			return
		}
	}
}

// clean reports whether the stream was ended as complete.
func (k *tap) clean(err error) bool {
	return !k.ws && err == io.EOF || k.ws && errors.Is(err, errClosed) && k.code == 1000
}

// span is what an event says of its numbers.
func span(line string) (first, last schema.Seq, err error) {
	r, err := schema.ScanLine([]byte(line))
	return r.First(), r.Seq, err
}

// gate stops readers for a while.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: it stands open
}

func (g *gate) wait() {
	g.mu.Lock()
	ch := g.open
	g.mu.Unlock()
	if ch != nil {
		<-ch
	}
}

func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.open == nil:
		g.open = make(chan struct{})
	case !shut && g.open != nil:
		close(g.open)
		g.open = nil
	}
}

// settle waits until so many streams are open and parked.
func (h *house) settle(n int) {
	h.t.Helper()
	var c live.Census
	ok := func() bool { c = h.srv.Census(); return c.Streams == n && c.Parked == n }
	defer func() {
		if !ok() {
			h.t.Logf("streams: %+v", c)
		}
	}()
	eventually(h.t, fmt.Sprintf("%d streams are parked", n), ok)
}

// vacant waits until nothing is left of any stream.
func (h *house) vacant() {
	h.t.Helper()
	eventually(h.t, "no stream and no view is left", func() bool { return h.srv.Census() == live.Census{} })
}
