package e2e_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// wantCuts returns how often each client's connections are cut at least.
func wantCuts() int64 {
	if proofs() {
		return 50
	}
	return 15
}

// cutter is a TCP proxy in front of several servers: each connection goes to the next of them and is
// cut after a random number of bytes towards the client.
type cutter struct {
	ln     net.Listener
	to     []string
	mean   int    // bytes until a cut, on average
	stalls bool   // one cut in three is a silence
	header string // added behind the request line, as an authenticating proxy would; "" for none

	mu   sync.Mutex
	rng  *rand.Rand
	next int
	open map[net.Conn]struct{}
	torn map[string]bool // ids behind whose line a connection was cut, before the empty line

	conns, cuts, missed atomic.Int64 // missed: servers that did not take a connection
	work                sync.WaitGroup
}

// newCutter listens on a loopback port until the test ends.
func newCutter(t testing.TB, seed uint64, mean int, header string, to ...string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{ln: ln, to: to, mean: mean, header: header, rng: rand.New(rand.NewPCG(seed, 0xc07)),
		open: make(map[net.Conn]struct{}), torn: make(map[string]bool)}
	c.work.Go(c.serve)
	t.Cleanup(func() {
		_ = ln.Close()
		c.drop()
		c.work.Wait()
	})
	return c
}

func (c *cutter) url(path string) string { return "http://" + c.ln.Addr().String() + path }

func (c *cutter) serve() {
	for {
		conn, err := c.ln.Accept()
		if err != nil {
			return
		}
		c.conns.Add(1)
		c.work.Go(func() { c.connection(conn) })
	}
}

// track remembers a connection so that the end of the test closes it.
func (c *cutter) track(conn net.Conn) func() {
	c.mu.Lock()
	c.open[conn] = struct{}{}
	c.mu.Unlock()
	return func() {
		_ = conn.Close()
		c.mu.Lock()
		delete(c.open, conn)
		c.mu.Unlock()
	}
}

// drop cuts all connections.
func (c *cutter) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		_ = conn.Close()
	}
}

// budget is how much the next connection may carry. One in twelve carries a lot: the longest event
// must get through at some time. When there were cuts enough, all do.
func (c *cutter) budget() (n int64, reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = 1 + c.rng.Int64N(2*int64(c.mean))
	if c.rng.IntN(12) == 0 || c.cuts.Load() > wantCuts()+10 {
		n += 150_000 + c.rng.Int64N(150_000)
	}
	return n, c.rng.IntN(2) == 0
}

// silent reports whether the next cut is a silence, which the client has to notice by itself.
func (c *cutter) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stalls && c.rng.IntN(3) == 0
}

// dial returns the next server that is there.
func (c *cutter) dial() (net.Conn, error) {
	var errs []error
	for range c.to {
		c.mu.Lock()
		to := c.to[c.next%len(c.to)]
		c.next++
		c.mu.Unlock()
		conn, err := net.DialTimeout("tcp", to, time.Second)
		if err == nil {
			return conn, nil
		}
		c.missed.Add(1)
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (c *cutter) connection(client net.Conn) {
	defer c.track(client)()
	server, err := c.dial()
	if err != nil {
		return
	}
	defer c.track(server)()
	n, reset := c.budget()
	gone := make(chan struct{})
	c.work.Go(func() {
		defer close(gone)
		defer server.Close() // the client has gone
		if c.header != "" && addHeader(server, client, c.header) != nil {
			return
		}
		_, _ = io.Copy(server, client)
	})
	end := &ending{w: client}
	if sent, _ := io.CopyN(end, server, n); sent < n {
		return // the stream ended by itself
	}
	c.cuts.Add(1)
	if id := idLine.FindSubmatch(end.last); id != nil {
		c.mu.Lock()
		c.torn[string(id[1])] = true
		c.mu.Unlock()
	}
	if c.silent() {
		<-gone
	}
	if reset { // RST instead of FIN
		_ = client.(*net.TCPConn).SetLinger(0)
	}
}

// idLine ends what was sent when the cut came just before a frame's empty line.
var idLine = regexp.MustCompile(`\nid: ([0-9]+)\n$`)

// ending remembers the last bytes that were written.
type ending struct {
	w    io.Writer
	last []byte
}

func (e *ending) Write(p []byte) (int, error) {
	n, err := e.w.Write(p)
	e.last = append(e.last, p[max(0, n-64):n]...)
	e.last = e.last[max(0, len(e.last)-64):]
	return n, err
}

// addHeader passes a request's first line on, and the header behind it.
func addHeader(to io.Writer, from io.Reader, header string) error {
	var line []byte
	for one := make([]byte, 1); !bytes.HasSuffix(line, []byte("\r\n")); {
		if _, err := io.ReadFull(from, one); err != nil {
			return err
		}
		line = append(line, one[0])
	}
	_, err := io.WriteString(to, string(line)+header)
	return err
}
