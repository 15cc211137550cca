package poll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
)

// Poller watches connections. New makes one; Run must be running for Add to take any.
type Poller struct {
	file *os.File // the epoll instance, which the runtime's own poller waits for
	raw  syscall.RawConn
	fd   int // of file; good as long as mu is held and running is true

	begun chan struct{} // closed by the first Add

	mu      sync.Mutex
	running bool
	next    uint64
	open    map[uint64]*Watch
}

// Watch is one connection under watch.
type Watch struct {
	p    *Poller
	id   uint64
	raw  syscall.RawConn
	on   Reader
	over atomic.Bool
}

// ErrNone reports that nobody would call: the poller is not running, or there is none here.
var ErrNone = errors.New("poll: not running")

// New makes a poller. Run closes it; one that is never run holds one file descriptor.
func New() (*Poller, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("poll: %w", os.NewSyscallError("epoll_create1", err))
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("poll: %w", err)
	}
	p := &Poller{file: os.NewFile(uintptr(fd), "epoll"), fd: fd, begun: make(chan struct{}), open: make(map[uint64]*Watch)}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, fmt.Errorf("poll: %w", err)
	}
	return p, nil
}

// Run calls the functions of watches until ctx ends. Then nothing is watched any more; those that are left
// are called once more to find that out.
func (p *Poller) Run(ctx context.Context) error {
	p.mu.Lock()
	p.running = true
	p.mu.Unlock()
	// Closing ends the wait below.
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { p.close(); close(closed) })
	defer p.release()
	// A poller without connections waits for nothing of the system's, so that a fake clock can pass.
	select {
	case <-p.begun:
	case <-closed:
		return nil
	}
	var events [256]syscall.EpollEvent
	for {
		n := 0
		var werr error
		err := p.raw.Read(func(fd uintptr) bool {
			for {
				if n, werr = syscall.EpollWait(int(fd), events[:], 0); werr != syscall.EINTR {
					return n > 0 || werr != nil
				}
			}
		})
		if err == nil {
			err = os.NewSyscallError("epoll_wait", werr)
		}
		if err != nil {
			if stop() {
				p.close()
				return fmt.Errorf("poll: %w", err)
			}
			<-closed
			return nil
		}
		for i := range events[:n] {
			if w := p.find(idOf(&events[i])); w != nil && !w.over.Load() {
				w.on.Readable(w)
			}
		}
	}
}

func (p *Poller) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	_ = p.file.Close() // it holds nothing that could fail to be written
}

// release calls whoever still counts on being called: Again fails now.
func (p *Poller) release() {
	p.mu.Lock()
	left := slices.Collect(maps.Values(p.open))
	clear(p.open)
	p.mu.Unlock()
	for _, w := range left {
		if !w.over.Load() {
			w.on.Readable(w)
		}
	}
}

func (p *Poller) find(id uint64) *Watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[id]
}

// Add watches a connection. fn is called when there is something to read, from the next moment on. The
// error wraps ErrNone when nobody would call it.
func (p *Poller) Add(c net.Conn, fn func(*Watch)) (*Watch, error) {
	sc, ok := c.(syscall.Conn)
	if p == nil || !ok {
		return nil, ErrNone
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("poll: %w", err)
	}
	w := new(Watch)
	if err := p.Put(w, raw, readerFunc(fn)); err != nil {
		return nil, err
	}
	return w, nil
}

// Put is Add for a connection whose owner has room for the watch.
func (p *Poller) Put(w *Watch, raw syscall.RawConn, on Reader) error {
	if p == nil {
		return ErrNone
	}
	w.p, w.raw, w.on = p, raw, on
	p.mu.Lock()
	if p.running {
		// Numbers are never used again, unlike descriptors: an event that is late finds nobody.
		if p.next++; p.next == 1 {
			close(p.begun)
		}
		w.id = p.next
		p.open[w.id] = w
	}
	p.mu.Unlock()
	if w.id == 0 {
		return ErrNone
	}
	if err := w.control(syscall.EPOLL_CTL_ADD); err != nil {
		w.Stop()
		return err
	}
	return nil
}

// Again arms the watch once more. An error says that nobody will call: it wraps ErrNone when the poller has
// ended.
func (w *Watch) Again() error { return w.control(syscall.EPOLL_CTL_MOD) }

// Live reports whether somebody calls.
func (w *Watch) Live() bool {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.running
}

// Stop ends the watch. One call of fn that was due may still be running, or come; no other follows.
// Closing the connection without Stop leaves the entry behind.
func (w *Watch) Stop() {
	w.over.Store(true)
	w.p.mu.Lock()
	delete(w.p.open, w.id)
	w.p.mu.Unlock()
	_ = w.control(syscall.EPOLL_CTL_DEL) // a connection that is closed has left by itself
}

func (w *Watch) control(op int) error {
	// EPOLLONESHOT
	e := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP | 1<<30, Fd: int32(w.id), Pad: int32(w.id >> 32)}
	var cerr error
	err := w.raw.Control(func(fd uintptr) {
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		if !w.p.running {
			cerr = ErrNone
			return
		}
		cerr = os.NewSyscallError("epoll_ctl", syscall.EpollCtl(w.p.fd, op, int(fd), &e))
	})
	if err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("poll: %w", err)
	}
	return nil
}

func idOf(e *syscall.EpollEvent) uint64 { return uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32 }
