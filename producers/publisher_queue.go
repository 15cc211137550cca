package producers

import (
	"bytes"
	"context"
	"fmt"

	"agentstream/schema"
)

// queue holds events between their producer and the log. A publisher has two, which take turns: one is
// filled while the other is stored. They and their bytes are used again.
type queue struct {
	events []schema.Event
	marks  []mark // of the same length
	arena  []byte // bytes of events that were sent; a full one goes with its events
}

// mark is what else is known of an event in a queue.
type mark struct {
	call *pendingPublish // nil: it was sent, and nobody has a receipt
	rest int             // events of the same call after this one
	size int             // that it takes of the buffer
}

// What an idle publisher keeps of each queue, and how large a payload shares space with others.
const (
	keptEvents = 512
	keptBytes  = 64 << 10
	arenaBytes = 512 << 10 // the largest
	apartBytes = 16 << 10
)

func (q *queue) add(events []schema.Event, c *pendingPublish) {
	q.events = append(q.events, events...)
	for i := range events {
		q.marks = append(q.marks, mark{call: c, rest: len(events) - 1 - i, size: events[i].Size()})
	}
	if c != nil {
		return
	}
	for i := len(q.events) - len(events); i < len(q.events); i++ {
		e := &q.events[i]
		e.Payload = q.keep(e.Payload)
		if len(e.Extra) > 0 {
			e.Extra = q.keep(e.Extra)
		}
	}
}

// keep copies b into the arena.
func (q *queue) keep(b []byte) []byte {
	if len(b) > apartBytes {
		return bytes.Clone(b)
	}
	if cap(q.arena)-len(q.arena) < len(b) {
		q.arena = make([]byte, 0, max(min(2*cap(q.arena), arenaBytes), len(b), 1<<10))
	}
	from := len(q.arena)
	q.arena = append(q.arena, b...)
	return q.arena[from:len(q.arena):len(q.arena)]
}

// reset empties the queue when all its events are settled.
func (q *queue) reset() {
	clear(q.events)
	clear(q.marks)
	q.events, q.marks, q.arena = q.events[:0], q.marks[:0], q.arena[:0]
}

// trim releases what an idle publisher does not need.
func (q *queue) trim() {
	if cap(q.events) > keptEvents {
		q.events, q.marks = nil, nil
	}
	if cap(q.arena) > keptBytes {
		q.arena = nil
	}
}

// pendingPublish is one Publish on its way.
type pendingPublish struct {
	left    int
	receipt Receipt
	err     error
	done    chan struct{} // made by the first Wait
}

// settle notes what became of one event: it is stored as seq, or err.
func (c *pendingPublish) settle(seq schema.Seq, err error) {
	if err != nil {
		c.err = err
	} else {
		if c.receipt.First == 0 {
			c.receipt.First = seq
		}
		c.receipt.Last = seq
	}
	if c.left--; c.left == 0 && c.done != nil {
		close(c.done)
	}
}

// Receipt is where events were stored. Other writers' events may lie between First and Last.
type Receipt struct {
	First    schema.Seq
	Last     schema.Seq
	Replayed bool // the answer of an earlier append with the same idempotency key

	// Root is the run in whose log the events are, and whose numbers these are, when they were appended to the id of
	// one of its children; else "".
	Root string
}

// Pending is an event or several on the way to the log.
type Pending struct {
	p *Publisher
	c *pendingPublish
}

// Wait returns when all events of the call are stored, or when it is certain that they will not be.
// When ctx ends first, they may still be stored later.
func (w Pending) Wait(ctx context.Context) (Receipt, error) {
	w.p.mu.Lock()
	if w.c.left == 0 {
		defer w.p.mu.Unlock()
		return w.c.receipt, w.c.err
	}
	if w.c.done == nil {
		w.c.done = make(chan struct{})
	}
	done := w.c.done
	w.p.mu.Unlock()
	select {
	case <-done:
		w.p.mu.Lock()
		defer w.p.mu.Unlock()
		return w.c.receipt, w.c.err
	case <-ctx.Done():
		return Receipt{}, fmt.Errorf("producers: publish to %s: %w", w.p.cfg.Key, context.Cause(ctx))
	}
}
