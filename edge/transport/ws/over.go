package ws

import (
	"errors"
	"fmt"
	"os"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// over ends the connection, for a reason that receive gave.
func (s *SocketSink) over(err error) {
	defer close(s.done)
	defer s.conn.Close()
	s.drop()
	if errors.Is(err, os.ErrDeadlineExceeded) && s.in.overdue() {
		err = s.late()
	}
	if s.watch != nil {
		defer s.watch.Stop()
	}
	if s.in.ended.Load() {
		<-s.in.said // the client may have closed by itself: it gets our close frame all the same
		return      // the client's answer to our close, or none in time
	}
	violation, bye := new(ProtocolError), new(closedError)
	switch {
	case errors.As(err, &violation):
		if s.o.Refused != nil && !s.in.deaf {
			if other := s.busy(func() error { return s.o.Refused(s, violation) }); other != nil {
				err = other
				errors.As(err, &violation)
			}
		}
		s.leave(violation.Code, violation.Reason)
		s.tell(err)
		s.drain()
	case errors.As(err, &bye):
		s.leave(bye.code, "")
		s.tell(fmt.Errorf("%w: %w", dialect.ErrClientGone, err))
		s.drain()
	case errors.Is(err, os.ErrDeadlineExceeded):
		transport.DropUnsent(s.conn)
		s.tell(errNoPong)
	case errors.Is(err, dialect.ErrSlowClient), errors.Is(err, dialect.ErrClientGone):
		s.tell(err)
	default:
		s.tell(fmt.Errorf("ws: read: %w: %w", dialect.ErrClientGone, err))
	}
}

// tell reports why the connection is over, unless Received's refusal was reported or End has begun.
func (s *SocketSink) tell(err error) {
	if s.o.Closed != nil && !s.in.deaf && !s.in.ended.Load() {
		s.o.Closed(err)
	}
}

// leave writes the last close frame. A write that the sink has under way is given a CloseTimeout more.
func (s *SocketSink) leave(code int, reason string) {
	s.in.left.Store(true)
	limit := time.Now().Add(s.t.cfg.CloseTimeout)
	_ = s.conn.SetWriteDeadline(limit)
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if !s.out.open {
		return // closed already, or in the middle of a frame
	}
	s.out.open = false
	_ = s.conn.SetWriteDeadline(limit)
	// A client that does not take it has no use for the error.
	_, _ = s.conn.Write(appendClose(nil, code, reason))
}

// drain lets the close frame arrive: closing with unread bytes, or before the client's last ones, would
// reset the connection, and the client might never see why.
func (s *SocketSink) drain() {
	half, ok := s.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || s.conn.SetReadDeadline(time.Now().Add(s.t.cfg.CloseTimeout)) != nil {
		return
	}
	for total := 0; total < maxDrain; {
		n, err := s.conn.Read(s.in.buf)
		if total += n; err != nil {
			return
		}
	}
}
