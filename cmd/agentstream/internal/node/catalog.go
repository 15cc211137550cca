package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"agentstream/edge"
	"agentstream/fanout"
	"agentstream/internal/fair"
	"agentstream/schema"
)

// catalog answers the edge's questions about runs from the archive, and where a child is not persisted
// yet, from the log.
//
// The archive is asked first: there it is one look into an index. The log has to look through all runs
// of its window (60 ms with 100,000 of them), so few searches run at a time and answers are kept for a
// while. A root that takes up a child id which another one has used is found when the kept answer ends.
type catalog struct {
	archive edge.Catalog // nil: none
	stream  func(ctx context.Context, tenant, child string) (string, error)

	searches      *fair.Slots // of the log
	found, missed *expiring
}

// Bounds of what a catalog does and keeps.
const (
	catalogSearches = 2      // of one tenant; another one has one more
	catalogEntries  = 10_000 // of each kind: children that nobody has do not push out the others
	catalogFound    = time.Minute
	catalogMissed   = time.Second
)

var _ edge.Catalog = (*catalog)(nil)

func newCatalog(archive edge.Catalog, stream func(ctx context.Context, tenant, child string) (string, error)) *catalog {
	return &catalog{
		archive: archive, stream: stream, searches: fair.New(fair.Config{Shared: catalogSearches, Firsts: 1}),
		found: newExpiring(catalogEntries, catalogFound), missed: newExpiring(catalogEntries, catalogMissed),
	}
}

// Runs asks the archive.
func (c *catalog) Runs(ctx context.Context, tenant string, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if c.archive == nil {
		return nil, edge.ErrNoRuns
	}
	return c.archive.Runs(ctx, tenant, q)
}

// Parent returns the root of a child, "" when nobody knows one. An archive that is away hides nothing
// that the log has.
func (c *catalog) Parent(ctx context.Context, tenant, child string) (string, error) {
	key := schema.RunKey{Tenant: tenant, Run: child}
	if run, ok := c.lookUp(key); ok {
		return run, nil
	}
	var away error
	if c.archive != nil {
		var run string
		if run, away = c.archive.Parent(ctx, tenant, child); away == nil && run != "" {
			c.found.put(key, run)
			return run, nil
		}
	}
	slot, err := c.searches.Acquire(ctx, tenant)
	if err != nil {
		return "", fmt.Errorf("root of %s: %w: %w", key, fanout.ErrUnavailable, err)
	}
	defer slot.Release()
	if run, ok := c.lookUp(key); ok { // somebody else was searching for the same
		return run, nil
	}
	run, err := c.stream(ctx, tenant, child)
	switch {
	case err != nil:
		return "", err
	case run != "":
		c.found.put(key, run)
	case away != nil:
		return "", away
	default:
		c.missed.put(key, "")
	}
	return run, nil
}

// lookUp returns what a search has found of a child's id before.
func (c *catalog) lookUp(key schema.RunKey) (string, bool) {
	if run, ok := c.found.get(key); ok {
		return run, true
	}
	return c.missed.get(key)
}

// expiring keeps answers for a time, and of too many those that were used last. The tenant that has most loses first.
type expiring struct {
	most int
	ttl  time.Duration

	mu      sync.Mutex
	entries map[schema.RunKey]*fair.Kept[foundRun]
	used    fair.Recent[foundRun]
}

// foundRun is the run of a child's id, as a search has found it.
type foundRun struct {
	key   schema.RunKey
	run   string
	until time.Time
}

func newExpiring(most int, ttl time.Duration) *expiring {
	return &expiring{most: most, ttl: ttl, entries: make(map[schema.RunKey]*fair.Kept[foundRun])}
}

func (e *expiring) get(key schema.RunKey) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.entries[key]
	if at == nil {
		return "", false
	}
	if !time.Now().Before(at.Value.until) {
		e.drop(at)
		return "", false
	}
	e.used.Touch(at)
	return at.Value.run, true
}

func (e *expiring) put(key schema.RunKey, run string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at := e.entries[key]; at != nil {
		e.drop(at)
	}
	e.entries[key] = e.used.Push(key.Tenant, 1, foundRun{key, run, time.Now().Add(e.ttl)})
	if old, ok := e.used.Over(e.most); ok {
		delete(e.entries, old.key)
	}
}

func (e *expiring) drop(at *fair.Kept[foundRun]) {
	e.used.Remove(at)
	delete(e.entries, at.Value.key)
}
