package producers

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"agentstream/schema"
)

// resolveRenewed finds out, in a log that was renewed, what became of a pack. The error wraps ErrConflict when
// it is certain that it is not stored, so that its events get new numbers.
func (w *writer) resolveRenewed(ctx context.Context, p *schema.Pack, doubt bool) (*schema.Pack, error) {
	w.forget()
	if !doubt {
		return nil, ErrConflict
	}
	began := time.Now()
	stored, err := w.search(ctx, p)
	switch {
	case err != nil:
		return nil, w.unsure(err, true)
	case !stored:
		return nil, ErrConflict
	}
	w.reportStored(p, began)
	return p, nil
}

// search reports whether the log, or the archive, has the lines of p. Packs that were written back are not cut where
// they were, and do not name their writer.
func (w *writer) search(ctx context.Context, p *schema.Pack) (stored bool, err error) {
	head, err := w.readHead(ctx, p.Child)
	if err != nil || head.Last < p.First {
		return false, err
	}
	if head.Last == p.Last() && head.LastID == p.Head.LastID {
		return true, nil
	}
	found := false
	err = w.patiently(ctx, func(ctx context.Context) error {
		for q, err := range w.log.Since(ctx, w.build.key, 0) {
			if err != nil {
				return err
			}
			if q.First <= p.First && p.First <= q.Last() {
				found, stored = true, bytes.HasPrefix(q.Trim(p.First-1).Body, firstLine(p))
				return nil
			}
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("seq %d of %s is archived and not in the log any more", p.First, w.build.key)
	}
	return stored, err
}

// firstLine returns the pack's first line with its line feed.
func firstLine(p *schema.Pack) []byte { return p.Body[:bytes.IndexByte(p.Body, '\n')+1] }

// reportLoss calls Hooks.Lost when a renewed log ends before what this writer knows to have been acknowledged.
func (w *writer) reportLoss(head schema.Head) {
	if head.Generation == w.head.Generation || head.Last >= w.head.Last || w.hooks.Lost == nil {
		return
	}
	w.hooks.Lost(w.build.key, head.Last, w.head.Last)
}
