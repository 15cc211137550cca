package edge

import (
	"net"
	"syscall"
	"testing"
	"time"
)

func TestLimitUnacked(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	limitUnacked(c, 45*time.Second)
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var got int
	if cerr := raw.Control(func(fd uintptr) {
		got, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout)
	}); cerr != nil || err != nil || got != 45000 {
		t.Errorf("TCP_USER_TIMEOUT is %d ms: %v %v", got, cerr, err)
	}
	a, b := net.Pipe() // no socket: nothing to set, nothing to fail
	defer a.Close()
	defer b.Close()
	limitUnacked(a, time.Second)
}
