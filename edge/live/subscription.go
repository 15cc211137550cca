package live

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/transport"
)

// subscription is a session of a conversation, and the sink that it writes to.
type subscription struct {
	conv    *Conversation
	members []member // one, but where frames of several come once
	req     dialect.Request
	ss      *Session
	over    error // that its session was opened with: dialect.ErrComplete, or what keeps it from being opened again
	life    Life
	report  Report
	done    chan struct{} // closed when no frame comes any more

	buf  []byte // whole frames that are not written yet; the conversation's write is held while there are any
	held bool
	part bool  // TryWrite has taken a part: the socket waits for the rest
	sent int64 // bytes since the last Flush
}

var (
	_ transport.Sink   = (*subscription)(nil)
	_ transport.Direct = (*subscription)(nil)
)

// member returns the place of the one with an id, -1 when there is none.
func (s *subscription) member(id string) int {
	return slices.IndexFunc(s.members, func(m member) bool { return m.id == id })
}

// serve carries the subscription until it is parked or over.
func (s *subscription) serve() {
	parked, err := false, error(nil)
	defer func() {
		if v := recover(); !parked {
			s.Finish(v, err)
		}
	}()
	if s.over != nil {
		s.ss.Sink = s
		err = s.ss.Carry(func() error { return complete(s.over) })
	} else {
		err = s.ss.Serve(s)
	}
	parked = err == ErrParked // it is handed over, never wrapped
}

// complete makes it the clean end that it is when the client has everything.
func complete(err error) error {
	if errors.Is(err, dialect.ErrComplete) {
		return nil
	}
	return err
}

// EndOf has nothing to say: the conversation does.
func (s *subscription) EndOf(error) transport.End { return transport.End{} }

// Finish lets the conversation know.
func (s *subscription) Finish(recovered any, err error) {
	if recovered != nil {
		err = fmt.Errorf("%w: %v\n%s", ends.ErrPanic, recovered, debug.Stack())
	}
	c := s.conv
	c.mu.Lock()
	c.total.Events += s.report.Events
	c.total.Sent += s.report.Sent
	c.total.Dropped += s.report.Dropped
	c.mu.Unlock()
	close(s.done)
	c.endSubscription(s, err)
}

// Write takes frames, one subscription of the connection at a time: the others wait until they went out.
func (s *subscription) Write(frames []dialect.Frame) error {
	if len(frames) == 0 {
		return nil
	}
	if !s.held {
		if s.life.Ctx.Err() != nil { // what was begun goes out: its records count as shown
			return context.Cause(s.life.Ctx)
		}
		s.conv.write.Lock()
		s.held = true
	}
	for i := range frames {
		s.buf = s.conv.cfg.Form.Append(s.buf, frames[i])
		if len(s.buf) < transport.Chunk {
			continue
		}
		if err := s.push(); err != nil {
			return err
		}
	}
	return nil
}

// push writes what is collected.
func (s *subscription) push() error {
	if len(s.buf) == 0 {
		return nil
	}
	s.sent += int64(len(s.buf))
	s.conv.touch()
	err := s.conv.sink.Ready(s.buf)
	if s.buf = s.buf[:0]; cap(s.buf) > 2*transport.Chunk {
		s.buf = nil
	}
	return err
}

// release lets the others write.
func (s *subscription) release() {
	s.buf = nil
	if s.held {
		s.held = false
		s.conv.write.Unlock()
	}
}

// Flush writes what is collected.
func (s *subscription) Flush() (int64, error) {
	err := s.push()
	s.release()
	n := s.sent
	s.sent = 0
	return n, err
}

// KeepAlive does nothing: the conversation shows its signs of life itself.
func (s *subscription) KeepAlive() error { return nil }

// TryKeepAlive does nothing.
func (s *subscription) TryKeepAlive() ([]byte, error) { return nil, nil }

// Encoding is the connection's.
func (s *subscription) Encoding() *transport.Encoding { return s.conv.sink.Encoding() }

// TryWrite writes ready frames without waiting. Views write those to the connection and call tried for what it did not
// take.
func (s *subscription) TryWrite(b []byte) (int, error) {
	n, err := s.conv.sink.TryWrite(b)
	s.noteWrite(n, b, err)
	return n, err
}

// noteWrite notes what came of writing ready frames to the connection.
func (s *subscription) noteWrite(n int, b []byte, err error) {
	s.part = err == nil && n > 0 && n < len(b)
}

// Rest writes the rest of ready frames and waits, whatever has ended the subscription meanwhile: their records count as
// shown.
func (s *subscription) Rest(b []byte) error {
	if s.part {
		s.part = false
		return s.conv.sink.Rest(b)
	}
	s.conv.write.Lock()
	defer s.conv.write.Unlock()
	return s.conv.sink.Ready(b)
}

// CloseWith sends nothing to the client: the connection is the conversation's.
func (s *subscription) CloseWith(transport.End) error {
	if s.part { // the rest of the frame is lost, and the connection with it
		s.part = false
		s.conv.life.Stop(errors.Join(dialect.ErrClientGone, errHalf))
		s.conv.sink.(interface{ Cut() }).Cut()
		_ = s.conv.sink.Rest(nil)
	}
	s.release()
	return nil
}

var errHalf = errors.New("a frame was written in part")
