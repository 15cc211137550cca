package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"agentstream/edge/dialect"
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

// liveStream is an open stream, for draining and for its log line.
type liveStream struct {
	bound *boundStream
	end   context.CancelCauseFunc
}

// stream serves a dialect's stream over server-sent events until it ends. A nil error is the end of
// the run.
func (s *Server) stream(c *call) error {
	b := c.route.stream
	in, err := input(c, b)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(c.r.Context())
	defer end(nil)
	ss, err := s.begin(ctx, end, c, b, in)
	defer ss.close()
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
	sink, err := s.sse.Open(c.w)
	if err != nil {
		return ended(ctx, err)
	}
	err = ss.deliver(ctx, sink)
	if lerr := sink.End(c.endOf(err)); err == nil {
		err = lerr
	}
	return err
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
	if c.ID == "" {
		return c.Seq, nil
	}
	head, err := s.existing(ctx, src.key)
	if err != nil {
		return 0, err
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
