package ws

import (
	"fmt"
	"time"
)

// Memory is what a connection's messages may take. One goroutine uses it.
type Memory interface {
	// Reserve waits a little for n bytes more. An error ends the connection.
	Reserve(n int64) error
	Give(n int64)
}

const (
	// freeMessage is what a message may have that nobody counts, in bytes.
	freeMessage = 4 << 10
	// dealtWith is how many times its size a message takes beside itself while somebody who is no bulk's deals with it.
	dealtWith = 2
)

// keep adds a part to the message under way. Its memory grows with what has come, whatever a header says.
func (s *SocketSink) keep(part []byte) error {
	in := &s.in
	if in.msg == nil {
		in.msg, in.spare = in.spare, nil
	}
	if need := len(in.msg) + len(part); need > cap(in.msg) {
		size := max(need, min(2*cap(in.msg), s.o.MaxMessage))
		if need <= freeMessage {
			size = min(size, freeMessage)
		}
		if err := s.hold(int64(size)); err != nil {
			return err
		}
		in.msg = append(make([]byte, 0, size), in.msg...)
	}
	in.msg = append(in.msg, part...)
	return nil
}

// hold makes n bytes what the message under way takes.
func (s *SocketSink) hold(n int64) error {
	if s.o.Memory == nil {
		return nil
	}
	if n > freeMessage && n > s.in.held {
		if err := s.o.Memory.Reserve(n - s.in.held); err != nil {
			return fmt.Errorf("ws: a message of %d bytes so far: %w", len(s.in.msg), err)
		}
		s.in.held = n
	}
	return nil
}

// overflow is for a message for which there is no room: nothing more is received.
func (s *SocketSink) overflow(err error) {
	s.tell(err)
	s.in.deaf, s.in.skip, s.in.msg = true, true, nil
	s.drop()
}

// drop is for a message that was dealt with, or dropped.
func (s *SocketSink) drop() {
	if s.in.held > 0 {
		s.o.Memory.Give(s.in.held)
		s.in.held = 0
	}
}

// late reports that a message, or another frame, did not become whole in time.
func (s *SocketSink) late() *ProtocolError {
	return &ProtocolError{Code: closePolicy,
		Reason: fmt.Sprintf("a message must be whole within %v", s.t.cfg.MessageTimeout)}
}

// startTimeout bounds the time of what has begun, if nothing has: it is called where more must be waited for,
// so that what comes in one piece costs nothing.
func (in *frameInput) startTimeout(conn deadliner, most time.Duration) {
	if !in.inside || !in.whole.IsZero() {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.whole = time.Now().Add(most)
	in.arm(conn)
}

// finish is for a message or a frame that is whole.
func (in *frameInput) finish(conn deadliner) {
	if in.whole.IsZero() {
		return
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.whole = time.Time{}
	in.arm(conn)
}

// deadliner is a connection, or a part of one.
type deadliner interface{ SetReadDeadline(time.Time) error }

// arm sets the deadline of reads to the first that is due. It needs mu.
func (in *frameInput) arm(conn deadliner) {
	if in.ended.Load() {
		return
	}
	at := in.until
	if at.IsZero() || !in.whole.IsZero() && in.whole.Before(at) {
		at = in.whole
	}
	_ = conn.SetReadDeadline(at) // it fails when the connection is closed
}

// overdue reports whether it was the message that has missed its time, and not a pong.
func (in *frameInput) overdue() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return !in.whole.IsZero() && !time.Now().Before(in.whole) && (in.until.IsZero() || in.whole.Before(in.until))
}
