package live

import (
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

// projectionKey is what the frames of a view depend on, besides its records.
type projectionKey struct {
	bound  *Bound
	detail dialect.Detail // of the request, for dialects that project by it
	bundle bool
	form   string
	span   string
	child  string
}

// projection is a view in the words of one protocol. What is new is projected once, for all who are parked in its
// groups. There are none without a group. The view's mu guards it.
type projection struct {
	projectionKey
	project dialect.Projector // one with a state was fed all that the view has shown
	groups  []*broadcastGroup
	over    bool // the streams end with what was projected last
}

// broadcastGroup is who sees the same frames of a projection in the same encoding: what is new is framed once, and the
// same bytes go to all who are parked here. There are none without somebody parked. The view's mu guards it.
type broadcastGroup struct {
	of     *projection
	enc    *transport.Encoding
	choice dialect.Selection // nil: all frames
	chosen string            // its key
	buf    *[]byte           // what is being framed; nil: nothing is

	parked []parked
	spoke  time.Time // when something was written
	wrote  time.Time // when frames of records were
	events int       // that everybody here got since it began
	bytes  int64     // and in how many bytes
}

// parked is a session that is parked, and what its ready frames are written to: without a look at anything else of it,
// for a thousand sessions do not stay in the processor's cache.
type parked struct {
	ss *Session
	to transport.Direct
}

// group returns the group that a session is parked in.
func (v *view) group(ss *Session, enc *transport.Encoding) *broadcastGroup {
	p, chosen := v.projection(ss), dialect.KeyOf(ss.req.Select)
	for _, g := range p.groups {
		if g.enc == enc && g.chosen == chosen {
			return g
		}
	}
	g := &broadcastGroup{of: p, enc: enc, choice: ss.req.Select, chosen: chosen, spoke: time.Now()}
	p.groups = append(p.groups, g)
	return g
}

func (v *view) projection(ss *Session) *projection {
	key := ss.projection()
	for _, p := range v.projections {
		if p.projectionKey == key {
			return p
		}
	}
	p := &projection{projectionKey: key}
	if own, ok := ss.w.project.(dialect.Stateful); ok {
		p.project = own.For(ss.req)
	} else {
		p.project = ss.bound.Dialect.Projector(ss.req)
	}
	v.projections = append(v.projections, p)
	return p
}

// dropIfEmpty removes a group in which no client is parked. What its projector knows would grow old.
func (v *view) dropIfEmpty(g *broadcastGroup) {
	p := g.of
	p.groups = slices.DeleteFunc(p.groups, func(other *broadcastGroup) bool { return other == g })
	if len(p.groups) == 0 {
		v.projections = slices.DeleteFunc(v.projections, func(other *projection) bool { return other == p })
	}
}

// evicted is a session that must go on by itself.
type evicted struct {
	ss   *Session
	rest []byte // ready frames that it did not take
	err  error  // that its stream ends with; nil: it goes on
}

// spread is from how many parked clients on their writes are shared by several processors.
const spread = 128

// broadcast writes new records to all who are parked and takes those who did not take everything. It
// needs mu.
func (v *view) broadcast(out []shape.Out) (left []evicted) {
	if len(out) == 0 {
		return nil
	}
	for _, p := range v.projections {
		err := v.encode(p, out)
		for _, g := range p.groups {
			if err == nil {
				left = v.write(left, g, out)
			}
			v.all.buffers.Put(g.buf)
			if g.buf = nil; err == nil {
				continue
			}
			for _, p := range g.parked {
				left = append(left, evicted{p.ss, nil, err})
			}
		}
	}
	for _, l := range left {
		v.removeParked(l.ss)
	}
	return left
}

// encode projects new records, and frames for each group what it is shown. A projector that panics ends the streams
// that it serves, as it would on a goroutine of their own, and not the process.
func (v *view) encode(p *projection, out []shape.Out) (err error) {
	frames := framesPool.Get().(*dialect.Frames)
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %v\n%s", ends.ErrPanic, v, debug.Stack())
		}
		if frames.Reset(); cap(frames.List) <= keptOuts {
			framesPool.Put(frames)
		}
	}()
	for _, g := range p.groups {
		g.buf = v.all.buffers.Get()
		*g.buf = g.enc.Reset(*g.buf)
	}
	for i := range out {
		if err := p.project.Project(frames, out[i].Record); err != nil {
			return state.ProjectError(out[i].Record, err)
		}
		if !p.over {
			var list []dialect.Frame
			list, p.over = upToLast(frames.List)
			for _, g := range p.groups {
				g.add(list)
			}
		}
		frames.Reset()
	}
	return nil
}

// framesPool is memory for the frames of what a view shows at once.
var framesPool = sync.Pool{New: func() any { return new(dialect.Frames) }}

