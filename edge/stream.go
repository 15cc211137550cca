package edge

import (
	"errors"
	"net/http"
	"net/url"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/sse"
)

// stream serves a dialect's stream over server-sent events until it ends. A nil error is the end of
// the run.
func (s *Server) stream(c *call) error {
	b := c.route.stream
	in, err := input(c, b)
	if err != nil {
		return err
	}
	l := newLife(c.Request.Context(), c.Caller)
	ss, err := s.live.begin(l, &c.Report, b, in)
	if err != nil || c.Request.Method == http.MethodHead {
		ss.close()
		l.end(nil)
	}
	if errors.Is(err, errComplete) {
		c.Writer.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if c.Request.Method == http.MethodHead {
		sse.SetHeader(c.Writer.Header())
		c.Writer.WriteHeader(http.StatusOK)
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
	direct, err := s.sse.OpenDirect(c.Writer, c.Request, l.end)
	if errors.Is(err, sse.ErrNotDirect) {
		return s.sse.Open(c.Writer)
	}
	c.taken(http.StatusOK)
	if err != nil {
		return nil, err
	}
	l.Leave()
	c.forget()
	s.live.took(l, direct)
	return direct, nil
}

func input(c *call, b *boundStream) (dialect.Input, error) {
	q, err := readQuery(c.Request)
	if err != nil {
		return dialect.Input{}, err
	}
	return dialect.Input{Stream: b.Name, Path: c.path, Query: url.Values(q), Header: c.Request.Header}, nil
}
