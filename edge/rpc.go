package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/grpc"
)

// rpc serves a dialect's stream over gRPC. Everything but a call that is no gRPC at all is answered as
// a status.
func (s *Server) rpc(c *call) error {
	if !grpc.IsCall(c.Request) {
		return ends.ErrMediaType
	}
	b := c.route.stream
	m := countMessage(c)
	var end error
	err := s.rpcTransport(c).Serve(c.Writer, c.Request, m.unread,
		func(ctx context.Context, request []byte, sink transport.Sink) transport.End {
			end = m.admit(ctx, request)
			if end == nil {
				end = s.answer(ctx, c, b, request, sink)
			}
			return c.lastWord(end)
		})
	return cmp.Or(end, m.err, err)
}

// lifeIn begins the life of a stream within a gRPC call.
func (c *call) lifeIn(ctx context.Context) *live.Life {
	l := &live.Life{Caller: c.Caller}
	l.Ctx, l.Cancel = context.WithCancelCause(ctx)
	return l
}

// rpcTransport returns what reads the call's message. That of a caller who may not call is small.
func (s *Server) rpcTransport(c *call) *grpc.Transport {
	if c.late != nil {
		return s.grpc
	}
	return c.route.rpcs
}

// counted is the body of a call, whose message is of the tenant's share of the memory for bodies until it was dealt
// with.
type counted struct {
	io.ReadCloser
	c   *call
	err error // there is no room for it
}

// countMessage counts the message of a call from now on. That of a caller who may not call is small, and not counted.
func countMessage(c *call) *counted {
	m := &counted{ReadCloser: c.Request.Body, c: c}
	if c.late == nil {
		c.Incoming() // has a share
		c.Request.Body = m
	}
	return m
}

// Read reads a part of the message, which is counted as it came.
func (m *counted) Read(b []byte) (int, error) {
	n, err := m.ReadCloser.Read(b)
	if n > 0 {
		m.err = m.c.In.Share.Reserve(m.c.Request.Context(), int64(n))
	}
	return n, cmp.Or(m.err, err)
}

// unread is the end of a call whose message could not be read.
func (m *counted) unread(err error) transport.End { return m.c.lastWord(cmp.Or(m.c.late, m.err, err)) }

// admit counts the message as it is for who deals with it, and returns why that may not be.
func (m *counted) admit(ctx context.Context, message []byte) error {
	if m.c.late != nil {
		return m.c.refusal(message)
	}
	return m.c.In.Share.Reserve(ctx, int64(len(message)))
}

// refusal returns why a caller may not call, or what is wrong with its message, where the protocol looks at
// that first.
func (c *call) refusal(request []byte) error {
	in := dialect.Input{Stream: strings.TrimPrefix(c.route.pattern, "POST "), Header: c.Request.Header, Body: request}
	return cmp.Or(c.Protocol.Envelope(in), c.late)
}

func (s *Server) answer(ctx context.Context, c *call, b *live.Bound, request []byte, sink transport.Sink) error {
	if serve := c.route.own.Serve; serve != nil {
		return s.send(ctx, c, b, request, sink, serve)
	}
	l := c.lifeIn(ctx)
	ss, err := s.open(c, l, dialect.Input{Stream: b.Name, Header: c.Request.Header, Body: request})
	c.Leave() // the stream needs the message no more
	if err == nil {
		_, err = sink.Flush() // a call to a silent run has begun as well
		err = live.EndCause(l.Ctx, err)
	}
	if err != nil {
		ss.Close()
		l.Stop(nil)
	}
	if errors.Is(err, dialect.ErrComplete) {
		return nil
	}
	if err != nil {
		return err
	}
	serve := func() error { return ss.Serve(sink) }
	if around := c.route.own.Around; around != nil {
		return around(&c.Call, ss.Request(), serve)
	}
	return serve()
}

// send serves a stream that is no run's.
func (s *Server) send(ctx context.Context, c *call, b *live.Bound, request []byte, sink transport.Sink,
	serve func(*protocol.Call, dialect.Input, protocol.Sending) error) error {
	l := c.lifeIn(ctx)
	defer l.Stop(nil)
	if err := s.live.Join(l, &c.Report); err != nil {
		return err
	}
	c.Ending, c.Stream = (*ending)(c), b
	if _, err := sink.Flush(); err != nil { // a call that has no message yet has begun as well
		return live.EndCause(l.Ctx, err)
	}
	c.Carry(l.Ctx, dialect.GRPC, request, func([]byte) {})
	send := func(message []byte) error {
		if err := sink.Write([]dialect.Frame{{Data: message}}); err != nil {
			return err
		}
		n, err := sink.Flush()
		c.Sent, c.Events = c.Sent+n, c.Events+1
		return err
	}
	in := dialect.Input{Stream: b.Name, Header: c.Request.Header, Body: request}
	return live.EndCause(l.Ctx, serve(&c.Call, in, protocol.Sending{Send: send, Closing: s.live.Closing()}))
}

// mountRPC adds the unary method that a route's handler answers.
func (s *Server) mountRPC(p *protocol.Protocol, rt protocol.Route, serve func(*protocol.Call) error) error {
	if p == nil {
		return fmt.Errorf("edge: %s is of no protocol", rt.RPC)
	}
	bound := &live.Bound{
		Stream:  dialect.Stream{Name: rt.RPC, Pattern: "POST " + rt.RPC, Transport: dialect.GRPC, MaxMessage: rt.MaxMessage},
		Dialect: p.Dialect, DialectName: p.Dialect.Info().Name,
	}
	return s.add(bound.Pattern, func(c *call) error { return s.unary(c, serve) }, rt.Needs, bound, p)
}

// unary serves a unary RPC.
func (s *Server) unary(c *call, serve func(*protocol.Call) error) error {
	if !grpc.IsCall(c.Request) {
		return ends.ErrMediaType
	}
	m := countMessage(c)
	var end error
	err := s.rpcTransport(c).ServeUnary(c.Writer, c.Request, m.unread,
		func(ctx context.Context, request []byte) (response []byte, e transport.End) {
			end = m.admit(ctx, request)
			if end != nil {
				return nil, c.lastWord(end)
			}
			c.Carry(ctx, dialect.GRPC, request, func(body []byte) { response = body })
			end = live.EndCause(ctx, serve(&c.Call))
			return response, c.lastWord(end)
		})
	return cmp.Or(end, m.err, err)
}

// bindServices adds health and reflection, which every gRPC server is expected to have, where a dialect
// is served over gRPC. They are open to everybody: what they tell is in the contract.
func (s *Server) bindServices() error {
	services := grpc.Services{Closing: s.live.Closing(), Ready: func() bool { return !s.Leaving() }}
	for i := range s.cfg.Protocols {
		p := &s.cfg.Protocols[i]
		services.Files = append(services.Files, p.Dialect.Info().Files...)
		for _, path := range methods(p) {
			if name, _, ok := strings.Cut(path, "/"); ok && !slices.Contains(services.Names, name) {
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

// methods returns the gRPC methods of a protocol, "package.Service/Method".
func methods(p *protocol.Protocol) (list []string) {
	for _, st := range p.Streams {
		if _, path, ok := strings.Cut(st.Pattern, " /"); ok && st.Transport == dialect.GRPC {
			list = append(list, path)
		}
	}
	for _, rt := range p.Routes {
		if rt.RPC != "" {
			list = append(list, strings.TrimPrefix(rt.RPC, "/"))
		}
	}
	return list
}
