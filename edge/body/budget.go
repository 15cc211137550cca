package body

import (
	"context"
	"sync"
	"time"

	"agentstream/edge/ends"
)

// budget is the memory that the bodies of requests may take at a node: as they arrive, inflated and decoded. A tenant
// may hold as much as it leaves for the others. So one alone gets half of it, and there is always some left for the
// next.
type budget struct {
	total int64 // bytes
	wait  time.Duration
	told  func(held int64) // may be nil

	mu      sync.Mutex
	used    int64
	tenants map[string]int64 // what each holds; not 0
	change  chan struct{}    // closed when something is given back; nil while nobody waits
}

func newBudget(cfg Config) *budget {
	return &budget{total: cfg.Memory, wait: cfg.Wait, told: cfg.Held, tenants: make(map[string]int64)}
}

// Share is what one request holds of a budget. It is safe for concurrent use once it has one.
type Share struct {
	budget *budget
	tenant string
	bytes  int64
}

// Reserve waits a little until n bytes more are there. What is more than one request can ever have counts as
// what it can have: then it has the tenant's whole part for itself.
func (s *Share) Reserve(ctx context.Context, n int64) error {
	change, err := s.budget.enter(s, n)
	if err == nil {
		return nil
	}
	patience := time.NewTimer(s.budget.wait)
	defer patience.Stop()
	for err != nil {
		select {
		case <-change:
		case <-patience.C:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		change, err = s.budget.enter(s, n)
	}
	return nil
}

// Try is Take without waiting.
func (s *Share) Try(n int64) error { return s.try(n) }

func (s *Share) try(n int64) error {
	_, err := s.budget.enter(s, n)
	return err
}

// enter counts n bytes more into a share, or returns why not, and a channel for the next change.
func (r *budget) enter(s *Share, n int64) (change <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = min(n, r.total/2-s.bytes); n <= 0 {
		return nil, nil
	}
	held := r.tenants[s.tenant]
	if held+n <= r.total-r.used-n {
		s.bytes += n
		r.tenants[s.tenant] = held + n
		r.add(n)
		return nil, nil
	}
	if r.change == nil {
		r.change = make(chan struct{})
	}
	if held+n > r.total/4 {
		return r.change, &ends.LimitError{What: "bytes of bodies at once"}
	}
	return r.change, ends.ErrNoRoom
}

// Give returns n bytes to the budget.
func (s *Share) Give(n int64) {
	if n <= 0 { // as one that has no budget holds nothing
		return
	}
	r := s.budget
	r.mu.Lock()
	defer r.mu.Unlock()
	if n = min(n, s.bytes); n == 0 {
		return
	}
	s.bytes -= n
	if r.tenants[s.tenant] -= n; r.tenants[s.tenant] == 0 {
		delete(r.tenants, s.tenant)
	}
	r.add(-n)
	if r.change != nil {
		close(r.change)
		r.change = nil
	}
}

func (r *budget) add(n int64) {
	if r.used += n; r.told != nil {
		r.told(r.used)
	}
}
