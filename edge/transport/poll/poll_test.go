//go:build linux

package poll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a poller until the test's end, or until stop, which waits for Run.
func start(t *testing.T) (p *Poller, stop func()) {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	until(t, "a poller that runs", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.running })
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return p, stop
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// dialer makes pairs of connected sockets.
type dialer struct{ ln net.Listener }

func listen(t *testing.T) dialer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return dialer{ln}
}

func (d dialer) pair(t *testing.T) (here, there *net.TCPConn) {
	t.Helper()
	c, err := net.Dial("tcp", d.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.Close() })
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// calls counts, and tells of each.
type calls struct {
	n  atomic.Int64
	ch chan *Watch
}

func newCalls() *calls { return &calls{ch: make(chan *Watch, 1000)} }

func (c *calls) fn(w *Watch) { c.n.Add(1); c.ch <- w }

func (c *calls) one(t *testing.T, what string) *Watch {
	t.Helper()
	select {
	case w := <-c.ch:
		return w
	case <-time.After(20 * time.Second):
		t.Fatalf("no call after %s", what)
		return nil
	}
}

// settle lets whatever is due in the poller happen: a connection of its own is noticed.
func (d dialer) settle(t *testing.T, p *Poller) {
	t.Helper()
	here, there := d.pair(t)
	defer here.Close()
	defer there.Close()
	for range 2 { // events are handed out in the order in which they came
		c := newCalls()
		w, err := p.Add(here, c.fn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := there.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		c.one(t, "a byte")
		w.Stop()
	}
}

func write(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
}

// TestOncePerArming holds that readiness is told once, however much comes, and again for what is still
// unread when the watch is armed.
func TestOncePerArming(t *testing.T) {
	p, _ := start(t)
	d := listen(t)
	here, there := d.pair(t)
	c := newCalls()
	w, err := p.Add(here, c.fn)
	if err != nil {
		t.Fatal(err)
	}
	d.settle(t, p)
	if n := c.n.Load(); n != 0 {
		t.Fatalf("%d calls for nothing", n)
	}
	write(t, there, "a")
	if got := c.one(t, "a byte"); got != w {
		t.Error("called with another watch")
	}
	write(t, there, "b")
	d.settle(t, p)
	if n := c.n.Load(); n != 1 {
		t.Errorf("%d calls without arming", n)
	}
	if err := w.Again(); err != nil { // both bytes are still there
		t.Fatal(err)
	}
	c.one(t, "arming over unread bytes")
	if _, err := io.ReadFull(here, make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Again(), w.Again()); err != nil { // twice is once
		t.Fatal(err)
	}
	d.settle(t, p)
	if n := c.n.Load(); n != 2 {
		t.Errorf("%d calls, and nothing is unread", n)
	}
	write(t, there, "c")
	c.one(t, "the third byte")
	d.settle(t, p)
	if n := c.n.Load(); n != 3 {
		t.Errorf("%d calls for three", n)
	}
	w.Stop()
}

// TestUnreadWhenAdded holds that what came before the watch counts.
func TestUnreadWhenAdded(t *testing.T) {
	p, _ := start(t)
	here, there := listen(t).pair(t)
	write(t, there, "a")
	if err := here.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	c := newCalls()
	w, err := p.Add(here, c.fn)
	if err != nil {
		t.Fatal(err)
	}
	c.one(t, "a byte that was there")
	w.Stop()
}

// TestEnds has the ways in which a client leaves.
func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(*net.TCPConn) error
		want  error
	}{
		{"FIN", (*net.TCPConn).Close, io.EOF},
		{"half", (*net.TCPConn).CloseWrite, io.EOF},
		{"RST", func(c *net.TCPConn) error { return errors.Join(c.SetLinger(0), c.Close()) }, syscall.ECONNRESET},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, _ := start(t)
			d := listen(t)
			here, there := d.pair(t)
			c := newCalls()
			w, err := p.Add(here, c.fn)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.leave(there); err != nil {
				t.Fatal(err)
			}
			c.one(t, "the client's end")
			if n, err := here.Read(make([]byte, 1)); n != 0 || !errors.Is(err, tt.want) {
				t.Errorf("read %d, %v, want %v", n, err, tt.want)
			}
			d.settle(t, p)
			if n := c.n.Load(); n != 1 {
				t.Errorf("%d calls", n)
			}
			// An end does not pass: who arms the watch again hears of it again.
			if err := w.Again(); err != nil {
				t.Fatal(err)
			}
			c.one(t, "arming over an end")
			w.Stop()
		})
	}
}

