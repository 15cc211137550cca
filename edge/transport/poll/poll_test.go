//go:build linux

package poll

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
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
