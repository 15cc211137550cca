package fanout

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"time"

	"agentstream/schema"
)

// Packs walks the packs that hold events with after < seq ≤ through, from the archive for what the
// stream no longer has and from the stream for the rest. The walk never steps over a hole: it ends
// with ErrExpired when the next events are gone for good, with ErrUnavailable when they
// cannot be had now. A walk that ends without an error has reached through, or the newest event if
// that comes first. The first pack may begin before after+1, the last may end behind through.
func (h *Hub) Packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	packs := h.packs(ctx, key, after, through)
	if h.cfg.Open == nil {
		return packs
	}
	return func(yield func(schema.Pack, error) bool) {
		for p, err := range packs {
			if err == nil {
				p, err = h.cfg.Open(ctx, p)
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// open opens packs of the ring for a reader. They are not changed.
func (h *Hub) open(ctx context.Context, packs []schema.Pack) ([]schema.Pack, error) {
	if h.cfg.Open == nil {
		return packs, nil
	}
	out := make([]schema.Pack, len(packs))
	for i := range packs {
		var err error
		if out[i], err = h.cfg.Open(ctx, packs[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// packs is Packs of what is stored, as it is stored.
func (h *Hub) packs(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		if packs, ok := h.recent(ctx, key, after, through); ok {
			for _, p := range packs {
				if p.First > through || !yield(p, nil) {
					return
				}
			}
			return
		}
		if pos, err := h.history(ctx, key, after, through, yield); err != nil {
			yield(schema.Pack{}, fmt.Errorf("fanout: packs of %s after %d: %w", key, pos, err))
		}
	}
}

// history is Packs without the first look into the ring. An error comes with the position that was
// reached.
func (h *Hub) history(ctx context.Context, key schema.RunKey, after, through schema.Seq,
	yield func(schema.Pack, error) bool) (schema.Seq, error) {
	if h.cache != nil {
		return h.cache.packs(ctx, key, after, through, yield)
	}
	return h.walkUncached(ctx, key, after, through, yield)
}

// walkUncached is history without the cache: nothing that it reads is kept.
func (h *Hub) walkUncached(ctx context.Context, key schema.RunKey, after, through schema.Seq,
	yield func(schema.Pack, error) bool) (schema.Seq, error) {
	w := &walk{h: h, ctx: ctx, key: key, pos: after, through: through, yield: yield}
	err := w.run()
	if errors.Is(err, errStopped) {
		err = nil
	}
	return w.pos, err
}

// walk is Packs without what is kept of it, for the cache.
func (h *Hub) walk(ctx context.Context, key schema.RunKey, after, through schema.Seq) iter.Seq2[schema.Pack, error] {
	return func(yield func(schema.Pack, error) bool) {
		w := &walk{h: h, ctx: ctx, key: key, pos: after, through: through, yield: yield}
		if err := w.run(); err != nil && !errors.Is(err, errStopped) {
			yield(schema.Pack{}, err)
		}
	}
}

// recent returns the newest packs of a watched run when they hold all of after < seq ≤ through, or can be
// made to.
func (h *Hub) recent(ctx context.Context, key schema.RunKey, after, through schema.Seq) ([]schema.Pack, bool) {
	f := h.topic(key)
	if f == nil {
		return nil, false
	}
	v := f.view.Load()
	if after+1 < v.lo && f.extend(ctx, after) {
		v = f.view.Load()
	}
	if after+1 < v.lo || through > v.hi || len(v.packs) == 0 {
		return nil, false
	}
	i := sort.Search(len(v.packs), func(i int) bool { return v.packs[i].Last() > after })
	return v.packs[i:], true
}

// ExpiredError is ErrExpired with the first seq that is still kept: of a run that has expired whole, the one that a
// follow-up would get. 0: not known.
type ExpiredError struct {
	First schema.Seq
}

// Error names what is still kept.
func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%v; first kept is %d", ErrExpired, e.First)
}

// Unwrap returns ErrExpired.
func (e *ExpiredError) Unwrap() error { return ErrExpired }

// walk is one Packs under way.
type walk struct {
	h       *Hub
	ctx     context.Context
	key     schema.RunKey
	pos     schema.Seq // seq of the last event that was yielded
	through schema.Seq
	yield   func(schema.Pack, error) bool
}

// errStopped reports that the caller wants no more.
var errStopped = errors.New("stopped")

// holeTries is how often a hole between archive and stream is looked at again: the persister may be
// about to commit what the stream is about to drop.
const holeTries = 3

// run alternates: the stream first, for it is ahead of the archive; the archive for what precedes
// the stream's first pack.
func (w *walk) run() error {
	for try := 0; ; try++ {
		start := w.pos
		hole, err := w.stream()
		if err != nil {
			return err
		}
		if w.pos >= w.through {
			return nil
		}
		before := w.pos
		first, err := w.archive(hole)
		if err != nil {
			return err
		}
		switch {
		case w.pos >= w.through:
			return nil
		case w.pos > before:
			try = 0
			continue
		case hole == 0 && first == 0:
			more, err := w.explainEnd()
			if !more || w.pos == start && try == holeTries {
				return err
			}
			if w.pos > start {
				try = 0
			}
			continue
		case first > w.pos+1:
			return &ExpiredError{First: first}
		case w.h.cfg.Archive == nil:
			return &ExpiredError{First: hole}
		case try == holeTries:
			return w.hole(hole)
		}
		wait(w.ctx, 50*time.Millisecond<<try)
	}
}

// hole decides what it means that the stream begins behind pos+1 and the archive has nothing in
// between: it was kept once and is no more, or the persister lags by more than the stream's window.
func (w *walk) hole(first schema.Seq) error {
	head, err := w.h.cfg.Archive.Head(w.ctx, w.key, "")
	if err != nil {
		return w.unavailable(err)
	}
	if head.HasEvents() && head.Last <= w.pos {
		return fmt.Errorf("archive ends at %d and the stream begins at %d: %w", head.Last, first, ErrUnavailable)
	}
	return &ExpiredError{First: first}
}

// explainEnd is called when neither the stream nor the archive has anything after pos. It decides why: the
// newest event was reached, everything is gone, or events were stored since the two were asked. more reports
// the last; then err is for a caller that does not look again.
func (w *walk) explainEnd() (more bool, err error) {
	head, err := w.h.Head(w.ctx, w.key)
	if err != nil || head.Last <= w.pos {
		return false, err
	}
	if head.Stored == 0 { // the archive knows the run's end and has none of its events
		return false, &ExpiredError{First: head.Last + 1}
	}
	// The whole range may lie before what the stream still has.
	for p, err := range w.h.cfg.Stream.Packs(w.ctx, w.key, w.pos, schema.MaxSeq) {
		switch more = p.First <= w.pos+1; {
		case err != nil:
			return false, w.unavailable(err)
		case !more && w.h.cfg.Archive == nil:
			return false, &ExpiredError{First: p.First}
		}
		break
	}
	return more, fmt.Errorf("nothing behind %d where %d exists: %w", w.pos, head.Last, ErrUnavailable)
}

// stream yields what the stream has next. hole is the first seq that it has when that is not the
// next one; 0: it has nothing behind pos.
func (w *walk) stream() (hole schema.Seq, err error) {
	for p, err := range w.h.cfg.Stream.Packs(w.ctx, w.key, w.pos, w.through) {
		if err != nil {
			return 0, w.unavailable(err)
		}
		if p.First > w.pos+1 {
			return p.First, nil
		}
		if err := w.give(p); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// archive yields what the archive has before the stream's first event, or all it has when the
// stream has nothing. first is the first seq that it has behind pos; 0: none.
func (w *walk) archive(hole schema.Seq) (first schema.Seq, err error) {
	if w.h.cfg.Archive == nil {
		return 0, nil
	}
	through := w.through
	if hole > 0 {
		through = min(through, hole-1)
	}
	for p, err := range w.h.cfg.Archive.Packs(w.ctx, w.key, w.pos, through) {
		if err != nil {
			return 0, w.unavailable(err)
		}
		if first == 0 {
			first = max(p.First, w.pos+1)
		}
		if p.First > w.pos+1 {
			return p.First, nil
		}
		if err := w.give(p); err != nil {
			return 0, err
		}
	}
	return first, nil
}

func (w *walk) give(p schema.Pack) error {
	if p.Last() <= w.pos {
		return nil
	}
	p = p.Trim(w.pos) // packs of stream and archive may overlap; what is yielded never does
	w.pos = p.Last()
	if !w.yield(p, nil) {
		return errStopped
	}
	return nil
}

func (w *walk) unavailable(err error) error {
	if cause := context.Cause(w.ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
