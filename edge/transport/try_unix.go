//go:build unix

package transport

import (
	"fmt"
	"io"
	"net"
	"syscall"

	"agentstream/edge/dialect"
)

// Try writes to a TCP connection, and reads from it, without ever waiting. One goroutine at a time writes,
// and one reads.
type Try struct {
	raw  syscall.RawConn
	step func(fd uintptr) bool // made once: a write allocates nothing
	b    []byte
	n    int
	err  error
}

// NewTry returns nil when the connection cannot be written to without waiting: one that is not TCP, or a
// system that has no such writes.
func NewTry(c net.Conn) *Try { return new(Try).Of(c) }

// Of is NewTry for a connection whose owner has room for it. It returns t or nil.
func (t *Try) Of(c net.Conn) *Try {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	t.raw, t.step = raw, t.write
	return t
}

// Raw returns the connection.
func (t *Try) Raw() syscall.RawConn { return t.raw }

// Write writes as much of b as the kernel takes. The error wraps dialect.ErrClientGone. A write deadline
// that has passed is such an error: there must be none.
func (t *Try) Write(b []byte) (int, error) {
	t.b, t.n, t.err = b, 0, nil
	err := t.raw.Write(t.step)
	t.b = nil
	if err == nil {
		err = t.err
	}
	if err != nil {
		return t.n, fmt.Errorf("write: %w: %w", dialect.ErrClientGone, err)
	}
	return t.n, nil
}

// write never asks to be called again: that would be waiting.
func (t *Try) write(fd uintptr) bool {
	for t.n < len(t.b) {
		n, err := syscall.Write(int(fd), t.b[t.n:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return true
		case err != nil:
			t.err = err
			return true
		case n < len(t.b)-t.n:
			// The kernel took a part: its buffer is full.
			t.n += n
			return true
		}
		t.n += n
	}
	return true
}

// Read reads what is there: nothing is 0 without an error. The end is io.EOF.
func (t *Try) Read(b []byte) (n int, err error) {
	var rerr error
	err = t.raw.Read(func(fd uintptr) bool {
		for {
			if n, rerr = syscall.Read(int(fd), b); rerr != syscall.EINTR {
				return true
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case rerr == syscall.EAGAIN:
		return 0, nil
	case rerr != nil:
		return 0, rerr
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
