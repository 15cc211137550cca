package testkit

import (
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
)

// FreePort returns a port for a server that the test starts, stops and starts again, on loopback or on all addresses.
// Until the test ends, the kernel gives the port to no client and to no server that asks for any port, in whatever
// process, also while nobody listens on it. A client is refused then.
func FreePort(t testing.TB) int {
	t.Helper()
	fd, port, err := reserve(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	return port
}

// FreeAddr returns the loopback address, host:port, of a FreePort.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePort(t)))
}

// reserve binds a socket to a port, 0 is any, and never listens on it. The port is given only when nobody else has it.
// Behind that, who names the port may have it as well, with SO_REUSEADDR, which servers set, if nobody listens on it.
func reserve(port int) (fd, got int, err error) {
	fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	if err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port}); err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	var at syscall.Sockaddr
	if err == nil {
		at, err = syscall.Getsockname(fd)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return 0, 0, os.NewSyscallError("reserve a port", err)
	}
	return fd, at.(*syscall.SockaddrInet4).Port, nil
}
