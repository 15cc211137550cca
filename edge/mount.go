package edge

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
)

// mount adds a protocol. Its routes come before its streams, whose paths some of them share.
func (s *Server) mount(p *protocol.Protocol) error {
	info := p.Dialect.Info()
	if err := p.Ticket.Validate(); err != nil {
		return fmt.Errorf("edge: protocol %s: %w", info.Name, err)
	}
	if err := s.mountRoutes(p, p.Routes); err != nil {
		return err
	}
	for i := range p.Streams {
		if err := s.mountStream(p, &p.Streams[i]); err != nil {
			return fmt.Errorf("edge: protocol %s: stream %s: %w", info.Name, p.Streams[i].Name, err)
		}
	}
	for i := range p.Conversations {
		if err := s.mountConversation(p, &p.Conversations[i]); err != nil {
			return err
		}
	}
	return nil
}

// mountStream adds a stream of a protocol.
func (s *Server) mountStream(p *protocol.Protocol, st *protocol.Stream) error {
	if st.Publishes {
		return s.mountPublish(p, st.Stream)
	}
	if st.Taps {
		return s.mountTap(p, st.Stream)
	}
	serve := map[dialect.Transport]func(*call) error{dialect.SSE: s.stream, dialect.WebSocket: s.socket, dialect.GRPC: s.rpc}[st.Transport]
	needs := cmp.Or(st.Needs, auth.ScopeRead)
	if st.Begin != nil {
		needs |= auth.ScopeWrite
	}
	switch {
	case serve == nil:
		return fmt.Errorf("no transport %s", st.Transport)
	case st.Begin != nil && st.Transport == dialect.SSE && strings.HasPrefix(st.Pattern, "GET "):
		return errors.New("a GET begins with a write")
	case p.KeepAlive < 0 || p.Slow < 0:
		return errors.New("negative KeepAlive or Slow")
	}
	bound := &live.Bound{Stream: st.Stream, Dialect: p.Dialect, DialectName: p.Dialect.Info().Name,
		KeepAlive: p.KeepAlive, CaughtUp: st.CaughtUp}
	if st.Asked != nil {
		return s.share(st, serve, needs, bound, p)
	}
	if err := s.add(st.Pattern, serve, needs, bound, p); err != nil {
		return err
	}
	s.routes[len(s.routes)-1].own = st
	return nil
}

// share adds a stream to the path of a route, for the requests that ask for it.
func (s *Server) share(st *protocol.Stream, serve func(*call) error, needs auth.Scope, bound *live.Bound,
	p *protocol.Protocol) error {
	asked, ok := newRoute(st.Pattern, serve)
	if !ok || bound.Transport != dialect.SSE {
		return fmt.Errorf("pattern %q of %s is asked for", st.Pattern, bound.Transport)
	}
	asked.needs, asked.stream, asked.own, asked.protocol = needs, bound, st, p
	i := slices.IndexFunc(s.routes, func(rt *route) bool {
		return rt.protocol == p && rt.stream == nil && rt.method == asked.method && slices.Equal(rt.segments, asked.segments)
	})
	if i < 0 || s.routes[i].asked != nil {
		return fmt.Errorf("%q is not the path of one route and one stream", st.Pattern)
	}
	rt := s.routes[i]
	rt.asked = asked
	if len(st.Body) == 0 {
		return nil
	}
	if rt.needs != needs {
		return fmt.Errorf("%q needs other scopes than the route, and its body decides", st.Pattern)
	}
	object := rt.serve
	rt.serve = func(c *call) error {
		in, err := input(c, bound)
		if err != nil {
			return err
		}
		if !st.Asked(in) {
			return object(c)
		}
		c.route = asked
		return serve(c)
	}
	return nil
}

// pick makes the stream the route of a request that asks for it in its target or its headers.
func pick(c *call) {
	asked := c.route.asked
	if asked == nil || len(asked.stream.Body) > 0 {
		return
	}
	query, _ := url.ParseQuery(c.Request.URL.RawQuery) // what cannot be read is refused by who serves it
	in := dialect.Input{Stream: asked.stream.Name, Path: c.Params.Map(), Query: query, Header: c.Request.Header}
	if asked.own.Asked(in) {
		c.route = asked
	}
}

// mountRoutes adds routes of a protocol; nil is the server itself.
func (s *Server) mountRoutes(p *protocol.Protocol, routes []protocol.Route) error {
	for _, rt := range routes {
		if rt.Needs == 0 {
			return fmt.Errorf("edge: %s%s says not what its callers need", rt.Pattern, rt.RPC)
		}
		serve := rt.Serve
		if rt.Writes {
			serve = s.node.Meter(serve)
		}
		if rt.RPC != "" {
			if err := s.mountRPC(p, rt, serve); err != nil {
				return err
			}
		}
		if rt.Pattern == "" && rt.RPC != "" {
			continue
		}
		plain := func(c *call) error {
			s.runs.MarkShort(c.Request.Context(), &c.short)
			defer c.short.End()
			if !rt.Writes { // which read little, and are too many for a copy of each request
				c.Request = c.Request.WithContext(&c.short)
			}
			c.MaxMessage = rt.MaxMessage
			return serve(&c.Call)
		}
		if err := s.add(rt.Pattern, plain, rt.Needs, nil, p); err != nil {
			return err
		}
		s.routes[len(s.routes)-1].anywhere = rt.Anywhere
	}
	return nil
}

// protocolOf returns the protocol in which a request is refused that has no route: nil is the server itself.
func (s *Server) protocolOf(path string) *protocol.Protocol {
	for i := range s.cfg.Protocols {
		for _, below := range s.cfg.Protocols[i].Below {
			if rest, ok := strings.CutPrefix(path, below); ok && (rest == "" || rest[0] == '/') {
				return &s.cfg.Protocols[i]
			}
		}
	}
	return nil
}
