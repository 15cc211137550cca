package edge

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/shape"
	"agentstream/edge/transport"
	"agentstream/fanout"
	"agentstream/schema"
)

// session is one stream from its request to its end, whatever carries it.
type session struct {
	live  *Live
	c     *Report
	bound *boundStream
	life  *life
	req   dialect.Request
	opened
	first *shape.Out // snapshot that the stream begins with

	project dialect.Projector // that was fed what the client has, of a dialect with a state; else nil
	again   stretch           // what is told again first
	lead    []dialect.Frame   // of the last record that the client has, what it has not

	ctx    context.Context // of life
	read   reader
	sink   transport.Sink
	direct transport.Direct // the sink, when it can be served without a goroutine; nil: it cannot
	w      writer
	place  place
}

// errComplete reports that a run has ended and that the client has its last event.
var errComplete = errors.New("the run has ended and the client has all of it")

// begin reads the request and opens what it asks for. What begin opened is closed by close, also after an
// error.
func (v *Live) begin(l *life, c *Report, b *boundStream, in dialect.Input) (*session, error) {
	ctx := l.ctx
	ss := &session{live: v, c: c, bound: b, life: l, ctx: ctx}
	var err error
	if ss.req, err = b.dialect.Open(in); err != nil {
		return ss, err
	}
	key := schema.RunKey{Tenant: l.caller.Tenant, Run: ss.req.Run}
	if err := key.Validate(); err != nil {
		return ss, err
	}
	if only := l.caller.Run; only != "" && only != key.Run {
		return ss, fmt.Errorf("credential is for run %s alone: %w", only, fanout.ErrNotFound)
	}
	c.run = key.Run
	if err := v.enter(l); err != nil {
		return ss, err
	}
	c.release = func() { v.leave(l) } // a node that drains waits until the stream's end was said
	if at := l.caller.Expires; !at.IsZero() {
		timer := time.AfterFunc(time.Until(at), func() { l.end(auth.ErrExpired) })
		context.AfterFunc(ctx, func() { timer.Stop() })
	}
	if err := ss.open(ctx, key); err != nil {
		return ss, ended(ctx, err)
	}
	return ss, nil
}

// open opens the source behind the cursor. A log that does not answer in time ends the stream.
func (ss *session) open(ctx context.Context, key schema.RunKey) (err error) {
	v := ss.live
	limit := time.AfterFunc(v.cfg.LogTimeout, func() {
		ss.life.end(fmt.Errorf("open %s: no answer in %v: %w", key, v.cfg.LogTimeout, fanout.ErrUnavailable))
	})
	defer limit.Stop()
	if p, ok := ss.bound.dialect.Projector(ss.req).(dialect.Stateful); ok {
		return ss.openStateful(ctx, key, p)
	}
	cursor := ss.req.Cursor
	if ss.req.Snapshot && cursor == (dialect.Cursor{}) {
		if ss.first, cursor.Seq, err = v.snapshotEvent(ctx, key); err != nil {
			return err
		}
	}
	if ss.opened, err = v.cfg.Runs.open(ctx, key, cursor); err != nil {
		return err
	}
	if ss.first == nil && ss.bound.Mode.EndsWithRun() && ss.pos.ended && ss.after >= ss.pos.last {
		return errComplete
	}
	return nil
}

// openStateful opens a run for a dialect whose frames depend on what was before the cursor.
func (ss *session) openStateful(ctx context.Context, key schema.RunKey, p dialect.Stateful) error {
	v := ss.live
	head, err := v.cfg.Runs.existing(ctx, key)
	if err != nil {
		return err
	}
	now, err := v.cfg.Checkpoints.at(ctx, key, ss.bound.dialect, head.Last, ss.req)
	if err != nil {
		return err
	}
	if err := now.Admit(ss.req); err != nil {
		return err
	}
	after := schema.Seq(0)
	switch cursor := ss.req.Cursor; {
	case cursor.Token != "":
		at, err := v.cfg.Checkpoints.find(ctx, key, ss.bound.dialect, cursor, ss.req)
		if err != nil {
			return err
		}
		after, p, ss.lead = at.seq, at.p, at.rest
		ss.again = stretch{at.from, at.seq, at.index}
	case ss.req.Newest:
		after, p = head.Last, now
		ss.again = stretch{preludeOf(now), head.Last, math.MaxInt}
	}
	ss.project = p
	ss.opened, err = v.cfg.Runs.openRoot(ctx, key, dialect.Cursor{Seq: after})
	return err
}

