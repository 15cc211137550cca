package qoder

import (
	"maps"
	"sync/atomic"
)

// shared is a map of which copies share the memory until one of them changes. The zero value is empty. What it
// holds must not be changed in place.
type shared[K comparable, V any] struct {
	m  map[K]V
	by *atomic.Bool // whether copies share m; nil with m
}

// clone returns a copy. Copies of one that nobody changes may be made at the same time.
func (s *shared[K, V]) clone() shared[K, V] {
	if s.by != nil {
		s.by.Store(true)
	}
	return *s
}

// own makes m the caller's alone.
func (s *shared[K, V]) own() {
	if s.m != nil && !s.by.Load() {
		return
	}
	if s.m = maps.Clone(s.m); s.m == nil {
		s.m = map[K]V{}
	}
	s.by = new(atomic.Bool)
}

func (s *shared[K, V]) set(k K, v V) {
	s.own()
	s.m[k] = v
}

func (s *shared[K, V]) remove(k K) {
	if _, ok := s.m[k]; ok {
		s.own()
		delete(s.m, k)
	}
}
