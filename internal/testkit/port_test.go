package testkit

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
)

// TestFreePort has servers come and go on a port, while nobody else can have it.
func TestFreePort(t *testing.T) {
	port := FreePort(t)
	own := fmt.Sprintf("127.0.0.1:%d", port)
	for _, at := range []string{own, fmt.Sprintf("0.0.0.0:%d", port), own} {
		nobody(t, port)
		ln, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		nobody(t, port)
		c, err := net.Dial("tcp", own)
		if err != nil {
			t.Fatal(err)
		}
		s, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s.Close() // before the client: the port's connection stays for a while
		c.Close()
		ln.Close()
	}
	if c, err := net.Dial("tcp", own); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a client without a server: %v, %v", c, err)
	}
}

// nobody holds that a port is given neither to another test nor to a client.
func nobody(t *testing.T, port int) {
	t.Helper()
	if fd, _, err := reserve(port); !errors.Is(err, syscall.EADDRINUSE) {
		_ = syscall.Close(fd)
		t.Errorf("reserved again: %v", err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}}
	if c, err := d.Dial("tcp", ln.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a client with the port: %v, %v", c, err)
	}
}
