package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/fanout"
	"agentstream/schema"
)

// open opens the source behind the cursor. A log that does not answer in time ends the stream.
func (ss *Session) open(ctx context.Context, key schema.RunKey) (err error) {
	v := ss.live
	if ss.req.Cursor.Seq < 0 {
		return dialect.Refuse(schema.ErrBadCursor, "a place before the first event")
	}
	limit := time.AfterFunc(v.cfg.LogTimeout, func() {
		ss.life.Stop(fmt.Errorf("open %s: no answer in %v: %w", key, v.cfg.LogTimeout, fanout.ErrUnavailable))
	})
	defer limit.Stop()
	if p, ok := ss.bound.Dialect.Projector(ss.req).(dialect.Stateful); ok {
		return ss.openStateful(ctx, key, p)
	}
	cursor := ss.req.Cursor
	if ss.req.Snapshot && cursor == (dialect.Cursor{}) {
		ss.first, cursor.Seq, err = v.snapshotEvent(ctx, key)
		if err != nil && !(ss.req.Await && errors.Is(err, fanout.ErrNotFound)) {
			return err
		}
	}
	if ss.req.Kept && cursor == (dialect.Cursor{}) {
		if cursor.Seq, err = ss.startOfLog(ctx, key, schema.MaxSeq); err != nil {
			return err
		}
		ss.missed = cursor.Seq
	}
	if ss.Opened, err = v.cfg.Runs.Open(ctx, key, cursor, ss.req.Await); err != nil {
		return err
	}
	if ss.first != nil || !ss.bound.Mode.IsFinite() || !ss.Pos.Ended {
		return nil
	}
	return ss.checkComplete(ctx)
}

// maxLate bounds the events behind a cursor that are looked at before the answer begins.
const maxLate = 4096

// checkComplete returns dialect.ErrComplete when a run that has ended has nothing after the cursor that the
// client is shown. What follows the end may be hidden from a client that has the end, which every client is
// shown.
func (ss *Session) checkComplete(ctx context.Context) error {
	filter := ss.filter()
	if rest := ss.Pos.Last - ss.After; rest > maxLate || rest > 0 && filter.All() {
		return nil
	}
	for r, err := range ss.live.cfg.Runs.Walk(ctx, ss.Src, ss.After, ss.Pos.Last) {
		if err != nil || filter.Match(r) {
			return err
		}
	}
	return dialect.ErrComplete
}

// openStateful opens a run for a dialect whose frames depend on what was before the cursor.
func (ss *Session) openStateful(ctx context.Context, key schema.RunKey, p dialect.Stateful) error {
	v := ss.live
	head, err := v.cfg.Runs.Existing(ctx, key)
	if ss.bound.Children && errors.Is(err, fanout.ErrNotFound) {
		var src runs.Source
		if src, head, err = v.cfg.Runs.Locate(ctx, key); err == nil {
			key, ss.req.Run, ss.req.Child = src.Key, src.Key.Run, src.Child
			p = p.For(ss.req)
		}
	}
	if ss.req.Await && errors.Is(err, fanout.ErrNotFound) && ss.req.Cursor == (dialect.Cursor{}) {
		return ss.awaitStateful(ctx, key, p)
	}
	if err != nil {
		return err
	}
	now, err := v.cfg.State.Projector(ctx, key, ss.bound.Dialect, head.Last, ss.req)
	if gone := new(fanout.ExpiredError); ss.req.Kept && errors.As(err, &gone) && gone.First == head.Last+1 {
		// nothing is kept
		now, err = p, nil
	}
	if err != nil {
		return err
	}
	if err := now.Admit(ss.req); err != nil {
		return err
	}
	span, err := ss.span(now)
	if err != nil {
		return err
	}
	if span.ID != "" && span.ID != ss.req.Span {
		ss.req.Span = span.ID
		p, now = p.For(ss.req), now.For(ss.req)
	}
	after, err := ss.findStart(ctx, key, head.Last, span, p, now)
	if err != nil {
		return err
	}
	if ss.Opened, err = v.cfg.Runs.OpenRoot(ctx, key, dialect.Cursor{Seq: after}); err != nil {
		return err
	}
	over := ss.bound.Mode.IsFinite() && ss.Pos.Ended && after >= ss.Pos.Last && ss.req.Cursor != (dialect.Cursor{})
	over = over || span.Last > 0 && after >= span.Last
	if over && len(ss.prefix) == 0 {
		return dialect.ErrComplete
	}
	return nil
}

// span finds the span that the stream is; the zero Span is the whole run, or one that is waited for. Of a run without
// any the client has the newest one.
func (ss *Session) span(now dialect.Stateful) (span dialect.Span, err error) {
	if ss.req.Span == "" {
		return span, nil
	}
	s, ok := now.(dialect.Spanner)
	if !ok {
		return span, fmt.Errorf("dialect %s has no spans", ss.bound.DialectName)
	}
	span = s.Span(ss.req)
	switch {
	case span.First > 0:
		return span, nil
	case ss.req.Span == dialect.SpanNewest:
		return span, dialect.ErrComplete
	case ss.req.Await && ss.req.Cursor == (dialect.Cursor{}):
		return span, nil
	}
	return span, dialect.Refuse(dialect.ErrNotFound, "there is no such part")
}

