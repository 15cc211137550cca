package blob

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// fresh is how long an index is believed. The id of a run that was deleted is free again after ten minutes, and an
// object of the next run may have the name of one of the last: nothing of that may be given out then.
const fresh = 5 * time.Minute

// kept is an object in the cache.
type kept struct {
	*object
	since time.Time
}

// cache keeps the indexes that were used last. Who asks for one that is being read waits for it.
type cache struct {
	reads *reads
	room  int64 // bytes
	group singleflight.Group

	mu    sync.Mutex
	order list.List // of kept, the newest use first
	names map[string]*list.Element
	size  int64
}

func newCache(r *reads, room int64) *cache {
	return &cache{reads: r, room: room, names: make(map[string]*list.Element)}
}

// open returns an object. The reading goes on when the caller who began it leaves: others may wait.
func (c *cache) open(ctx context.Context, name string) (*object, error) {
	if o := c.get(name); o != nil {
		return o, nil
	}
	done := c.group.DoChan(name, func() (any, error) {
		since := time.Now()
		o, err := c.reads.open(context.WithoutCancel(ctx), name)
		if err == nil {
			c.put(o, since)
		}
		return o, err
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("blob: open %s: %w", name, context.Cause(ctx))
	case res := <-done:
		o, _ := res.Val.(*object)
		return o, res.Err
	}
}

func (c *cache) get(name string) *object {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.names[name]
	if e == nil {
		return nil
	}
	k := e.Value.(kept)
	if time.Since(k.since) >= fresh {
		c.remove(e)
		return nil
	}
	c.order.MoveToFront(e)
	return k.object
}

func (c *cache) put(o *object, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.bytes() > c.room || c.names[o.name] != nil {
		return
	}
	c.names[o.name] = c.order.PushFront(kept{o, since})
	c.size += o.bytes()
	for c.size > c.room {
		c.remove(c.order.Back())
	}
}

// drop forgets an object that turned out to be another than it was.
func (c *cache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.names[name]; e != nil {
		c.remove(e)
	}
}

func (c *cache) remove(e *list.Element) {
	o := e.Value.(kept)
	c.order.Remove(e)
	delete(c.names, o.name)
	c.size -= o.bytes()
}
