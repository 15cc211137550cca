package gate

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentstream/edge/ends"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGate(t *testing.T, cfg Config) *Gate {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// frame is a frame of HTTP/2 whose payload has n bytes.
func frame(kind, flags byte, id uint32, n int) []byte {
	b := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, id), make([]byte, n)...)
}

// Streams are counted wherever reads and writes cut them, once each.
func TestWireCountsStreams(t *testing.T) {
	join := func(list ...[]byte) []byte { return slices.Concat(list...) }
	in := join([]byte(preface), frame(4, 0, 0, 6), frame(1, 4, 1, 40), frame(9, 4, 1, 20), frame(0, 0, 1, 300),
		frame(1, 4, 3, 0),
		frame(1, 5, 1, 3), frame(8, 0, 0, 4), frame(1, 5, 5|1<<31, 1), frame(3, 0, 5, 4), frame(1, 5, 7, 1),
		frame(3, 0, 9, 4))
	out := join(frame(4, 0, 0, 6), frame(1, 4, 1, 10), frame(0, 0, 1, 999), frame(0, 1, 1, 0), frame(3, 0, 1, 4),
		frame(1, 5, 3, 8), frame(3, 0, 11, 4), frame(0, 0, 7, 2))
	for _, piece := range []int{1, 2, 3, 7, 9, 64, len(in)} {
		var w wire
		opened, ended := int64(0), int64(0)
		for b := range slices.Chunk(in, piece) {
			opened += w.read(b)
		}
		for b := range slices.Chunk(out, piece) {
			ended += w.wrote(b)
		}
		if opened != 3 || ended != 2 || w.close() != 1 || w.read(frame(1, 4, 11, 0)) != 0 {
			t.Errorf("pieces of %d: %d streams were opened, %d have ended", piece, opened, ended)
		}
	}
	var w wire
	if n := w.read([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")) + w.read(frame(1, 4, 1, 0)); n != 0 || w.isHTTP2() {
		t.Errorf("HTTP/1.1: %d streams", n)
	}
}

// pipes is a listener without a network.
type pipes struct {
	net.Listener
	in chan net.Conn
}

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.in
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// connect opens n connections through a gate.
func connect(t *testing.T, g *Gate, n int) (here []net.Conn, there []*Conn) {
	t.Helper()
	p := &pipes{in: make(chan net.Conn, n)}
	l := g.Listen(p)
	for range n {
		a, b := net.Pipe()
		p.in <- b
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		here, there = append(here, a), append(there, c.(*Conn))
	}
	return here, there
}

func closed(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Nanosecond))
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// The oldest stranger makes room for the next, once it has had its time; who is known stays.
func TestStrangersMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, Config{Unknown: 3})
		friends, known := connect(t, g, 3)
		var p Pass
		for _, c := range known {
			if err := g.Enter(&p, c, false); err != nil {
				t.Fatal(err)
			}
			p.Know("")
			p.Leave()
		}
		begun := time.Now()
		here, _ := connect(t, g, 3)
		if took := time.Since(begun); took != 0 {
			t.Errorf("strangers who have room waited for %v", took)
		}
		connect(t, g, 1)
		if took := time.Since(begun); took != grace {
			t.Errorf("one too many waited for %v", took)
		}
		if !closed(here[0]) || closed(here[1]) || closed(friends[0]) {
			t.Error("not the oldest stranger was closed")
		}
		if n := g.Census(); n.Connections != 6 || n.Unknown != 3 {
			t.Errorf("%+v", n)
		}
	})
}

