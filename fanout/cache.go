package fanout

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"agentstream/internal/fair"
	"agentstream/schema"
)

// cache keeps pages of history, so that the log is walked once for all who read a run at about the
// same time. A page is never changed once it is kept, holds nothing about what lies after it, and is
// believed for fresh: then the run is looked at again before the next page of it is given.
//
// Safe for concurrent use.
type cache struct {
	max   int           // bytes
	fresh time.Duration // how long pages are believed
	walk  func(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error]
	ring  func(key schema.RunKey) *topicView // what a watched run holds anyway; nil when it is not watched
	hook  func(hit bool, bytes int)

	mu   sync.Mutex
	runs map[schema.RunKey]*cachedRun
	used fair.Recent[*page] // of all pages: the tenant that has most loses first
}

// cachedRun is what the cache has of one run. It exists while it has pages or readers.
type cachedRun struct {
	key      schema.RunKey
	readers  int
	pages    []*page   // by lo, and by hi: none lies inside another
	checked  time.Time // when the pages were last known to be what the log has
	checking *fetchOnce
	fetches  []*fetchOnce
	begun    uint64     // counts the fetches
	parked   []*logWalk // between two pages
}

// page is a part of a run without a hole.
type page struct {
	run    *cachedRun
	packs  []schema.Pack
	lo, hi schema.Seq
	bytes  int
	kept   *fair.Kept[*page] // nil: it is not
}

// fetchOnce is one reading of the log, for all who want its result.
type fetchOnce struct {
	at, through schema.Seq
	number      uint64        // of the run's fetches
	done        chan struct{} // closed when the rest may be read
	page        *page         // nil: nothing behind at, or err
	err         error
	gone        bool // err is of the one who read, not of the log
}

// Bounds of a page, and what a pack takes beside its body: its description, and the memory of the
// message's headers, of which the body is a part.
const (
	pageBytes    = 192 << 10
	pagePacks    = 512
	packOverhead = 640
	runOverhead  = 512
)

// newCache returns the hub's cache; nil when it is to have none.
func newCache(h *Hub) *cache {
	if h.cfg.CacheBytes < 0 {
		return nil
	}
	c := &cache{
		max: h.cfg.CacheBytes, fresh: h.cfg.CacheFresh, walk: h.walk, ring: h.ring, hook: h.cfg.Hooks.Page,
		runs: make(map[schema.RunKey]*cachedRun),
	}
	return c
}

// enter returns the run, which stays until leave.
func (c *cache) enter(key schema.RunKey) *cachedRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.runs[key]
	if r == nil {
		r = &cachedRun{key: key}
		c.runs[key] = r
	}
	r.readers++
	return r
}

func (c *cache) leave(r *cachedRun) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.readers--
	c.dropIfUnused(r)
}

func (c *cache) dropIfUnused(r *cachedRun) {
	if r.readers == 0 && len(r.pages) == 0 && c.runs[r.key] == r {
		delete(c.runs, r.key)
	}
}

// find returns the page that holds seq.
func (r *cachedRun) find(seq schema.Seq) *page {
	i, exact := slices.BinarySearchFunc(r.pages, seq, func(p *page, seq schema.Seq) int { return cmp.Compare(p.lo, seq) })
	if !exact {
		i--
	}
	if i < 0 || r.pages[i].hi < seq {
		return nil
	}
	return r.pages[i]
}

// keep adds a page, joined to the one before it when both are small, and returns the page that readers
// shall use. What it makes superfluous goes, and what was used longest ago.
func (c *cache) keep(r *cachedRun, p *page) *page {
	if o := r.find(p.lo); o != nil && o.hi >= p.hi {
		return o
	}
	c.disown(r, p)
	if o := r.find(p.lo - 1); o != nil && o.hi == p.lo-1 && len(o.packs)+len(p.packs) <= pagePacks &&
		o.bytes+p.bytes <= pageBytes {
		// o goes, so that nobody else appends to its packs; those who read them do not see beyond.
		p.packs, p.lo, p.bytes = append(o.packs, p.packs...), o.lo, p.bytes+o.bytes
		c.remove(o)
	}
	if len(r.pages) == 0 {
		r.checked = time.Now()
		c.used.Weigh(r.key.Tenant, runOverhead)
	}
	i, _ := slices.BinarySearchFunc(r.pages, p.lo, func(p *page, lo schema.Seq) int { return cmp.Compare(p.lo, lo) })
	for i < len(r.pages) && r.pages[i].hi <= p.hi {
		c.remove(r.pages[i])
	}
	r.pages = slices.Insert(r.pages, i, p)
	p.run = r
	p.kept = c.used.Push(r.key.Tenant, p.bytes, p)
	for old, ok := c.used.Over(c.max); ok; old, ok = c.used.Over(c.max) {
		c.remove(old)
	}
	return p
}

// disown forgets pages that belong to another life of the run: after a smaller seq lies a later
// position of the log. That happens when a run was purged and begun anew.
func (c *cache) disown(r *cachedRun, p *page) {
	stored := func(q schema.Pack) uint64 { return q.Head.Stored }
	for _, o := range slices.Clone(r.pages) {
		a, b := o, p
		if p.lo < o.lo {
			a, b = p, o
		}
		x, y := stored(a.packs[0]), stored(b.packs[0])
		if x > 0 && y > 0 && x > y {
			c.remove(o)
		}
	}
}

// expire forgets the pages up to a place after which nothing is kept: what comes before has expired too. Nobody shall
// read a beginning that is followed by a hole.
func (c *cache) expire(r *cachedRun, at schema.Seq) {
	for len(r.pages) > 0 && r.pages[0].lo <= at {
		c.remove(r.pages[0])
	}
}

// remove forgets a page. Who reads it goes on reading it.
func (c *cache) remove(p *page) {
	r := p.run
	c.used.Remove(p.kept)
	if i := slices.Index(r.pages, p); i >= 0 {
		r.pages = slices.Delete(r.pages, i, i+1)
	}
	if len(r.pages) == 0 {
		c.used.Weigh(r.key.Tenant, -runOverhead)
		c.dropIfUnused(r)
	}
}

// forget drops all pages: copies were lost, the broker may have been another for a while.
func (c *cache) forget() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for last := c.used.Last(); last != nil; last = c.used.Last() {
		c.remove(last.Value)
	}
}

// forgetRun drops what is kept of a run. Who reads it now may keep pages that nobody finds.
func (c *cache) forgetRun(key schema.RunKey) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.runs[key]
	if r == nil {
		return
	}
	delete(c.runs, key)
	for len(r.pages) > 0 {
		c.remove(r.pages[0])
	}
}

func (c *cache) report(hit bool, bytes int) {
	if c.hook != nil {
		c.hook(hit, bytes)
	}
}
