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
func (s *Sink) pong() error {
	in := &s.in
	if !in.pinged {
		return nil
	}
	in.pinged = false
	if err := s.locked(append(appendHeader(nil, opPong, len(in.pong)), in.pong...)); err != nil && !in.ended.Load() {
		return err
	}
	return nil
}

// expect counts a ping that is about to be sent and returns its number. The client has timeout to answer
// the first that it has not answered: a goroutine that reads finds that out at once, and without one the
// next ping does.
func (in *input) expect(conn net.Conn, timeout time.Duration) (uint64, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.until.IsZero() && !in.busy && time.Now().After(in.until) {
		return 0, errNoPong
	}
	in.sent++
	if in.until.IsZero() {
		in.until = time.Now().Add(timeout)
		_ = conn.SetReadDeadline(in.until)
	}
	return in.sent, nil
}

// answered takes a pong. One of an older ping shows that the client lives, but more are due.
func (in *input) answered(conn net.Conn, data []byte, timeout time.Duration) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if len(data) != 8 || in.until.IsZero() || in.ended.Load() {
		return
	}
	switch n := binary.BigEndian.Uint64(data); {
	case n == in.sent:
		in.until = time.Time{}
	case n > 0 && n < in.sent:
		in.until = time.Now().Add(timeout)
	default:
		return
	}
	_ = conn.SetReadDeadline(in.until)
}