// shaped reports whether deltas are folded and paced for this client.
func (ss *session) shaped() bool {
	return ss.bound.Shaped && ss.req.Detail == dialect.DetailDefault
}

func (ss *session) filter() shape.Filter {
	f := ss.req.Filter
	filter := shape.NewFilter(f.Children, f.Types, f.Nested)
	filter.Agent = f.Agent
	return filter
}

// reader returns the way through the source that the request asks for.
func (ss *session) reader(ctx context.Context) (reader, error) {
	if ss.req.Speed > 0 {
		return ss.timed(ctx), nil
	}
	return ss.steady(ctx, ss.opened, ss.after)
}

// steady reads from o on, for a client that has everything up to has.
func (ss *session) steady(ctx context.Context, o opened, has schema.Seq) (reader, error) {
	filter, shaped := ss.filter(), ss.shaped()
	key := viewKey{src: o.src, filter: ss.req.Filter.Key(), shaped: shaped, bundle: shaped && ss.req.Bundle}
	v, err := ss.live.views.join(key, filter, o)
	o.tail.close() // the view has its own, and history needs none
	ss.tail = nil
	if err != nil {
		return nil, err
	}
	return &viewReader{
		hub: ss.live.cfg.Runs.hub, views: &ss.live.views, v: v, src: o.src, ctx: ctx, pos: o.after,
		thin: shaped, joined: max(o.pos.last, o.after), whole: !shaped && o.src.child == "" && filter.All() && has == o.after,
		fold: shape.Folder{Filter: filter, Merge: shaped, Bundle: key.bundle, Last: has},
	}, nil
}

func (ss *session) timed(ctx context.Context) reader {
	filter := ss.filter()
	r := newTimedReader(ctx, ss.live.cfg.Runs.hub, ss.opened, ss.req.Speed)
	if ss.shaped() {
		r.pace = &shape.Pacer{Filter: filter, Bundle: ss.req.Bundle, Last: ss.after}
	} else {
		r.plain = shape.Folder{Filter: filter, Last: ss.after}
	}
	ss.tail.close()
	r.rest = func(after, has schema.Seq) (reader, error) {
		if ss.pos.ended && ss.bound.Mode.EndsWithRun() {
			return endReader{}, nil
		}
		o, err := ss.live.cfg.Runs.openSource(ctx, ss.src, after)
		if err != nil {
			return nil, err
		}
		return ss.steady(ctx, o, has)
	}
	return r
}

// endReader has nothing left to give.
type endReader struct{}

func (endReader) next(context.Context) (portion, error) { return portion{ended: true}, nil }
func (endReader) wrote(time.Duration)                   {}
func (endReader) upToDate() *viewReader                 { return nil }
func (endReader) close() int                            { return 0 }

// close gives everything back but the place among the streams, which the call holds until it is logged.
func (ss *session) close() {
	if ss.read != nil {
		ss.c.dropped = ss.read.close()
		if h := ss.live.cfg.Hooks.Dropped; h != nil && ss.c.dropped > 0 {
			h(ss.bound.name, ss.c.dropped)
		}
	} else if ss.tail != nil {
		ss.tail.close()
	}
}

// serve carries the stream over a sink. Its error is errParked when the stream goes on without the
// caller; otherwise the stream is over, the sink was ended, and everything was given back.
func (ss *session) serve(sink transport.Sink) error {
	ss.sink = sink
	ss.direct, _ = sink.(transport.Direct)
	ss.c.stream = ss.bound
	if h := ss.live.cfg.Hooks.StreamOpened; h != nil {
		h(ss.bound.name, ss.bound.Transport)
	}
	return ss.carry(ss.begin)
}

