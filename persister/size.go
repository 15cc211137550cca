package persister

import (
	"sync"
	"sync/atomic"
	"time"
)

// sizer decides how many rows a transaction has. More rows share the fixed cost of a transaction. But rows cannot be
// read until it commits, it holds locks and memory, and it is repeated when it fails. The storing step calls stored and
// failed; rows is safe for concurrent use.
type sizer struct {
	n      atomic.Int64
	most   int
	target time.Duration
}

func newSizer(c *Config) *sizer {
	s := &sizer{most: c.BatchEvents, target: c.Target}
	s.n.Store(int64(c.BatchStart))
	return s
}

func (s *sizer) rows() int { return int(s.n.Load()) }

// least returns the size below which slowness does not shrink transactions: a store that is slow with so few rows is
// slow for another reason. Failures shrink transactions down to one row.
func (s *sizer) least() int { return max(1, s.most/32) }

// adjust adjusts the size after a commit. Transactions grow only when more rows are waiting: they double while
// they are far below the target, and grow slowly near it.
func (s *sizer) adjust(took time.Duration, more bool) {
	n := s.rows()
	switch {
	case took > 2*s.target && n > s.least():
		n = max(s.least(), n*3/4)
	case more && took <= s.target/2:
		n *= 2
	case more && took <= s.target*3/4:
		n += max(1, n/4)
	}
	s.n.Store(int64(min(n, s.most)))
}

// small starts again with one row.
func (s *sizer) small() { s.n.Store(1) }

// halve halves the size after a transaction that failed.
func (s *sizer) halve() { s.n.Store(int64(max(1, s.rows()/2))) }

// memoryBudget bounds the memory of a pipeline, in bytes, for messages that are fetched and not yet stored.
type memoryBudget struct {
	mu    sync.Mutex
	size  int
	held  int
	freed chan struct{} // buffered
}

func newRoom(size int) *memoryBudget { return &memoryBudget{size: size, freed: make(chan struct{}, 1)} }

// await waits until n bytes are free, or nothing is held at all. It reports false when done is closed first. It
// must be called from one goroutine at a time.
func (r *memoryBudget) await(done <-chan struct{}, n int) bool {
	for {
		r.mu.Lock()
		ok := r.held == 0 || r.held+n <= r.size
		r.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-r.freed:
		case <-done:
			return false
		}
	}
}

// add adds n held bytes.
func (r *memoryBudget) add(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
}

// count returns the number of held bytes.
func (r *memoryBudget) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// clear sets the held bytes to 0. No other goroutine may wait in has.
func (r *memoryBudget) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = 0
}

// give releases n held bytes.
func (r *memoryBudget) give(n int) {
	r.add(-n)
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
