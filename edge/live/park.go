package live

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/shape"
	"agentstream/edge/state"
	"agentstream/edge/transport"
)

// ErrParked reports that a stream goes on without the goroutine that gets it, which must not touch anything
// of the stream any more.
var ErrParked = errors.New("the stream goes on by itself")

// broadcastGroup is a view in one form: what is new is projected and framed once, and the same bytes go to all
// who are parked here. The view's mu guards it.
type broadcastGroup struct {
	bound   *Bound
	detail  dialect.Detail // of the request, for dialects that project by it
	bundle  bool
	form    string
	child   string
	enc     *transport.Encoding
	project dialect.Projector // one with a state was fed all that the view has shown
	frames  dialect.Frames
	buf     []byte // memory for the next write

	parked []*Session
	spoke  time.Time // when something was written
	over   bool      // the streams end with what was written last
	events int       // that everybody here got since it began
	bytes  int64     // and in how many bytes
}

// place is where a session is parked, and what the group had said by then. The view's mu guards it.
type place struct {
	at     *broadcastGroup // nil: nowhere
	index  int
	events int
	bytes  int64
}

// park leaves the stream to its view, if the client has everything that there is and its connection can
// be written to without waiting.
func (ss *Session) park() bool {
	if ss.direct == nil || !ss.bound.Shared || ss.ctx.Err() != nil {
		return false
	}
	r := ss.read.upToDate()
	if r == nil {
		return false
	}
	enc := ss.direct.Encoding()
	if enc == nil {
		return false
	}
	// What is parked holds no memory for writing.
	ss.w.frames, r.room, r.out = dialect.Frames{}, nil, nil
	v := r.v
	v.mu.Lock()
	defer v.mu.Unlock()
	// A client that has more, or less, than what the view showed last gets its next event in words of
	// its own.
	if s := v.now.Load(); s.err != nil || s.ended || r.pos != s.hi || r.fold.Last != v.last {
		return false
	}
	l := ss.life
	l.ss = ss
	l.parked.Store(v)
	if ss.ctx.Err() != nil { // whoever ended it may not have seen where it is
		l.parked.Store(nil)
		return false
	}
	o := v.group(ss, enc)
	ss.place = place{at: o, index: len(o.parked), events: o.events, bytes: o.bytes}
	o.parked = append(o.parked, ss)
	if _, stateful := ss.w.project.(dialect.Stateful); stateful {
		ss.w.project, ss.project = nil, nil // the group's knows the same
	}
	return true
}

func (v *view) group(ss *Session, enc *transport.Encoding) *broadcastGroup {
	for _, o := range v.groups {
		if o.bound == ss.bound && o.enc == enc && o.detail == ss.req.Detail && o.bundle == ss.req.Bundle && o.form == ss.req.Form && o.child == ss.req.Child {
			return o
		}
	}
	o := &broadcastGroup{
		bound: ss.bound, detail: ss.req.Detail, bundle: ss.req.Bundle, form: ss.req.Form, child: ss.req.Child,
		enc: enc, project: ss.bound.Dialect.Projector(ss.req), spoke: time.Now(),
	}
	if p, ok := ss.w.project.(dialect.Stateful); ok {
		o.project = p.For(ss.req)
	}
	v.groups = append(v.groups, o)
	return o
}

// unpark takes a stream back whose context has ended, unless it has left by itself.
func (v *view) unpark(ss *Session) {
	v.mu.Lock()
	parked := ss.place.at != nil
	if parked {
		v.take(ss)
	}
	v.mu.Unlock()
	if parked {
		ss.resume(nil, nil)
	}
}

// take ends a parking. It needs mu. The session stands where the view stands.
func (v *view) take(ss *Session) {
	o, i := ss.place.at, ss.place.index
	n := len(o.parked) - 1
	o.parked[i] = o.parked[n]
	o.parked[i].place.index = i
	o.parked[n] = nil
	o.parked = o.parked[:n]
	r := ss.read.upToDate()
	r.pos, r.fold.Last, r.had = v.now.Load().hi, v.last, true
	if events := o.events - ss.place.events; events > 0 {
		ss.c.Events += events
		ss.c.Sent += o.bytes - ss.place.bytes
		ss.c.Seq = v.last
	}
	ss.life.parked.Store(nil)
	ss.place = place{}
	p, stateful := o.project.(dialect.Stateful)
	if stateful {
		ss.w.project = p.For(ss.req)
	}
	switch {
	case n > 0:
	case stateful: // what it knows would grow old
		v.groups = slices.DeleteFunc(slices.Clone(v.groups), func(other *broadcastGroup) bool { return other == o })
	default: // no memory is kept for nobody
		o.buf = nil
	}
}

// leaver is a session that must go on by itself.
type leaver struct {
	ss   *Session
	rest []byte // ready frames that it did not take
	err  error  // that its stream ends with; nil: it goes on
}

// spread is from how many parked clients on their writes are shared by several processors.
const spread = 128

