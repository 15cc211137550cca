package blob

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// fresh is the time for which a cached index is valid. Ten minutes after a run was deleted its id may be used again,
// and an object of the new run may have the same name. A reader must not see events of the deleted one then.
const fresh = 5 * time.Minute

// entry is an object in the cache.
type entry struct {
	*object
	since time.Time
}

// cache keeps the indexes that were used last. Concurrent calls for the same index read it once.
type cache struct {
	reads *reads
	room  int64 // bytes
	group singleflight.Group

	mu    sync.Mutex
	order list.List // of entries, the last used first
	names map[string]*list.Element
	size  int64
}

func newCache(r *reads, room int64) *cache {
	return &cache{reads: r, room: room, names: make(map[string]*list.Element)}
}

// open returns an object. The read continues when its caller leaves, because others may wait for it.
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
	k := e.Value.(entry)
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
	c.names[o.name] = c.order.PushFront(entry{o, since})
	c.size += o.bytes()
	for c.size > c.room {
		c.remove(c.order.Back())
	}
}

// drop removes an object that has another content than its index.
func (c *cache) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.names[name]; e != nil {
		c.remove(e)
	}
}

func (c *cache) remove(e *list.Element) {
	o := e.Value.(entry)
	c.order.Remove(e)
	delete(c.names, o.name)
	c.size -= o.bytes()
}
