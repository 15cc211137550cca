package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/producers"
	"agentstream/schema"
)

// paced is the log of a nats-server in this process, which keeps what was written for LogHolds in memory whatever that
// is. So it is given no more than most within that time. What is left of it is spread over a second: a log that was
// quiet takes what comes, a full one as much as it forgets. Each tenant that writes has the same part of it: who comes
// too fast waits in turn, after its own tenant's alone. Who has waited for half of its time is refused as unavailable,
// with nothing stored.
type paced struct {
	producers.Log
	most   int64               // bytes
	waited func(time.Duration) // by one append; not called when there was nothing to wait for

	mu      sync.Mutex
	tenants map[string]*pace
	seconds [16]struct {
		at    int64 // since 1970
		bytes int64
	}
}

// pace is that of a tenant.
type pace struct {
	turn  chan struct{} // holds one token; next is used by whose turn it is
	next  time.Time     // when the next may begin
	users int
}

func newPaced(log producers.Log, most int64, waited func(time.Duration)) *paced {
	return &paced{Log: log, most: most, waited: waited, tenants: make(map[string]*pace)}
}

// Append waits for its turn.
func (p *paced) Append(ctx context.Context, pack *schema.Pack, after uint64) (uint64, error) {
	if err := p.wait(ctx, pack.Key.Tenant, int64(len(pack.Body))+messageBytes); err != nil {
		return 0, err
	}
	return p.Log.Append(ctx, pack, after)
}

// messageBytes is what the server keeps of a message beside its body: subject, headers, its place in the index.
const messageBytes = 512

// Adopt waits for its turn, too: it stores a message for each child.
func (p *paced) Adopt(ctx context.Context, root schema.RunKey, children ...string) error {
	if err := p.wait(ctx, root.Tenant, int64(len(children))*messageBytes); err != nil {
		return err
	}
	return p.Log.Adopt(ctx, root, children...)
}

// Lanes is that of the log within.
func (p *paced) Lanes(ctx context.Context, key schema.RunKey, lanes []string) ([]schema.Lane, error) {
	return producers.Lanes(ctx, p.Log, key, lanes)
}

// Hold is that of the log within.
func (p *paced) Hold(ctx context.Context, key schema.RunKey, by string) error {
	return producers.Hold(ctx, p.Log, key, by)
}

// Release is that of the log within.
func (p *paced) Release(ctx context.Context, key schema.RunKey, by string) error {
	return producers.Release(ctx, p.Log, key, by)
}

// enter returns a tenant's pace, which leave gives back.
func (p *paced) enter(tenant string) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[tenant]
	if t == nil {
		t = &pace{turn: make(chan struct{}, 1)}
		p.tenants[tenant] = t
	}
	t.users++
	return t
}

func (p *paced) leave(tenant string, t *pace) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t.users--
	if t.users == 0 && t.next.Before(time.Now()) {
		delete(p.tenants, tenant)
	}
}

// wait returns when a tenant may write bytes; it wraps producers.ErrUnavailable.
func (p *paced) wait(ctx context.Context, tenant string, bytes int64) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("wait until the log in this process forgets: %w: %w", producers.ErrUnavailable, err)
		}
	}()
	began := time.Now()
	own := p.enter(tenant)
	defer p.leave(tenant, own)
	select {
	case own.turn <- struct{}{}:
	default:
		half, cancel := halfOf(ctx, began)
		defer cancel()
		select {
		case own.turn <- struct{}{}:
		case <-half.Done():
			return context.Cause(half)
		}
	}
	defer func() { <-own.turn }()
	if d := time.Until(own.next); d > paceSlack {
		half, cancel := halfOf(ctx, began)
		defer cancel()
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-half.Done():
			return context.Cause(half)
		}
	}
	now := time.Now()
	if d := now.Sub(began); d > paceSlack {
		p.waited(d)
	}
	p.countWritten(own, now, bytes)
	return nil
}

// paceSlack is what nobody waits for: a timer takes about as long. It is made up for by those who wait for longer.
const paceSlack = time.Millisecond

// halfOf returns a context that ends when half of the time is over. Most appends do without, because it costs more than
// they do.
func halfOf(ctx context.Context, began time.Time) (context.Context, context.CancelFunc) {
	if until, ok := ctx.Deadline(); ok {
		return context.WithDeadline(ctx, began.Add(until.Sub(began)/2))
	}
	return ctx, func() {}
}

// countWritten counts bytes, and sets when the tenant's next may begin: those that write now share what is
// left.
func (p *paced) countWritten(own *pace, now time.Time, bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	writing := int64(1)
	for tenant, t := range p.tenants {
		switch {
		case t != own && t.next.After(now):
			writing++
		case t.users == 0:
			delete(p.tenants, tenant)
		}
	}
	held, at := int64(0), now.Unix()
	s := &p.seconds[at%int64(len(p.seconds))]
	if s.at != at {
		s.at, s.bytes = at, 0
	}
	s.bytes += bytes
	for i := range p.seconds {
		if p.seconds[i].at >= now.Add(-process.LogHolds).Unix() {
			held += p.seconds[i].bytes
		}
	}
	left := max(p.most-held, p.most/50) / writing
	if own.next.Before(now) {
		own.next = now
	}
	own.next = own.next.Add(time.Duration(float64(bytes) / float64(left) * float64(time.Second)))
}
