package fair

import (
	"sync"
	"sync/atomic"
)

// Parts divides a bound among tenants evenly, and each tenant's part among what it has: a tenant that has very much
// makes its own small, and nobody else's. The zero Parts has no tenant. It is safe for concurrent use.
type Parts struct {
	mu      sync.Mutex
	tenants map[string]*Part
	count   atomic.Int64
}

// Part is what a tenant has of Parts.
type Part struct {
	of     *Parts
	tenant string
	count  atomic.Int64
}

// Join counts one thing more of a tenant, which is taken back by Leave.
func (p *Parts) Join(tenant string) *Part {
	p.mu.Lock()
	defer p.mu.Unlock()
	part := p.tenants[tenant]
	if part == nil {
		part = &Part{of: p, tenant: tenant}
		if p.tenants == nil {
			p.tenants = make(map[string]*Part)
		}
		p.tenants[tenant] = part
		p.count.Add(1)
	}
	part.count.Add(1)
	return part
}

// Leave counts one thing less.
func (s *Part) Leave() {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.count.Add(-1) > 0 {
		return
	}
	delete(s.of.tenants, s.tenant)
	s.of.count.Add(-1)
}

// Share returns what one thing of the tenant has of total. It takes no lock.
func (s *Part) Share(total int) int {
	return total / int(max(1, s.of.count.Load())) / int(max(1, s.count.Load()))
}
