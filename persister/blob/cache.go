package blob

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"golang.org/x/sync/singleflight"
)

// cache keeps the indexes that were used last. Who asks for one that is being read waits for it.
type cache struct {
	reads *reads
	room  int64 // bytes
	group singleflight.Group

	mu    sync.Mutex
	order list.List // of *object, the newest use first
	names map[string]*list.Element
	size  int64
}

func newCache(r *reads, room int64) *cache {
	return &cache{reads: r, room: room, names: make(map[string]*list.Element)}
}

// open gives an object. The reading goes on when the caller who began it leaves: others may wait.
func (c *cache) open(ctx context.Context, name string) (*object, error) {
	if o := c.get(name); o != nil {
		return o, nil
	}
	done := c.group.DoChan(name, func() (any, error) {
		o, err := c.reads.open(context.WithoutCancel(ctx), name)
		if err == nil {
			c.put(o)
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
	c.order.MoveToFront(e)
	return e.Value.(*object)
}

func (c *cache) put(o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.bytes() > c.room || c.names[o.name] != nil {
		return
	}
	c.names[o.name] = c.order.PushFront(o)
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
	o := e.Value.(*object)
	c.order.Remove(e)
	delete(c.names, o.name)
	c.size -= o.bytes()
}
