package limits

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"sync"
	"time"

	"agentstream/schema"
)

// Bus carries what a node tells the others that write to the same log. Neither method waits for them.
type Bus interface {
	// Publish sends a message to all other nodes. It may be lost.
	Publish(message []byte) error
	// Subscribe has receive called with each message of the others, one at a time, until stop is called.
	Subscribe(receive func(message []byte)) (stop func(), err error)
}

// How nodes tell each other what tenants have used.
const (
	tellEvery    = 100 * time.Millisecond
	tellTenants  = 4096             // in one message
	maxPeers     = 1024             // nodes that are remembered
	forgetPeer   = time.Minute      // after it has told nothing
	settling     = 2 * time.Second  // after a node is heard for the first time, or again
	maxCharge    = time.Hour        // of a rate, that counts of one message
	retryTelling = 10 * time.Second // to subscribe
)

// usage is what a tenant has sent to a node, since the node remembers it and since the node has told it last.
type usage struct {
	Tenant    string `json:"tenant"`
	Events    int64  `json:"events"`
	Bytes     int64  `json:"bytes"`
	NewEvents int64  `json:"new_events"`
	NewBytes  int64  `json:"new_bytes"`
	// For how long the rates are used up, as far as the node knows, in nanoseconds.
	EventsLeft time.Duration `json:"events_left"`
	BytesLeft  time.Duration `json:"bytes_left"`
}

func (u *usage) valid() bool {
	return u.NewEvents >= 0 && u.NewBytes >= 0 && u.Events >= u.NewEvents && u.Bytes >= u.NewBytes &&
		schema.ValidTenant(u.Tenant) == nil
}

// report is one message.
type report struct {
	Node   string  `json:"node"`
	Number uint64  `json:"number"` // of the node's messages
	Used   []usage `json:"used"`
}

// peer is another node, by what it has told.
type peer struct {
	heard   time.Time
	settled time.Time // from when on it and this node know the same
	number  uint64
	tenants map[string]usage
}

// Peers makes the limits of several nodes those of one: each tells the others what tenants have used, and counts what
// they tell. It is safe for concurrent use.
type Peers struct {
	limiter *Limiter
	bus     Bus
	node    string
	number  uint64 // of the last message, of Run alone

	mu    sync.Mutex
	peers map[string]*peer
}

// NewPeers returns the exchange of a limiter that nobody uses yet. node is the name of this process, which no other one
// has.
func NewPeers(l *Limiter, bus Bus, node string) *Peers {
	if l != nil {
		l.telling = true
	}
	return &Peers{limiter: l, bus: bus, node: node, peers: make(map[string]*peer)}
}

// Run publishes and receives until ctx ends. What cannot be told now is told later: nobody waits for it.
func (p *Peers) Run(ctx context.Context) {
	if p.limiter == nil {
		return
	}
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	var stop func()
	var again time.Time
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	for {
		if stop == nil && !time.Now().Before(again) {
			again = time.Now().Add(retryTelling)
			stop, _ = p.bus.Subscribe(p.hear) // it is tried again
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		tick.Reset(tellEvery/2 + rand.N(tellEvery)) // nodes that take turns would keep their order
		p.tell()
	}
}

// tell publishes what was used since it was called last.
func (p *Peers) tell() {
	list := p.limiter.collect()
	for len(list) > 0 {
		n := min(len(list), tellTenants)
		p.number++
		message, err := json.Marshal(report{p.node, p.number, list[:n]})
		if err == nil {
			_ = p.bus.Publish(message) // the next message has it, too
		}
		list = list[n:]
	}
	p.forget()
}

// forget drops nodes that have told nothing for long.
func (p *Peers) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, other := range p.peers {
		if time.Since(other.heard) > forgetPeer {
			delete(p.peers, name)
		}
	}
}

