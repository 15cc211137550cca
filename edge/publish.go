package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/publish"
	"agentstream/edge/transport"
	"agentstream/edge/transport/grpc"
	"agentstream/schema"
)

// mountPublish adds a stream on which clients publish.
func (s *Server) mountPublish(p *protocol.Protocol, st dialect.Stream) error {
	if st.Transport == dialect.WebSocket {
		return s.mountConversation(p, &protocol.Conversation{Stream: st, Needs: auth.ScopeWrite, Opened: s.publishOn, Received: published,
			Malformed: unpublished, Closing: publishedAll})
	}
	bound := &live.Bound{Stream: st, Dialect: p.Dialect, DialectName: p.Dialect.Info().Name}
	return s.add(st.Pattern, s.publishCall, auth.ScopeWrite, bound, p)
}

// part lets an answer go on on its connection.
func (s *Server) part(c *call, p *protocol.Parting) error {
	d, err := transport.OpenDuplex(c.Writer.ResponseWriter, c.Request, s.cfg.WriteTimeout)
	c.taken(http.StatusOK)
	if err != nil {
		p.Life.End(nil)
		return err
	}
	p.Life.Leave()
	c.forget()
	s.live.Took(p.Life, d)
	go func() {
		err := ends.ErrPanic // until it has returned
		defer func() {
			v := recover()
			p.Life.End(nil)
			c.over(v, err)
		}()
		err = p.Carry(d)
	}()
	return live.ErrParked
}

// publishOn makes the stream of a WebSocket. Each message is one line, or several.
func (s *Server) publishOn(t *protocol.Talk) error {
	stream := s.rest.Publisher(t.Lasting(), t.Caller.Tenant, publish.Client{KeepAlive: s.cfg.KeepAlive, Deliver: func(b []byte) error {
		return t.Send(dialect.Frame{Data: b[:len(b)-1]})
	}})
	t.State = stream
	context.AfterFunc(t.Lasting(), func() { stream.Stop(context.Cause(t.Lasting())) })
	return nil
}

func published(t *protocol.Talk, message []byte) error {
	return closing(t.State.(*publish.Stream).Message(message))
}

// unpublished refuses what is no message: one that is too large is a line that is.
func unpublished(t *protocol.Talk, bad *protocol.Close) error {
	if bad.Code != closeTooBig {
		return bad
	}
	return closing(t.State.(*publish.Stream).Skip(schema.ErrTooLarge))
}

// closeTooBig is the close code for a message that is too large (RFC 6455 §7.4.1).
const closeTooBig = 1009

// closing is the close of a client that was told already.
func closing(err error) error {
	if errors.Is(err, publish.ErrGarbage) {
		return &protocol.Close{Code: 1008, Reason: "not lines of JSON", Cause: err}
	}
	return err
}

// publishedAll waits for the receipts of what was read.
func publishedAll(t *protocol.Talk, err error) {
	stream, ok := t.State.(*publish.Stream)
	if !ok {
		return
	}
	if bad := new(protocol.Close); errors.As(err, &bad) {
		err = publish.ErrGarbage
	}
	_ = stream.End(err) // the conversation knows
	t.Report.Events = stream.Stored()
}

// publishCall serves a bidirectional call.
func (s *Server) publishCall(c *call) error {
	if !grpc.Speaks(c.Request) {
		return ends.ErrMediaType
	}
	var end error
	err := c.route.rpcs.ServeBoth(c.Writer, c.Request, func(ctx context.Context, receive func() ([]byte, error), sink transport.Sink) transport.End {
		end = s.publishOver(ctx, c, receive, sink)
		return c.lastWord(end)
	})
	if end != nil {
		return end
	}
	return err
}

func (s *Server) publishOver(ctx context.Context, c *call, receive func() ([]byte, error), sink transport.Sink) error {
	l := c.lifeIn(ctx)
	defer l.End(nil)
	if err := s.live.Join(l, &c.Report); err != nil {
		return err
	}
	l.Expire()
	c.Stream = c.route.stream
	rc := http.NewResponseController(c.Writer)
	if c.Request.ProtoMajor == 1 { // gRPC-Web
		if err := rc.EnableFullDuplex(); err != nil {
			return err
		}
	}
	if _, err := sink.Flush(); err != nil {
		return live.Ended(l.Ctx, err)
	}
	words := c.Protocol.Dialect.(dialect.Publishing)
	stream := s.rest.Publisher(ctx, c.Caller.Tenant, publish.Client{
		KeepAlive: s.cfg.KeepAlive,
		Deliver: func(b []byte) error {
			err := deliver(sink, b)
			if err != nil {
				l.End(err)
			}
			return err
		},
		Form: func(dst []byte, r *dialect.Receipt) []byte { return appendMessage(dst, words, r) },
	})
	unwatch := l.Upon(func() {
		stream.Stop(context.Cause(l.Ctx))
		_ = rc.SetReadDeadline(time.Unix(1, 0)) // it fails when the client is gone
	})
	defer unwatch()
	err := live.Ended(l.Ctx, publishMessages(stream, words, receive))
	garbage := errors.Is(err, publish.ErrGarbage)
	if errors.Is(err, dialect.ErrClientGone) || errors.Is(err, dialect.ErrSlowClient) {
		stream.Drop(err)
	}
	ferr := stream.Finish(nil)
	if c.Events = stream.Stored(); garbage {
		return dialect.Refuse(dialect.ErrBadRequest, "not an event of a run")
	}
	return errors.Join(err, ferr)
}

// publishMessages feeds what the client sends.
func publishMessages(stream *publish.Stream, words dialect.Publishing, receive func() ([]byte, error)) error {
	var line []byte
	for {
		message, err := receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if line, err = words.AppendPublished(line[:0], message); err != nil {
			err = stream.Skip(err)
		} else {
			err = stream.Message(line)
		}
		if err != nil {
			return err
		}
		if cap(line) > schema.MaxEventBytes/8 {
			line = nil
		}
	}
}

// appendMessage appends a receipt as a message behind its length, so that several can be delivered together.
func appendMessage(dst []byte, words dialect.Publishing, r *dialect.Receipt) []byte {
	at := len(dst)
	dst = words.AppendReceipt(append(dst, 0, 0, 0, 0), *r)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// deliver sends what appendMessage has made.
func deliver(sink transport.Sink, b []byte) error {
	frame := make([]dialect.Frame, 1)
	for len(b) > 0 {
		n := 4 + int(binary.BigEndian.Uint32(b))
		frame[0].Data = b[4:n]
		if err := sink.Write(frame); err != nil {
			return err
		}
		b = b[n:]
	}
	_, err := sink.Flush()
	return err
}