// carry takes a step and says the last word, unless the stream is parked.
func (ss *session) carry(step func() error) (err error) {
	err = errPanic // until step has returned
	defer func() {
		if err != errParked { //nolint:errorlint // it is handed over, never wrapped
			err = ss.finish(err)
		}
	}()
	return step()
}

// begin returns what comes before the log's own events, then what the log has.
func (ss *session) begin() (err error) {
	if ss.read, err = ss.reader(ss.ctx); err != nil {
		return err
	}
	ss.w = writer{ss: ss, sink: ss.sink, project: ss.project, flushed: time.Now()}
	if ss.project == nil {
		ss.w.project = ss.bound.dialect.Projector(ss.req)
	}
	if err := ss.w.prelude(ss.again); err != nil {
		return cleanly(err)
	}
	if err := ss.w.lead(); err != nil {
		return cleanly(err)
	}
	if ss.first != nil {
		if err := ss.w.send(portion{records: []shape.Out{*ss.first}}); err != nil {
			return err
		}
		ss.first = nil
	}
	return ss.deliver()
}

// resume goes on with a stream that was parked, on a goroutine of its own: with the rest of what its
// client did not take, or with its end.
func (ss *session) resume(rest []byte, err error) {
	go func() {
		parked, failed := false, error(nil)
		defer func() {
			if v := recover(); !parked {
				ss.c.done(v, failed)
			}
		}()
		err := ss.carry(func() error {
			if err != nil && err != errOver { //nolint:errorlint // it is handed over, never wrapped
				return err
			}
			if err := errors.Join(ss.w.rest(rest), err); err != nil {
				return cleanly(err)
			}
			return ss.deliver()
		})
		if parked = err == errParked; !parked { //nolint:errorlint // it is handed over, never wrapped
			failed = err
		}
	}()
}

// finish says the last word and lets go of everything.
func (ss *session) finish(err error) error {
	err = ended(ss.ctx, err)
	if h := ss.live.cfg.Hooks.StreamClosed; h != nil && ss.c.stream != nil {
		reason := ReasonOf(err)
		if reason == dialect.ReasonNone {
			reason = dialect.ReasonEnded
		}
		h(ss.bound.name, ss.bound.Transport, reason)
	}
	if lerr := ss.sink.End(ss.c.endOf(err)); err == nil {
		err = lerr
	}
	ss.close()
	ss.life.end(nil)
	return err
}

// deliver feeds the sink until the stream ends or is parked. A nil error is the end of the run.
func (ss *session) deliver() error {
	w := &ss.w
	idle := idleClock{every: ss.live.cfg.KeepAlive}
	defer idle.stop()
	for {
		if ss.park() {
			return errParked
		}
		wait := idle.wait(ss.ctx, w.flushed)
		p, err := ss.read.next(wait)
		if err != nil {
			if ss.ctx.Err() != nil || wait.Err() == nil { // an error of the log may come from a deadline too: of its own
				return err
			}
			if err := w.keepAlive(); err != nil {
				return err
			}
			continue
		}
		if err := w.send(p); err != nil {
			return cleanly(err)
		}
		if p.ended && ss.bound.Mode.EndsWithRun() {
			return nil
		}
		if err := w.keepAlive(); err != nil { // what was sent may have shown nothing
			return err
		}
	}
}

// snapshotEvent returns the fold of a run as the event that stands for all up to it.
func (v *Live) snapshotEvent(ctx context.Context, key schema.RunKey) (*shape.Out, schema.Seq, error) {
	fold, at, err := v.cfg.Folds.foldAt(ctx, key, 0)
	if err != nil {
		return nil, 0, err
	}
	e := schema.Event{ID: at.ID, TS: at.TS, Type: shape.SnapshotType, RunID: key.Run, Seq: at.Seq, Payload: fold}
	if at.Seq > 1 {
		e.FirstSeq = 1
	}
	r, err := schema.ScanLine(e.AppendLine(nil))
	if err != nil {
		return nil, 0, fmt.Errorf("snapshot of %s: %w", key, err)
	}
	return &shape.Out{Record: r, First: 1, From: 1}, at.Seq, nil
}
