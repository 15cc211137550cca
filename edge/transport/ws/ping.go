package ws

import (
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"agentstream/edge/dialect"
)

var errNoPong = fmt.Errorf("ws: no answer to a ping: %w", dialect.ErrClientGone)

// pong answers the newest ping.
func (s *SocketSink) pong() error {
	in := &s.in
	if !in.pinged {
		return nil
	}
	in.pinged = false
	if err := s.writeLocked(append(appendHeader(nil, opPong, len(in.pong)), in.pong...)); err != nil && !in.ended.Load() {
		return err
	}
	return nil
}

// expect counts a ping that is about to be sent and returns its number. The client has timeout to answer
// the first that it has not answered: a goroutine that reads finds that out at once, and without one the
// next ping does.
func (in *frameInput) expect(conn net.Conn, timeout time.Duration) (uint64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.until.IsZero() && !in.busy && time.Now().After(in.until) {
		return 0, errNoPong
	}
	in.sent++
	if in.until.IsZero() {
		in.until = time.Now().Add(timeout)
		in.arm(conn)
	}
	return in.sent, nil
}

// acceptPong takes a pong. One of an older ping shows that the client lives, but more are due. It calls what waits for
// the pong.
func (in *frameInput) acceptPong(conn net.Conn, data []byte, timeout time.Duration) {
	if reached := in.recordPong(conn, data, timeout); reached != nil {
		reached()
	}
}

// recordPong returns what waits for a pong, once.
func (in *frameInput) recordPong(conn net.Conn, data []byte, timeout time.Duration) (reached func()) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(data) == 0 {
		// some clients do not repeat the payload: that is no sign of life, but what they sent before has come
		return in.release()
	}
	if len(data) != 8 || in.until.IsZero() || in.ended.Load() {
		return nil
	}
	n := binary.BigEndian.Uint64(data)
	switch {
	case n == in.sent:
		in.until = time.Time{}
	case n > 0 && n < in.sent:
		in.until = time.Now().Add(timeout)
	default:
		return nil
	}
	in.arm(conn)
	if n < in.probe {
		return nil
	}
	return in.release()
}

// release returns what waits for a pong, once. It needs mu.
func (in *frameInput) release() (reached func()) {
	reached = in.reached
	in.reached = nil
	return reached
}

// Probe writes a ping. The goroutine that reads calls reached when the client has answered it: Received has got
// everything that the client sent before it knew of the ping. A later Probe replaces one that is not answered. reached
// is not called when the connection ends first. Any goroutine may call Probe.
func (s *SocketSink) Probe(reached func()) error {
	n, err := s.in.expect(s.conn, s.t.cfg.WriteTimeout)
	if err != nil {
		return err
	}
	s.in.mu.Lock()
	s.in.probe = n
	s.in.reached = reached
	s.in.mu.Unlock()
	var b [maxHeader + 8]byte
	return s.writeLocked(appendPing(b[:0], n))
}
