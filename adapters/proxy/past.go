package proxy

import (
	"context"
	"slices"

	"agentstream/schema"
)

// past is how far the memories of a run's lanes go. It belongs to the run's mu.
type past struct {
	through schema.Seq // everything up to here is remembered, but for the holes
	holes   []seqRange // events that others stored
	again   bool       // what is remembered is not certain: everything is read anew
	met     map[string]bool
	crowded bool // there are more children than met has
}

// seqRange is the events from and up to, both included.
type seqRange struct{ from, to schema.Seq }

// Bounds of what is known of a run's past.
const (
	maxHoles = 256
	maxMet   = 1 << 16
)

// memoryTypes are the types that memories are made of.
var memoryTypes = []string{
	schema.TypeModelStart, schema.TypeModelEnd, schema.TypeMessageEnd, schema.TypeToolStart, schema.TypeToolEnd,
}

// MemoryTypes returns the types of events that a Sink's Events must not leave out.
func MemoryTypes() []string { return slices.Clone(memoryTypes) }

// reach notes that the run goes up to a seq. What lies between is others'.
func (p *past) reach(last schema.Seq) {
	if last <= p.through {
		return
	}
	p.holes = append(p.holes, seqRange{p.through + 1, last})
	p.through = last
	if len(p.holes) > maxHoles {
		p.again = true
	}
}

// fill notes that the events of a span are remembered.
func (p *past) fill(s seqRange) {
	p.reach(s.to)
	var rest []seqRange
	for _, h := range p.holes {
		if s.to < h.from || s.from > h.to {
			rest = append(rest, h)
			continue
		}
		if h.from < s.from {
			rest = append(rest, seqRange{h.from, s.from - 1})
		}
		if h.to > s.to {
			rest = append(rest, seqRange{s.to + 1, h.to})
		}
	}
	p.holes = rest
}

// meet notes a child that has events.
func (p *past) meet(child string) {
	if p.met == nil {
		p.met = make(map[string]bool)
	}
	if len(p.met) >= maxMet && !p.met[child] {
		p.crowded = true
		return
	}
	p.met[child] = true
}

// rememberStored remembers events of a call that are in the log now.
func (r *run) rememberStored(c *call, events []schema.Event, first, last schema.Seq) {
	if first == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if int(last-first)+1 != len(events) { // others wrote between them
		r.past.reach(last)
		r.past.again = true
		return
	}
	r.past.fill(seqRange{first, last})
	r.past.meet(c.asked.child)
	for i := range events {
		e := events[i]
		e.Seq = first + schema.Seq(i)
		if e.ChildID == c.asked.child {
			c.lane.see(&c.chapter, &e)
		}
	}
}

// recall makes sure that a lane remembers what the log holds of it up to last. It is called with the gate held.
func (r *run) recall(ctx context.Context, c *call, last schema.Seq) error {
	r.mu.Lock()
	known := r.past.through
	r.past.reach(last)
	if r.past.again {
		known = 0
		r.past = past{through: last, holes: []seqRange{{1, last}}}
		r.forget()
	}
	holes, l := r.past.holes, c.lane
	whole := !l.loaded && known > 0 && (r.past.crowded || r.past.met[c.asked.child])
	l.loaded = true
	through := r.past.through
	r.mu.Unlock()
	if whole {
		err := r.sink.Events(ctx, 0, through, func(e *schema.Event) { r.learn(e, l, c.asked.child) })
		if err != nil {
			return trail("read a lane of", r.key, err)
		}
	}
	for _, h := range holes {
		err := r.sink.Events(ctx, h.from-1, h.to, func(e *schema.Event) { r.learn(e, nil, "") })
		if err != nil {
			return trail("read", r.key, err)
		}
		r.mu.Lock()
		r.past.fill(h)
		r.mu.Unlock()
	}
	return nil
}

// forget drops what all lanes remember.
func (r *run) forget() {
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	for _, l := range r.lanes {
		l.memory, l.others, l.loaded = memory{}, chapter{}, false
	}
}

// learn remembers an event that was read: only for one lane, or for that which it is of.
func (r *run) learn(e *schema.Event, only *lane, child string) {
	l := only
	if l == nil {
		r.p.mu.Lock()
		l = r.lanes[e.ChildID]
		r.p.mu.Unlock()
	} else if e.ChildID != child {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past.meet(e.ChildID)
	if l != nil && l.loaded {
		l.see(&l.others, e)
	}
}
