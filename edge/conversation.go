package edge

import (
	"errors"
	"fmt"

	"agentstream/edge/dialect"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/transport"
	"agentstream/edge/transport/ws"
	"agentstream/schema"
)

// mountConversation adds a WebSocket on which clients send messages.
func (s *Server) mountConversation(p *protocol.Protocol, v *protocol.Conversation) error {
	if err := v.Validate(); err != nil {
		return fmt.Errorf("edge: protocol %s: %w", p.Dialect.Info().Name, err)
	}
	bound := &live.Bound{Stream: v.Stream, Dialect: p.Dialect, DialectName: p.Dialect.Info().Name, KeepAlive: p.KeepAlive}
	bound.Transport = dialect.WebSocket
	if err := s.add(v.Pattern, func(c *call) error { return s.converse(c, v) }, v.Needs, bound, p); err != nil {
		return err
	}
	s.routes[len(s.routes)-1].late = v.Late
	return nil
}

// converse serves a conversation. What is wrong with the request is answered in HTTP, before the upgrade; with Late,
// who may not open it gets a close code.
func (s *Server) converse(c *call, v *protocol.Conversation) error {
	request, params := c.Request, c.Params
	if c.route.named && !v.Late {
		if err := schema.ValidRunID(c.Path("run")); err != nil {
			return err
		}
	}
	l := live.NewLife(request.Context(), c.Caller)
	if c.late != nil {
		return s.turnAway(c, l)
	}
	t, err := protocol.NewTalk(&c.Call, v, l, s.live, c.route.stream, live.ConversationConfig{Form: ws.Text})
	if err != nil {
		l.Stop(nil)
		return err
	}
	options := ws.Options{
		Bulk:     v.Publishes,
		Memory:   s.memory(l),
		Received: func(_ *ws.SocketSink, message []byte) error { return t.Receive(message) },
		Closed:   func(err error) { l.Stop(closeReason(err)) },
	}
	if v.Malformed != nil {
		options.Refused = func(_ *ws.SocketSink, bad *ws.ProtocolError) error {
			return inWords(t.Refuse(&protocol.Close{Code: bad.Code, Reason: bad.Reason}, !bad.Message))
		}
	}
	sink, err := s.upgrade(c, options)
	if err != nil {
		defer l.Stop(nil)
		return live.EndCause(l.Ctx, err)
	}
	c.Ending = (*conversationEnd)(c)
	l.Leave()
	c.Forget()
	c.Params = params
	t.Attach(sink, request)
	return live.ErrParked
}

// inWords makes the close that a protocol has chosen one of the transport.
func inWords(err error) error {
	if last := new(protocol.Close); errors.As(err, &last) {
		return &ws.ProtocolError{Code: last.Code, Reason: last.Reason}
	}
	return err
}

// turnAway closes the connection of a client that may not open the conversation, with the reason.
func (s *Server) turnAway(c *call, l *live.Life) error {
	defer l.Stop(nil)
	sink, err := s.upgrade(c, ws.Options{})
	if err != nil {
		return err
	}
	_ = sink.CloseWith(c.lastWord(c.late)) // a client that is gone has no use for it
	return c.late
}

// conversationEnd is how a conversation ends.
type conversationEnd call

// EndOf returns the protocol's close, or what the table of ends has.
func (c *conversationEnd) EndOf(err error) transport.End {
	if last := new(protocol.Close); errors.As(err, &last) {
		return transport.End{Close: last.Code, Message: last.Reason}
	}
	return (*call)(c).lastWord(err)
}

// Finish ends the request; what the protocol closed in peace has no error.
func (c *conversationEnd) Finish(recovered any, err error) {
	if last := new(protocol.Close); errors.As(err, &last) && last.Code == 1000 {
		err = nil
	}
	(*call)(c).finishStream(recovered, err)
}
