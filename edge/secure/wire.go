package secure

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/transport"
)

// wire is the connection under TLS. It waits as any connection does until hold: from then on records are kept until
// push or drain sends them, so that TLS never sees a write that has gone out by half, and nobody who reads waits for a
// client that does not.
type wire struct {
	net.Conn
	try     *transport.Try // nil: there are no writes that do not wait
	buffers *transport.Buffers
	peek    atomic.Bool // reads do not wait
	held    atomic.Bool
	leaving atomic.Bool // the next write is the last, and does not wait

	mu      sync.Mutex
	sending bool    // somebody waits for the client with what was there before
	buf     *[]byte // records that have not gone out; nil: there are none
	sent    int     // bytes of buf that have
}

// mostPending bounds what is kept for a client, in bytes: much more than any write. Who makes the server answer
// without reading the answers comes there.
const mostPending = 4 << 20

// errPending reports that a client makes the server keep too much.
var errPending = errors.New("tls: the client reads nothing")

// quiet is the error of a read that finds nothing. It is temporary, so that TLS goes on after it.
type quiet struct{}

func (quiet) Error() string   { return "nothing to read" }
func (quiet) Timeout() bool   { return true }
func (quiet) Temporary() bool { return true }

var errQuiet net.Error = quiet{}

// Read reads, and does not wait under peek.
func (w *wire) Read(b []byte) (int, error) {
	if !w.peek.Load() {
		return w.Conn.Read(b)
	}
	n, err := w.try.Read(b)
	if n == 0 && err == nil {
		return 0, errQuiet
	}
	return n, err
}

// Write takes records.
func (w *wire) Write(b []byte) (int, error) {
	if w.leaving.Load() {
		return w.writeLast(b)
	}
	if !w.held.Load() {
		return w.Conn.Write(b)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buf != nil && len(*w.buf)+len(b) > mostPending {
		return 0, errPending
	}
	w.keep(b)
	return len(b), nil
}

// keep needs mu.
func (w *wire) keep(b []byte) {
	if w.buf == nil {
		w.buf = w.buffers.Get()
	}
	*w.buf = append(*w.buf, b...)
}

// writeLast writes the last records, unless that would wait.
func (w *wire) writeLast(b []byte) (int, error) {
	if w.try == nil || !w.mu.TryLock() {
		return len(b), nil
	}
	defer w.mu.Unlock()
	if !w.sending {
		w.keep(b)
		_, _ = w.pushLocked() // the connection is closed next
	}
	return len(b), nil
}

// push sends what the kernel takes, without waiting, and reports whether that was all.
func (w *wire) push() (whole bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pushLocked()
}

// pushLocked needs mu.
func (w *wire) pushLocked() (whole bool, err error) {
	if w.buf == nil || w.sending {
		return !w.sending, nil
	}
	n, err := w.try.Write((*w.buf)[w.sent:])
	if w.sent += n; w.sent < len(*w.buf) {
		return false, err
	}
	w.buffers.Put(w.buf)
	w.buf, w.sent = nil, 0
	return true, err
}

// drain sends all and waits for the client, within the write deadline. What others write meanwhile comes after it.
func (w *wire) drain() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.buf != nil {
		buf, sent := w.buf, w.sent
		w.buf, w.sent, w.sending = nil, 0, true
		w.mu.Unlock()
		n, err := w.Conn.Write((*buf)[sent:])
		w.mu.Lock()
		w.sending = false
		if err == nil {
			w.buffers.Put(buf)
			continue
		}
		if w.buf != nil {
			*buf = append(*buf, *w.buf...)
			w.buffers.Put(w.buf)
		}
		w.buf, w.sent = buf, sent+n
		return err
	}
	return nil
}

// refusePlain answers a client that speaks HTTP without TLS.
func (w *wire) refusePlain() {
	_ = w.Conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(w.Conn, plainAnswer) // it is closed either way
}

const plainAnswer = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n" +
	"This port speaks TLS: use https.\n"
