package shape

import "agentstream/schema"

// Drop is what a client that does not keep up is spared (native §4 R4).
type Drop byte

// The levels, each with what the ones before it spare.
const (
	DropNothing   Drop = iota
	DropReasoning      // reasoning.delta
	DropDeltas         // every delta
)

// Folder turns records into those of a view as fast as they come. Merge and Bundle may not change
// once records were added.
type Folder struct {
	Filter Filter
	Merge  bool       // join neighbouring deltas
	Bundle bool       // join deltas of different lanes
	Drop   Drop       // what is left out from the next record on
	Last   schema.Seq // last event that was shown, or that the client has; then where the next begins

	Lost int // deltas that Drop has left out

	spans []span
	size  int
	hole  *hole // nil: there is none
}

// hole is what Drop has left out and the client was not informed of.
type hole struct {
	first schema.Seq
	last  schema.Record
	n     int
}

// maxWaiting bounds how many deltas that cannot be joined wait, for one bundle or for their turn.
const maxWaiting = 512

// Add takes the next record and appends what can be shown by now.
func (f *Folder) Add(out []Out, r schema.Record) []Out {
	if !f.Filter.Match(r) {
		return out
	}
	if f.Drop > DropNothing && f.isSpared(r) {
		out = f.Flush(out)
		if f.hole == nil {
			f.hole = &hole{first: r.Seq}
		}
		f.hole.last = r
		f.hole.n++
		f.Last = r.Seq // the numbers tell the client too
		f.Lost++
		return out
	}
	if f.Merge {
		if s, ok := newSpan(r); ok {
			return f.wait(out, &s)
		}
	}
	out = f.Flush(out)
	return f.show(out, show(r, f.Last+1))
}

// isSpared reports whether a record is one that is left out.
func (f *Folder) isSpared(r schema.Record) bool {
	return r.IsDelta() && (f.Drop == DropDeltas || string(r.Type) == schema.TypeReasoningDelta)
}

func (f *Folder) wait(out []Out, s *span) []Out {
	if n := len(f.spans); n > 0 {
		prev := &f.spans[n-1]
		full := f.size+s.size() > MaxText
		switch {
		case !full && prev.join(s):
			f.size += s.size()
			return out
		case full || !f.Bundle || n >= maxWaiting:
			out = f.Flush(out)
		}
	}
	f.spans = append(f.spans, *s)
	f.size += s.size()
	return out
}

// Flush appends what is pending. At the end of a replay there may be nothing to come.
func (f *Folder) Flush(out []Out) []Out {
	if len(f.spans) == 0 {
		return out
	}
	out = f.show(out, together(f.spans, f.Last+1))
	clear(f.spans)
	f.spans, f.size = f.spans[:0], 0
	return out
}

func (f *Folder) show(out []Out, o Out) []Out {
	f.Last, o.Spared = o.Seq, f.Lost > 0
	return append(out, o)
}

// Tell appends what Drop has left out since the last call.
func (f *Folder) Tell(out []Out) []Out {
	if f.hole != nil {
		out = append(out, gap(f.hole.last, f.hole.first, f.hole.n))
		f.hole = nil
	}
	return out
}
