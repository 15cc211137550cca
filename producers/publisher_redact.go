package producers

import (
	"time"

	"agentstream/schema"
	"agentstream/schema/redact"
)

// redactWait is how long a text that ends with what may be the beginning of a secret waits for what follows. Models
// send many pieces in that time.
const redactWait = 250 * time.Millisecond

// redact hides in what is pending what the tenant's rules find. It may wait for more, so that a secret which is divided
// over events is never stored in part. Called with the lock held, which it releases while it waits.
func (p *Publisher) redact() {
	rules := p.cfg.Redact.Of(p.cfg.Key.Tenant)
	if rules == nil {
		p.texts = redact.Trail{}
		return
	}
	var late *time.Timer
	for {
		done := rules.Batch(p.texts, p.pending.events)
		if done.Open && !p.isUrgent() {
			if late == nil {
				late = time.NewTimer(redactWait)
				defer late.Stop()
			}
			if p.awaitMore(late) {
				continue
			}
			done = rules.Batch(p.texts, p.pending.events) // some may have come with the end of the wait
		}
		p.replace(done.Events)
		p.texts = done.Trail
		p.cfg.Redact.Count(p.cfg.Key.Tenant, done.Hits)
		return
	}
}

// replace puts events in the place of those that are pending, of which they are as many. Called with the lock held.
func (p *Publisher) replace(events []schema.Event) {
	copy(p.pending.events, events)
	for i := range events {
		m := &p.pending.marks[i]
		p.bytes -= m.size
		m.size = events[i].Size()
		p.bytes += m.size
	}
}

// isUrgent reports whether somebody waits for what is pending to be stored. Called with the lock held.
func (p *Publisher) isUrgent() bool {
	return p.closed || len(p.flushes) > 0 || p.freed != nil || p.ctx.Err() != nil
}

// awaitMore waits until there are more events, or somebody waits. false: it is late. Called with the lock held, which it
// releases while it waits.
func (p *Publisher) awaitMore(late *time.Timer) bool {
	more := make(chan struct{})
	p.more = more
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-more:
		return true
	case <-late.C:
		return false
	}
}

// wake ends the wait of awaitMore. Called with the lock held.
func (p *Publisher) wake() {
	if p.more != nil {
		close(p.more)
		p.more = nil
	}
}
