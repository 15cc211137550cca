package producers

import (
	"crypto/rand"
	"errors"
	"time"

	"agentstream/schema"
	"agentstream/schema/redact"
)

// flush sends until nothing is pending. At most one runs per publisher.
func (p *Publisher) flush() {
	p.mu.Lock()
	batch := p.spare
	for len(p.pending.events) > 0 {
		p.redact()
		batch, p.pending = p.pending, batch
		p.mu.Unlock()
		p.send(batch.events, batch.marks)
		batch.reset()
		p.mu.Lock()
	}
	batch.trim()
	p.pending.trim()
	p.spare, p.running = batch, false
	if p.ended != nil {
		close(p.ended)
		p.ended = nil
	}
	p.mu.Unlock()
}

// send stores a batch in as many packs as it takes. The fate of every event is settled when it
// returns.
func (p *Publisher) send(events []schema.Event, marks []mark) {
	for len(events) > 0 {
		if p.child != "" {
			lane(events, p.child)
		}
		pack, n, err := p.writer.commit(p.ctx, events, p.bounds(marks))
		if n > 0 {
			p.settle(marks[:n], pack.First, nil)
			events, marks = events[n:], marks[n:]
		}
		switch {
		case err == nil:
		case p.asChild(err):
		case refusal(err):
			// Only this event is at fault. The rest of its call must not be stored as if it had gone
			// through, so it fails with it; later calls go on.
			n = 1 + marks[0].rest
			p.settle(marks[:n], 0, err)
			events, marks = events[n:], marks[n:]
		default:
			p.fail(marks, err)
			return
		}
	}
}

// bounds are those of the next pack. Calls are not divided: what was handed over together is stored
// together (see Publish).
func (p *Publisher) bounds(marks []mark) limits {
	lim := limits{events: p.cfg.PackEvents, bytes: p.cfg.PackBytes, marks: marks}
	if n := 1 + marks[0].rest; n > 1 && n <= schema.MaxPackEvents {
		bytes := 0
		for _, m := range marks[:n] {
			bytes += m.size
		}
		if bytes <= schema.MaxPackBytes {
			lim.events, lim.bytes = max(lim.events, n), max(lim.bytes, bytes)
		}
	}
	return lim
}

// refusal reports whether the error is about one event and not about the log or the lane.
func refusal(err error) bool {
	return errors.Is(err, schema.ErrEnded) || errors.Is(err, schema.ErrSeqMismatch) ||
		errors.Is(err, schema.ErrMalformed) || errors.Is(err, schema.ErrTooLarge)
}

// fail stops the publisher for good.
func (p *Publisher) fail(marks []mark, err error) {
	p.mu.Lock()
	p.failed = err
	rest := p.pending
	p.pending = queue{}
	p.mu.Unlock()
	p.settle(marks, 0, err)
	p.settle(rest.marks, 0, err)
}

// settle hands the calls of events their receipts, first being the seq of the first event, or their
// error.
func (p *Publisher) settle(marks []mark, first schema.Seq, err error) {
	lost := 0
	if err != nil {
		for i := range marks {
			if marks[i].call == nil {
				lost++
			}
		}
		if lost > 0 && p.cfg.Hooks.Refused != nil {
			p.cfg.Hooks.Refused(lost, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range marks {
		p.bytes -= marks[i].size
		if c := marks[i].call; c != nil {
			c.settle(first+schema.Seq(i), err)
		}
	}
	if lost > 0 {
		if p.lost.Events == 0 {
			p.lost.Err = err
		}
		p.lost.Events += lost
	}
	p.settled += uint64(len(marks))
	for len(p.flushes) > 0 && p.flushes[0].upto <= p.settled {
		close(p.flushes[0].done)
		p.flushes = p.flushes[1:]
	}
	if p.freed != nil {
		close(p.freed)
		p.freed = nil
	}
}

// writerID names one opening of a writer: it finds an unanswered publish again.
func writerID() string { return schema.PoliteWriter + rand.Text()[:19] }

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
	done := rules.Batch(p.texts, p.pending.events)
	if done.Open && !p.isUrgent() {
		late := time.NewTimer(redactWait)
		defer late.Stop()
		for inTime := true; inTime && done.Open && !p.isUrgent(); {
			inTime = p.awaitMore(late)
			done = rules.Batch(p.texts, p.pending.events)
		}
	}
	p.replace(done.Events)
	p.texts = done.Trail
	p.cfg.Redact.Count(p.cfg.Key.Tenant, done.Hits)
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

// awaitMore waits until there are more events, or somebody waits. false: it is late. Called with the lock held, which
// it releases while it waits.
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
