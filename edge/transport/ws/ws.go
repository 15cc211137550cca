package ws

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/poll"
)

// chunk is the most that is written under one deadline, in bytes.
const chunk = 64 << 10

// Config sets a Transport up. The zero value works.
type Config struct {
	WriteTimeout time.Duration // for each write of at most 64 KiB, and for the answer to a ping; default 30 s
	CloseTimeout time.Duration // how long a client may take to answer a close; default 2 s
	MaxMessage   int           // the largest message taken from a client, bytes; default 64 KiB
	// MessageTimeout is for a client's message to become whole once it has begun; default 60 s.
	MessageTimeout time.Duration
	Poll           *poll.Poller // reports when a client has sent something; nil: a goroutine each reads
}

func (c Config) withDefaults() Config {
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.CloseTimeout = cmp.Or(c.CloseTimeout, 2*time.Second)
	c.MaxMessage = cmp.Or(c.MaxMessage, 64<<10)
	c.MessageTimeout = cmp.Or(c.MessageTimeout, time.Minute)
	return c
}

func (c Config) validate() error {
	if c.WriteTimeout < 0 || c.CloseTimeout < 0 || c.MessageTimeout < 0 || c.MaxMessage < 0 {
		return fmt.Errorf("ws: time-outs of writes %v, closes %v, messages %v, largest message %d: not positive",
			c.WriteTimeout, c.CloseTimeout, c.MessageTimeout, c.MaxMessage)
	}
	return nil
}

// Options are one connection's.
type Options struct {
	// Subprotocols are those that are supported; the first of them that the client offers is. A client that offers
	// only others is refused; one that offers none is served without.
	Subprotocols []string
	// MaxMessage is the largest message taken from this client, bytes; 0: Config.MaxMessage.
	MaxMessage int
	// Memory is what messages of more than 4 KiB take, from their first bytes until they are dealt with. nil: nobody
	// counts.
	Memory Memory
	// Bulk means that the client sends much at a time: more is read at once then, and the bytes of a message are not
	// Received's once that has returned.
	Bulk bool
	// Received gets each text message, complete and valid UTF-8, in order, one at a time, in the goroutine that reads,
	// which may be before Open has returned. It may answer with Reply. While it runs nothing is read, no ping is
	// answered, and no pong is late: who sends faster than messages are dealt with is slowed down by TCP, and nothing
	// is queued. End waits for it. The bytes are not the caller's once it has returned. After an error nothing more is
	// received, Closed gets it, and the edge ends the sink. nil: messages are read and dropped.
	Received func(s *SocketSink, msg []byte) error
	// Refused gets what a client must not send, with the close that it would get, under the terms of Received. When bad
	// concerns one message and Refused returns nil, the rest of that message is read and dropped, and reading goes on.
	// When bad concerns the connection, that ends whatever is returned; a *ProtocolError is the close that the client
	// gets. nil: the client gets bad, and Closed too.
	Refused func(s *SocketSink, bad *ProtocolError) error
	// Closed is called at most once, from the goroutine that reads, and not after End has begun: the
	// client has closed, is gone or does not answer pings (dialect.ErrClientGone), has broken the
	// protocol (*ProtocolError), or Received or Refused returned an error. Whatever close frame that asks for has been
	// written; the sink must still be ended. It must not block and not use the sink.
	Closed func(error)
}

// ProtocolError is what a client must not send. It wraps dialect.ErrBadRequest. Its reason says nothing
// of what was sent.
type ProtocolError struct {
	Code   int // close code that the client gets (RFC 6455 §7.4.1)
	Reason string
	// Message reports whether it concerns one message alone, behind which the next one can be read.
	Message bool
}

// Error returns the code and the reason.
func (e *ProtocolError) Error() string { return fmt.Sprintf("ws: close %d: %s", e.Code, e.Reason) }

// Words are for the client.
func (e *ProtocolError) Words() string { return e.Reason }

// Unwrap makes it a bad request.
func (e *ProtocolError) Unwrap() error { return dialect.ErrBadRequest }

// Transport is what all sinks share.
type Transport struct {
	cfg     Config
	buffers transport.Buffers // held by a sink only between its first Write and Flush
}

// New checks the configuration.
func New(cfg Config) (*Transport, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Transport{cfg: cfg}, nil
}

// SocketSink is one connection.
type SocketSink struct {
	t    *Transport
	conn net.Conn
	try  *transport.Try
	o    Options

	buf *[]byte // whole frames that are not written yet
	out output
	in  frameInput

	watch *poll.Watch   // nil: the reading goroutine stays
	done  chan struct{} // closed when reading has ended and the connection is closed
}

