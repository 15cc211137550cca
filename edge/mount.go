package edge

import (
	"cmp"
	"fmt"
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
	for _, st := range info.Streams {
		if st.Publishes {
			if err := s.mountPublish(p, st); err != nil {
				return err
			}
			continue
		}
		serve := map[dialect.Transport]func(*call) error{dialect.SSE: s.stream, dialect.WebSocket: s.socket, dialect.GRPC: s.rpc}[st.Transport]
		if serve == nil {
			return fmt.Errorf("edge: protocol %s: stream %s: no transport %s", info.Name, st.Name, st.Transport)
		}
		own := p.Streams[st.Name]
		needs := cmp.Or(own.Needs, auth.ScopeRead)
		if own.Begin != nil {
			needs |= auth.ScopeWrite
		}
		if own.Begin != nil && st.Transport == dialect.SSE && strings.HasPrefix(st.Pattern, "GET ") {
			return fmt.Errorf("edge: protocol %s: stream %s: a GET begins with a write", info.Name, st.Name)
		}
		if own.KeepAlive < 0 || p.KeepAlive < 0 || p.Slow < 0 {
			return fmt.Errorf("edge: protocol %s: stream %s: negative KeepAlive or Slow", info.Name, st.Name)
		}
		bound := &live.Bound{Stream: st, Dialect: p.Dialect, DialectName: info.Name, KeepAlive: cmp.Or(own.KeepAlive, p.KeepAlive), Heartbeat: own.Heartbeat,
			Missed: own.Missed, Replayed: own.Replayed}
		if err := s.add(st.Pattern, serve, needs, bound, p); err != nil {
			return err
		}
	}
	for i := range p.Conversations {
		if err := s.mountConversation(p, &p.Conversations[i]); err != nil {
			return err
		}
	}
	return nil
}

// mountRoutes adds routes of a protocol; nil is the server itself.
func (s *Server) mountRoutes(p *protocol.Protocol, routes []protocol.Route) error {
	for _, rt := range routes {
		if rt.Needs == 0 {
			return fmt.Errorf("edge: %s%s says not what its callers need", rt.Pattern, rt.RPC)
		}
		serve := rt.Serve
		if rt.Writes {
			serve = s.node.Metered(serve)
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
