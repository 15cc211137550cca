package proxy

import (
	"slices"
	"time"
)

// news is what a request adds to its lane.
type news struct {
	request   sum    // identifies the conversation
	continues string // the model call whose answer it goes on from; "" where none is known
	items     []newItem
}

// newItem is a message of the user, or the result of a call that the log has by this id.
type newItem struct {
	*item
	call string
}

// reading compares a request with what the log holds of its lane. Only what stands after the newest answer of the
// assistant can be new, and what a request that is known had asked already is not.
type reading struct {
	m     *memory
	c     *conversation
	n     int   // items that the request asks with
	sums  []sum // of the beginnings of the conversation
	known int   // items of the longest beginning that was asked before
	from  int   // items from here on may be new
	last  int   // the newest answer of the assistant; -1: there is none
	pairs map[int]place
}

// read returns what is new in a request. retried: the client says that it sends it again.
func (m *memory) read(c *conversation, retried bool) news {
	r := &reading{m: m, c: c, n: c.askLength(), sums: c.prefixSums(), last: -1}
	out := news{request: r.sums[r.n]}
	r.find(retried)
	if r.known == r.n && r.n > 0 {
		out.continues = m.asked[out.request].continues
		return out
	}
	r.findNew()
	anchor := r.anchor()
	if anchor != nil {
		out.continues = anchor.id
	}
	certain := r.last < 0 && (r.known > 0 || c.scope != "")
	r.pair()
	for i := r.from; i < r.n; i++ {
		it := &c.items[i]
		switch it.kind {
		case userItem:
			s := partsSum(it.parts)
			if certain || anchor != nil && !slices.Contains(anchor.said, s) || anchor == nil && !m.hasSaid(s) {
				out.items = append(out.items, newItem{item: it})
			}
		case resultItem:
			if k := r.callOf(i); k != nil && !k.done {
				k.done = true // a request may hold a result twice
				out.items = append(out.items, newItem{it, k.id})
			}
		}
	}
	for _, it := range out.items {
		if k := m.open[it.call]; k != nil {
			k.done = false // it is not stored yet
		}
	}
	return out
}

// answerWait returns how long to wait for the answer that a request goes on from. Another proxy may still be
// about to store that, also where the log has an answer that made other calls.
func (m *memory) answerWait(c *conversation, retried bool) time.Duration {
	r := &reading{m: m, c: c, n: c.askLength(), sums: c.prefixSums(), last: -1}
	r.find(retried)
	r.findNew()
	if r.known == r.n || r.last < 0 && c.scope == "" {
		return 0
	}
	switch a := r.anchor(); {
	case a == nil && !c.rolling:
		return awaitAnswer
	case a != nil && !a.ended:
		return awaitEnd
	case a != nil && r.last >= 0 && len(c.items[r.last].calls) > 0 && !a.has(&c.items[r.last], true):
		return awaitAnswer
	}
	return 0
}

// find looks for the longest beginning of the conversation that was asked before.
func (r *reading) find(retried bool) {
	r.known = r.n
	for r.known > 0 && r.m.asked[r.sums[r.known]] == nil {
		r.known--
	}
	if r.known < r.n || r.n == 0 || retried {
		return
	}
	if a := r.m.asked[r.sums[r.n]]; !a.failed && (r.c.rolling || r.isMoved(a)) {
		r.known = 0
	}
}

// isMoved reports whether a request that is equal to an earlier one goes on from the answer to that: its
// history is cut off at the beginning, and an agent that waits for something asks and answers the same again
// and again.
func (r *reading) isMoved(a *answer) bool {
	if r.c.scope != "" || r.c.items[0].kind == userItem {
		return false
	}
	answered := false
	for i := range r.c.items[:r.n] {
		it := &r.c.items[i]
		if it.kind != assistantItem {
			continue
		}
		if !a.has(it, true) {
			return false
		}
		answered = true
	}
	return answered
}

// findNew finds the items that may be new.
func (r *reading) findNew() {
	r.from = r.known
	for i := r.known; i < r.n; i++ {
		if r.c.items[i].kind == assistantItem {
			r.last = i
		}
	}
	if r.last < 0 || r.known > 0 && r.isAnswerAlone() {
		return
	}
	r.from = r.last + 1
}

// isAnswerAlone reports whether all that the assistant says after what was asked is the answer to that. Results
// may be between its calls.
func (r *reading) isAnswerAlone() bool {
	items := r.c.items[r.known : r.last+1]
	if slices.ContainsFunc(items, func(it item) bool { return it.kind == userItem }) {
		return false
	}
	for a := r.m.asked[r.sums[r.known]]; a != nil; a = a.older {
		if !slices.ContainsFunc(items, func(it item) bool { return len(it.calls) > 0 && !a.has(&it, true) }) {
			return true
		}
	}
	return false
}

// has reports whether the answer made the calls of an item, or said its text. exactly: with these inputs.
func (a *answer) has(it *item, exactly bool) bool {
	if len(it.calls) == 0 {
		s := textSum(it.texts)
		return s != (sum{}) && slices.Contains(a.texts, s)
	}
	for _, q := range it.calls {
		if !slices.ContainsFunc(a.calls, func(k *toolCall) bool { return k.is(&q, exactly) }) {
			return false
		}
	}
	return true
}

// is reports whether a call of the log is one of a request. exactly: with the same input; otherwise the same id will
// do.
func (k *toolCall) is(q *requestCall, exactly bool) bool {
	if !exactly && k.hasID(q.id) {
		return true
	}
	return k.tool == q.tool && k.input == inputSum(q.input)
}

// hasID reports whether this is the call's id.
func (k *toolCall) hasID(id string) bool {
	return id != "" && (k.given == id || k.id == id || k.late == id)
}

// anchor returns the answer that the newest items go on from; nil where the log has none.
func (r *reading) anchor() *answer {
	if r.last < 0 {
		if r.known > 0 {
			return r.m.byID(r.m.asked[r.sums[r.known]].continues)
		}
		return r.m.byName(r.c.scope)
	}
	it := &r.c.items[r.last]
	asked, next := r.answerAt(r.last)
	for _, exactly := range []bool{true, false} {
		for a := asked; a != nil && (exactly || next); a = a.older {
			if a.has(it, exactly) {
				return a
			}
		}
	}
	for a := asked; a != nil && next; a = a.older {
		if !a.failed {
			return a
		}
	}
	for i := len(r.m.answers) - 1; i >= 0; i-- {
		if r.m.answers[i].has(it, true) {
			return r.m.answers[i]
		}
	}
	return nil
}

// answerAt returns the newest answer to what was asked before an item of the assistant, and whether it is next
// to that. Between them may be results of the same answer: then only what is equal is sure to be of it.
func (r *reading) answerAt(i int) (a *answer, next bool) {
	for next = true; ; i-- {
		if a := r.m.asked[r.sums[i]]; a != nil || i == 0 || r.c.items[i-1].kind == userItem {
			return a, next
		}
		next = next && r.c.items[i-1].kind == assistantItem
	}
}

// byName returns the newest answer with a message of this id.
func (m *memory) byName(id string) *answer {
	for i := len(m.answers) - 1; i >= 0 && id != ""; i-- {
		if slices.Contains(m.answers[i].names, id) {
			return m.answers[i]
		}
	}
	return nil
}
