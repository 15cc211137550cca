package blob

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"agentstream/internal/fair"
)

// fresh is the time for which a cached index is valid. Ten minutes after a run was deleted its id may be used again,
// and an object of the new run may have the same name. A reader must not see events of the deleted one then.
const fresh = 5 * time.Minute

// cachedObject is an object in the cache.
type cachedObject struct {
	*openedObject
	since time.Time
}

// tenant is whose object it is.
func (e cachedObject) tenant() string {
	tenant, _, _ := strings.Cut(e.name, "/")
	return tenant
}

// cache keeps the indexes that were used last. One tenant's push out its own first. Concurrent calls for the same index
// read it once.
type cache struct {
	reads *reads
	room  int64 // bytes
	group singleflight.Group

	mu     sync.Mutex
	recent fair.Recent[cachedObject]
	names  map[string]*fair.Kept[cachedObject]
}

func newCache(r *reads, room int64) *cache {
	return &cache{reads: r, room: room, names: make(map[string]*fair.Kept[cachedObject])}
}

// open returns an object. The read continues when its caller leaves, because others may wait for it.
func (c *cache) open(ctx context.Context, name string) (*openedObject, error) {
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
		o, _ := res.Val.(*openedObject)
		return o, res.Err
	}
}

func (c *cache) get(name string) *openedObject {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.names[name]
	if e == nil {
		return nil
	}
	if time.Since(e.Value.since) >= fresh {
		c.remove(e)
		return nil
	}
	c.recent.Touch(e)
	return e.Value.openedObject
}

func (c *cache) put(o *openedObject, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.bytes() > c.room || c.names[o.name] != nil {
		return
	}
	e := cachedObject{o, since}
	c.names[o.name] = c.recent.Push(e.tenant(), int(o.bytes()), e)
	for old, over := c.recent.Over(int(c.room)); over; old, over = c.recent.Over(int(c.room)) {
		delete(c.names, old.name)
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

func (c *cache) remove(e *fair.Kept[cachedObject]) {
	c.recent.Remove(e)
	delete(c.names, e.Value.name)
}
