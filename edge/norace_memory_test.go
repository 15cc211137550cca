//go:build !race

package edge_test

import (
	"fmt"
	"net"
	"runtime"
	"testing"

	"agentstream/producers"
	"agentstream/schema"
)

// inUse returns the bytes of heap and stacks that are left after collections.
func inUse() int {
	m := collected()
	return int(m.HeapAlloc + m.StackInuse)
}

// collected returns what the heap is after collections.
func collected() (m runtime.MemStats) {
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m
}

// dialled returns what the clients' side of n connections takes: nobody accepts them, so there is no other side.
func dialled(t *testing.T, n int) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	conns := make([]net.Conn, 0, n)
	before := inUse()
	for range n {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	defer runtime.KeepAlive(conns)
	return inUse() - before
}

// A watched run with one watcher is small: its events are counted, as an edge gets them, and so is its side of the connection.
// It is few objects, for the collector looks at each; those of its writer and of the client's side are counted too.
func TestWatchedRunsAreSmall(t *testing.T) {
	const runs, most, mostObjects = 1000, 8 << 10, 80
	h := newHouse(t)
	h.log.copies.Store(true)
	store := func(kind string, from, to int) {
		for i := range runs {
			for n := from; n <= to; n++ {
				run := fmt.Sprint(kind, i)
				e := schema.Event{Type: schema.TypeTextDelta, Payload: fmt.Appendf(nil, `{"text":"%0240d"}`, n)}
				if err := e.Prepare(run); err != nil {
					t.Fatal(err)
				}
				if _, err := h.app.Append(t.Context(), runOf(run), []schema.Event{e}, producers.AppendOptions{}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	buf := make([]byte, 64<<10)
	var clients []small
	watch := func(kind string) {
		store(kind, 1, 1)
		first := len(clients)
		for i := range runs {
			c := h.tiny("GET " + runsPath + "/" + fmt.Sprint(kind, i) + "/stream?detail=full")
			c.until(buf, "id: 1\n")
			clients = append(clients, c)
		}
		store(kind, 2, 4)
		for _, c := range clients[first:] {
			c.until(buf, "id: 4\n")
		}
		h.settle(len(clients))
	}
	watch("before") // what the first runs need once is no cost of a run
	before := inUse()
	store("alone", 1, 4)
	log := inUse() - before
	before = inUse()
	objects := collected().HeapObjects
	watch("watched")
	objects = (collected().HeapObjects - objects) / runs
	each := (inUse() - before - log - dialled(t, runs)) / runs
	t.Logf("%d bytes for each of %d watched runs, and %d in the log; %d objects in all", each, runs, log/runs, objects)
	if each > most {
		t.Errorf("%d bytes for each watched run, want at most %d", each, most)
	}
	if objects > mostObjects {
		t.Errorf("%d objects for each watched run, want at most %d", objects, mostObjects)
	}
	closeAll(clients)
}
