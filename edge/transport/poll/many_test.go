//go:build linux

package poll

import (
	"bytes"
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
)

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
