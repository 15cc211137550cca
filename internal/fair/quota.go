package fair

import (
	"sync"
	"time"
)

// Quota bounds how many things a tenant may have that are kept for a while, by counting those that it is given: at once
// as many as it may have, then one whenever as much time has passed as one of them stays. It is safe for concurrent
// use. Make it with NewQuota.
type Quota struct {
	each time.Duration // after which a tenant may have one more
	stay time.Duration // how long a thing is kept

	mu      sync.Mutex
	tenants map[string]time.Time // until when what a tenant may have is used up; the past says nothing
}

// NewQuota returns a bound of so many things, each of which is kept for so long.
func NewQuota(most int, stay time.Duration) *Quota {
	return &Quota{each: max(1, stay/time.Duration(most)), stay: stay, tenants: make(map[string]time.Time)}
}

// Count counts one for a tenant. false: it may have no more now.
func (q *Quota) Count(tenant string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	until, known := q.tenants[tenant]
	if !known {
		q.forget(now)
	}
	if until.Before(now) {
		until = now
	}
	if until.Sub(now) > q.stay-q.each {
		return false
	}
	q.tenants[tenant] = until.Add(q.each)
	return true
}

// Return takes back one that was counted and is not kept.
func (q *Quota) Return(tenant string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if until, known := q.tenants[tenant]; known {
		q.tenants[tenant] = until.Add(-q.each)
	}
}

// forget drops a few tenants that have nothing left to be counted, so that the map does not grow with those that are
// gone.
func (q *Quota) forget(now time.Time) {
	looked := 0
	for tenant, until := range q.tenants {
		if until.Before(now) {
			delete(q.tenants, tenant)
		}
		if looked++; looked == 8 {
			return
		}
	}
}
