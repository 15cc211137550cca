package edgetest

import (
	"net"
	"runtime"
	"testing"
)

// InUse returns the bytes of heap and stacks that are left after collections.
func InUse() int {
	m := CollectGarbage()
	return int(m.HeapAlloc + m.StackInuse)
}

// CollectGarbage returns what the heap is after collections.
func CollectGarbage() (m runtime.MemStats) {
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}

// DialCost returns what the clients' side of n connections takes: nothing accepts them, so there is no other
// side.
func DialCost(t *testing.T, n int) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conns := make([]net.Conn, 0, n)
	before := InUse()
	for range n {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	defer runtime.KeepAlive(conns)
	return InUse() - before
}
