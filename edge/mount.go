package edge

import (
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"fmt"
	"strings"
)

// mount adds routes, whose refusals are in a dialect's words; nil is the server's own.
func (s *Server) mount(words dialect.Dialect, routes []protocol.Route) error {
	for _, rt := range routes {
		if rt.Needs == 0 {
			return fmt.Errorf("edge: %s says not what its callers need", rt.Pattern)
		}
		serve := rt.Serve
		if rt.Writes {
			serve = s.node.Metered(serve)
		}
		if err := s.add(rt.Pattern, func(c *call) error { return serve(&c.Call) }, rt.Needs, nil); err != nil {
			return err
		}
		s.routes[len(s.routes)-1].words = words
	}
	return nil
}

// bindAPIs adds the routes of the APIs. They come before the streams, whose paths some of them share.
func (s *Server) bindAPIs() error {
	for i := range s.cfg.APIs {
		if err := s.mount(s.cfg.APIs[i].Dialect, s.cfg.APIs[i].Routes); err != nil {
			return err
		}
	}
	return nil
}

// speaks reports whether a dialect has an API here.
func (s *Server) speaks(name string) bool {
	for i := range s.cfg.APIs {
		if s.cfg.APIs[i].Dialect.Info().Name == name {
			return true
		}
	}
	return false
}

// wordsFor returns the dialect in which a request is refused that has no route: nil is the server's own.
func (s *Server) wordsFor(path string) dialect.Dialect {
	for i := range s.cfg.APIs {
		for _, below := range s.cfg.APIs[i].Below {
			if rest, ok := strings.CutPrefix(path, below); ok && (rest == "" || rest[0] == '/') {
				return s.cfg.APIs[i].Dialect
			}
		}
	}
	return nil
}
