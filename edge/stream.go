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

// stream serves a dialect's stream over SSE until it ends. A nil error is the end of the run.
func (s *Server) stream(c *call) error {
	b := c.route.stream
	in, err := input(c, b)
	if err != nil {
		return err
	}
	req, err := b.dialect.Open(in)
	if err != nil {
		return err
	}
	key := schema.RunKey{Tenant: c.caller.Tenant, Run: req.Run}
	if err := key.Validate(); err != nil {
		return err
	}
	c.run = req.Run
	ctx, end := context.WithCancelCause(c.r.Context())
	defer end(nil)
	live := &liveStream{bound: b, end: end}
	if err := s.enter(live); err != nil {
		return err
	}
	defer s.leave(live)
	sub, after, err := s.subscribe(ctx, end, key, req.Cursor)
	if err != nil {
		return ended(ctx, err)
	}
	defer sub.Close()
	if head := sub.Head(); b.Mode.EndsWithRun() && head.State.Final() && after >= head.Last {
		c.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if c.r.Method == http.MethodHead {
		sse.SetHeader(c.w.Header())
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	return s.deliver(ctx, c, live, sub, b.dialect.Projector(req))
}

// subscribe opens the position behind a cursor. The subscription lives as long as ctx; a log that does
// not answer in time ends ctx.
func (s *Server) subscribe(ctx context.Context, end context.CancelCauseFunc, key schema.RunKey, c dialect.Cursor) (*fanout.Subscription, schema.Seq, error) {
	limit := time.AfterFunc(s.cfg.LogTimeout, func() {
		end(fmt.Errorf("subscribe to %s: no answer in %v: %w", key, s.cfg.LogTimeout, fanout.ErrUnavailable))
	})
	defer limit.Stop()
	after, err := s.resolve(ctx, key, c)
	if err != nil {
		return nil, 0, err
	}
	sub, err := s.hub.Subscribe(ctx, key, after)
	if err != nil {
		return nil, 0, s.whereabouts(ctx, key, err)
	}
	return sub, after, nil
}

func input(c *call, b *boundStream) (dialect.Input, error) {
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return dialect.Input{}, fmt.Errorf("query: %w", dialect.ErrBadRequest)
	}
	return dialect.Input{Stream: b.Name, Path: c.path, Query: query, Header: c.r.Header}, nil
}

// deliver opens the response and feeds it.
func (s *Server) deliver(ctx context.Context, c *call, live *liveStream, sub *fanout.Subscription, p dialect.Projector) (err error) {
	sink, err := s.sse.Open(c.w)
	if err != nil {
		return ended(ctx, err)
	}
	defer sink.Close()
	c.stream = live
	h, b := s.cfg.Hooks, live.bound
	if h.StreamOpened != nil {
		h.StreamOpened(b.name, b.Transport)
	}
	defer func() {
		err = ended(ctx, err)
		if h.StreamClosed != nil {
			reason := ReasonOf(err)
			if reason == dialect.ReasonNone {
				reason = dialect.ReasonEnded
			}
			h.StreamClosed(b.name, b.Transport, reason)
		}
	}()
	idle := idleClock{every: s.cfg.KeepAlive}
	defer idle.stop()
	var frames dialect.Frames
	for {
		batch, err := sub.Next(idle.wait(ctx, sink.Idle()))
		if err != nil {
			if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			if err := s.keepAlive(sink, b); err != nil {
				return err
			}
			continue
		}
		if err := s.send(c, sink, p, &frames, batch); err != nil {
			return err
		}
		if batch.Ended && b.Mode.EndsWithRun() {
			return nil
		}
	}
}

// send writes a batch: all of its frames, then one flush.
func (s *Server) send(c *call, sink *sse.Sink, p dialect.Projector, frames *dialect.Frames, batch fanout.Batch) error {
	before, events := sink.Written(), c.events
	for i := range batch.Packs {
		for r, err := range batch.Packs[i].Records(batch.After) {
			if err != nil {
				return err
			}
			if err := p.Project(frames, r); err != nil {
				return fmt.Errorf("project seq %d: %w", r.Seq, err)
			}
			if err := sink.Write(frames.List); err != nil {
				return err
			}
			frames.Reset()
			c.seq = r.Seq
			c.events++
		}
	}
	if err := sink.Flush(); err != nil {
		return err
	}
	if h := s.cfg.Hooks.EventsSent; h != nil {
		h(c.stream.bound.name, c.events-events, sink.Written()-before)
	}
	return nil
}

func (s *Server) keepAlive(sink *sse.Sink, b *boundStream) error {
	if time.Since(sink.Idle()) < s.cfg.KeepAlive {
		return nil // something was sent since the clock was set
	}
	if err := sink.KeepAlive(); err != nil {
		return err
	}
	if h := s.cfg.Hooks.KeptAlive; h != nil {
		h(b.name)
	}
	return nil
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
func (s *Server) resolve(ctx context.Context, key schema.RunKey, c dialect.Cursor) (schema.Seq, error) {
	if c.ID == "" {
		return c.Seq, nil
	}
	head, err := s.existing(ctx, key)
	if err != nil {
		return 0, err
	}
	if c.ID == head.LastID {
		return head.Last, nil
	}
	prefix := []byte(`{"id":"` + c.ID + `"`)
	for p, err := range s.hub.Packs(ctx, key, 0, head.Last) {
		if err != nil {
			return 0, err
		}
		for r, err := range p.Records(0) {
			if err != nil {
				return 0, err
			}
			if bytes.HasPrefix(r.Line, prefix) {
				return r.Seq, nil
			}
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