// A connection that waits for nothing is closed for a new one; where all are busy the new one is.
func TestConnectionsAreBounded(t *testing.T) {
	g := newGate(t, Config{Connections: 2})
	here, there := connect(t, g, 2)
	var busy [2]Pass
	for i, c := range there {
		if err := g.Enter(&busy[i], c, false); err != nil {
			t.Fatal(err)
		}
		busy[i].Know("")
	}
	busy[0].Leave()
	connect(t, g, 1)
	if !closed(here[0]) || closed(here[1]) {
		t.Error("not the idle one was closed")
	}
	third, other := net.Pipe()
	p := &pipes{in: make(chan net.Conn, 1)}
	p.in <- other
	close(p.in)
	g.mu.Lock()
	last := g.new.Back().Value.(*Conn)
	g.mu.Unlock()
	var last1 Pass
	if err := g.Enter(&last1, last, false); err != nil {
		t.Fatal(err)
	}
	last1.Know("")
	if _, err := g.Listen(p).Accept(); !errors.Is(err, net.ErrClosed) || !closed(third) {
		t.Errorf("one more, where all are busy: %v", err)
	}
}

// Every bound of streams refuses the next one, and each place can be had again.
func TestStreamsAreCounted(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg   Config
		conns int
		known bool
		open  bool
		want  int
	}{
		"of a node":                {Config{Streams: 100, Strangers: 1000}, 10, true, false, 100},
		"of strangers":             {Config{Strangers: 256}, 10, false, false, 256},
		"open to all":              {Config{Strangers: 256}, 10, false, true, 128},
		"of strangers, on one":     {Config{Strangers: 256}, 1, false, false, strangersOfConn},
		"of one that is known":     {Config{Strangers: 256}, 1, true, false, 1000},
		"no connection is told of": {Config{Strangers: 10}, 0, false, false, 10},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, tt.cfg)
			_, conns := connect(t, g, max(tt.conns, 1))
			if tt.conns == 0 {
				conns = []*Conn{nil}
			}
			for range 2 {
				var passes []*Pass
				taken := 0
				for i := range 1000 {
					p := new(Pass)
					passes = append(passes, p)
					err := g.Enter(p, conns[i%len(conns)], true)
					if err == nil && tt.open {
						err = p.Open()
					}
					if err == nil && tt.known {
						p.Know("")
					}
					if err == nil {
						taken++
					}
					if err != nil != p.IsRefused() || err != nil && !errors.Is(err, ends.ErrBusy) {
						t.Fatal(err)
					}
				}
				if taken != tt.want {
					t.Errorf("%d were let in, want %d", taken, tt.want)
				}
				var all sync.WaitGroup
				for _, p := range passes {
					all.Go(p.Leave)
				}
				all.Wait()
				if n := g.Census(); n.Streams != 0 || n.Strangers != 0 || g.open.Load() != 0 || g.refused.Load() != 0 {
					t.Errorf("%+v is left", n)
				}
			}
		})
	}
}

// A connection on which too many streams are open without a request is closed; one whose streams are answered is not.
func TestLooseStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t, Config{})
		here, there := connect(t, g, 2)
		flood := append([]byte(preface), frame(4, 0, 0, 0)...)
		for id := uint32(1); id < 2*(maxLoose+1000); id += 2 {
			flood = append(flood, frame(1, 4, id, 0)...)
		}
		for i, c := range there {
			var all sync.WaitGroup
			all.Go(func() { answer(t, g, c, i == 1) })
			all.Go(func() { _, _ = io.Copy(io.Discard, here[i]) })
			_, err := here[i].Write(flood)
			if i == 1 && err != nil || i == 0 && err == nil {
				t.Errorf("connection %d: %v", i, err)
			}
			here[i].Close()
			all.Wait()
			c.Close()
		}
		if n := g.wire.Load(); n != 0 {
			t.Errorf("%d streams are still counted", n)
		}
	})
}

// answer reads a connection to its end, and answers the streams that are opened, if it is to.
func answer(t *testing.T, g *Gate, c *Conn, is bool) {
	b, id := make([]byte, 4<<10), uint32(1)
	for {
		_, err := c.Read(b)
		if err != nil {
			if is && !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			return
		}
		for ; is && id <= c.wire.last; id += 2 {
			var p Pass
			if err := g.Enter(&p, c, true); err != nil && c.open.Load() < maxLoose {
				t.Error(err)
			}
			p.Leave()
			_, _ = c.Write(frame(1, 5, id, 0)) // the client may have left
		}
	}
}