// broadcast writes new records to all who are parked and gives those who did not take everything. It
// needs mu.
func (v *view) broadcast(out []shape.Out) (left []leaver) {
	if len(out) == 0 {
		return nil
	}
	for _, o := range v.groups {
		if len(o.parked) == 0 {
			continue
		}
		b, err := o.encode(out)
		if err != nil {
			for _, ss := range o.parked {
				left = append(left, leaver{ss, nil, err})
			}
			continue
		}
		o.events += len(out)
		if len(b) == 0 { // nothing of it is shown here
			left = v.quiet(left, o)
			continue
		}
		o.spoke = v.spoke
		o.bytes += int64(len(b))
		before := len(left)
		left = o.write(left, b)
		if len(left) > before {
			o.buf = nil // the rest is theirs
		}
		if o.over {
			left = o.dismiss(left, before)
		}
		if h := v.all.hooks.EventsSent; h != nil {
			took := len(o.parked)
			for _, l := range left[before:] {
				if l.err != nil && l.err != errOver { //nolint:errorlint // it is handed over, never wrapped
					took--
				}
			}
			h(o.bound.DialectName, len(out)*took, int64(len(b))*int64(took))
		}
	}
	for _, l := range left {
		v.take(l.ss)
	}
	return left
}

// dismiss makes everybody leave whose stream is over with what was written; those behind before did not take all
// of it.
func (o *broadcastGroup) dismiss(left []leaver, before int) []leaver {
	slow := make(map[*Session]bool, len(left)-before)
	for i := range left[before:] {
		l := &left[before+i]
		if slow[l.ss] = true; l.err == nil {
			l.err = errOver
		}
	}
	for _, ss := range o.parked {
		if !slow[ss] {
			left = append(left, leaver{ss, nil, errOver})
		}
	}
	return left
}

// encode returns what is written to each. A projector that panics ends the streams that it serves, as it
// would on a goroutine of their own, and not the process.
func (o *broadcastGroup) encode(out []shape.Out) (b []byte, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", ends.ErrPanic, v, debug.Stack())
		}
		if err != nil {
			o.frames.Reset() // what was begun is nobody's
		}
	}()
	buf := o.enc.Begin(o.buf)
	for i := range out {
		if err := o.project.Project(&o.frames, out[i].Record); err != nil {
			return nil, state.ProjectError(out[i].Record, err)
		}
		for _, f := range o.frames.List {
			if o.over {
				break
			}
			buf = o.enc.Append(buf, f)
			o.over = f.Last
		}
		o.frames.Reset()
	}
	o.buf = buf
	if cap(o.buf) > 2*transport.Chunk {
		o.buf = nil
	}
	return o.enc.End(buf), nil
}

func (o *broadcastGroup) write(left []leaver, b []byte) []leaver {
	workers := min(len(o.parked)/spread+1, runtime.GOMAXPROCS(0))
	if workers == 1 {
		return try(left, o.parked, b)
	}
	parts := make([][]leaver, workers)
	var wg sync.WaitGroup
	for i := range workers {
		part := o.parked[i*len(o.parked)/workers : (i+1)*len(o.parked)/workers]
		wg.Go(func() { parts[i] = try(nil, part, b) })
	}
	wg.Wait()
	for _, p := range parts {
		left = append(left, p...)
	}
	return left
}

// try writes b to some.
func try(left []leaver, some []*Session, b []byte) []leaver {
	for _, ss := range some {
		if n, err := ss.direct.TryWrite(b); n < len(b) || err != nil {
			left = append(left, leaver{ss, b[n:], err})
		}
	}
	return left
}

// releaseAll returns everybody who is parked. It needs mu.
func (v *view) releaseAll(left []leaver) []leaver {
	for _, o := range v.groups {
		for len(o.parked) > 0 {
			ss := o.parked[len(o.parked)-1]
			v.take(ss)
			left = append(left, leaver{ss: ss})
		}
	}
	return left
}

// quiet shows a sign of life to those to whom nothing of a busy view was shown for long. It needs mu.
func (v *view) quiet(left []leaver, o *broadcastGroup) []leaver {
	if v.spoke.Sub(o.spoke) < v.all.keepAlive {
		return left
	}
	return v.remind(left, o)
}

// remind shows a sign of life to all who are parked in a group. It needs mu.
func (v *view) remind(left []leaver, o *broadcastGroup) []leaver {
	o.spoke = v.spoke
	for _, ss := range o.parked {
		rest, err := ss.direct.TryKeepAlive()
		if err != nil || len(rest) > 0 {
			left = append(left, leaver{ss, rest, err})
		}
		if h := v.all.hooks.KeptAlive; h != nil && err == nil {
			h(o.bound.DialectName)
		}
	}
	return left
}

// keepAlive shows a sign of life to all who are parked: a view that was silent was so for all of them.
func (v *view) keepAlive() {
	v.mu.Lock()
	v.spoke = time.Now()
	var left []leaver
	for _, o := range v.groups {
		left = v.remind(left, o)
	}
	for _, l := range left {
		v.take(l.ss)
	}
	v.mu.Unlock()
	for _, l := range left {
		l.ss.resume(l.rest, l.err)
	}
}
