package edgetest

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
	"syscall"
	"testing"
	"time"

	"agentstream/edge/live"
)

// ClientFrame is a frame as clients send it, with a mask of zeros.
func ClientFrame(first byte, data string) []byte {
	b := []byte{first, 0x80 | byte(len(data))}
	switch n := len(data); {
	case n > 0xFFFF:
		b = binary.BigEndian.AppendUint64([]byte{first, 0xFF}, uint64(n))
	case n > 125:
		b = binary.BigEndian.AppendUint16([]byte{first, 0xFE}, uint16(n))
	}
	return append(append(b, 0, 0, 0, 0), data...)
}

// Send writes bytes to the server.
func (k *Tap) Send(b []byte) {
	k.T.Helper()
	if _, err := k.Tcp.Write(b); err != nil {
		k.T.Fatal(err)
	}
}

// Answer is event without pongs.
func (k *Tap) Answer() (string, error) {
	for {
		line, err := k.Event()
		if err == nil || !strings.Contains(err.Error(), "frame begins with [8a") &&
			!strings.Contains(err.Error(), "frame begins with 8a") {
			return line, err
		}
	}
}

// Say sends a text.
func (k *Tap) Say(format string, a ...any) {
	k.T.Helper()
	k.Send(ClientFrame(0x81, fmt.Sprintf(format, a...)))
}

// Tap is a client on a connection of its own that is read by hand: what nobody takes stays in the server's
// buffers.
type Tap struct {
	T    testing.TB
	Tcp  net.Conn
	r    *bufio.Reader // behind the head; of SSE, what the chunks hold
	Ws   bool
	Mute bool // answers no pings

	Signs  int    // keep-alives: comments or pings
	Code   int    // of the WebSocket's close frame; 0: none came
	Reason string // with it
}

// ErrClosed is the end of a WebSocket by a close frame.
var ErrClosed = errors.New("closed")

// Tap opens a stream over "sse" or "ws". A window of 0 is the system's.
func (h *House) Tap(carrier, path string, window int, headers ...string) (*Tap, error) {
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
	conn, err := d.Dial("tcp", h.Addr)
	if err != nil {
		return nil, err
	}
	return h.TapOn(conn, carrier, path, headers...)
}

// TapOn is tap on a connection.
func (h *House) TapOn(conn net.Conn, carrier, path string, headers ...string) (*Tap, error) {
	k := &Tap{T: h.T, Tcp: conn, Ws: carrier == "ws"}
	head := "GET " + path + " HTTP/1.1\r\nHost: x\r\n"
	if k.Ws {
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
	if k.Ws && resp.StatusCode == 101 {
		return k, nil
	}
	if resp.StatusCode != 200 || k.Ws {
		b, _ := io.ReadAll(resp.Body)
		conn.Close()
		return nil, fmt.Errorf("%d %s", resp.StatusCode, b)
	}
	k.r = bufio.NewReaderSize(httputil.NewChunkedReader(k.r), 512) // resp.Body would read ahead
	return k, nil
}

// MustTap is Tap for a stream that must be answered.
func (h *House) MustTap(carrier, path string, window int, headers ...string) *Tap {
	h.T.Helper()
	k, err := h.Tap(carrier, path, window, headers...)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { k.Tcp.Close() })
	return k
}

// Next returns the next event's line. io.EOF is a clean end of SSE, errClosed a close frame.
func (k *Tap) Next() (string, error) {
	if k.Ws {
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
				k.Signs++
				return "", nil
			}
		case "data":
			line = value
		}
	}
}

// message is next of a WebSocket. "" is a ping.
func (k *Tap) message() (string, error) {
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
		k.Signs++
		if !k.Mute {
			_, err = k.Tcp.Write(append([]byte{0x8A, 0x80 | byte(n), 0, 0, 0, 0}, body...))
		}
		return "", err
	case 0x88:
		if n >= 2 {
			k.Code, k.Reason = int(binary.BigEndian.Uint16(body)), string(body[2:])
		}
		_, _ = k.Tcp.Write(append([]byte{0x88, 0x80 | byte(n), 0, 0, 0, 0}, body...))
		return "", ErrClosed
	}
	return "", fmt.Errorf("frame begins with %x", head)
}

// Event is next without keep-alives.
func (k *Tap) Event() (string, error) {
	for {
		line, err := k.Next()
		if line != "" || err != nil {
			return line, err
		}
	}
}

// Vacant waits until nothing is left of any stream.
func (h *House) Vacant() {
	h.T.Helper()
	Eventually(h.T, "no stream and no view is left", func() bool { return h.Server.Census() == live.Census{} })
}