// findStart finds the position where the stream begins, and sets the projector that was fed all up to it: first
// was fed nothing, now all up to last.
func (ss *Session) findStart(ctx context.Context, key schema.RunKey, last schema.Seq, span dialect.Span, first,
	now dialect.Stateful) (after schema.Seq, err error) {
	cursor, st := ss.req.Cursor, ss.live.cfg.State
	ss.project = first
	switch {
	case cursor.Token != "" || cursor.Place.Seq > 0:
		at, err := st.Find(ctx, key, ss.bound.Dialect, cursor, ss.req)
		if err != nil {
			return 0, err
		}
		after, ss.project, ss.prefix = at.Seq, at.P, at.Rest
		ss.again = &replayRange{at.From, at.Seq, at.Index}
	case cursor.Frames > 0:
		to := last
		if span.Last > 0 {
			to = span.Last
		}
		at, err := st.Skip(ctx, key, ss.bound.Dialect, cursor.Frames, max(span.First, 1), to, ss.req)
		if err != nil {
			return 0, err
		}
		after, ss.project, ss.prefix = at.Seq, at.P, at.Rest
	case cursor.Seq > last:
		return 0, &ends.PositionError{Last: last, Err: fmt.Errorf("after %d: %w", cursor.Seq, fanout.ErrFuture)}
	case cursor.Seq > 0:
		after = cursor.Seq
		ss.project, err = st.Projector(ctx, key, ss.bound.Dialect, after, ss.req)
		if gone := new(fanout.ExpiredError); errors.As(err, &gone) && gone.First == after+1 { // all that is kept is behind it
			ss.project, err = first, nil
		}
	case ss.req.Newest, ss.req.Span != "" && span.First == 0:
		after, ss.project = last, now
	case ss.req.Kept:
		after, err = ss.startOfLog(ctx, key, last)
		ss.missed = after
	case span.First > 1:
		after = span.First - 1
		ss.project, err = st.Projector(ctx, key, ss.bound.Dialect, after, ss.req)
	}
	if cursor != (dialect.Cursor{}) && (after+1 < span.First || span.Last > 0 && after > span.Last) {
		err = dialect.Refuse(schema.ErrBadCursor, "not a place in this part")
	}
	return after, err
}

// startOfLog returns the position before the first record that is kept.
func (ss *Session) startOfLog(ctx context.Context, key schema.RunKey, last schema.Seq) (schema.Seq, error) {
	for _, err := range ss.live.cfg.Runs.Hub.Packs(ctx, key, 0, last) {
		if gone := new(fanout.ExpiredError); errors.As(err, &gone) && gone.First > 0 {
			return gone.First - 1, nil
		}
		if errors.Is(err, fanout.ErrNotFound) && ss.req.Await {
			return 0, nil
		}
		return 0, err
	}
	return 0, nil
}

// awaitStateful opens a run that is not there yet.
func (ss *Session) awaitStateful(ctx context.Context, key schema.RunKey, p dialect.Stateful) (err error) {
	if err := p.Admit(ss.req); err != nil {
		return err
	}
	ss.project = p
	ss.Opened, err = ss.live.cfg.Runs.Await(ctx, key)
	if child := new(fanout.ChildError); errors.As(err, &child) && ss.bound.Children { // since it was looked for
		return ss.openStateful(ctx, key, p)
	}
	return err
}

// reopenAsChild goes on with a stream whose id has become that of a child, of which nothing was shown yet.
func (ss *Session) reopenAsChild() error {
	ss.read.close()
	ss.read = nil
	key, err := ss.life.key(ss.req.Run)
	if err == nil {
		err = ss.open(ss.ctx, key)
	}
	if err != nil {
		return err
	}
	if ss.w.project = ss.project; ss.project == nil {
		ss.w.project = ss.bound.Dialect.Projector(ss.req)
	}
	ss.read, err = ss.reader(ss.ctx)
	return err
}

// snapshotEvent returns the fold of a run as the event that stands for all up to it.
func (v *Live) snapshotEvent(ctx context.Context, key schema.RunKey) (*shape.Out, schema.Seq, error) {
	e, err := v.cfg.State.Snapshot(ctx, key, 0)
	if err != nil {
		return nil, 0, err
	}
	e.Type, e.RunID = shape.SnapshotType, key.Run
	if e.Seq > 1 {
		e.FirstSeq = 1
	}
	r, err := schema.ScanLine(e.AppendLine(nil))
	if err != nil {
		return nil, 0, fmt.Errorf("snapshot of %s: %w", key, err)
	}
	return &shape.Out{Record: r, First: 1, From: 1}, e.Seq, nil
}
