//go:build !race

package edge_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"agentstream/edge"
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

// small is a client that holds nothing but its connection.
type small struct {
	t    testing.TB
	conn net.Conn
}

// tiny opens a connection and sends a request.
func (h *house) tiny(head string, headers ...string) small {
	h.t.Helper()
	conn, err := net.Dial("tcp", h.addr)
	if err != nil {
		h.t.Fatal(err)
	}
	c := small{h.t, conn}
	c.send(head + " HTTP/1.1\r\nHost: h\r\n" + strings.Join(append(headers, "\r\n"), "\r\n"))
	return c
}

func (c small) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.t.Fatal(err)
	}
}

// until reads until there is a text at the end of what came.
func (c small) until(buf []byte, text string) {
	c.t.Helper()
	for n := 0; !bytes.Contains(buf[:n], []byte(text)); {
		m, err := c.conn.Read(buf[n:])
		if n += m; err != nil {
			c.t.Fatalf("%v behind %q", err, buf[:n])
		}
	}
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

// Publish streams over HTTP/1.1 on which nothing comes are small, also when something came before.
func TestIdlePublishStreamsAreSmall(t *testing.T) {
	const streams, most = 1000, 16 << 10
	h := newHouse(t, func(c *edge.Config) { c.KeepAlive = 200 * time.Millisecond })
	line, buf := lineOf("a", "")+"\n", make([]byte, 64<<10)
	open := func(n int) (list []small) {
		for range n {
			c := h.tiny("POST "+publishPath, "Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
			c.send(fmt.Sprintf("%x\r\n%s\r\n", len(line), line))
			c.until(buf, `"last_seq"`)
			list = append(list, c)
		}
		return list
	}
	rest := func(n int) { // what has stored the events ends when nothing more comes
		eventually(t, "one goroutine is left for each stream", func() bool { return runtime.NumGoroutine() < n+20 })
	}
	goroutines := runtime.NumGoroutine()
	clients := open(1)
	rest(goroutines)
	before := inUse()
	clients = append(clients, open(streams)...)
	rest(goroutines + streams)
	each := (inUse() - before) / streams
	t.Logf("%d bytes for each of %d streams", each, streams)
	if each > most {
		t.Errorf("%d bytes for each stream, want at most %d", each, most)
	}
	closeAll(clients)
}

func closeAll(clients []small) {
	for _, c := range clients {
		_ = c.conn.Close()
	}
}
