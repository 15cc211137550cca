package live

import (
	"cmp"
	"context"
	"errors"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/runs"
	"agentstream/edge/shape"
	"agentstream/edge/transport"
	"agentstream/fanout"
	"agentstream/schema"
)

// Session is one stream from its request to its end, whatever carries it.
type Session struct {
	live  *Live
	c     *Report
	bound *Bound
	life  *Life
	req   dialect.Request
	runs.Opened
	first *shape.Out // snapshot that the stream begins with

	project dialect.Projector // that was fed what the client has, of a dialect with a state; else nil
	again   *replayRange      // what is sent again first; nil: what the projector returns
	prefix  []dialect.Frame   // of the last record that the client has, what it has not
	missed  schema.Seq        // records that are no longer kept, of a client without a cursor
	Prelude []dialect.Frame   // that the stream begins with, for this client alone; set before Serve
	merged  *mergedSelection  // of several subscriptions, of which each frame comes once; nil: it is one

	ctx    context.Context // of life
	read   reader
	Sink   transport.Sink
	direct transport.Direct // the sink, when it can be served without a goroutine; nil: it cannot
	w      writer
	place  place
}

// Open opens what a request asks for. What it opened is closed by Close, also after an error. The error wraps
// dialect.ErrComplete when the run has ended and the client has all of it.
func (v *Live) Open(l *Life, c *Report, b *Bound, req dialect.Request) (*Session, error) {
	return v.session(l, c, b, req, func() error {
		err := v.Join(l, c)
		if err == nil {
			l.Expire()
		}
		return err
	})
}

// Join is Enter for a call that reports to c. It leaves when the call is over: a node that drains waits until the
// stream's end was sent.
func (v *Live) Join(l *Life, c *Report) error {
	err := v.Enter(l)
	if err == nil {
		c.Release = func() { v.Leave(l) }
	}
	return err
}

// session opens what a request asks for, when its run may be seen and enter takes it in.
func (v *Live) session(l *Life, c *Report, b *Bound, req dialect.Request, enter func() error) (*Session, error) {
	ss := &Session{live: v, c: c, bound: b, life: l, ctx: l.Ctx, req: req}
	key, err := l.key(req.Run)
	if err != nil {
		return ss, err
	}
	c.Run = key.Run
	if enter != nil {
		if err := enter(); err != nil {
			return ss, err
		}
	}
	err = EndCause(ss.ctx, l.open(func(ctx context.Context) error { return ss.open(ctx, key) }))
	if opened := v.cfg.Hooks.RunOpened; opened != nil && (err == nil || errors.Is(err, dialect.ErrComplete)) {
		opened(l.Caller, key.Run, b.DialectName)
	}
	return ss, err
}

// Request is what the stream was opened for.
func (ss *Session) Request() dialect.Request { return ss.req }

// Last returns the newest record when the stream was opened, and how many before its place are no longer kept.
func (ss *Session) Last() (last, missed schema.Seq) { return ss.Pos.Last, ss.missed }

// State returns a copy of the projector that was fed all that the client has; nil where there is no state.
func (ss *Session) State() dialect.Stateful {
	p, ok := ss.project.(dialect.Stateful)
	if !ok {
		return nil
	}
	return p.For(ss.req)
}

// projection names the projection of the stream's view.
func (ss *Session) projection() projectionKey {
	return projectionKey{bound: ss.bound, detail: ss.req.Detail, bundle: ss.req.Bundle, form: ss.req.Form,
		span: ss.req.Span, child: ss.req.Child}
}

// apart reports whether a record's frames are not for all for whom the session is.
func (ss *Session) apart(seq schema.Seq) bool { return ss.merged != nil && seq <= ss.merged.until }

// isShaped reports whether deltas are folded and paced for this client.
func (ss *Session) isShaped() bool {
	return ss.bound.Shaped && ss.req.Detail == dialect.DetailDefault
}

func (ss *Session) filter() shape.Filter {
	f := ss.req.Filter
	filter := shape.NewFilter(f.Children, f.Types, f.Nested)
	filter.Agent = f.Agent
	return filter
}

// silence is how long the stream may be silent.
func (ss *Session) silence() time.Duration { return cmp.Or(ss.bound.KeepAlive, ss.live.cfg.KeepAlive) }

// reader returns the way through the source that the request asks for.
func (ss *Session) reader(ctx context.Context) (reader, error) {
	if ss.req.Speed > 0 && !ss.Await {
		return ss.openTimed(ctx), nil
	}
	return ss.steady(ctx, ss.Opened, ss.After)
}

// steady reads from o on, for a client that has everything up to has.
func (ss *Session) steady(ctx context.Context, o runs.Opened, has schema.Seq) (reader, error) {
	filter, shaped := ss.filter(), ss.isShaped()
	key := viewKey{src: o.Src, filter: ss.req.Filter.Key(), shaped: shaped, bundle: shaped && ss.req.Bundle,
		every: ss.silence()}
	v, err := ss.live.views.join(key, filter, o)
	o.Tail.Close() // the view has its own, and history needs none
	ss.Tail = nil
	if err != nil {
		return nil, err
	}
	r := &viewReader{
		runs: ss.live.cfg.Runs, views: &ss.live.views, v: v, src: o.Src, ctx: ctx, pos: o.After,
		most: schema.Seq(ss.bound.Backlog), thin: shaped, joined: max(o.Pos.Last, o.After), whole: !shaped &&
			o.Src.Child == "" && filter.All() && has == o.After,
		fold: shape.Folder{Filter: filter, Merge: shaped, Bundle: key.bundle, Last: has},
	}
	r.share, r.of = r.whole && ss.bound.Shared && ss.project != nil && !ss.apart(o.After+1), ss.projection()
	if o.After < o.Pos.Last {
		r.enter()
	}
	return r, nil
}