var _ transport.Sink = (*SocketSink)(nil)

// Open upgrades a request. An error that wraps dialect.ErrBadRequest says why it cannot be; ErrVersion
// is among them. Nothing has been written then. One that wraps dialect.ErrClientGone or
// dialect.ErrSlowClient says that the connection broke while it was upgraded; it is closed then, and
// the response must not be used. Headers that are set on w go out with the 101. After a success w and
// r's body must not be used, and r's context no longer ends with the client: Closed reports it.
func (t *Transport) Open(w http.ResponseWriter, r *http.Request, o Options) (*SocketSink, error) {
	h, err := check(r, o.Subprotocols)
	if err != nil {
		return nil, err
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("ws: take the connection over: %w", err)
	}
	conn = transport.Own(conn)
	if o.MaxMessage == 0 {
		o.MaxMessage = t.cfg.MaxMessage
	}
	s := &SocketSink{t: t, conn: conn, try: transport.NewTry(conn), o: o, done: make(chan struct{})}
	if n := buffered.Reader.Buffered(); n > 0 {
		// What the client sent behind its request, before it saw the answer.
		early, _ := buffered.Reader.Peek(n)
		s.in.early = append([]byte(nil), early...)
	}
	// Deadlines of the HTTP server are for requests.
	err = conn.SetDeadline(time.Time{})
	if err == nil {
		s.out.open = true
		err = s.writeLocked(h.appendAnswer(nil, w.Header()))
	}
	if err != nil {
		s.cut(err)
		return nil, err
	}
	s.out.n = 0
	s.in.state.Store(inputReading)
	if s.try != nil {
		// Something may be there to read at once; serve finds it.
		s.watch, _ = t.cfg.Poll.Add(conn, func(*poll.Watch) { s.poke() })
	}
	go s.serve()
	return s, nil
}

// Write takes frames. They go out when 64 KiB are together, the rest with Flush.
func (s *SocketSink) Write(frames []dialect.Frame) error {
	if len(frames) == 0 {
		return nil
	}
	if s.buf == nil {
		s.buf = s.t.buffers.Get()
	}
	for i := range frames {
		if err := s.frame(frames[i].Data); err != nil {
			s.release()
			return err
		}
	}
	return nil
}

func (s *SocketSink) frame(data []byte) error {
	b := *s.buf
	if len(b) > 0 && len(b)+maxHeader+len(data) > chunk {
		if err := s.writeLocked(b); err != nil {
			return err
		}
		b = b[:0]
	}
	b = appendHeader(b, opText, len(data))
	if maxHeader+len(data) <= chunk {
		*s.buf = append(b, data...)
		return nil
	}
	// A large event goes out from the pack's own memory: a reader that is slow on it costs nothing.
	*s.buf = b[:0]
	return s.writeLocked(b, data)
}

// Reply writes frames at once, together, between others: it may be called from any goroutine, beside the one
// that uses the sink and from Received, also after End, which makes it fail. What Write has collected goes out
// behind it. It waits for the client as Flush does.
func (s *SocketSink) Reply(frames []dialect.Frame) error {
	b := s.t.buffers.Get()
	defer s.t.buffers.Put(b)
	for _, f := range frames {
		*b = Text.Append(*b, f)
	}
	return s.writeLocked(*b)
}

// Flush writes what is collected.
func (s *SocketSink) Flush() (int64, error) {
	var err error
	if s.buf != nil {
		err = s.writeLocked(*s.buf)
		s.release()
	}
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	n := s.out.n
	s.out.n = 0
	return n, err
}

// KeepAlive writes a ping. A client that does not answer it within a WriteTimeout is gone.
func (s *SocketSink) KeepAlive() error {
	n, err := s.in.expect(s.conn, s.t.cfg.WriteTimeout)
	if err != nil {
		return err
	}
	var b [maxHeader + 8]byte
	return s.writeLocked(appendPing(b[:0], n))
}

// CloseWith writes what is collected, the last frames, and a close frame with the code and the text of the end
// as its reason, waits for the client to answer it, and closes the connection. The client has a CloseTimeout
// for each of the two; with e.Wait it has a WriteTimeout. An error says that the close frame was not written:
// the client had closed, was gone, or did not read.
func (s *SocketSink) CloseWith(e transport.End) error {
	if s.buf == nil {
		s.buf = s.t.buffers.Get()
	}
	for _, f := range e.Last {
		*s.buf = Text.Append(*s.buf, f)
	}
	*s.buf = appendClose(*s.buf, closeCode(e), e.Text())
	timeout := s.t.cfg.CloseTimeout // a last word is worth less waiting than an event: many connections may end at once
	if e.Wait {
		timeout = s.t.cfg.WriteTimeout
	}
	err := s.closing(e.Rest, *s.buf, timeout)
	s.release()
	if err != nil && s.isTorn() {
		s.Cut()
	}
	s.poke() // somebody must wait for the answer
	<-s.done
	return err
}

