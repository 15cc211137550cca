package ordered

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"
)

// few is how many entries are looked through without an index.
const few = 16

// Map is a map that remembers in which order its keys were set first. The zero value is empty. What it holds must not
// be changed in place while clones share it.
type Map[K comparable, V any] struct {
	list  []entry[K, V] // some are gone; neither the first of those from head on nor the last is
	head  int
	live  int
	index map[K]int    // of list; nil while there are few
	by    *atomic.Bool // whether clones share list and index; nil with list
}

type entry[K comparable, V any] struct {
	key   K
	value V
	live  bool
}

// Len returns the number of entries.
func (m *Map[K, V]) Len() int { return m.live }

// Clone returns a copy, which shares memory until one of the two is changed.
func (m *Map[K, V]) Clone() Map[K, V] {
	if m.by != nil {
		m.by.Store(true)
	}
	return *m
}

// Copy returns a copy with what fn returns for each value.
func (m *Map[K, V]) Copy(fn func(V) V) Map[K, V] {
	if m.live == 0 {
		return Map[K, V]{}
	}
	c := Map[K, V]{list: slices.Clone(m.list[m.head:]), live: m.live, by: new(atomic.Bool)}
	for i := range c.list {
		if e := &c.list[i]; e.live {
			e.value = fn(e.value)
		}
	}
	c.reindex()
	return c
}

// own makes the memory the caller's alone.
func (m *Map[K, V]) own() {
	if m.by != nil && !m.by.Load() {
		return
	}
	m.list, m.index, m.by = slices.Clone(m.list), maps.Clone(m.index), new(atomic.Bool)
}

// find returns the index of a key in list, -1 when it is not there.
func (m *Map[K, V]) find(k K) int {
	if m.index != nil {
		if i, ok := m.index[k]; ok {
			return i
		}
		return -1
	}
	for i := len(m.list) - 1; i >= m.head; i-- {
		if e := &m.list[i]; e.live && e.key == k {
			return i
		}
	}
	return -1
}

// Get returns the value of a key; ok is false when there is none.
func (m *Map[K, V]) Get(k K) (v V, ok bool) {
	i := m.find(k)
	if i < 0 {
		return v, false
	}
	return m.list[i].value, true
}

// Set sets the value of a key. One that is new comes last; another one stays in its place.
func (m *Map[K, V]) Set(k K, v V) {
	m.own()
	if i := m.find(k); i >= 0 {
		m.list[i].value = v
		return
	}
	m.list = append(m.list, entry[K, V]{k, v, true})
	m.live++
	switch {
	case m.index != nil:
		m.index[k] = len(m.list) - 1
	case len(m.list)-m.head > few:
		m.compact()
	}
}

// Delete deletes a key and returns its value; ok is false when there was none. An iteration that is under way may still
// return it.
func (m *Map[K, V]) Delete(k K) (v V, ok bool) {
	i := m.find(k)
	if i < 0 {
		return v, false
	}
	m.own()
	v = m.list[i].value
	m.list[i] = entry[K, V]{}
	delete(m.index, k)
	m.live--
	if m.live == 0 {
		m.empty()
		return v, true
	}
	for !m.list[m.head].live {
		m.head++
	}
	for !m.list[len(m.list)-1].live {
		m.list = m.list[:len(m.list)-1]
	}
	if len(m.list) > 2*few && m.live < len(m.list)/2 {
		m.compact()
	}
	return v, true
}

// empty makes the map one without entries. It keeps a little memory: most maps are filled and emptied again and again.
func (m *Map[K, V]) empty() {
	if cap(m.list) > few {
		*m = Map[K, V]{}
		return
	}
	*m = Map[K, V]{list: m.list[:0], by: m.by}
}

// compact moves the entries to memory of their own: an iteration goes on in the old one.
func (m *Map[K, V]) compact() {
	list := make([]entry[K, V], 0, 2*m.live)
	for _, e := range m.list[m.head:] {
		if e.live {
			list = append(list, e)
		}
	}
	m.list, m.head = list, 0
	m.reindex()
}

func (m *Map[K, V]) reindex() {
	m.index = nil
	if m.live <= few {
		return
	}
	m.index = make(map[K]int, 2*m.live)
	for i := range m.list {
		if m.list[i].live {
			m.index[m.list[i].key] = i
		}
	}
}

// First returns the entry that was set first; ok is false when there is none.
func (m *Map[K, V]) First() (k K, v V, ok bool) {
	if m.live == 0 {
		return k, v, false
	}
	e := &m.list[m.head]
	return e.key, e.value, true
}

// Last returns the entry that was set last; ok is false when there is none.
func (m *Map[K, V]) Last() (k K, v V, ok bool) {
	if m.live == 0 {
		return k, v, false
	}
	e := &m.list[len(m.list)-1]
	return e.key, e.value, true
}

// All returns the entries in their order. The Map may be changed meanwhile: an entry that is added may be returned or
// not.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		list := m.list[m.head:]
		for i := range list {
			if e := &list[i]; e.live && !yield(e.key, e.value) {
				return
			}
		}
	}
}

// Backward is All in the other direction.
func (m *Map[K, V]) Backward() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		list := m.list[m.head:]
		for i := len(list) - 1; i >= 0; i-- {
			if e := &list[i]; e.live && !yield(e.key, e.value) {
				return
			}
		}
	}
}
