package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/transport"
	"agentstream/edge/transport/grpc"
	"agentstream/edge/transport/ws"
)

// socket serves a dialect's stream over a WebSocket. What is wrong with the request is answered in
// HTTP, before the upgrade.
func (s *Server) socket(c *call) (err error) {
	b := c.route.stream
	in, err := input(c, b)
	if err != nil {
		return err
	}
	l := live.NewLife(c.Request.Context(), c.Caller)
	ss, err := s.live.Open(l, &c.Report, b, in)
	complete := errors.Is(err, live.ErrComplete)
	if err != nil && !complete {
		ss.Close()
		l.End(nil)
		return err
	}
	sink, err := s.ws.Open(c.Writer, c.Request, ws.Options{
		Subprotocols: b.Subprotocols,
		Closed:       func(err error) { l.End(closed(err)) },
	})
	if !errors.Is(err, dialect.ErrBadRequest) {
		c.taken(http.StatusSwitchingProtocols) // whatever became of it
	}
	if err != nil {
		if errors.Is(err, ws.ErrVersion) {
			c.Writer.Header().Set("Sec-WebSocket-Version", "13")
			err = errors.Join(ends.ErrUpgrade, err)
		}
		ss.Close()
		return live.Ended(l.Ctx, err)
	}
	l.Leave()
	c.forget()
	s.live.Took(l, sink)
	if complete {
		ss.Sink = sink
		return ss.Carry(func() error { return nil })
	}
	return ss.Serve(sink)
}

// closed says why a client closed in the words of the table of ends.
func closed(err error) error {
	if bad := new(ws.ProtocolError); errors.As(err, &bad) {
		return err
	}
	return errors.Join(dialect.ErrClientGone, err)
}

// rpc serves a dialect's stream over gRPC. Everything but a call that is no gRPC at all is answered as
// a status.
func (s *Server) rpc(c *call) error {
	if !grpc.Speaks(c.Request) {
		return ends.ErrMediaType
	}
	b := c.route.stream
	var end error
	err := s.grpc.Serve(c.Writer, c.Request, func(ctx context.Context, request []byte, sink transport.Sink) transport.End {
		end = s.answer(ctx, c, b, request, sink)
		return c.lastWord(end)
	})
	if end != nil {
		return end
	}
	return err
}

func (s *Server) answer(ctx context.Context, c *call, b *live.Bound, request []byte, sink transport.Sink) error {
	l := &live.Life{Caller: c.Caller}
	l.Ctx, l.Cancel = context.WithCancelCause(ctx)
	ss, err := s.live.Open(l, &c.Report, b, dialect.Input{Stream: b.Name, Header: c.Request.Header, Body: request})
	if err == nil {
		_, err = sink.Flush() // a call to a silent run has begun as well
		err = live.Ended(l.Ctx, err)
	}
	if err != nil {
		ss.Close()
		l.End(nil)
	}
	if errors.Is(err, live.ErrComplete) {
		return nil
	}
	if err != nil {
		return err
	}
	return ss.Serve(sink)
}

// bindServices adds health and reflection, which every gRPC server is expected to have, where a dialect
// is served over gRPC. They are open to everybody: what they tell is in the contract.
func (s *Server) bindServices() error {
	services := grpc.Services{Closing: s.live.Closing(), Ready: func() bool { return !s.live.Draining() }}
	for _, p := range s.cfg.Protocols {
		info := p.Dialect.Info()
		services.Files = append(services.Files, info.Files...)
		for _, st := range info.Streams {
			_, path, _ := strings.Cut(st.Pattern, " /")
			if name, _, ok := strings.Cut(path, "/"); ok && st.Transport == dialect.GRPC && !slices.Contains(services.Names, name) {
				services.Names = append(services.Names, name)
			}
		}
	}
	if len(services.Names) == 0 {
		return nil
	}
	handlers, err := s.grpc.Handlers(services)
	if err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	for _, path := range slices.Sorted(maps.Keys(handlers)) {
		h := handlers[path]
		serve := func(c *call) error { h.ServeHTTP(c.Writer, c.Request); return nil }
		if err := s.add("POST "+path, serve, 0, nil, nil); err != nil {
			return err
		}
	}
	return nil
}
