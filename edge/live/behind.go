package live

import (
	"time"

	"agentstream/edge/shape"
	"agentstream/schema"
)

// How far a client is behind what is live before it is spared something (native §4 R4), and up to where
// it is spared then: so much of what is newest it gets.
const (
	behindReasoning = 2 * time.Second // reasoning.delta is left out
	behindDeltas    = 4 * time.Second // every delta is
	behindKept      = time.Second
)

// behind is how far one client is behind the live view, by what its reader saw of that. It begins when
// there is something live that the client has not, and ends when it has everything: so what a client
// may catch up with, after a pause of its link, is not measured by the pause.
type behind struct {
	marks [32]liveMark // newest last
	n     int
	since time.Time  // when left was taken; zero: not yet
	left  schema.Seq // how many events it was behind then

	reasoning schema.Seq // up to it reasoning is left out
	deltas    schema.Seq // up to it every delta is
}

// liveMark is a time at which a view had everything up to seq.
type liveMark struct {
	at  time.Time
	seq schema.Seq
}

// liveMarkApart is the least time between two marks. 32 of them reach back far beyond behindDeltas.
const liveMarkApart = 250 * time.Millisecond

// dropAt returns what of an event is left out.
func (b *behind) dropAt(seq schema.Seq) shape.Drop {
	switch {
	case b == nil:
		return shape.DropNothing
	case seq <= b.deltas:
		return shape.DropDeltas
	case seq <= b.reasoning:
		return shape.DropReasoning
	}
	return shape.DropNothing
}

// look decides what is left out from now on. What was history when the client came never is, nor
// anything of a run that is over; and nothing as long as the client catches up.
func (r *viewReader) look(now time.Time) {
	s := r.v.now.Load()
	if !r.thin || s.ended || r.pos < r.joined || r.pos >= s.hi {
		r.behind = nil
		return
	}
	if r.behind == nil {
		r.behind = &behind{}
	}
	b := r.behind
	b.mark(now, s.hi)
	late := b.late(now, r.pos)
	left := s.hi - r.pos
	switch {
	case late < behindReasoning:
		b.since = time.Time{}
		return
	case b.since.IsZero():
		b.since, b.left = now, left
		return
	case now.Sub(b.since) < behindKept:
		return
	}
	if left >= b.left {
		upTo := b.before(now.Add(-behindKept))
		b.reasoning = max(b.reasoning, upTo)
		if late >= behindDeltas {
			b.deltas = max(b.deltas, upTo)
		}
	}
	b.since, b.left = now, left
}

func (b *behind) mark(now time.Time, seq schema.Seq) {
	if b.n > 0 && now.Sub(b.marks[b.n-1].at) < liveMarkApart {
		return
	}
	if b.n == len(b.marks) {
		b.n = copy(b.marks[:], b.marks[1:])
	}
	b.marks[b.n] = liveMark{now, seq}
	b.n++
}

// late returns for how long at least there has been something behind pos; 0 when there is nothing.
func (b *behind) late(now time.Time, pos schema.Seq) time.Duration {
	for _, m := range b.marks[:b.n] {
		if m.seq > pos {
			return now.Sub(m.at)
		}
	}
	return 0
}

// before returns the place that the view had reached at a time, 0 when that is not known.
func (b *behind) before(t time.Time) (seq schema.Seq) {
	for _, m := range b.marks[:b.n] {
		if !m.at.After(t) {
			seq = m.seq
		}
	}
	return seq
}