// memory is a memory that tenants share.
type memory struct {
	mu   sync.Mutex
	room int64
	held map[string]int64
}

// part is a tenant's.
type part struct {
	of     *memory
	tenant string
}

func (p part) Try(n int64) error {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	if p.of.room < n {
		return ends.ErrNoRoom
	}
	p.of.room -= n
	p.of.held[p.tenant] += n
	return nil
}

func (p part) Give(n int64) {
	p.of.mu.Lock()
	defer p.of.mu.Unlock()
	p.of.room += n
	p.of.held[p.tenant] -= n
}

// What has come of bodies and was not read counts to the newest caller's tenant, wherever reads and writes cut the
// frames, until credit is given for it or the connection ends. Where there is no room nothing more is read for a while,
// and then the connection is closed; a stranger has the free part alone.
func TestUnreadIsCounted(t *testing.T) {
	credit := func(id uint32, n int) []byte {
		return binary.BigEndian.AppendUint32(frame(8, 0, id, 4)[:headerSize], uint32(n))
	}
	for _, piece := range []int{1, 2, 3, 7, 9, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			mem := &memory{room: 64 << 10, held: map[string]int64{}}
			g := newGate(t, Config{Share: func(tenant string) Share { return part{mem, tenant} }})
			here, there := connect(t, g, 3)
			var all sync.WaitGroup
			ended := make([]error, len(there))
			for i, c := range there {
				all.Go(func() { _, ended[i] = io.Copy(io.Discard, readers{c}) })
				all.Go(func() { _, _ = io.Copy(io.Discard, here[i]) })
				all.Go(func() { // the client
					for b := range slices.Chunk(slices.Concat([]byte(preface), frame(1, 4, 1, 9)), piece) {
						_, _ = here[i].Write(b)
					}
				})
				synctest.Wait()
				for b := range slices.Chunk(slices.Concat(frame(4, 0, 0, 0), credit(0, Window-65535)), piece) {
					_, _ = c.Write(b)
				}
			}
			body := func(i, n int) {
				_ = here[i].SetWriteDeadline(time.Now().Add(time.Second))
				for b := range slices.Chunk(frame(0, 0, 1, n), max(piece, n/64)) {
					_, _ = here[i].Write(b)
				}
				synctest.Wait()
			}
			there[0].know()
			there[0].debt.name("a")
			body(0, 8<<10)
			if mem.held["a"] != 0 {
				t.Errorf("%d for a small body", mem.held["a"])
			}
			body(0, 40<<10)
			if mem.held["a"] != 48<<10 {
				t.Errorf("%d for 48 KiB", mem.held["a"])
			}
			for _, c := range [][]byte{credit(1, 1000), credit(0, 44<<10)} { // one of a stream says nothing
				for b := range slices.Chunk(c, piece) {
					_, _ = there[0].Write(b)
				}
			}
			if mem.held["a"] != 0 {
				t.Errorf("%d when it was read", mem.held["a"])
			}
			there[1].know()
			there[1].debt.name("b")
			body(1, 60<<10)
			body(2, 10<<10) // a stranger's
			began := time.Now()
			body(1, 60<<10)
			time.Sleep(unreadPatience + time.Second)
			synctest.Wait()
			if !errors.Is(ended[1], errUnread) || !errors.Is(ended[2], errUnread) || ended[0] != nil {
				t.Errorf("after %v they ended with %v", time.Since(began), ended)
			}
			if mem.room != 64<<10 {
				t.Errorf("%v are held by connections that have ended", mem.held)
			}
			for i := range here {
				here[i].Close()
				there[i].Close()
			}
			all.Wait()
		})
	}
}

// readers hides all but Read.
type readers struct{ io.Reader }
