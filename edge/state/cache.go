package state

import (
	"context"
	"sync"

	"agentstream/edge/runs"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// Cache keeps what was read of runs between requests, of the runs used last. One request at a time has the turn at a
// run as one reader reads it; the others wait for that, and mostly have nothing left to read then. It is safe for
// concurrent use.
type Cache struct {
	rs    *runs.Runs
	each  int         // bytes of a fold, of a projector, and of all checkpoints of a run
	total int         // bytes of all entries; those in use may exceed it
	slots *fair.Lanes // bound how many read history at once

	mu   sync.Mutex
	all  map[readingKey]*reading
	idle fair.Recent[*reading] // without users
}

// readingKey names a run and who reads it: a dialect, or "" for the fold.
type readingKey struct {
	run    schema.RunKey
	reader string
}

// New returns an empty cache. A fold or a projector may take each bytes, all together total.
func New(rs *runs.Runs, each, total int) *Cache {
	return &Cache{rs: rs, each: each, total: total, slots: rs.Lanes(), all: make(map[readingKey]*reading)}
}

// enter waits for the turn at what is kept for a key, which leave gives up. What a command waits for goes on in the
// command's place.
func (c *Cache) enter(ctx context.Context, key readingKey) (*reading, error) {
	e := c.join(key)
	select {
	case e.turn <- struct{}{}:
		return e, nil
	default:
	}
	if fair.IsCommand(ctx) {
		c.urge(e, 1)
		defer c.urge(e, -1)
	}
	select {
	case e.turn <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		c.drop(e, -1)
		return nil, context.Cause(ctx)
	}
}

// join returns the entry of a key, and counts the caller among those who use it.
func (c *Cache) join(key readingKey) *reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[key]
	if e == nil {
		e = &reading{key: key, turn: make(chan struct{}, 1)}
		c.all[key] = e
	}
	if e.idle != nil {
		c.idle.Remove(e.idle)
		c.idle.Weigh(key.run.Tenant, e.size)
		e.idle = nil
	}
	e.users++
	return e
}

// leave ends the turn. What has read nothing is not kept.
func (c *Cache) leave(e *reading) {
	size := e.bytes()
	<-e.turn
	c.drop(e, size)
}

// drop ends one use of an entry. With size -1 the size that was counted for it stays.
func (c *Cache) drop(e *reading, size int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	tenant := e.key.run.Tenant
	if size >= 0 {
		c.idle.Weigh(tenant, size-e.size)
		e.size = size
	}
	if e.users--; e.users > 0 {
		return
	}
	if c.all[e.key] != e { // it was forgotten
		c.idle.Weigh(tenant, -e.size)
		return
	}
	if e.size == 0 {
		delete(c.all, e.key)
		return
	}
	c.idle.Weigh(tenant, -e.size)
	e.idle = c.idle.Push(tenant, e.size, e)
	for old, ok := c.idle.Over(c.total); ok; old, ok = c.idle.Over(c.total) {
		delete(c.all, old.key)
	}
}

// Forget drops what is kept of a run whose stored events have another content now. Who uses it goes on using it.
func (c *Cache) Forget(run schema.RunKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.all { // rare, and nothing else says which readers there are
		if key.run != run {
			continue
		}
		delete(c.all, key)
		if e.idle != nil {
			c.idle.Remove(e.idle)
			e.idle = nil
		}
	}
}
