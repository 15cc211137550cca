package assemble

import (
	"hash/fnv"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// past is what is remembered of something that has ended, so that a record of it which comes once more, or late, is not taken for another
// one. The first beginning and the first end count.
type past struct {
	said  uint64     // sum of what its beginning said; 0: its end came without one
	begun schema.Seq // where it began
}

// Bounds of what is remembered: of a lane, and of all. Behind them the end of what has ended long ago is the end of something unknown.
const (
	maxPast    = 1 << 10
	maxAllPast = 1 << 14
)

// passed notes that something has ended.
func (a *Run) passed(l *Lane, key itemKey, p past) {
	n := l.past.Len()
	l.past.Delete(key)
	l.past.Set(key, p)
	a.pasts += l.past.Len() - n
	for l.past.Len() > maxPast || a.pasts > maxAllPast && l.past.Len() > 0 {
		oldest, _, _ := l.past.First()
		a.forget(l, oldest)
	}
}

func (a *Run) forget(l *Lane, key itemKey) {
	if _, ok := l.past.Delete(key); ok {
		a.pasts--
	}
}

// repeats reports whether a record that begins or ends something says what was said before: a beginning behind its end, unless it says
// something else or a message has begun since; and a second end.
func (a *Run) repeats(l *Lane, key itemKey, begins bool, said uint64) bool {
	p, ok := l.past.Get(key)
	switch {
	case !ok:
		return false
	case !begins:
		return true
	case p.said == 0: // it is late
		a.passed(l, key, past{said, p.begun})
		return true
	case p.said == said && l.said <= p.begun:
		return true
	}
	a.forget(l, key)
	return false
}

// startSum returns a sum of what the beginning of a call, of a request to a model or of a task says. It is never 0.
func startSum(p jsonscan.Fields) uint64 {
	h := fnv.New64a()
	for _, name := range [...]string{"tool", "model", "name"} {
		_, _ = h.Write([]byte(p.Str(name)))
		_, _ = h.Write([]byte{0})
	}
	_, _ = h.Write(p.Some("input"))
	return h.Sum64() | 1
}