// TestStop has Stop before, while and after fn runs.
func TestStop(t *testing.T) {
	p, _ := start(t)
	d := listen(t)

	t.Run("before", func(t *testing.T) {
		here, there := d.pair(t)
		c := newCalls()
		w, err := p.Add(here, c.fn)
		if err != nil {
			t.Fatal(err)
		}
		w.Stop()
		write(t, there, "a")
		d.settle(t, p)
		if n := c.n.Load(); n != 0 {
			t.Errorf("%d calls", n)
		}
		if err := w.Again(); err == nil {
			t.Error("a watch that was stopped is armed")
		}
	})
	t.Run("during", func(t *testing.T) {
		here, there := d.pair(t)
		entered, leave := make(chan *Watch), make(chan struct{})
		var again atomic.Pointer[error]
		w, err := p.Add(here, func(w *Watch) {
			entered <- w
			<-leave
			err := w.Again()
			again.Store(&err)
		})
		if err != nil {
			t.Fatal(err)
		}
		write(t, there, "a")
		<-entered
		w.Stop() // it does not wait
		close(leave)
		d.settle(t, p)
		if err := again.Load(); err == nil || *err == nil {
			t.Error("a watch that was stopped is armed")
		}
		select {
		case <-entered:
			t.Error("called after Stop")
		default:
		}
	})
	t.Run("within", func(t *testing.T) {
		here, there := d.pair(t)
		c := newCalls()
		if _, err := p.Add(here, func(w *Watch) { w.Stop(); c.fn(w) }); err != nil {
			t.Fatal(err)
		}
		write(t, there, "a")
		c.one(t, "a byte").Stop() // twice is once
		d.settle(t, p)
	})
	t.Run("behind close", func(t *testing.T) {
		here, there := d.pair(t)
		c := newCalls()
		w, err := p.Add(here, c.fn)
		if err != nil {
			t.Fatal(err)
		}
		here.Close()
		there.Close()
		d.settle(t, p)
		if err := w.Again(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("again: %v", err)
		}
		w.Stop()
		if n := c.n.Load(); n != 0 {
			t.Errorf("%d calls for a connection that its owner closed", n)
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) != 0 {
		t.Errorf("%d entries are left", len(p.open))
	}
}

// TestRunEnds holds that whoever counts on being called is told that nobody calls any more, and that
// nothing can be added then.
func TestRunEnds(t *testing.T) {
	d := listen(t)
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	here, _ := d.pair(t)
	if w, err := p.Add(here, func(*Watch) {}); w != nil || !errors.Is(err, ErrNone) {
		t.Errorf("before Run: %v, %v", w, err)
	}
	p.file.Close()

	p, stop := start(t)
	c, none := newCalls(), newCalls()
	w, err := p.Add(here, c.fn)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := d.pair(t)
	stopped, err := p.Add(other, none.fn)
	if err != nil {
		t.Fatal(err)
	}
	if stopped.Stop(); !w.Live() {
		t.Error("not live")
	}
	stop()
	if n := c.n.Load(); n != 1 || none.n.Load() != 0 {
		t.Errorf("%d calls at the end of Run, %d of a watch that was stopped", n, none.n.Load())
	}
	if err := w.Again(); !errors.Is(err, ErrNone) || w.Live() {
		t.Errorf("again: %v, live %v", err, w.Live())
	}
	if w, err := p.Add(other, none.fn); w != nil || !errors.Is(err, ErrNone) {
		t.Errorf("after Run: %v, %v", w, err)
	}
	w.Stop()
	var no *Poller
	if w, err := no.Add(other, none.fn); w != nil || !errors.Is(err, ErrNone) {
		t.Errorf("without a poller: %v, %v", w, err)
	}
	pipe, end := net.Pipe()
	defer pipe.Close()
	defer end.Close()
	if w, err := p.Add(pipe, none.fn); w != nil || !errors.Is(err, ErrNone) {
		t.Errorf("what is not TCP: %v, %v", w, err)
	}
}

// TestRunEndsAtOnce holds for a context that has ended before Run, and for one that ends while fn runs.
func TestRunEndsAtOnce(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Run(ctx); err != nil {
		t.Error(err)
	}
	p, stop := start(t)
	here, there := listen(t).pair(t)
	entered, leave, n := make(chan struct{}), make(chan struct{}), 0
	if _, err := p.Add(here, func(w *Watch) {
		if n++; n > 1 {
			return
		}
		entered <- struct{}{}
		<-leave
		if err := w.Again(); !errors.Is(err, ErrNone) {
			t.Errorf("again: %v", err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	write(t, there, "a")
	<-entered
	go func() {
		until(t, "the end", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return !p.running })
		close(leave)
	}()
	if stop(); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// TestFailure holds that Run does not hide that it fails, and tells whoever counts on it.
func TestFailure(t *testing.T) {
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	until(t, "a poller that runs", func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.running })
	here, _ := listen(t).pair(t)
	c := newCalls()
	w, err := p.Add(here, c.fn)
	if err != nil {
		t.Fatal(err)
	}
	p.file.Close()
	if err := <-ended; err == nil {
		t.Error("no error")
	}
	if c.n.Load() != 1 || w.Live() {
		t.Errorf("%d calls, live %v", c.n.Load(), w.Live())
	}
}

// reader reads all of a connection without ever waiting: from its beginning to its end.
type reader struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	got  bytes.Buffer
	done chan struct{}
}

func (r *reader) ready(w *Watch) {
	var b [128]byte
	n, err := 0, error(nil)
	if cerr := r.raw.Read(func(fd uintptr) bool { n, err = syscall.Read(int(fd), b[:]); return true }); cerr != nil {
		err = cerr
	}
	if err == syscall.EAGAIN {
		n, err = 0, nil
	} else if n == 0 || err != nil {
		w.Stop()
		close(r.done)
		return
	}
	r.got.Write(b[:n])
	if err := w.Again(); err != nil {
		panic(err)
	}
}

// TestManyConnections has 1,000 connections that say things at random: every byte is seen, in order, and
// none of them costs a goroutine.
func TestManyConnections(t *testing.T) {
	const conns = 1000
	p, _ := start(t)
	d := listen(t)
	before := runtime.NumGoroutine()
	readers, clients, sent := make([]*reader, conns), make([]*net.TCPConn, conns), make([]bytes.Buffer, conns)
	for i := range readers {
		here, there := d.pair(t)
		r := &reader{conn: here, done: make(chan struct{})}
		var err error
		if r.raw, err = here.SyscallConn(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Add(here, r.ready); err != nil {
			t.Fatal(err)
		}
		readers[i], clients[i] = r, there
	}
	if grown := runtime.NumGoroutine() - before; grown > 2 {
		t.Errorf("%d goroutines for %d connections", grown, conns)
	}
	var writers sync.WaitGroup
	for part := range 4 {
		writers.Go(func() {
			for n := range 5000 {
				i := part + 4*rand.IntN(conns/4)
				line := strings.Repeat(fmt.Sprintf("%d.%d ", i, n), 1+rand.IntN(40))
				sent[i].WriteString(line)
				if _, err := io.WriteString(clients[i], line); err != nil {
					t.Error(err)
					return
				}
			}
			for i := part; i < conns; i += 4 {
				if i%8 < 4 {
					clients[i].Close()
				} else {
					_ = clients[i].CloseWrite()
				}
			}
		})
	}
	writers.Wait()
	for i, r := range readers {
		select {
		case <-r.done:
		case <-time.After(20 * time.Second):
			t.Fatalf("connection %d: its end is not seen", i)
		}
		if !bytes.Equal(r.got.Bytes(), sent[i].Bytes()) {
			t.Fatalf("connection %d: %d bytes, want %d", i, r.got.Len(), sent[i].Len())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) != 0 {
		t.Errorf("%d entries are left", len(p.open))
	}
}

// TestDescriptorsAreUsedAgain closes and opens connections quickly: descriptors have the same numbers
// again, and nobody is called for another's connection.
func TestDescriptorsAreUsedAgain(t *testing.T) {
	p, _ := start(t)
	d := listen(t)
	var wrong atomic.Int64
	numbers := map[uintptr]int{}
	for i := range 500 {
		here, there := d.pair(t)
		var closed atomic.Bool
		seen := make(chan byte, 10)
		w, err := p.Add(here, func(w *Watch) {
			if closed.Load() {
				return // it was due when the connection was closed
			}
			var b [16]byte
			if n, err := here.Read(b[:]); n != 1 || err != nil {
				wrong.Add(1)
			}
			seen <- b[0]
		})
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := here.SyscallConn()
		_ = raw.Control(func(fd uintptr) { numbers[fd]++ })
		switch i % 3 {
		case 0: // seen, then closed
			write(t, there, string(rune('a'+i%20)))
			select {
			case b := <-seen:
				if b != byte('a'+i%20) {
					t.Fatalf("connection %d got %q", i, b)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("connection %d is not called for", i)
			}
			w.Stop()
		case 1: // closed with an event on its way
			closed.Store(true)
			write(t, there, "x")
			w.Stop()
		case 2: // closed before it is stopped
			closed.Store(true)
			write(t, there, "x")
			here.Close()
			w.Stop()
		}
		here.Close()
		there.Close()
	}
	if wrong.Load() != 0 {
		t.Errorf("%d calls for nothing", wrong.Load())
	}
	most := 0
	for _, n := range numbers {
		most = max(most, n)
	}
	if most < 20 {
		t.Errorf("no descriptor was used more than %d times: the test shows nothing", most)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.open) != 0 {
		t.Errorf("%d entries are left", len(p.open))
	}
}

// TestStopRaces has watches stopped while their clients speak and the poller ends.
func TestStopRaces(t *testing.T) {
	d := listen(t)
	for range 20 {
		p, stop := start(t)
		var wg sync.WaitGroup
		for range 10 {
			here, there := d.pair(t)
			w, err := p.Add(here, func(w *Watch) { _ = w.Again() })
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() { _, _ = there.Write([]byte("x")) })
			wg.Go(func() { w.Stop(); here.Close() })
		}
		stop()
		wg.Wait()
	}
}
