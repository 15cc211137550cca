package assemble

import (
	"hash/fnv"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// past is what is remembered of something that has ended, so that a record of it which comes once more, or late, is
// not taken for another one. The first beginning and the first end count.
type past struct {
	said         uint64     // sum of what its beginning said; 0: its end came without one
	begun, ended schema.Seq // where
	asked        schema.Seq // of a call: beginning of the newest message that has asked for it; 0: none has
	ask          *Item      // of a call that was asked for and has not started; nil for what has begun
}

// Bounds of what is remembered: of a lane, and of all. Behind them the end of what has ended long ago is the end of
// something unknown.
const (
	maxPast    = 1 << 10
	maxAllPast = 1 << 14
)

// noteEnd notes that something has ended.
func (a *Run) noteEnd(l *Lane, key itemKey, p past) {
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

// isRepeat reports whether a record that begins or ends something says what was said before: a beginning after
// its end, unless it says something else or a message has begun since; and a second end.
func (a *Run) isRepeat(l *Lane, it *Item) bool {
	key := it.endKey()
	p, ok := l.past.Get(key)
	switch {
	case !ok, p.ask != nil:
		return false
	case a.mayResume(l, it.Kind, &p):
	case p.said == 0: // it is late
		p.said, p.begun = it.said, a.seq
		a.noteEnd(l, key, p)
		return true
	case p.said == it.said:
		return true
	}
	a.forget(l, key)
	return false
}

// mayResume reports whether what has ended may begin once more: its id may be used again; of a call also, when a later
// message has asked for it, or one of which nothing is known but that it has begun.
func (a *Run) mayResume(l *Lane, kind Kind, p *past) bool {
	if kind != CallStart {
		return max(l.reuseSeq(), a.told) > p.ended
	}
	if m := l.Message; m != nil && !m.Implicit && m.CountBlocks() == 0 && m.Start > p.begun {
		return true
	}
	return max(p.asked, l.reuseSeq()) > p.begun
}

// findEnd reports whether a message with an id has ended, and when.
func (l *Lane) findEnd(id []byte) (ended schema.Seq, ok bool) {
	p, ok := l.past.Get(itemKey{MessageClose, keyOf(id)})
	return p.ended, ok && isName(id)
}

// findAsk returns the call that was asked for and has not started, also when its turn has ended; nil when there is
// none, or when it has started.
func (l *Lane) findAsk(key jsonscan.Sum) *Item {
	p, _ := l.past.Get(itemKey{CallEnd, key})
	return p.ask
}

// isName reports whether a value names something: a string that is not empty.
func isName(id []byte) bool { return jsonscan.IsString(id) && len(id) > 2 }

// noteAsk notes that a message asks for a call that is open, or has ended.
func (a *Run) noteAsk(l *Lane, id []byte, message schema.Seq) {
	key := itemKey{CallEnd, keyOf(id)}
	if was, ok := l.items.Get(key); ok {
		it := *was
		it.asked = message
		l.items.Set(key, &it)
	} else if p, ok := l.past.Get(key); ok {
		p.asked = message
		l.past.Set(key, p)
	}
}

func sumOf(b []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(b)
	return h.Sum64() | 1
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
