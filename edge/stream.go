package edge

import (
	"cmp"
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
	ss, err := s.open(c, l, in)
	complete := errors.Is(err, dialect.ErrComplete)
	if !complete {
		c.Leave() // what is left of a body is the request's
	}
	if err != nil || c.Request.Method == http.MethodHead {
		ss.Close()
		l.Stop(nil)
	}
	st := c.route.own
	if complete {
		if st.Complete != nil {
			return st.Complete(&c.Call)
		}
		c.Writer.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if c.Request.Method == http.MethodHead {
		cmp.Or(st.Format, sse.Plain).SetHeader(c.Writer.Header())
		c.Writer.WriteHeader(http.StatusOK)
		return nil
	}
	sink, err := s.openSSE(c, l, st.Format)
	if err != nil {
		ss.Close()
		return live.EndCause(l.Ctx, err)
	}
	return ss.Serve(sink)
}

// openSSE answers on the connection itself where that can be had, else through the HTTP server.
func (s *Server) openSSE(c *call, l *live.Life, format *sse.Format) (transport.Sink, error) {
	direct, err := s.sse.OpenDirect(c.Writer, c.Request, format, l.Stop)
	if errors.Is(err, sse.ErrNotDirect) {
		return s.sse.Open(c.Writer, format)
	}
	c.markHijacked(http.StatusOK)
	if err != nil {
		return nil, err
	}
	l.Leave()
	c.Forget()
	s.live.Took(l, direct)
	return direct, nil
}

func input(c *call, b *live.Bound) (dialect.Input, error) {
	q, err := protocol.ReadQuery(c.Request)
	if err != nil {
		return dialect.Input{}, err
	}
	in := dialect.Input{Stream: b.Name, Path: c.Params.Map(), Query: url.Values(q), Header: c.Request.Header}
	if len(b.Body) > 0 {
		in.Body, err = c.Body(b.Body...)
	}
	return in, err
}

// open opens what a request asks for. One that begins with a write has its place among the streams before it writes.
func (s *Server) open(c *call, l *live.Life, in dialect.Input) (*live.Session, error) {
	b := c.route.stream
	c.Ending = (*ending)(c)
	var req dialect.Request
	read := func(*protocol.Call) (err error) { req, err = b.Dialect.Open(in); return err }
	own := c.route.own
	if begin := own.Begin; begin != nil {
		if err := s.live.Enter(l); err != nil {
			return nil, err
		}
		c.Release = func() { s.live.Leave(l) }
		read = s.node.Meter(func(c *protocol.Call) (err error) { req, err = begin(c, in); return err })
	}
	if err := read(&c.Call); err != nil {
		return nil, live.EndCause(l.Ctx, err)
	}
	if own.Admit != nil {
		if err := own.Admit(&c.Call, &req); err != nil {
			return nil, live.EndCause(l.Ctx, err)
		}
	}
	ss, err := s.live.Open(l, &c.Report, b, req)
	if err == nil && own.Prelude != nil {
		err = prelude(c, ss, in)
	}
	return ss, err
}

// prelude has the protocol make what the stream begins with.
func prelude(c *call, ss *live.Session, in dialect.Input) (err error) {
	seam := protocol.Seam{Input: in, Request: ss.Request(), After: ss.After, State: ss.State()}
	seam.Last, seam.Missed = ss.Last()
	ss.Prelude, err = c.route.own.Prelude(&c.Call, seam)
	return err
}