// openTimed returns a reader that keeps the time in which events were written.
func (ss *Session) openTimed(ctx context.Context) reader {
	filter := ss.filter()
	r := newTimedReader(ctx, ss.live.cfg.Runs.Hub, ss.Opened, ss.req.Speed)
	if ss.isShaped() {
		r.pace = &shape.Pacer{Filter: filter, Bundle: ss.req.Bundle, Last: ss.After}
	} else {
		r.plain = shape.Folder{Filter: filter, Last: ss.After}
	}
	ss.Tail.Close()
	r.rest = func(after, has schema.Seq) (reader, error) {
		if ss.Pos.Ended && ss.bound.Mode.IsFinite() {
			return endReader{}, nil
		}
		o, err := ss.live.cfg.Runs.OpenSource(ctx, ss.Src, after)
		if err != nil {
			return nil, err
		}
		return ss.steady(ctx, o, has)
	}
	return r
}

// endReader has nothing left to give.
type endReader struct{}

func (endReader) next(context.Context) (readResult, error) { return readResult{ended: true}, nil }
func (endReader) wrote(time.Duration)                      {}
func (endReader) upToDate() *viewReader                    { return nil }
func (endReader) close() int                               { return 0 }

// Close releases everything but the place among the streams, which the call holds until it is logged.
func (ss *Session) Close() {
	if ss == nil {
		return // it was refused before
	}
	if ss.read != nil {
		ss.c.Dropped += ss.read.close()
		if h := ss.live.cfg.Hooks.Dropped; h != nil && ss.c.Dropped > 0 {
			h(ss.bound.DialectName, ss.c.Dropped)
		}
	} else if ss.Tail != nil {
		ss.Tail.Close()
	}
}

// Serve carries the stream over a sink. Its error is ErrParked when the stream goes on without the
// caller; otherwise the stream is over, the sink was ended, and everything was given back.
func (ss *Session) Serve(sink transport.Sink) error {
	ss.Sink = sink
	ss.direct, _ = sink.(transport.Direct)
	ss.c.Stream = ss.bound
	if h := ss.live.cfg.Hooks.StreamOpened; h != nil {
		h(ss.bound.DialectName, ss.bound.Transport)
	}
	return ss.Carry(ss.catchUp)
}

// Carry takes a step and says the last word, unless the stream is parked.
func (ss *Session) Carry(step func() error) (err error) {
	err = ends.ErrPanic // until step has returned
	defer func() {
		if err != ErrParked { // it is handed over, never wrapped
			err = ss.finish(err)
		}
	}()
	return step()
}

// catchUp writes what comes before the log's own events, then what the log has.
func (ss *Session) catchUp() (err error) {
	if ss.read, err = ss.reader(ss.ctx); err != nil {
		return err
	}
	ss.w = writer{ss: ss, sink: ss.Sink, project: ss.project, flushed: time.Now()}
	if ss.project == nil {
		ss.w.project = ss.bound.Dialect.Projector(ss.req)
	}
	if err := ss.w.opening(); err != nil {
		return cleanly(err)
	}
	for _, write := range []func() error{ss.w.prelude, ss.w.lead, ss.w.writeCaughtUp} {
		if err := write(); err != nil {
			return cleanly(err)
		}
	}
	if ss.first != nil {
		if err := ss.w.send(readResult{records: []shape.Out{*ss.first}}); err != nil {
			return err
		}
		ss.first = nil
	}
	return ss.deliver()
}

// resume goes on with a stream that was parked, on a goroutine of its own: with the rest of what its
// client did not take, or with its end.
func (ss *Session) resume(rest []byte, err error) {
	go func() {
		parked, failed := false, error(nil)
		defer func() {
			if v := recover(); !parked {
				ss.c.Finish(v, failed)
			}
		}()
		err := ss.Carry(func() error {
			if err != nil && err != errOver { // it is handed over, never wrapped
				return err
			}
			if err := errors.Join(ss.w.rest(rest), err); err != nil {
				return cleanly(err)
			}
			return ss.deliver()
		})
		if parked = err == ErrParked; !parked { // it is handed over, never wrapped
			failed = err
		}
	}()
}

// finish sends the last words and releases everything.
func (ss *Session) finish(err error) error {
	err = EndCause(ss.ctx, err)
	if h := ss.live.cfg.Hooks.StreamClosed; h != nil && ss.c.Stream != nil {
		reason := ends.ReasonOf(err)
		if reason == dialect.ReasonNone {
			reason = dialect.ReasonEnded
		}
		h(ss.bound.DialectName, ss.bound.Transport, reason)
	}
	if lerr := ss.Sink.CloseWith(ss.c.EndOf(err)); err == nil {
		err = lerr
	}
	ss.Close()
	ss.life.Stop(nil)
	return err
}

// deliver feeds the sink until the stream ends or is parked. A nil error is the end of the run.
func (ss *Session) deliver() error {
	w := &ss.w
	idle := idleClock{every: ss.silence()}
	defer idle.stop()
	for {
		if ss.park() {
			return ErrParked
		}
		wait := idle.wait(ss.ctx, w.flushed)
		p, err := ss.read.next(wait)
		if err != nil && ss.Await && errors.As(err, new(*fanout.ChildError)) {
			if err := ss.reopenAsChild(); errors.Is(err, dialect.ErrComplete) {
				return nil
			} else if err != nil {
				return err
			}
			continue
		}
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
		if err := w.writeCaughtUp(); err != nil {
			return err
		}
		if p.ended && ss.bound.Mode.IsFinite() {
			return nil
		}
		if err := w.keepAlive(); err != nil { // what was sent may have shown nothing
			return err
		}
	}
}
