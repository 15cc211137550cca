package grpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// prefix is what stands before each message: a flag byte, 0 for not compressed, and the length (gRPC
// over HTTP/2, "Length-Prefixed-Message").
const prefix = 5

// response keeps connect from flushing after every message.
type response struct {
	http.ResponseWriter
	begun bool // a status has been written
}

func (w *response) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Flush does nothing: the sink flushes.
func (*response) Flush() {}

// Unwrap lets http.ResponseController reach deadlines and flushing.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Sink is one call's response.
type Sink struct {
	c       *call
	conn    connect.StreamingHandlerConn
	opened  bool // headers have been handed over
	buf     *[]byte
	until   time.Time // deadline of the write under way
	written int64     // bytes since the last Flush
	end     *transport.End
	failed  error
}

var _ transport.Sink = (*Sink)(nil)

// open hands the headers over.
func (s *Sink) open() error {
	if s.opened || s.failed != nil {
		return s.failed
	}
	s.opened = true
	if err := s.deadline(); err != nil {
		return err
	}
	if err := s.conn.Send(nil); err != nil { // connect's way to send headers alone
		return s.writeError(err)
	}
	return nil
}

// Write takes frames, whose data are encoded messages. They go out when 64 KiB are together, the rest
// with Flush.
func (s *Sink) Write(frames []dialect.Frame) error {
	if len(frames) == 0 {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	if s.buf == nil {
		s.buf = s.c.t.buffer()
	}
	for i := range frames {
		if err := s.frame(frames[i].Data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink) frame(data []byte) error {
	b := *s.buf
	if len(b) > 0 && len(b)+prefix+len(data) > chunk {
		if err := s.send(b); err != nil {
			return err
		}
		b = b[:0]
	}
	b = binary.BigEndian.AppendUint32(append(b, 0), uint32(len(data)))
	if prefix+len(data) <= chunk {
		*s.buf = append(b, data...)
		return nil
	}
	// A large event goes out from where it is: a reader that is slow on it costs nothing.
	*s.buf = b[:0]
	if err := s.send(b); err != nil {
		return err
	}
	return s.send(data)
}

// Flush writes what is collected and pushes it to the client. With nothing collected it sends the
// headers, which tell the client that the call was accepted.
func (s *Sink) Flush() (int64, error) {
	err := s.open()
	if err == nil && s.buf != nil {
		err = s.send(*s.buf)
	}
	s.release()
	if err == nil {
		err = s.push()
	}
	n := s.written
	s.written = 0
	return n, err
}

// KeepAlive sends the headers if they have not been sent, and nothing else: there is no message that
// means nothing, and on HTTP/2 the server's pings are the sign of life.
func (s *Sink) KeepAlive() error {
	if s.opened {
		return s.failed
	}
	_, err := s.Flush()
	return err
}

// End writes what is collected. The status goes out when the handler returns; e.Last is for transports
// that have none.
func (s *Sink) End(e transport.End) error {
	if s.end != nil {
		return nil
	}
	s.end = &e
	return s.finish()
}

// finish writes what is collected, without headers for a call that is refused.
func (s *Sink) finish() error {
	if s.failed != nil || s.buf == nil {
		return s.failed
	}
	_, err := s.Flush()
	return err
}

func (s *Sink) send(b []byte) error {
	if s.failed != nil {
		return s.failed
	}
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		if err := s.deadline(); err != nil {
			return err
		}
		n, err := s.c.w.Write(part)
		s.written += int64(n)
		if err != nil {
			return s.writeError(err)
		}
		b = b[len(part):]
	}
	return nil
}

// push flushes and takes the deadline away: on HTTP/2 one that passes while nothing is being written
// resets the stream.
func (s *Sink) push() error {
	if err := s.deadline(); err != nil {
		return err
	}
	if err := s.c.rc.Flush(); err != nil {
		return s.writeError(err)
	}
	if err := s.c.rc.SetWriteDeadline(time.Time{}); err != nil {
		return s.writeError(err)
	}
	return nil
}

func (s *Sink) deadline() error {
	s.until = time.Now().Add(s.c.t.cfg.WriteTimeout)
	if err := s.c.rc.SetWriteDeadline(s.until); err != nil {
		if errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("grpc: write deadline: %w", err)
		}
		return s.writeError(err)
	}
	return nil
}

// writeError tells a client that is slow from one that is gone. HTTP/2 resets the stream when the
// deadline passes and reports only that it is closed.
func (s *Sink) writeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(s.until) {
		s.failed = fmt.Errorf("grpc: write: %w", dialect.ErrSlowClient)
	} else {
		s.failed = fmt.Errorf("grpc: write: %w: %w", dialect.ErrClientGone, err)
	}
	return s.failed
}

func (t *Transport) buffer() *[]byte {
	if b, ok := t.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, 4<<10)
	return &b
}

func (s *Sink) release() {
	if s.buf == nil {
		return
	}
	if *s.buf = (*s.buf)[:0]; cap(*s.buf) <= 2*chunk {
		s.c.t.buffers.Put(s.buf)
	}
	s.buf = nil
}
