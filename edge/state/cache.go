package state

import (
	"container/list"
	"context"
	"sync"

	"agentstream/edge/runs"
	"agentstream/schema"
)

// Cache keeps what was read of runs between requests, of the runs used last. One request at a time has the turn at a
// run as one reader reads it; the others wait for that, and mostly have nothing left to read then. It is safe for
// concurrent use.
type Cache struct {
	rs    *runs.Runs
	each  int           // bytes of a fold, of a projector, and of all checkpoints of a run
	total int           // bytes of all entries; those in use may exceed it
	turns chan struct{} // bounds how many read history at once

	mu    sync.Mutex
	all   map[readingKey]*reading
	idle  *list.List // of *reading without users, the one left last in front
	bytes int
}

// readingKey names a run and who reads it: a dialect, or "" for the fold.
type readingKey struct {
	run    schema.RunKey
	reader string
}

// historyReaders is how many requests read history at once.
const historyReaders = 8

// New returns an empty cache. A fold or a projector may take each bytes, all together total.
func New(rs *runs.Runs, each, total int) *Cache {
	return &Cache{rs: rs, each: each, total: total, turns: make(chan struct{}, historyReaders), all: make(map[readingKey]*reading), idle: list.New()}
}

// enter waits for the turn at what is kept for a key, which leave gives up.
func (c *Cache) enter(ctx context.Context, key readingKey) (*reading, error) {
	c.mu.Lock()
	e := c.all[key]
	if e == nil {
		e = &reading{key: key, turn: make(chan struct{}, 1)}
		c.all[key] = e
	}
	if e.idle != nil {
		c.idle.Remove(e.idle)
		e.idle = nil
	}
	e.users++
	c.mu.Unlock()
	select {
	case e.turn <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		c.drop(e, -1)
		return nil, context.Cause(ctx)
	}
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
	if size >= 0 {
		c.bytes += size - e.size
		e.size = size
	}
	if e.users--; e.users > 0 {
		return
	}
	if e.size == 0 {
		delete(c.all, e.key)
		return
	}
	e.idle = c.idle.PushFront(e)
	for c.bytes > c.total && c.idle.Len() > 0 {
		old := c.idle.Remove(c.idle.Back()).(*reading)
		delete(c.all, old.key)
		c.bytes -= old.size
	}
}

// begin waits until few enough read history; the caller calls end.
func (c *Cache) begin(ctx context.Context) error {
	select {
	case c.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *Cache) end() { <-c.turns }
