package edge

import (
	"errors"
	"net/http"
	"net/url"

	"agentstream/edge/dialect"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
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
	l := live.NewLife(c.Request.Context(), c.Caller)
	ss, err := s.live.Open(l, &c.Report, b, in)
	if err != nil || c.Request.Method == http.MethodHead {
		ss.Close()
		l.End(nil)
	}
	if errors.Is(err, live.ErrComplete) {
		c.Writer.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if c.Request.Method == http.MethodHead {
		sse.Plain.SetHeader(c.Writer.Header())
		c.Writer.WriteHeader(http.StatusOK)
		return nil
	}
	sink, err := s.openSSE(c, l)
	if err != nil {
		ss.Close()
		return live.Ended(l.Ctx, err)
	}
	return ss.Serve(sink)
}

// openSSE answers on the connection itself where that can be had, else through the HTTP server.
func (s *Server) openSSE(c *call, l *live.Life) (transport.Sink, error) {
	direct, err := s.sse.OpenDirect(c.Writer, c.Request, nil, l.End)
	if errors.Is(err, sse.ErrNotDirect) {
		return s.sse.Open(c.Writer, nil)
	}
	c.taken(http.StatusOK)
	if err != nil {
		return nil, err
	}
	l.Leave()
	c.forget()
	s.live.Took(l, direct)
	return direct, nil
}

func input(c *call, b *live.Bound) (dialect.Input, error) {
	q, err := protocol.ReadQuery(c.Request)
	if err != nil {
		return dialect.Input{}, err
	}
	return dialect.Input{Stream: b.Name, Path: c.Params, Query: url.Values(q), Header: c.Request.Header}, nil
}
