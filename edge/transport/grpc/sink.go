package grpc

import (
	"encoding/binary"
	"fmt"
	"net/http"

	"connectrpc.com/connect"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// prefix is what stands before each message: a flag byte, 0 for not compressed, and the length (gRPC
// over HTTP/2, "Length-Prefixed-Message").
const prefix = 5

// heldResponse keeps connect from flushing after every message.
type heldResponse struct {
	http.ResponseWriter
	begun bool // a status has been written
}

func (w *heldResponse) WriteHeader(status int) {
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *heldResponse) Write(b []byte) (int, error) {
	w.begun = true
	return w.ResponseWriter.Write(b)
}

// Flush does nothing: the sink flushes.
func (*heldResponse) Flush() {}

// Unwrap lets http.ResponseController reach deadlines and flushing.
func (w *heldResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// CallSink is one call's response.
type CallSink struct {
	c      *call
	conn   connect.StreamingHandlerConn // nil within a Both, up to its end
	opened bool                         // headers have been handed over
	buf    *[]byte
	out    *transport.Response
	end    *transport.End
	failed error
}

var _ transport.Sink = (*CallSink)(nil)

// open hands the headers over.
func (s *CallSink) open() error {
	if s.opened || s.failed != nil {
		return s.failed
	}
	s.opened = true
	if s.failed = s.out.ArmDeadline(); s.failed != nil {
		return s.failed
	}
	if s.conn == nil { // it has given the headers
		s.c.w.WriteHeader(http.StatusOK)
	} else if err := s.conn.Send(nil); err != nil { // connect's way to send headers alone
		s.failed = s.out.WriteError(err)
	}
	return s.failed
}

// Write takes frames, whose data are encoded messages. They go out when 64 KiB are together, the rest with Flush.
func (s *CallSink) Write(frames []dialect.Frame) error {
	if len(frames) == 0 {
		return nil
	}
	if err := s.open(); err != nil {
		return err
	}
	if s.buf == nil {
		s.buf = s.c.t.buffers.Get()
	}
	for i := range frames {
		if err := s.frame(frames[i].Data); err != nil {
			return err
		}
	}
	return nil
}

func (s *CallSink) frame(data []byte) error {
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
func (s *CallSink) Flush() (int64, error) {
	n, err := s.flush()
	if took, slow := s.out.Slowest(), s.c.t.cfg.Slow; err == nil && slow > 0 && took > slow {
		err = fmt.Errorf("grpc: %w: %v", transport.ErrLate, took)
	}
	return n, err
}

func (s *CallSink) flush() (int64, error) {
	err := s.open()
	if err == nil && s.buf != nil {
		err = s.send(*s.buf)
	}
	s.release()
	if err == nil {
		err = s.push()
	}
	return s.out.Count(), err
}

// KeepAlive sends the headers if they have not been sent, and nothing else: there is no message that
// means nothing, and on HTTP/2 the server's pings are the sign of life.
func (s *CallSink) KeepAlive() error {
	if s.opened {
		return s.failed
	}
	_, err := s.flush()
	return err
}

// CloseWith writes what is collected and the last frames. The status goes out when the handler returns.
func (s *CallSink) CloseWith(e transport.End) error {
	if s.end != nil {
		return nil
	}
	s.end = &e
	return s.finish(e)
}

// finish writes what is collected and the last frames, without headers for a call that is refused.
func (s *CallSink) finish(e transport.End) error {
	if s.failed != nil || s.buf == nil && len(e.Last) == 0 {
		return s.failed
	}
	if err := s.Write(e.Last); err != nil {
		return err
	}
	_, err := s.flush()
	return err
}

func (s *CallSink) send(b []byte) error {
	if s.failed == nil {
		_, s.failed = s.out.Write(b)
	}
	return s.failed
}

func (s *CallSink) push() error {
	if err := s.out.Flush(); err != nil {
		s.failed = err
	}
	return s.failed
}

func (s *CallSink) release() {
	s.c.t.buffers.Put(s.buf)
	s.buf = nil
}
