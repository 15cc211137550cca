package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
	"agentstream/fanout"
	"agentstream/schema"
)

// boundStream is a dialect's stream with the dialect.
type boundStream struct {
	dialect.Stream
	dialect dialect.Dialect
	name    string
}

// stream serves a dialect's stream over server-sent events until it ends. A nil error is the end of
// the run.
func (s *Server) stream(c *call) error {
	b := c.route.stream
	in, err := input(c, b)
	if err != nil {
		return err
	}
	l := newLife(c)
	ss, err := s.begin(l, c, b, in)
	if err != nil || c.r.Method == http.MethodHead {
		ss.close()
		l.end(nil)
	}
	if errors.Is(err, errComplete) {
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodHead {
		sse.SetHeader(c.w.Header())
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	sink, err := s.openSSE(c, l)
	if err != nil {
		ss.close()
		return ended(l.ctx, err)
	}
	return ss.serve(sink)
}

// openSSE answers on the connection itself where that can be had, else through the HTTP server.
func (s *Server) openSSE(c *call, l *life) (transport.Sink, error) {
	direct, err := s.sse.OpenDirect(c.w, c.r, l.end)
	if errors.Is(err, sse.ErrNotDirect) {
		return s.sse.Open(c.w)
	}
	c.taken(http.StatusOK)
	if err != nil {
		return nil, err
	}
	l.leaveRequest(c)
	s.take(l, direct)
	return direct, nil
}

// life is how long a stream lasts: until its client leaves, or it is ended. Until the connection is taken
// over, the end of its request is its own.
type life struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	apart  func() bool          // the request's end is no longer the stream's
	parked atomic.Pointer[view] // where the stream is parked: nobody waits for ctx there
	ss     *session             // that is parked
	conn   interface{ Cut() }   // taken over from the HTTP server; nil: it is the server's
}

// newLife begins a life with a request.
func newLife(c *call) *life {
	l := &life{}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	request := c.r.Context()
	l.apart = context.AfterFunc(request, func() { l.end(context.Cause(request)) })
	return l
}

// end ends the stream, wherever it is. It may be called at any time and from any goroutine; the first
// reason counts.
func (l *life) end(err error) {
	l.cancel(err)
	if v := l.parked.Load(); v != nil {
		go v.unpark(l.ss)
	}
}

// leaveRequest lets the stream outlive the request, and go of its memory.
func (l *life) leaveRequest(c *call) {
	l.apart()
	l.apart = nil
	c.r, c.path, c.w.ResponseWriter = nil, nil, nil
}

func input(c *call, b *boundStream) (dialect.Input, error) {
	q, err := readQuery(c.r)
	if err != nil {
		return dialect.Input{}, err
	}
	return dialect.Input{Stream: b.Name, Path: c.path, Query: url.Values(q), Header: c.r.Header}, nil
}

// idleClock gives a context that ends when a keep-alive may be due. One timer serves many waits: it
// is set anew when it has fired, not for every event.
type idleClock struct {
	every  time.Duration
	ctx    context.Context
	cancel context.CancelFunc
}

func (k *idleClock) wait(ctx context.Context, idle time.Time) context.Context {
	if k.ctx != nil && k.ctx.Err() == nil {
		return k.ctx
	}
	k.stop()
	k.ctx, k.cancel = context.WithDeadline(ctx, idle.Add(k.every))
	return k.ctx
}

func (k *idleClock) stop() {
	if k.cancel != nil {
		k.cancel()
	}
}

// ended replaces an error by what ended the stream's context, when that is what it comes from.
func ended(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, dialect.ErrSlowClient) {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause // we ended it
	}
	return fmt.Errorf("%w: %w", dialect.ErrClientGone, err)
}

// resolve turns a cursor into a position. An event id is looked for in the log: position is what
// orders, and ids that a producer brought say nothing about it. An id that the run does not have is a
// bad cursor, never the start.
func (s *Server) resolve(ctx context.Context, src source, c dialect.Cursor) (schema.Seq, error) {
	if c.ID == "" && !c.ByStep {
		return c.Seq, nil
	}
	head, err := s.existing(ctx, src.key)
	if err != nil {
		return 0, err
	}
	if c.ByStep {
		return s.stepStart(ctx, src, c.Step, head.Last)
	}
	if c.ID == head.LastID && src.child == "" {
		return head.Last, nil
	}
	prefix := []byte(`{"id":"` + c.ID + `"`)
	for r, err := range src.walk(ctx, s.hub, 0, head.Last) {
		if err != nil {
			return 0, err
		}
		if bytes.HasPrefix(r.Line, prefix) {
			return r.Seq, nil
		}
	}
	return 0, fmt.Errorf("event %s is not of this run: %w", c.ID, schema.ErrBadCursor)
}

// whereabouts adds the newest position to a refusal for a cursor from the future.
func (s *Server) whereabouts(ctx context.Context, key schema.RunKey, err error) error {
	if !errors.Is(err, fanout.ErrFuture) {
		return err
	}
	head, herr := s.hub.Head(ctx, key)
	if herr != nil {
		return err // the refusal stands without it
	}
	return &positionError{last: head.Last, err: err}
}
