package fair

import (
	"container/heap"
	"container/list"
)

// Recent keeps values of tenants, those that were used last, as long as all of them weigh no more than a bound. What
// goes is of the tenant that holds most, and there what was not used for longest; a tenant that holds no more than its
// part of the bound loses nothing. The zero Recent is empty. Its owner guards it.
type Recent[T any] struct {
	tenants map[string]*share[T]
	order   shares[T]
	weight  int
	count   int
}

// share is what one tenant holds.
type share[T any] struct {
	tenant string
	weight int
	list   list.List // of *Kept[T], the one used last in front
	place  int       // in the heap; -1: it has nothing that can go
}

// Kept is a value of a Recent.
type Kept[T any] struct {
	Value  T
	of     *share[T]
	at     *list.Element
	weight int
}

// Push adds a value in front of its tenant's.
func (r *Recent[T]) Push(tenant string, weight int, value T) *Kept[T] {
	k := &Kept[T]{Value: value, of: r.share(tenant), weight: weight}
	k.at = k.of.list.PushFront(k)
	r.count++
	r.add(k.of, weight)
	return k
}

// Touch puts a value in front of its tenant's.
func (r *Recent[T]) Touch(k *Kept[T]) { k.of.list.MoveToFront(k.at) }

// Remove forgets a value. A value that is not there any more is passed over.
func (r *Recent[T]) Remove(k *Kept[T]) {
	if k.at == nil {
		return
	}
	k.of.list.Remove(k.at)
	k.at = nil
	r.count--
	r.add(k.of, -k.weight)
}

// Weigh counts what a tenant holds besides the values that can go. n may be negative.
func (r *Recent[T]) Weigh(tenant string, n int) { r.add(r.share(tenant), n) }

// Weight returns what all hold.
func (r *Recent[T]) Weight() int { return r.weight }

// Len returns how many values there are that can go.
func (r *Recent[T]) Len() int { return r.count }

// Over removes the value that has to go first when all hold more than a bound. ok is false when none has to.
func (r *Recent[T]) Over(bound int) (value T, ok bool) {
	if r.weight <= bound || len(r.order) == 0 {
		return value, false
	}
	s := r.order[0]
	if s.weight <= bound/len(r.tenants) {
		return value, false
	}
	k := s.list.Back().Value.(*Kept[T])
	r.Remove(k)
	return k.Value, true
}

// Last returns the value that has to go first; nil: there is none.
func (r *Recent[T]) Last() *Kept[T] {
	if len(r.order) == 0 {
		return nil
	}
	return r.order[0].list.Back().Value.(*Kept[T])
}

func (r *Recent[T]) share(tenant string) *share[T] {
	s := r.tenants[tenant]
	if s == nil {
		s = &share[T]{tenant: tenant, place: -1}
		if r.tenants == nil {
			r.tenants = make(map[string]*share[T])
		}
		r.tenants[tenant] = s
	}
	return s
}

// add counts what a tenant holds more, and puts it into its place.
func (r *Recent[T]) add(s *share[T], n int) {
	s.weight += n
	r.weight += n
	switch {
	case s.list.Len() == 0 && s.place >= 0:
		heap.Remove(&r.order, s.place)
	case s.list.Len() > 0 && s.place < 0:
		heap.Push(&r.order, s)
	case s.place >= 0:
		heap.Fix(&r.order, s.place)
	}
	if s.weight == 0 && s.list.Len() == 0 {
		delete(r.tenants, s.tenant)
	}
}

// shares is a heap of tenants that have something that can go, the one that holds most in front.
type shares[T any] []*share[T]

func (q shares[T]) Len() int           { return len(q) }
func (q shares[T]) Less(i, j int) bool { return q[i].weight > q[j].weight }

func (q shares[T]) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

// Push appends a *share.
func (q *shares[T]) Push(x any) {
	s := x.(*share[T])
	s.place = len(*q)
	*q = append(*q, s)
}

// Pop removes the last.
func (q *shares[T]) Pop() any {
	old := *q
	s := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	s.place = -1
	return s
}
