package publish

import (
	"sync"
	"time"
)

// pool has the goroutines that append for streams. One whose stream has no more work waits for the next, of any stream:
// a new goroutine would have to grow its stack for each line. Those that are not needed end.
type pool struct {
	mu   sync.Mutex
	idle []*worker // the one that began to wait last is used first
	free int       // fewest of them since the last look
	look *time.Timer
}

// lingering is after how long a worker ends that was not needed, and keptIdle how many wait at most.
const (
	lingering = 100 * time.Millisecond
	keptIdle  = 64
)

// run lets a worker serve s.
func (p *pool) run(s *Stream) {
	p.mu.Lock()
	n := len(p.idle) - 1
	if n < 0 {
		p.mu.Unlock()
		go p.work(s)
		return
	}
	w := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	p.free = min(p.free, n)
	p.mu.Unlock()
	w.next <- s
}

// work serves stream after stream.
func (p *pool) work(s *Stream) {
	w := &worker{next: make(chan *Stream, 1)}
	for ; s != nil; s = <-w.next {
		s.serve(w)
		if !p.wait(w) {
			return
		}
	}
}

// wait reports whether w may wait for its next stream.
func (p *pool) wait(w *worker) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) >= keptIdle {
		return false
	}
	switch p.idle = append(p.idle, w); {
	case p.look == nil:
		p.look = time.AfterFunc(lingering, p.prune)
	case len(p.idle) == 1:
		p.look.Reset(lingering)
	}
	return true
}

// prune ends those that were not needed since the last look.
func (p *pool) prune() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.idle[:p.free] {
		w.next <- nil
	}
	n := copy(p.idle, p.idle[p.free:])
	clear(p.idle[n:])
	p.idle = p.idle[:n]
	if p.free = n; n > 0 {
		p.look.Reset(lingering)
	}
}
