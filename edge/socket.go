package edge

import (
	"context"
	"errors"
	"net/http"

	"agentstream/edge/body"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
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
	ss, err := s.open(c, l, in)
	complete := errors.Is(err, dialect.ErrComplete)
	if err != nil && !complete {
		ss.Close()
		l.Stop(nil)
		return err
	}
	sink, err := s.upgrade(c, ws.Options{Closed: func(err error) { l.Stop(closeReason(err)) }})
	if err != nil {
		ss.Close()
		return live.EndCause(l.Ctx, err)
	}
	l.Leave()
	c.Forget()
	s.live.Took(l, sink)
	if complete {
		ss.Sink = sink
		return ss.Carry(func() error { return nil })
	}
	return ss.Serve(sink)
}

// upgrade takes the connection over from the HTTP server.
func (s *Server) upgrade(c *call, o ws.Options) (*ws.SocketSink, error) {
	o.Subprotocols, o.MaxMessage = c.route.stream.Subprotocols, c.route.stream.MaxMessage
	sink, err := s.ws.Open(c.Writer, c.Request, o)
	if !errors.Is(err, dialect.ErrBadRequest) && !errors.Is(err, http.ErrNotSupported) {
		c.markHijacked(http.StatusSwitchingProtocols) // whatever became of it
	}
	if errors.Is(err, ws.ErrVersion) {
		c.Writer.Header().Set("Sec-WebSocket-Version", "13")
		err = errors.Join(ends.ErrUpgrade, err)
	}
	return sink, err
}

// closeReason returns why a client closed in the words of the table of ends.
func closeReason(err error) error {
	if bad := new(ws.ProtocolError); errors.As(err, &bad) || errors.Is(err, ends.ErrLimited) ||
		errors.Is(err, ends.ErrNoRoom) {
		return err
	}
	return errors.Join(dialect.ErrClientGone, err)
}

// memory is what a stream's messages take of the memory for bodies.
type memory struct {
	share *body.Share
	ctx   context.Context
}

func (s *Server) memory(l *live.Life) *memory {
	return &memory{s.bodies.Share(l.Caller.Tenant), l.Ctx}
}

// Reserve waits a little for n bytes more.
func (m *memory) Reserve(n int64) error { return m.share.Reserve(m.ctx, n) }

// Give returns n bytes.
func (m *memory) Give(n int64) { m.share.Give(n) }