// hear counts what another node has told.
func (p *Peers) hear(message []byte) {
	var m report
	if json.Unmarshal(message, &m) != nil || m.Node == p.node || len(m.Used) > tellTenants {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	other := p.peer(&m)
	if other == nil {
		return
	}
	for _, u := range m.Used {
		if u.valid() {
			p.limiter.charge(&u, other.countMissed(&u), other.heard.Before(other.settled))
		}
	}
}

// peer returns who has told a report; nil: there are too many. It needs mu. Who was not heard for a while, or never,
// has counted what this node has not, and the other way round.
func (p *Peers) peer(m *report) *peer {
	now := time.Now()
	other := p.peers[m.Node]
	switch {
	case other == nil && len(p.peers) >= maxPeers:
		return nil
	case other == nil:
		other = &peer{tenants: make(map[string]usage), settled: now.Add(settling)}
		p.peers[m.Node] = other
	case m.Number != other.number+1 && now.Sub(other.heard) > settling:
		other.settled = now.Add(settling)
		clear(other.tenants)
	}
	other.heard, other.number = now, m.Number
	return other
}

// countMissed returns what a tenant has used at the node and was not heard, and notes what was.
func (o *peer) countMissed(u *usage) (missed usage) {
	last, known := o.tenants[u.Tenant]
	if known || len(o.tenants) < maxMeters {
		o.tenants[u.Tenant] = *u
	}
	if known && u.Events >= last.Events && u.Bytes >= last.Bytes { // else the node has begun anew with it
		missed.Events = max(0, u.Events-last.Events-u.NewEvents)
		missed.Bytes = max(0, u.Bytes-last.Bytes-u.NewBytes)
	}
	return missed
}

// collect returns what tenants have used here since it was called last.
func (l *Limiter) collect() []usage {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fresh) == 0 {
		return nil
	}
	now := time.Now()
	list := make([]usage, len(l.fresh))
	for i, m := range l.fresh {
		m.sent.EventsLeft, m.sent.BytesLeft = m.events.Sub(now), m.bytes.Sub(now)
		list[i] = m.sent
		m.sent.NewEvents, m.sent.NewBytes, m.fresh = 0, 0, false
	}
	clear(l.fresh)
	l.fresh = l.fresh[:0]
	return list
}

// note counts what a meter's tenant has used here, to be told. It needs mu.
func (l *Limiter) note(m *Meter, events, bytes int64) {
	if !l.telling {
		return
	}
	m.sent.Tenant = m.tenant
	m.sent.Events += events
	m.sent.Bytes += bytes
	m.sent.NewEvents += events
	m.sent.NewBytes += bytes
	if !m.fresh {
		m.fresh = true
		l.fresh = append(l.fresh, m)
	}
}

// charge counts what a tenant has used at another node within the last moment, and what was missed of it before. With
// adopt what the other node has counted is taken for what is used up, if that is more.
func (l *Limiter) charge(u *usage, missed usage, adopt bool) {
	limit := l.limit(u.Tenant)
	if limit.Events == 0 && limit.Bytes == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	m := l.meter(u.Tenant, limit, now)
	since := now.Add(-tellEvery)
	m.events = use(m.events, since, sumCharge(u.NewEvents, missed.Events, int64(limit.Events)), int64(limit.Events))
	m.bytes = use(m.bytes, since, sumCharge(u.NewBytes, missed.Bytes, limit.Bytes), limit.Bytes)
	if adopt {
		m.events = later(m.events, adoptUse(now, u.EventsLeft, m.sent.NewEvents, int64(limit.Events)))
		m.bytes = later(m.bytes, adoptUse(now, u.BytesLeft, m.sent.NewBytes, limit.Bytes))
	}
}

// adoptUse returns up to when a rate is used up that is so for left at another node, which has not been told of
// fresh.
func adoptUse(now time.Time, left time.Duration, fresh, perSecond int64) time.Time {
	return use(now.Add(min(left, maxCharge)), now.Add(-maxCharge), sumCharge(fresh, 0, perSecond), perSecond)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// sumCharge returns what counts of an amount, and of what was missed before, of a rate. It does not overflow.
func sumCharge(fresh, missed, perSecond int64) int64 {
	if perSecond == 0 {
		return 0
	}
	most := int64(maxCharge / time.Second)
	if fresh/perSecond+missed/perSecond >= most {
		return perSecond * most
	}
	return fresh + missed
}
