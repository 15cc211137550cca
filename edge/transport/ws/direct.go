package ws

import (
	"fmt"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// Text is the form of frames on a connection: unfragmented text messages without a mask.
var Text = &transport.Encoding{Name: "ws", Append: func(dst []byte, f dialect.Frame) []byte {
	return append(appendHeader(dst, opText, len(f.Data)), f.Data...)
}}

var _ transport.Direct = (*SocketSink)(nil)

// Encoding is Text, nil when the connection cannot be written to without waiting.
func (s *SocketSink) Encoding() *transport.Encoding {
	if s.try == nil {
		return nil
	}
	return Text
}

// TryWrite writes without waiting, also not for the reading goroutine, which may be answering a ping.
func (s *SocketSink) TryWrite(b []byte) (int, error) {
	if !s.out.mu.TryLock() {
		return 0, nil
	}
	n, err := s.tryLocked(b)
	if err == nil && n > 0 && n < len(b) {
		// The lock stays: a pong in between would break the frame.
		s.out.rest = true
		return n, nil
	}
	s.out.mu.Unlock()
	return n, err
}

// tryLocked needs the lock.
func (s *SocketSink) tryLocked(b []byte) (int, error) {
	if !s.out.open || s.in.left.Load() {
		return 0, s.out.shut()
	}
	if s.out.armed {
		s.out.armed = false
		if err := s.conn.SetWriteDeadline(time.Time{}); err != nil {
			return 0, s.writeError(err)
		}
	}
	n, err := s.try.Write(b)
	if err != nil {
		s.out.open, s.out.torn = false, true
		return n, fmt.Errorf("ws: %w", err)
	}
	return n, nil
}

// Ready writes ready frames and waits for the client. Like Reply, any goroutine may call it.
func (s *SocketSink) Ready(b []byte) error { return s.writeLocked(b) }

// Rest writes and waits. It must be called when TryWrite has written a part.
func (s *SocketSink) Rest(b []byte) error {
	fresh := !s.out.rest
	if fresh {
		s.out.mu.Lock()
	}
	s.out.rest = false
	defer s.out.mu.Unlock()
	return s.send(b, fresh, s.t.cfg.WriteTimeout)
}

// TryKeepAlive writes a ping. A client that does not answer it within a WriteTimeout is gone.
func (s *SocketSink) TryKeepAlive() ([]byte, error) {
	number, err := s.in.expect(s.conn, s.t.cfg.WriteTimeout)
	if err != nil {
		return nil, err
	}
	ping := appendPing(nil, number)
	n, err := s.TryWrite(ping)
	return ping[n:], err
}
