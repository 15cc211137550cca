package node

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"agentstream/edge"
	"agentstream/fanout"
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

	searches      chan struct{} // a place for each search of the log under way
	found, missed *expiring
}

// Bounds of what a catalog does and keeps.
const (
	catalogSearches = 2
	catalogEntries  = 10_000 // of each kind: children that nobody has do not push out the others
	catalogFound    = time.Minute
	catalogMissed   = time.Second
)

var _ edge.Catalog = (*catalog)(nil)

func newCatalog(archive edge.Catalog, stream func(ctx context.Context, tenant, child string) (string, error)) *catalog {
	return &catalog{
		archive: archive, stream: stream, searches: make(chan struct{}, catalogSearches),
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
	if run, ok := c.known(key); ok {
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
	select {
	case c.searches <- struct{}{}:
		defer func() { <-c.searches }()
	case <-ctx.Done():
		return "", fmt.Errorf("root of %s: %w: %w", key, fanout.ErrUnavailable, context.Cause(ctx))
	}
	if run, ok := c.known(key); ok { // somebody else was searching for the same
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

func (c *catalog) known(key schema.RunKey) (string, bool) {
	if run, ok := c.found.get(key); ok {
		return run, true
	}
	return c.missed.get(key)
}

// expiring keeps answers for a time, and of too many those that were used last.
type expiring struct {
	most int
	ttl  time.Duration

	mu      sync.Mutex
	entries map[schema.RunKey]*list.Element
	used    *list.List // of *answer, the last used in front
}

type answer struct {
	key   schema.RunKey
	run   string
	until time.Time
}

func newExpiring(most int, ttl time.Duration) *expiring {
	return &expiring{most: most, ttl: ttl, entries: make(map[schema.RunKey]*list.Element), used: list.New()}
}

func (e *expiring) get(key schema.RunKey) (string, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.entries[key]
	if at == nil {
		return "", false
	}
	a := at.Value.(*answer)
	if !time.Now().Before(a.until) {
		e.drop(at)
		return "", false
	}
	e.used.MoveToFront(at)
	return a.run, true
}

func (e *expiring) put(key schema.RunKey, run string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at := e.entries[key]; at != nil {
		e.drop(at)
	}
	e.entries[key] = e.used.PushFront(&answer{key, run, time.Now().Add(e.ttl)})
	for e.used.Len() > e.most {
		e.drop(e.used.Back())
	}
}

func (e *expiring) drop(at *list.Element) {
	delete(e.entries, e.used.Remove(at).(*answer).key)
}
