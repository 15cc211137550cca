//go:build unix

package transport

import (
	"fmt"
	"io"
	"net"
	"syscall"

	"agentstream/edge/dialect"
)

// Try writes to a connection, TCP or one with such writes of its own, and reads from it, without ever waiting. One
// goroutine at a time writes, and one reads.
type Try struct {
	raw  syscall.RawConn       // an unblockedRaw where it is not TCP: there are as many of these as clients
	step func(fd uintptr) bool // made once: a write allocates nothing
	b    []byte
	n    int
	err  error
}

// unblockedRaw is a connection with writes of its own.
type unblockedRaw struct {
	syscall.RawConn
	Unblocked
}

// NewTry returns nil when the connection cannot be written to without waiting: one that is neither TCP nor
// Unblocked, or a system that has no such writes.
func NewTry(c net.Conn) *Try { return new(Try).Of(c) }

// Of is NewTry for a connection whose owner has room for it. It returns t or nil.
func (t *Try) Of(c net.Conn) *Try {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	own, isOwn := c.(Unblocked)
	if _, tcp := c.(*net.TCPConn); !tcp && (!isOwn || !own.Unblock()) {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	t.raw, t.step = raw, t.write
	if isOwn {
		t.raw = unblockedRaw{raw, own}
	}
	return t
}

// Raw returns the connection.
func (t *Try) Raw() syscall.RawConn { return t.raw }

// Write writes as much of b as the kernel takes. The error wraps dialect.ErrClientGone. A write deadline
// that has passed is such an error: there must be none.
func (t *Try) Write(b []byte) (int, error) {
	n, err := t.send(b)
	if err != nil {
		return n, fmt.Errorf("write: %w: %w", dialect.ErrClientGone, err)
	}
	return n, nil
}

func (t *Try) send(b []byte) (int, error) {
	if own, ok := t.raw.(unblockedRaw); ok {
		return own.TryWrite(b)
	}
	t.b, t.n, t.err = b, 0, nil
	err := t.raw.Write(t.step)
	if t.b = nil; err == nil {
		err = t.err
	}
	return t.n, err
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
	if own, ok := t.raw.(unblockedRaw); ok {
		return own.TryRead(b)
	}
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
