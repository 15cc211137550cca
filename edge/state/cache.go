package state

import (
	"container/list"
	"context"
	"sync"
)

// cache keeps what was made for a key between requests, the entries used last. One request at a time has the turn
// at an entry; the others of its key wait for that. It is safe for concurrent use.
type cache[K comparable, V any] struct {
	total int // bytes of all entries; those in use may exceed it
	fresh func(K) V

	mu    sync.Mutex
	all   map[K]*cacheEntry[K, V]
	idle  *list.List // of *cacheEntry without users, the one left last in front
	bytes int
}

// cacheEntry is what a cache has for a key. Whose turn it is may change what.
type cacheEntry[K comparable, V any] struct {
	what V

	key   K
	turn  chan struct{} // holds one token
	users int
	idle  *list.Element
	size  int // as counted in cache.bytes
}

func newCache[K comparable, V any](total int, fresh func(K) V) *cache[K, V] {
	return &cache[K, V]{total: total, fresh: fresh, all: make(map[K]*cacheEntry[K, V]), idle: list.New()}
}

// enter waits for the turn at what is kept for a key, which leave gives up.
func (s *cache[K, V]) enter(ctx context.Context, key K) (*cacheEntry[K, V], error) {
	s.mu.Lock()
	e := s.all[key]
	if e == nil {
		e = &cacheEntry[K, V]{what: s.fresh(key), key: key, turn: make(chan struct{}, 1)}
		s.all[key] = e
	}
	if e.idle != nil {
		s.idle.Remove(e.idle)
		e.idle = nil
	}
	e.users++
	s.mu.Unlock()
	select {
	case e.turn <- struct{}{}:
		return e, nil
	case <-ctx.Done():
		s.drop(e, -1)
		return nil, context.Cause(ctx)
	}
}

// leave ends the turn at an entry, which now has size bytes. An entry of 0 bytes is not kept.
func (s *cache[K, V]) leave(e *cacheEntry[K, V], size int) {
	<-e.turn
	s.drop(e, size)
}

// drop ends one use of an entry. With size -1 the size that was counted for it stays.
func (s *cache[K, V]) drop(e *cacheEntry[K, V], size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if size >= 0 {
		s.bytes += size - e.size
		e.size = size
	}
	if e.users--; e.users > 0 {
		return
	}
	if e.size == 0 {
		delete(s.all, e.key)
		return
	}
	e.idle = s.idle.PushFront(e)
	for s.bytes > s.total && s.idle.Len() > 0 {
		old := s.idle.Remove(s.idle.Back()).(*cacheEntry[K, V])
		delete(s.all, old.key)
		s.bytes -= old.size
	}
}
