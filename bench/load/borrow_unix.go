//go:build unix

package load

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// readTo calls feed with what comes until the connection or feed ends. A connection that is silent
// holds no buffer: there may be tens of thousands of them. A TLS connection keeps one of its own.
func readTo(conn net.Conn, feed func([]byte) error) error {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return readOwn(conn, feed)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	once := func(fd uintptr) bool {
		buf := buffers.Get().(*[bufferSize]byte)
		defer buffers.Put(buf)
		n, err := syscall.Read(int(fd), buf[:])
		switch {
		case errors.Is(err, syscall.EAGAIN):
			return false // the runtime waits until there is something
		case errors.Is(err, syscall.EINTR):
			return true
		case err != nil:
			failed = err
		case n == 0:
			failed = io.EOF
		default:
			failed = feed(buf[:n])
		}
		return true
	}
	for failed == nil {
		if err := raw.Read(once); err != nil {
			return err
		}
	}
	return failed
}
