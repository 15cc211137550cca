package body

import (
	"sync"

	"agentstream/schema"
)

// batches are bodies and their events, used again by request after request: nothing of them is kept once an
// append has returned.
type batches struct{ pool sync.Pool }

type batch struct {
	Body   []byte
	Events []schema.Event
}

// Bounds of what is worth keeping: a few large bodies must not hold memory for ever.
const (
	keptBody   = 80 << 10 // what maxTrusted takes
	keptEvents = 1024
)

func (p *batches) Get() *batch {
	if b, ok := p.pool.Get().(*batch); ok {
		return b
	}
	return new(batch)
}

func (p *batches) Put(b *batch) {
	clear(b.Events)
	if cap(b.Body) <= keptBody && cap(b.Events) <= keptEvents {
		p.pool.Put(b)
	}
}
