package shape

import "agentstream/schema"

// Drop says what a client that does not keep up is spared (native §4 R4).
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
}

// maxBundle bounds how many deltas wait for one bundle.
const maxBundle = 512

// Add takes the next record and appends what can be shown by now.
func (f *Folder) Add(out []Out, r schema.Record) []Out {
	if !f.Filter.Match(r) {
		return out
	}
	if f.Drop > DropNothing && f.spared(r) {
		out = f.Flush(out)
		f.Last = r.Seq // the gap is what tells the client
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

func (f *Folder) spared(r schema.Record) bool {
	return r.IsDelta() && (f.Drop == DropDeltas || string(r.Type) == schema.TypeReasoningDelta)
}

func (f *Folder) wait(out []Out, s *span) []Out {
	if n := len(f.spans); n > 0 {
		prev := &f.spans[n-1]
		full := f.size+s.size() > MaxText
		switch {
		case !full && prev.same(s):
			f.size += s.size()
			prev.absorb(s)
			return out
		case full || !f.Bundle || n >= maxBundle:
			out = f.Flush(out)
		}
	}
	f.spans = append(f.spans, *s)
	f.size += s.size()
	return out
}

// Flush appends what is pending. At the end of a replay there may be nothing to come.
func (f *Folder) Flush(out []Out) []Out {
	for rest := f.spans; len(rest) > 0; {
		n := together(rest, f.Bundle)
		if n == 1 {
			out = f.show(out, rest[0].record(f.Last+1))
		} else {
			out = f.show(out, bundle(rest[:n], f.Last+1))
		}
		rest = rest[n:]
	}
	clear(f.spans)
	f.spans, f.size = f.spans[:0], 0
	return out
}

func (f *Folder) show(out []Out, o Out) []Out {
	f.Last = o.Seq
	return append(out, o)
}
