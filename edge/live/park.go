package live

import (
	"errors"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// ErrParked reports that a stream goes on without the goroutine that gets it, which must not touch anything
// of the stream any more.
var ErrParked = errors.New("the stream goes on by itself")

// place is where a session is parked, and what the group had sent by then. The view's mu guards it.
type place struct {
	at     *broadcastGroup // nil: nowhere
	index  int
	events int
	bytes  int64
}

// park leaves the stream to its view, if the client has everything that there is and its connection can
// be written to without waiting.
func (ss *Session) park() bool {
	if ss.direct == nil || !ss.bound.Shared || ss.ctx.Err() != nil {
		return false
	}
	r := ss.read.upToDate()
	if r == nil || ss.apart(r.pos+1) {
		return false
	}
	enc := ss.direct.Encoding()
	if enc == nil {
		return false
	}
	// What is parked holds no memory for writing.
	ss.w.frames, r.room, r.out, ss.merged = dialect.Frames{}, nil, nil, nil
	v := r.v
	v.mu.Lock()
	defer v.mu.Unlock()
	// A client that has more, or less, than what the view showed last gets its next event in words of
	// its own.
	if s := v.now.Load(); s.err != nil || s.ended || r.pos != s.hi || r.fold.Last != v.last {
		return false
	}
	l := ss.life
	l.ss = ss
	l.parked.Store(v)
	if ss.ctx.Err() != nil { // whoever ended it may not have seen where it is
		l.parked.Store(nil)
		return false
	}
	g := v.group(ss, enc)
	ss.place = place{at: g, index: len(g.parked), events: g.events, bytes: g.bytes}
	g.parked = append(g.parked, parked{ss, ss.straight()})
	v.parkedCount.Add(1)
	if _, stateful := ss.w.project.(dialect.Stateful); stateful {
		ss.w.project, ss.w.lent, ss.project = nil, false, nil // the group's knows the same
	}
	return true
}

// straight returns what a session's ready frames are written to: the connection of a subscription itself.
func (ss *Session) straight() transport.Direct {
	if s, ok := ss.direct.(*subscription); ok {
		return s.conv.sink
	}
	return ss.direct
}

// wrote returns when frames were last written to a session that is parked in the view; zero when it is not.
func (v *view) wrote(ss *Session) time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	if g := ss.place.at; g != nil {
		return g.wrote
	}
	return time.Time{}
}

// unpark takes a stream back whose context has ended, unless it has left by itself.
func (v *view) unpark(ss *Session) {
	v.mu.Lock()
	parked := ss.place.at != nil
	if parked {
		v.removeParked(ss)
	}
	v.mu.Unlock()
	if parked {
		ss.resume(nil, nil)
	}
}

// removeParked ends a parking. It needs mu. The session is then where the view is.
func (v *view) removeParked(ss *Session) {
	g, i := ss.place.at, ss.place.index
	n := len(g.parked) - 1
	g.parked[i] = g.parked[n]
	g.parked[i].ss.place.index = i
	g.parked[n] = parked{}
	g.parked = g.parked[:n]
	v.parkedCount.Add(-1)
	r := ss.read.upToDate()
	r.pos, r.fold.Last, r.had = v.now.Load().hi, v.last, true
	if events := g.events - ss.place.events; events > 0 {
		ss.c.Events += events
		ss.c.Sent += g.bytes - ss.place.bytes
		ss.c.Seq = v.last
	}
	if s, ok := ss.direct.(*subscription); ok {
		s.conv.noteUse(g.wrote)
	}
	ss.life.parked.Store(nil)
	ss.place = place{}
	if p, ok := g.of.project.(dialect.Stateful); ok {
		ss.w.project = p.For(ss.req)
	}
	if n == 0 {
		v.dropIfEmpty(g)
	}
}

// releaseAll returns everybody who is parked. It needs mu.
func (v *view) releaseAll(left []evicted) []evicted {
	for len(v.projections) > 0 {
		parked := v.projections[0].groups[0].parked
		ss := parked[len(parked)-1].ss
		v.removeParked(ss)
		left = append(left, evicted{ss: ss})
	}
	return left
}