// isTorn reports whether a part of a frame was written.
func (s *SocketSink) isTorn() bool {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	return s.out.torn
}

func closeCode(e transport.End) int {
	switch {
	case validClose(e.Close):
		return e.Close
	case e.Clean && e.Close == 0:
		return 1000
	}
	return 1011
}

// output is what the sink and its reading goroutine share for writing.
type output struct {
	mu    sync.Mutex // held over whole frames
	open  bool       // no close frame was written and no write has failed
	torn  bool       // a write has failed: a frame may be half written
	slow  bool       // it failed because the client did not read
	rest  bool       // a ready frame is half written, and mu stays held until Rest; changed by the sink's user alone
	armed bool       // a write deadline is set
	n     int64      // bytes written since the last Flush
}

// shut returns why nothing can be written any more. Who has waited for a write that failed, or comes behind it, gets
// the same reason as its writer: the first of them to end the stream decides what becomes known.
func (o *output) shut() error {
	if o.slow {
		return errSlow
	}
	return errGone
}

var (
	errGone = fmt.Errorf("ws: write: %w", dialect.ErrClientGone)
	errSlow = fmt.Errorf("ws: write: %w", dialect.ErrSlowClient)
)

// writeLocked writes whole frames.
func (s *SocketSink) writeLocked(parts ...[]byte) error {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	for i, b := range parts {
		if err := s.send(b, i == 0, s.t.cfg.WriteTimeout); err != nil {
			return err
		}
	}
	return nil
}

// closing writes the rest of a ready frame and the last bytes, a close frame at their end, and lets the reading
// goroutine wait for the answer.
func (s *SocketSink) closing(rest, b []byte, timeout time.Duration) error {
	s.in.mu.Lock() // a pong that is being taken must not undo the deadline below
	said := make(chan struct{})
	defer close(said)
	s.in.said = said
	s.in.ended.Store(true)
	s.in.mu.Unlock()
	part := s.out.rest
	if s.out.rest = false; !part {
		s.out.mu.Lock()
	}
	defer s.out.mu.Unlock()
	if part && len(rest) == 0 { // nothing can follow
		s.out.open, s.out.torn = false, true
	}
	if err := s.send(rest, !part, timeout); err != nil {
		return err
	}
	if err := s.send(b, true, timeout); err != nil {
		return err
	}
	s.out.open = false
	// It fails only when the client has answered already and the connection is closed.
	_ = s.conn.SetReadDeadline(time.Now().Add(timeout))
	return nil
}

// send needs the lock. fresh says that b begins with a frame. A failure leaves a frame half written, and
// nothing can follow it; but when the client has left before the first byte, the reading goroutine's close
// frame can.
func (s *SocketSink) send(b []byte, fresh bool, timeout time.Duration) error {
	for len(b) > 0 {
		if !s.out.open {
			return s.out.shut()
		}
		part := b[:min(len(b), chunk)]
		s.out.armed = true
		err := s.conn.SetWriteDeadline(time.Now().Add(timeout))
		// The reading goroutine sets it before it shortens the deadline.
		if err == nil && s.in.left.Load() {
			if fresh {
				return errGone
			}
			err = net.ErrClosed
		}
		fresh = false
		n := 0
		if err == nil {
			n, err = s.conn.Write(part)
		}
		s.out.n += int64(n)
		if err != nil {
			err = s.writeError(err)
			s.out.open, s.out.torn, s.out.slow = false, true, errors.Is(err, dialect.ErrSlowClient)
			return err
		}
		b = b[len(part):]
	}
	return nil
}

func (s *SocketSink) writeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && !s.in.left.Load() {
		return errSlow
	}
	return fmt.Errorf("ws: write: %w: %w", dialect.ErrClientGone, err)
}

// cut closes the connection at once. What the kernel still holds for a client that does not read is
// thrown away with it.
func (s *SocketSink) cut(err error) {
	if errors.Is(err, dialect.ErrSlowClient) {
		s.Cut()
		return
	}
	_ = s.conn.Close()
}

// Cut closes the connection at once, from any goroutine: whatever is being written fails. The sink must
// still be ended.
func (s *SocketSink) Cut() { transport.Reset(s.conn) }

func (s *SocketSink) release() {
	s.t.buffers.Put(s.buf)
	s.buf = nil
}
