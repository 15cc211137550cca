package edge

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/body"
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
		return s.mountConversation(p, &protocol.Conversation{Stream: st, Needs: auth.ScopeWrite, Opened: s.publishOn,
			Received:  receivePublished,
			Malformed: skipMalformed, Closing: finishPublishing})
	}
	bound := &live.Bound{Stream: st, Dialect: p.Dialect, DialectName: p.Dialect.Info().Name}
	return s.add(st.Pattern, s.publishCall, auth.ScopeWrite, bound, p)
}

// part lets an answer go on on its connection, without the goroutine of the HTTP server.
func (s *Server) part(c *call, p *protocol.Detached) error {
	d, err := transport.OpenDuplex(c.Writer.ResponseWriter, c.Request, s.cfg.WriteTimeout)
	c.markHijacked(http.StatusOK)
	if err != nil {
		p.Life.Stop(nil)
		return err
	}
	c.Forget()
	s.live.Took(p.Life, d)
	l := p.Apart(d)
	go func() {
		err := ends.ErrPanic // until it has returned
		defer func() {
			v := recover()
			l.Leave()
			c.finishStream(v, err)
		}()
		err = s.reading(l, p.Life, d.Stop).listen(d)
	}()
	return live.ErrParked
}

// listen reads until the client has said all, or is gone, or the answer takes nothing more. While nothing comes it
// holds little memory, and little of the stack: what stands on it is multiplied by the clients that say nothing, and
// the collector halves the stack of one that waits only where less than a quarter of it is used.
func (r *reading) listen(body io.Reader) error {
	for !r.over {
		r.took(body.Read(r.b))
	}
	return r.l.Complete(r.err)
}

// reading is how far the reading of what a client sends is.
type reading struct {
	s     *Server
	l     protocol.Upload
	of    *live.Life
	b     []byte           // into which is read next
	large *[largeSize]byte // nil: little comes
	share *body.Share      // of the memory for bodies, for large; nil: it had none yet
	over  bool
	err   error
	late  overdue
	small [smallSize]byte
}

func (s *Server) reading(l protocol.Upload, of *live.Life, stop func()) *reading {
	r := &reading{s: s, l: l, of: of, late: overdue{stop: stop}}
	r.b = r.small[:]
	return r
}

// took deals with what was read.
func (r *reading) took(n int, err error) {
	if n > 0 {
		r.feed(r.b[:n])
	}
	switch {
	case r.err != nil || err == io.EOF: // it is a reader's
		r.over = true
	case err != nil:
		r.over, r.err = true, r.l.ReadError(err)
	}
	switch {
	case n == smallSize && r.large == nil && !r.over:
		r.enlarge()
	case r.large != nil && (n <= smallSize || r.over):
		r.s.large.Put(r.large)
		r.share.Give(largeSize)
		r.b, r.large = r.small[:], nil
	}
	if r.over {
		r.late.rest()
	}
}

// feed hands over what was read. What has begun with it must be whole in time.
func (r *reading) feed(b []byte) {
	var p protocol.Progress
	r.late.pause()
	p, r.err = r.l.Feed(b)
	r.late.goOn(p, r.s.cfg.BodyTimeout)
}

// enlarge takes memory for much, if the client's tenant has any.
func (r *reading) enlarge() {
	if r.share == nil {
		r.share = r.s.bodies.Share(r.of.Caller.Tenant)
	}
	if r.share.Try(largeSize) == nil {
		r.large = r.s.large.Get().(*[largeSize]byte)
		r.b = r.large[:]
	}
}

// overdue ends the reading from a client whose message does not become whole. One goroutine uses it. Nothing is late
// while what has come is dealt with.
type overdue struct {
	stop  func()
	timer *time.Timer   // nil: no message has begun since much came
	whole int           // messages when the one began that is waited for
	begun bool          // it has
	left  time.Duration // that it has
	since time.Time     // when it was last waited for
}

// pause is for what was read, before it is dealt with.
func (o *overdue) pause() {
	if o.begun {
		o.timer.Stop()
		o.left -= time.Since(o.since)
	}
}

// goOn is for what was dealt with.
func (o *overdue) goOn(p protocol.Progress, most time.Duration) {
	if !p.Begun {
		o.rest()
		return
	}
	if !o.begun || p.Whole != o.whole {
		o.left = most
	}
	o.begun, o.whole, o.since = true, p.Whole, time.Now()
	if o.timer == nil {
		o.timer = time.AfterFunc(o.left, o.stop)
		return
	}
	o.timer.Reset(o.left)
}

// rest waits for nothing, and holds nothing.
func (o *overdue) rest() {
	if o.timer != nil {
		o.timer.Stop()
	}
	o.begun, o.timer = false, nil
}

// How much is read at once from a client that says little, and from one that says much, in bytes.
const (
	smallSize = 640 - 176 // with what else a reading has
	largeSize = 32 << 10
)

// publishOn makes the stream of a WebSocket. Each message is one line, or several.
func (s *Server) publishOn(t *protocol.Talk) error {
	stream := s.rest.Publisher(t.Lasting(), t.Caller,
		publish.Client{Trace: t.Trace(), KeepAlive: s.cfg.KeepAlive, Deliver: func(b []byte) error {
			return t.Send(dialect.Frame{Data: b[:len(b)-1]})
		}})
	t.State = stream
	context.AfterFunc(t.Lasting(), func() { stream.Stop(context.Cause(t.Lasting())) })
	return nil
}

