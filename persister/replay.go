package persister

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"agentstream/schema"
)

// Bounds of a pack that is put together from rows.
const replayEvents = 128

// Bounds that a store keeps for one Page, so that a replay's memory does not grow with the run.
const (
	PageRows  = 512
	PageBytes = 1 << 20
)

// FrameTypes are the event types that move a run's state or its open messages. Stores index them.
var FrameTypes = []string{
	schema.TypeRunLifecycle, schema.TypeCommandMessage, schema.TypeMessageStart, schema.TypeMessageEnd,
}

// Line is one stored event. Body has no line feed.
type Line struct {
	Seq   schema.Seq
	Child string
	Body  []byte
}

// Frame is a stored event of one of FrameTypes. Body may be nil unless it is a run.lifecycle.
type Frame struct {
	Seq   schema.Seq
	Type  string
	Child string
	Body  []byte
}

// Rows is how Walk reads a store.
type Rows interface {
	// Page returns the run's rows with after < seq ≤ through in order, at most PageRows of them; the one
	// that makes them more than PageBytes is the last. None means that there are no more.
	Page(ctx context.Context, key schema.RunKey, day string, after, through schema.Seq) ([]Line, error)
	// Frames returns the run's rows of FrameTypes with seq ≤ through, in order.
	Frames(ctx context.Context, key schema.RunKey, day string, through schema.Seq) ([]Frame, error)
}

// Walk puts packs together from rows with after < seq ≤ through. Lines are byte-identical to those
// that were stored; neighbours of one child are grouped, at most 128 to a pack. Each pack's head is
// the run as it was after that pack, except the lane's owner and the log's position, which rows do
// not have. A row that is missing ends the walk there, without an error: what lies behind a hole is
// not handed out.
func Walk(ctx context.Context, rows Rows, key schema.RunKey, day string, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return WalkFrom(ctx, rows, key, schema.Head{Day: day}, after, through)
}

// WalkFrom is Walk for rows that do not begin with the run: base is the run as it was after the event
// base.Last, at or before after. Of what rows.Frames gives, only what lies behind base counts.
func WalkFrom(ctx context.Context, rows Rows, key schema.RunKey, base schema.Head, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		w := walker{key: key, head: base.Clone()}
		if err := w.seed(ctx, rows, after); err != nil {
			yield(schema.Pack{}, err)
			return
		}
		for w.head.Last < through {
			page, err := rows.Page(ctx, key, base.Day, w.head.Last, through)
			if err != nil {
				yield(schema.Pack{}, err)
				return
			}
			if len(page) == 0 || !w.page(page, yield) {
				return
			}
		}
	}
}

type walker struct {
	key  schema.RunKey
	head schema.Head // after the rows seen so far
}

// seed moves the head to the start of the walk: state and open messages there.
func (w *walker) seed(ctx context.Context, rows Rows, after schema.Seq) error {
	base := w.head.Last
	switch {
	case after == base:
		return nil
	case after < base:
		return fmt.Errorf("persister: walk of run %s after %d begins at %d", w.key, after, base)
	}
	frames, err := rows.Frames(ctx, w.key, w.head.Day, after)
	if err != nil {
		return err
	}
	for _, f := range frames {
		if f.Seq <= base {
			continue
		}
		w.head.Last = f.Seq - 1
		w.advance(f.Type, f.Child, f.Body)
	}
	w.head.Last = after
	return nil
}

// page yields the packs of one page and says whether to go on.
func (w *walker) page(page []Line, yield func(schema.Pack, error) bool) bool {
	for len(page) > 0 {
		n, size := 0, 0
		for n < len(page) && n < replayEvents && page[n].Child == page[0].Child &&
			page[n].Seq == w.head.Last+1+schema.Seq(n) {
			if size += len(page[n].Body) + 1; n > 0 && size > schema.MaxPackBytes {
				break
			}
			n++
		}
		if n == 0 {
			return false // a hole
		}
		p, err := w.pack(page[:n])
		if !yield(p, err) || err != nil {
			return false
		}
		page = page[n:]
	}
	return true
}

func (w *walker) pack(lines []Line) (schema.Pack, error) {
	p := schema.Pack{Key: w.key, Child: lines[0].Child, First: lines[0].Seq, Count: len(lines)}
	size := 0
	for i := range lines {
		size += len(lines[i].Body) + 1
	}
	body := make([]byte, 0, size)
	for _, l := range lines {
		r, err := schema.ScanLine(l.Body)
		if err != nil || r.Seq != l.Seq {
			return schema.Pack{}, fmt.Errorf("persister: stored row of run %s seq %d does not hold its event: %w", w.key, l.Seq, schema.ErrBadPack)
		}
		body = append(append(body, l.Body...), '\n')
		w.advance(string(r.Type), l.Child, l.Body)
	}
	w.head.LastID = idOf(lines[len(lines)-1].Body)
	p.Body, p.Head = body, w.head.Clone()
	return p, nil
}

// idOf returns the id of a line that schema.ScanLine has read: it comes first, and holds no escape.
func idOf(line []byte) string {
	_, rest, _ := bytes.Cut(line, []byte(`{"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(id)
}

// advance moves the head over a row. What the log has taken stands, so a row that a writer would be
// refused now counts as well.
func (w *walker) advance(typ, child string, line []byte) {
	seq := w.head.Last + 1
	if slices.Contains(FrameTypes, typ) {
		var payload []byte
		if typ == schema.TypeRunLifecycle {
			if r, err := schema.ScanLine(line); err == nil {
				payload = r.Payload()
			}
		}
		_ = w.head.Advance(typ, child, "", payload)
	}
	w.head.Last = seq
}
