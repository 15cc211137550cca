package edge

import (
	"net"
	"syscall"
	"time"
)

// tcpUserTimeout is TCP_USER_TIMEOUT of linux/tcp.h; package syscall does not name it.
const tcpUserTimeout = 18

// limitUnacked bounds how long sent data may stay unacknowledged before the kernel gives the
// connection up. A stream to a machine that vanished writes a few bytes each keep-alive; they fit into
// the socket's buffer, so no write deadline would ever find it, and the kernel's own patience is about
// fifteen minutes. Failing to set it costs only that.
func limitUnacked(c net.Conn, limit time.Duration) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int(limit.Milliseconds()))
	})
}
