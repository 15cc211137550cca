package persister

import (
	"sync"
	"sync/atomic"
	"time"
)

// sizer finds how many rows a transaction gets. A transaction costs the same for few rows and for many,
// so that more are cheaper; but what is being written cannot be read, holds locks and memory, and is
// done again when it fails. The store's step calls stored and failed; rows may be asked by anyone.
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

// least is below which slowness does not shrink transactions: a store that is slow with so few rows is
// slow for another reason, and would be slower with fewer. Failures shrink them down to one row.
func (s *sizer) least() int { return max(1, s.most/32) }

// stored learns from a commit that took so long. Transactions grow only when more is waiting: twofold while
// they are far below the target, slowly near it. After a failure they grow like that too.
func (s *sizer) stored(took time.Duration, more bool) {
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

// small begins anew with one row.
func (s *sizer) small() { s.n.Store(1) }

func (s *sizer) failed() { s.n.Store(int64(max(1, s.rows()/2))) }

// room is what one pipeline may hold in memory, in bytes, about: fetched and not yet stored.
type room struct {
	mu    sync.Mutex
	size  int
	held  int
	freed chan struct{} // has room for one word
}

func newRoom(size int) *room { return &room{size: size, freed: make(chan struct{}, 1)} }

// has waits until n bytes are free, or nothing is held at all. It says no when done is closed first.
// One goroutine at a time.
func (r *room) has(done <-chan struct{}, n int) bool {
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

// take counts bytes that are held, give those that are not any more.
func (r *room) take(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held += n
}

// count returns how many bytes are held.
func (r *room) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// clear forgets all that is held, while nobody waits for room.
func (r *room) clear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = 0
}

func (r *room) give(n int) {
	r.take(-n)
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
