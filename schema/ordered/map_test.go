package ordered

import (
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// plain is what a Map is, told in the slow way.
type plain struct {
	keys   []int
	values map[int]string
}

func (p *plain) set(k int, v string) {
	if _, ok := p.values[k]; !ok {
		p.keys = append(p.keys, k)
	}
	p.values[k] = v
}

func (p *plain) remove(k int) {
	p.keys = slices.DeleteFunc(p.keys, func(o int) bool { return o == k })
	delete(p.values, k)
}

func (p *plain) clone() *plain { return &plain{slices.Clone(p.keys), maps.Clone(p.values)} }

func keysOf(all iter.Seq2[int, string]) (keys []int) {
	for k := range all {
		keys = append(keys, k)
	}
	return keys
}

func compare(t *rapid.T, m *Map[int, string], p *plain) {
	if m.Len() != len(p.keys) {
		t.Fatalf("%d entries, want %d", m.Len(), len(p.keys))
	}
	if got := keysOf(m.All()); !slices.Equal(got, p.keys) {
		t.Fatalf("the keys are %v, want %v", got, p.keys)
	}
	got := keysOf(m.Backward())
	slices.Reverse(got)
	if !slices.Equal(got, p.keys) {
		t.Fatalf("backward the keys are %v, want %v", got, p.keys)
	}
	for k := range 40 {
		v, ok := m.Get(k)
		if want, there := p.values[k]; v != want || ok != there {
			t.Fatalf("%d is %q (%v), want %q (%v)", k, v, ok, want, there)
		}
	}
	first, _, ok := m.First()
	last, _, _ := m.Last()
	if ok != (len(p.keys) > 0) || ok && (first != p.keys[0] || last != p.keys[len(p.keys)-1]) {
		t.Fatalf("from %d to %d (%v), want %v", first, last, ok, p.keys)
	}
}

// TestMap compares maps, and clones of them that are changed on their own, with what they stand for.
func TestMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := []*Map[int, string]{{}}
		want := []*plain{{values: map[int]string{}}}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := rapid.IntRange(0, len(all)-1).Draw(t, "which")
			m, p := all[i], want[i]
			k := rapid.IntRange(0, 39).Draw(t, "key")
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				c := m.Clone()
				all, want = append(all, &c), append(want, p.clone())
			case 1:
				c := m.Copy(func(v string) string { return v + "'" })
				copied := p.clone()
				for k, v := range copied.values {
					copied.values[k] = v + "'"
				}
				all, want = append(all, &c), append(want, copied)
			case 2, 3, 4, 5:
				v := rapid.StringN(0, 2, 2).Draw(t, "value")
				m.Set(k, v)
				p.set(k, v)
			default:
				_, ok := m.Delete(k)
				if _, there := p.values[k]; ok != there {
					t.Fatalf("%d was there: %v, want %v", k, ok, there)
				}
				p.remove(k)
			}
			for i := range all {
				compare(t, all[i], want[i])
			}
		}
	})
}

// TestClonesAtTheSameTime makes clones of one map in several goroutines, each of which changes its own.
func TestClonesAtTheSameTime(t *testing.T) {
	var m Map[int, int]
	for k := range 100 {
		m.Set(k, k)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			c := m.Clone()
			for k := range 100 {
				c.Delete(k)
				c.Set(k+1000, k)
			}
			if c.Len() != 100 {
				t.Errorf("a clone has %d entries", c.Len())
			}
		})
	}
	all.Wait()
	if m.Len() != 100 {
		t.Errorf("%d entries are left", m.Len())
	}
}

// TestDeleteWithin deletes every entry while it is returned, and some before.
func TestDeleteWithin(t *testing.T) {
	var m Map[int, int]
	for k := range 1000 {
		m.Set(k, k)
	}
	seen := 0
	for k := range m.All() {
		if k != seen {
			t.Fatalf("%d comes where %d should", k, seen)
		}
		seen++
		m.Delete(k)
	}
	if seen != 1000 || m.Len() != 0 {
		t.Errorf("%d entries were returned, %d are left", seen, m.Len())
	}
}

// TestOneOfMany: what is left of many entries is found and passed through without the others.
func TestOneOfMany(t *testing.T) {
	var m Map[int, int]
	for k := range 100_000 {
		m.Set(k, k)
	}
	for k := range 100_000 {
		if k != 50_000 && k != 1 {
			m.Delete(k)
		}
	}
	if len(m.list) > 2*few {
		t.Errorf("two entries take %d places", len(m.list))
	}
}