// receivePublished publishes a message of a conversation.
func receivePublished(t *protocol.Talk, message []byte) error {
	return closing(t.State.(*publish.Stream).Message(message))
}

// skipMalformed refuses what is no message: one that is too large is a line that is.
func skipMalformed(t *protocol.Talk, bad *protocol.Close) error {
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

// finishPublishing waits for the receipts of what was read.
func finishPublishing(t *protocol.Talk, err error) {
	stream, ok := t.State.(*publish.Stream)
	if !ok {
		return
	}
	if bad := new(protocol.Close); errors.As(err, &bad) {
		err = publish.ErrGarbage
	}
	_ = stream.FinishWith(err) // the conversation knows
	t.Report.Events = stream.CountStored()
}

// publishCall serves a bidirectional call.
func (s *Server) publishCall(c *call) error {
	if !grpc.IsCall(c.Request) {
		return ends.ErrMediaType
	}
	both, err := c.route.rpcs.OpenCall(c.Writer, c.Request)
	if err != nil {
		return err
	}
	l := live.Alone(c.Caller) // who reads finds out that its client has left
	if _, ends := both.Ctx.Deadline(); ends {
		context.AfterFunc(both.Ctx, func() { l.Stop(context.Cause(both.Ctx)) })
	}
	both.Memory = s.memory(l)
	m := &publishCall{Both: both, c: c, life: l, words: c.Protocol.Dialect.(dialect.Publishing), lines: &s.lines}
	if err := s.openCall(m); err != nil {
		defer l.Stop(nil)
		_ = both.Finish(c.lastWord(err)) // why it does not get through says less
		return err
	}
	m.stream = s.rest.Publisher(both.Ctx, c.Caller, publish.Client{Trace: c.Trace(), KeepAlive: s.cfg.KeepAlive,
		Deliver: m.deliver, Form: func(dst []byte, r *dialect.Receipt) []byte { return appendMessage(dst, m.words, r) }})
	m.unwatch = l.Upon(func() {
		m.stream.Stop(context.Cause(l.Ctx))
		c.Writer.StopReading()
	})
	return &protocol.Detached{Life: l, Here: m}
}

// openCall accepts a call.
func (s *Server) openCall(m *publishCall) error {
	if err := s.live.Join(m.life, &m.c.Report); err != nil {
		return err
	}
	m.life.Expire()
	m.c.Stream = m.c.route.stream
	if m.c.Request.ProtoMajor == 1 { // gRPC-Web
		if err := http.NewResponseController(m.c.Writer).EnableFullDuplex(); err != nil {
			return err
		}
	}
	_, err := m.Flush()
	return live.EndCause(m.life.Ctx, err)
}

// publishCall is a stream over a call.
type publishCall struct {
	*grpc.Both
	c       *call
	life    *live.Life
	words   dialect.Publishing
	stream  *publish.Stream
	unwatch func()
	lines   *transport.Buffers
	whole   int // messages
}

// Feed takes bytes, in which messages begin and end anywhere.
func (m *publishCall) Feed(b []byte) (p protocol.Progress, err error) {
	line := m.lines.Get()
	defer m.lines.Put(line)
	err = m.Both.Feed(b, func(message []byte) (err error) {
		m.whole++
		if *line, err = m.words.AppendPublished((*line)[:0], message); err != nil {
			return m.stream.Skip(err)
		}
		return m.stream.Message(*line)
	})
	return protocol.Progress{Whole: m.whole, Begun: m.Whole() != nil}, err
}

// Complete waits until what was taken is answered.
func (m *publishCall) Complete(err error) error {
	if err == nil {
		err = m.Whole()
	}
	err = live.EndCause(m.life.Ctx, err)
	if errors.Is(err, dialect.ErrClientGone) || errors.Is(err, dialect.ErrSlowClient) {
		m.stream.Drop(err)
	}
	ferr := m.stream.Finish(nil)
	m.c.Events = m.stream.CountStored()
	if errors.Is(err, publish.ErrGarbage) {
		err = dialect.Refuse(dialect.ErrBadRequest, "not an event of a run")
	} else {
		err = errors.Join(err, ferr)
	}
	if err != nil && m.c.Request.ProtoMajor == 1 { // what is left of the body is read, and a client may never send it
		_ = http.NewResponseController(m.c.Writer).SetReadDeadline(time.Now().Add(leftTime))
	}
	if ferr := m.Finish(m.c.lastWord(err)); err == nil {
		err = ferr
	}
	return err
}

// leftTime is how long the rest of a body may take that is thrown away.
const leftTime = 500 * time.Millisecond

// Leave ends what the stream has started, where End could not.
func (m *publishCall) Leave() {
	m.unwatch()
	m.life.Stop(nil)
	m.stream.Drop(dialect.ErrClientGone)
	_ = m.stream.Finish(nil) // End has its error
}

// appendMessage appends a receipt as a message behind its length, so that several can be delivered together.
func appendMessage(dst []byte, words dialect.Publishing, r *dialect.Receipt) []byte {
	at := len(dst)
	dst = words.AppendReceipt(append(dst, 0, 0, 0, 0), *r)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// deliver sends what appendMessage has made.
func (m *publishCall) deliver(b []byte) (err error) {
	frame := make([]dialect.Frame, 1)
	for len(b) > 0 && err == nil {
		n := 4 + int(binary.BigEndian.Uint32(b))
		frame[0].Data = b[4:n]
		err = m.Write(frame)
		b = b[n:]
	}
	if err == nil {
		_, err = m.Flush()
	}
	if err != nil {
		m.life.Stop(err)
	}
	return err
}
