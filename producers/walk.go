package producers

import (
	"context"
	"fmt"
	"iter"

	"agentstream/schema"
)

// Walk reads a run on from a place: out of the log, and what has left the log's window out of the past. Log and Key
// must be set. It is for one goroutine.
type Walk struct {
	Log  Log
	Past Past // nil: what has left the log is passed over
	Key  schema.RunKey

	Pos  uint64     // of the newest pack that was read in the log; 0: none
	Last schema.Seq // of the newest event that was read; 0: none
	// LogOnly means that a run of which the log has nothing is not looked for in the past.
	LogOnly bool
}

// Packs walks the packs after the place, in order, and moves the place. A pack of the past has no position in the log.
// It may begin before Last+1, since packs are kept as they were written. A pack that begins after Last+1 says that what
// lies between is not kept any more. After an error the walk ends, and may be begun again.
func (w *Walk) Packs(ctx context.Context) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range w.Log.Since(ctx, w.Key, w.Pos) {
			if err != nil {
				yield(schema.Pack{}, err)
				return
			}
			if p.First > w.Last+1 && !w.readPast(ctx, p.First-1, yield) {
				return
			}
			if !w.give(p, yield) {
				return
			}
			w.Pos = p.Head.Stored
		}
		if w.Pos == 0 && !w.LogOnly {
			w.readPast(ctx, schema.MaxSeq, yield)
		}
	}
}

// readPast walks what has left the log. more is false when the walk is over.
func (w *Walk) readPast(ctx context.Context, through schema.Seq, yield func(schema.Pack, error) bool) (more bool) {
	if w.Past == nil {
		return true
	}
	after := w.Last
	for p, err := range w.Past.Packs(ctx, w.Key, after, through) {
		if err != nil {
			yield(schema.Pack{}, fmt.Errorf("read the past after %d: %w", after, err))
			return false
		}
		p.Head.Stored = 0
		if !w.give(p, yield) {
			return false
		}
	}
	return true
}

// give yields a pack. The place moves when the caller wants the next one: one that stops has not read this one.
func (w *Walk) give(p schema.Pack, yield func(schema.Pack, error) bool) bool {
	last := p.Last()
	if !yield(p, nil) {
		return false
	}
	w.Last = max(w.Last, last)
	return true
}
