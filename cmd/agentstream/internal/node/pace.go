package node

import (
	"context"
	"fmt"
	"time"

	"agentstream/cmd/agentstream/internal/process"
	"agentstream/producers"
	"agentstream/schema"
)

// paced is the log of a nats-server in this process, which keeps what was written for LogHolds in memory whatever
// that is. So it is given no more than most within that time. What is left of it is spread over a second: a log that
// was quiet takes what comes, a full one as much as it forgets. Who comes too fast waits in turn; who has waited for
// half of its time is refused as unavailable, with nothing stored.
type paced struct {
	producers.Log
	most   int64               // bytes
	waited func(time.Duration) // by one append; not called when there was nothing to wait for

	turn    chan struct{} // holds one token; the rest is used by whose turn it is
	next    time.Time     // when the next may begin
	seconds [16]struct {
		at    int64 // since 1970
		bytes int64
	}
}

func newPaced(log producers.Log, most int64, waited func(time.Duration)) *paced {
	return &paced{Log: log, most: most, waited: waited, turn: make(chan struct{}, 1)}
}

// Append waits for its turn.
func (p *paced) Append(ctx context.Context, pack *schema.Pack, after uint64) (uint64, error) {
	if err := p.wait(ctx, int64(len(pack.Body))); err != nil {
		return 0, fmt.Errorf("wait until the log in this process forgets: %w: %w", producers.ErrUnavailable, err)
	}
	return p.Log.Append(ctx, pack, after)
}

// wait returns when bytes may be written.
func (p *paced) wait(ctx context.Context, bytes int64) error {
	began := time.Now()
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, began.Add(until.Sub(began)/2))
		defer cancel()
	}
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if d := time.Until(p.next); d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	now := time.Now()
	if d := now.Sub(began); d > time.Millisecond {
		p.waited(d)
	}
	p.written(now, bytes)
	return nil
}

// written counts bytes, and returns when the next may begin.
func (p *paced) written(now time.Time, bytes int64) {
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
	left := max(p.most-held, p.most/50)
	p.next = now.Add(time.Duration(float64(bytes) / float64(left) * float64(time.Second)))
}
