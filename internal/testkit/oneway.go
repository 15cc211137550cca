package testkit

import (
	"net"
	"sync"
	"testing"
)

// OneWay passes connections on to a server, and can keep what goes in one direction, as a network does that is broken
// in it: no side gets an error, connections are made and stay open, and what was sent does not arrive.
type OneWay struct {
	Addr string // where it listens

	network, target string
	ln              net.Listener
	all             sync.WaitGroup

	mu    sync.Mutex
	stops [2]chan struct{} // closed when a direction goes on; nil: it does
	lose  bool             // what was kept is lost
	conns []net.Conn
}

// The directions in which a OneWay can be broken.
const (
	ToServer = iota
	ToClient
)

// NewOneWay listens on an address of a network, "tcp" or "unix", before the server at target. It ends with the test.
func NewOneWay(t testing.TB, network, addr, target string) *OneWay {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	w := &OneWay{Addr: ln.Addr().String(), network: network, target: target, ln: ln}
	w.all.Go(w.accept)
	t.Cleanup(w.close)
	return w
}

// Break lets nothing pass any more in a direction.
func (w *OneWay) Break(direction int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stops[direction] = make(chan struct{})
}

// Heal passes everything on again. What was kept arrives now, as TCP sends it again; or it is lost, with the
// connections that were there, as TCP gives them up.
func (w *OneWay) Heal(lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = lose
	for i, stop := range w.stops {
		if stop != nil {
			close(stop)
			w.stops[i] = nil
		}
	}
	if lose {
		for _, c := range w.conns {
			_ = c.Close() // it may be closed already
		}
		w.conns = nil
	}
}

func (w *OneWay) close() {
	_ = w.ln.Close()
	w.Heal(true)
	w.all.Wait()
}

func (w *OneWay) accept() {
	for {
		near, err := w.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial(w.network, w.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		w.mu.Lock()
		w.conns = append(w.conns, near, far)
		w.mu.Unlock()
		w.all.Go(func() { w.pass(far, near, ToServer) })
		w.all.Go(func() { w.pass(near, far, ToClient) })
	}
}

// pass copies until one side ends; then the other hears of it, once anything passes in its direction.
func (w *OneWay) pass(to, from net.Conn, direction int) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if w.wait(direction) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wait returns when something may pass in a direction, and reports whether what was kept until then is lost.
func (w *OneWay) wait(direction int) (lost bool) {
	w.mu.Lock()
	stop := w.stops[direction]
	w.mu.Unlock()
	if stop == nil {
		return false
	}
	<-stop
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lose
}
