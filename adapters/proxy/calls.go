package proxy

import "slices"

// place is a call of a request: which of the calls of which item.
type place struct{ item, call int }

// pair finds out which call of the request each of its results answers.
func (r *reading) pair() {
	r.pairs = make(map[int]place)
	var open []place
	for i := range r.n {
		it := &r.c.items[i]
		switch it.kind {
		case assistantItem:
			for k := range it.calls {
				open = append(open, place{i, k})
			}
		case resultItem:
			at := r.match(open, it)
			if at >= 0 {
				r.pairs[i] = open[at]
				open = slices.Delete(open, at, at+1)
			}
		}
	}
}

// match returns the open call of a result: the first with its id in the newest answer that has it; without ids the
// first of its name there, and without names the first.
func (r *reading) match(open []place, it *item) int {
	if it.id != "" {
		if at := r.first(open, func(q *requestCall) bool { return q.id == it.id }); at >= 0 {
			return at
		}
	}
	return r.first(open, func(q *requestCall) bool {
		return (it.id == "" || q.id == "" && it.tool != "") && (it.tool == "" || it.tool == q.tool)
	})
}

// first returns the first fitting call of the newest answer that has one; -1: there is none.
func (r *reading) first(open []place, fits func(*requestCall) bool) int {
	found := -1
	for i := len(open) - 1; i >= 0; i-- {
		if found >= 0 && !r.together(open[i].item, open[found].item) {
			break
		}
		if fits(&r.c.items[open[i].item].calls[open[i].call]) {
			found = i
		}
	}
	return found
}

// together reports whether nothing but the assistant speaks between two items.
func (r *reading) together(i, j int) bool {
	return !slices.ContainsFunc(r.c.items[i:j], func(it item) bool { return it.kind != assistantItem })
}

// callOf returns the call of the log that a result answers; nil where the log has none.
func (r *reading) callOf(i int) *toolCall {
	it := &r.c.items[i]
	at, ok := r.pairs[i]
	if !ok {
		return r.m.callNamed(r.m.byName(r.c.scope), it)
	}
	asked, next := r.answerAt(at.item)
	for n, same := range likenesses {
		if !next && n >= exactLikenesses {
			break
		}
		for a := asked; a != nil; a = a.older {
			if k := r.pick(a, at, same); k != nil {
				return k
			}
		}
	}
	for _, same := range likenesses[:exactLikenesses] {
		for j := len(r.m.answers) - 1; j >= 0; j-- {
			if k := r.pick(r.m.answers[j], at, same); k != nil {
				return k
			}
		}
	}
	return r.m.unique(&r.c.items[at.item].calls[at.call])
}

// likeness reports whether a call of the log, by one of its ids, is one of a request.
type likeness func(k *toolCall, id string, q *requestCall, in sum) bool

func equal(k *toolCall, id string, q *requestCall, in sum) bool {
	return q.id != "" && id == q.id && k.tool == q.tool && k.input == in
}

func alike(k *toolCall, _ string, q *requestCall, in sum) bool {
	return k.tool == q.tool && k.input == in
}

// exactLikenesses of all are for calls that are as they were.
const exactLikenesses = 2

// likenesses, the best first. The others are for calls that the agent has changed before it sent them back.
var likenesses = []likeness{
	equal,
	alike,
	func(_ *toolCall, id string, q *requestCall, _ sum) bool { return q.id != "" && id == q.id },
	func(k *toolCall, _ string, q *requestCall, _ sum) bool { return k.tool == q.tool },
}

// pick returns the call of an answer that is like one of the request: of equal ones the one that stands there as this
// stands here.
func (r *reading) pick(a *answer, at place, same likeness) *toolCall {
	q := &r.c.items[at.item].calls[at.call]
	in := inputSum(q.input)
	like := func(k *toolCall, q *requestCall, in sum) bool {
		return same(k, k.given, q, in) || same(k, k.id, q, in) || same(k, k.late, q, in)
	}
	var list []*toolCall
	for _, k := range a.calls {
		if like(k, q, in) {
			list = append(list, k)
		}
	}
	if len(list) == 0 {
		return nil
	}
	nth := 0
	for _, p := range r.siblings(at) {
		before := &r.c.items[p.item].calls[p.call]
		if like(list[0], before, inputSum(before.input)) {
			nth++
		}
	}
	if nth >= len(list) {
		return nil
	}
	return list[nth]
}

// unique finds a call by its id and tool, where the lane has but one with that id.
func (m *memory) unique(q *requestCall) (found *toolCall) {
	for _, a := range m.answers {
		for _, k := range a.calls {
			if !k.hasID(q.id) {
				continue
			}
			if found != nil || k.tool != q.tool {
				return nil
			}
			found = k
		}
	}
	return found
}

// siblings returns the calls that stand before one in the same answer.
func (r *reading) siblings(at place) (list []place) {
	from := at.item
	for from > 0 && r.c.items[from-1].kind != userItem && r.m.asked[r.sums[from]] == nil {
		from--
	}
	for i := from; i <= at.item; i++ {
		for k := range r.c.items[i].calls {
			if i < at.item || k < at.call {
				list = append(list, place{i, k})
			}
		}
	}
	return list
}

// callNamed finds the call of a result by its id, or else by its tool, where the request does not hold the call: in
// the answer that the request goes on from, and else in the newest.
func (m *memory) callNamed(from *answer, it *item) *toolCall {
	list := m.answers
	if from != nil {
		list = []*answer{from}
	}
	for i := len(list) - 1; i >= 0; i-- {
		for _, k := range list[i].calls {
			if k.hasID(it.id) || it.id == "" && it.tool == k.tool && !k.done {
				return k
			}
		}
	}
	return nil
}
