package limits

import (
	"container/list"
	"fmt"
	"sync"
	"time"

	"agentstream/edge/ends"
	"agentstream/schema"
)

// Limit bounds what one tenant may write: Events and Bytes at all nodes that are Peers of each other, Requests and
// Streams at one node. A bound of 0 is none.
//
// What a second allows may be used at once. Then a request is taken as long as anything is left, whatever its
// size, and what it takes too much is made up for by those after it: so a batch of any size passes some time, and
// the time after which the next one does is known. What is sent counts, stored or not.
type Limit struct {
	Events   int   // a second
	Bytes    int64 // of bodies, inflated, a second
	Requests int   // over HTTP, at once
	Streams  int   // open at once, which are counted elsewhere
}

func (l Limit) Validate() error {
	if l.Events < 0 || l.Bytes < 0 || l.Requests < 0 || l.Streams < 0 {
		return fmt.Errorf("ingest limit: %d events, %d bytes, %d requests, %d streams: negative", l.Events, l.Bytes,
			l.Requests, l.Streams)
	}
	return nil
}

// Limiter counts what tenants send. nil does not limit.
type Limiter struct {
	all     Limit            // of tenants that have none of their own
	tenants map[string]Limit // not changed

	mu     sync.Mutex
	meters map[string]*Meter
	recent *list.List // of the same, the one used last in front

	telling bool     // other nodes are told what is used here; not changed
	fresh   []*Meter // that have used something since they were told
}

// maxMeters bounds how many tenants are remembered. One that is forgotten begins anew.
const maxMeters = 16 << 10

// allowance is how much of a rate may be used at once.
const allowance = time.Second

// Meter is what a tenant has used. A rate is a time up to which it is used up: one that lies ahead by less than
// allowance leaves something; one in the past need not be remembered.
type Meter struct {
	tenant string
	limit  Limit
	place  *list.Element
	events time.Time
	bytes  time.Time
	open   int // requests
	users  int // who hold the meter

	sent  usage // to be told to other nodes
	fresh bool  // it is among those to be told
}

func New(all Limit, tenants map[string]Limit) *Limiter {
	all.Streams = 0 // they are counted elsewhere
	if all == (Limit{}) && len(tenants) == 0 {
		return nil
	}
	return &Limiter{all: all, tenants: tenants, meters: make(map[string]*Meter), recent: list.New()}
}

// Enter returns the tenant's meter, or refuses while its limits are used up. It must be given back by leave. A nil
// meter does not limit. request counts among those at once.
func (l *Limiter) Enter(tenant string, request bool) (*Meter, error) {
	if l == nil || schema.ValidTenant(tenant) != nil {
		return nil, nil
	}
	limit := l.limit(tenant)
	if limit == (Limit{}) {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	m := l.meter(tenant, limit, now)
	if request && limit.Requests > 0 && m.open >= limit.Requests {
		return nil, &ends.LimitError{What: "requests at once"}
	}
	if err := m.checkRates(now); err != nil {
		l.note(m, 0, 0) // a node that takes nothing knows of use that others may not
		return nil, err
	}
	m.users++
	if request {
		m.open++
	}
	return m, nil
}

// limit returns that of a tenant, of what is counted here.
func (l *Limiter) limit(tenant string) Limit {
	limit, own := l.tenants[tenant]
	if !own {
		limit = l.all
	}
	limit.Streams = 0
	return limit
}

// meter returns that of a tenant. It needs mu.
func (l *Limiter) meter(tenant string, limit Limit, now time.Time) *Meter {
	m := l.meters[tenant]
	if m != nil {
		l.recent.MoveToFront(m.place)
		return m
	}
	l.makeRoom(now)
	m = &Meter{tenant: tenant, limit: limit}
	m.place = l.recent.PushFront(m)
	l.meters[tenant] = m
	return m
}

// makeRoom forgets tenants that have been idle for as long as their use counts, a few at a time, and the one that
// was not seen for longest when there are too many.
func (l *Limiter) makeRoom(now time.Time) {
	for range 4 {
		last := l.recent.Back()
		if last == nil {
			return
		}
		m := last.Value.(*Meter)
		if m.users > 0 {
			l.recent.MoveToFront(last)
			continue
		}
		if len(l.meters) < maxMeters && (m.events.After(now) || m.bytes.After(now)) {
			return
		}
		l.recent.Remove(last)
		delete(l.meters, m.tenant)
	}
}

// Leave releases a meter.
func (l *Limiter) Leave(m *Meter, request bool) {
	if m == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.users--
	if request {
		m.open--
	}
}

// Spend counts events and bytes, or refuses both when either is used up.
func (l *Limiter) Spend(m *Meter, events int, bytes int64) error {
	if m == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if err := m.checkRates(now); err != nil {
		l.note(m, 0, 0) // a node that takes nothing knows of use that others may not
		return err
	}
	m.events = use(m.events, now, int64(events), int64(m.limit.Events))
	m.bytes = use(m.bytes, now, bytes, m.limit.Bytes)
	l.note(m, int64(events), bytes)
	return nil
}

// checkRates returns which rate is used up, and for how long.
func (m *Meter) checkRates(now time.Time) error {
	events, bytes := over(m.events, now, int64(m.limit.Events)), over(m.bytes, now, m.limit.Bytes)
	switch {
	case events <= 0 && bytes <= 0:
		return nil
	case events >= bytes:
		return &ends.LimitError{What: "events a second", Wait: events}
	}
	return &ends.LimitError{What: "bytes a second", Wait: bytes}
}

// over is how long it takes until one of a rate is left.
func over(until, now time.Time, perSecond int64) time.Duration {
	if perSecond == 0 {
		return 0
	}
	return until.Sub(now.Add(allowance - time.Second/time.Duration(perSecond)))
}

// use moves the time up to which a rate is used up.
func use(until, now time.Time, n, perSecond int64) time.Time {
	if perSecond == 0 || n == 0 {
		return until
	}
	if until.Before(now) {
		until = now
	}
	// In parts: n seconds in nanoseconds may not fit.
	return until.Add(time.Duration(n/perSecond)*time.Second +
		time.Duration(n%perSecond)*time.Second/time.Duration(perSecond))
}
