package persister

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"agentstream/schema"
)

// replayEvents bounds the events of a pack that is made of rows.
const replayEvents = 128

// Bounds of one Page, so that a replay's memory does not grow with the run.
const (
	PageRows  = 512
	PageBytes = 1 << 20
)

// StateTypes are the types of a run's own events that may change its state. Stores index them.
var StateTypes = []string{schema.TypeRunLifecycle, schema.TypeCommandMessage}

// Line is one stored event. Body has no line feed.
type Line struct {
	Seq   schema.Seq
	Child string
	Body  []byte
}

// Frame is a stored event of one of StateTypes, of the run itself.
type Frame struct {
	Seq  schema.Seq
	Type string
	Body []byte
}

// Rows is how Walk reads a store.
type Rows interface {
	// Page returns the run's rows with after < seq ≤ through in order: at most PageRows, and none after the row with
	// which they exceed PageBytes. An empty page means that there are no more.
	Page(ctx context.Context, key schema.RunKey, day string, after, through schema.Seq) ([]Line, error)
	// Frames returns the rows of StateTypes, of the run itself and not of its children, with seq ≤ through, in order.
	Frames(ctx context.Context, key schema.RunKey, day string, through schema.Seq) ([]Frame, error)
}

// Walk returns packs made of the rows with after < seq ≤ through. Lines are byte-identical to the stored ones.
// Neighbours of the same child are in one pack, at most 128. A pack's head describes the run after that pack, without
// the lane's owner and the log's position, which are not in rows. When a row is missing the walk ends there without an
// error: events after a gap are not returned.
func Walk(ctx context.Context, rows Rows, key schema.RunKey, day string, after,
	through schema.Seq) iter.Seq2[schema.Pack, error] {
	return WalkFrom(ctx, rows, key, schema.Head{Day: day}, after, through)
}

// WalkFrom is Walk for rows that do not begin at the run's first event: base is the head after the event base.Last,
// which must not be greater than after. Frames at or before base.Last are ignored.
func WalkFrom(ctx context.Context, rows Rows, key schema.RunKey, base schema.Head, after,
	through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		w := walker{key: key, head: base}
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
	head schema.Head // after the rows read so far
}

// seed advances the head to the start of the walk.
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
		w.advance(f.Type, f.Body)
	}
	w.head.Last = after
	return nil
}

// page yields the packs of one page and reports whether to continue.
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
			return false // a gap
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
			return schema.Pack{}, fmt.Errorf("persister: stored row of run %s seq %d does not hold its event: %w",
				w.key, l.Seq, schema.ErrBadPack)
		}
		body = append(append(body, l.Body...), '\n')
		if l.Child == "" {
			w.advance(string(r.Type), l.Body)
		}
		w.head.Last = l.Seq
	}
	w.head.LastID = idOf(lines[len(lines)-1].Body)
	p.Body, p.Head = body, w.head
	return p, nil
}

// idOf returns the id of a line that schema.ScanLine accepts: it is the first field and has no escapes.
func idOf(line []byte) string {
	_, rest, _ := bytes.Cut(line, []byte(`{"id":"`))
	id, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(id)
}

// advance moves the head's state over a row of the run itself. Rows count also when a writer would be refused now,
// because the log has accepted them.
func (w *walker) advance(typ string, line []byte) {
	if !slices.Contains(StateTypes, typ) {
		return
	}
	if r, err := schema.ScanLine(line); err == nil {
		_ = w.head.Advance(typ, "", "", r.Payload())
	}
}