// upToLast returns the frames up to the one that ends the stream, and whether there is one.
func upToLast(list []dialect.Frame) ([]dialect.Frame, bool) {
	for i := range list {
		if list[i].Last {
			return list[:i+1], true
		}
	}
	return list, false
}

func (g *broadcastGroup) add(list []dialect.Frame) {
	for i := range list {
		if g.choice == nil || g.choice.Match(&list[i]) {
			*g.buf = g.enc.Append(*g.buf, list[i])
		}
	}
}

// write writes what was framed of records. It needs mu.
func (v *view) write(left []evicted, g *broadcastGroup, out []shape.Out) []evicted {
	g.events += len(out)
	b, before := g.enc.Finish(*g.buf), len(left)
	if len(b) == 0 { // nothing of it is shown here
		if left = v.quiet(left, g); g.of.over {
			left = g.evictAll(left, before)
		}
		return left
	}
	g.spoke, g.wrote = v.spoke, v.spoke
	g.bytes += int64(len(b))
	left = g.spread(left, b)
	if len(left) > before {
		g.buf = nil // the rest is theirs
	}
	if g.of.over {
		left = g.evictAll(left, before)
	}
	if h := v.all.hooks.EventsSent; h != nil {
		took := len(g.parked) - countFailed(left[before:])
		h(g.of.bound.DialectName, len(out)*took, int64(len(b))*int64(took))
	}
	v.all.hooks.noteDelivery(g.of.bound.DialectName, out[0].Record)
	return left
}

// evictAll makes all clients leave whose stream is over with what was written; those after before did not take
// all of it.
func (g *broadcastGroup) evictAll(left []evicted, before int) []evicted {
	slow := make(map[*Session]bool, len(left)-before)
	for i := range left[before:] {
		l := &left[before+i]
		if slow[l.ss] = true; l.err == nil {
			l.err = errOver
		}
	}
	for _, p := range g.parked {
		if !slow[p.ss] {
			left = append(left, evicted{p.ss, nil, errOver})
		}
	}
	return left
}

// spread writes b to everybody.
func (g *broadcastGroup) spread(left []evicted, b []byte) []evicted {
	workers := min(len(g.parked)/spread+1, runtime.GOMAXPROCS(0))
	if workers == 1 {
		return try(left, g.parked, b)
	}
	parts := make([][]evicted, workers)
	var wg sync.WaitGroup
	for i := range workers {
		part := g.parked[i*len(g.parked)/workers : (i+1)*len(g.parked)/workers]
		wg.Go(func() { parts[i] = try(nil, part, b) })
	}
	wg.Wait()
	for _, p := range parts {
		left = append(left, p...)
	}
	return left
}

// try writes b to some.
func try(left []evicted, some []parked, b []byte) []evicted {
	for _, p := range some {
		n, err := p.to.TryWrite(b)
		if n == len(b) && err == nil {
			continue
		}
		if s, ok := p.ss.direct.(*subscription); ok {
			s.noteWrite(n, b, err)
		}
		left = append(left, evicted{p.ss, b[n:], err})
	}
	return left
}

// quiet shows a sign of life to those to whom nothing of a busy view was shown for long. It needs mu.
func (v *view) quiet(left []evicted, g *broadcastGroup) []evicted {
	if v.spoke.Sub(g.spoke) < v.key.every {
		return left
	}
	return v.remind(left, g)
}

// remind shows a sign of life to all who are parked in a group. It needs mu.
func (v *view) remind(left []evicted, g *broadcastGroup) []evicted {
	g.spoke = v.spoke
	before := len(left)
	left = g.ping(left)
	if h := v.all.hooks.KeptAlive; h != nil {
		for range len(g.parked) - countFailed(left[before:]) {
			h(g.of.bound.DialectName)
		}
	}
	return left
}

// ping shows the transport's sign of life.
func (g *broadcastGroup) ping(left []evicted) []evicted {
	for _, p := range g.parked {
		if rest, err := p.ss.direct.TryKeepAlive(); err != nil || len(rest) > 0 {
			left = append(left, evicted{p.ss, rest, err})
		}
	}
	return left
}

// countFailed counts those whose streams end with an error.
func countFailed(left []evicted) (n int) {
	for _, l := range left {
		if l.err != nil && l.err != errOver { // it is handed over, never wrapped
			n++
		}
	}
	return n
}

// keepAlive shows a sign of life to all who are parked: a view that was silent was so for all of them.
func (v *view) keepAlive() {
	v.mu.Lock()
	v.spoke = time.Now()
	var left []evicted
	for _, p := range v.projections {
		for _, g := range p.groups {
			left = v.remind(left, g)
		}
	}
	for _, l := range left {
		v.removeParked(l.ss)
	}
	v.mu.Unlock()
	for _, l := range left {
		l.ss.resume(l.rest, l.err)
	}
}
