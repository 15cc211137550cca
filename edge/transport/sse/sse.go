package sse

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// chunk is the most that is written under one deadline, in bytes.
const chunk = 64 << 10

// Config sets a Transport up. The zero value works.
type Config struct {
	WriteTimeout time.Duration // for each write of at most 64 KiB; default 30 s
	Retry        time.Duration // reconnection hint; each client gets 1 to 2 times it; default 1 s
}

func (c Config) withDefaults() Config {
	if c.WriteTimeout == 0 {
		c.WriteTimeout = 30 * time.Second
	}
	if c.Retry == 0 {
		c.Retry = time.Second
	}
	return c
}

func (c Config) validate() error {
	if c.WriteTimeout < 0 || c.Retry < time.Millisecond {
		return fmt.Errorf("sse: write time-out %v, retry %v: not positive", c.WriteTimeout, c.Retry)
	}
	return nil
}

// Transport is what all sinks share.
type Transport struct {
	cfg     Config
	buffers sync.Pool // *[]byte; held by a sink only between its first Write and Flush
}

// New checks the configuration.
func New(cfg Config) (*Transport, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Transport{cfg: cfg}, nil
}

// SetHeader sets the headers of a stream.
func SetHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	// no-transform keeps proxies from compressing, which would hold frames back.
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// Sink is one response.
type Sink struct {
	t       *Transport
	w       http.ResponseWriter
	rc      *http.ResponseController
	buf     *[]byte
	until   time.Time // deadline of the write under way
	written int64     // bytes since the last Flush
}

// Open sends status 200, the headers and the reconnection hint at once, before any event: clients
// wait for them. An error wraps dialect.ErrSlowClient or dialect.ErrClientGone, or says that the
// response takes no deadlines; in that case nothing has been sent.
func (t *Transport) Open(w http.ResponseWriter) (*Sink, error) {
	s := &Sink{t: t, w: w, rc: http.NewResponseController(w)}
	if err := s.deadline(); err != nil {
		return nil, err
	}
	SetHeader(w.Header())
	w.WriteHeader(http.StatusOK)
	// Clients that were cut together must not come back together.
	hint := t.cfg.Retry + rand.N(t.cfg.Retry)
	b := append(make([]byte, 0, 32), "retry: "...)
	b = strconv.AppendInt(b, hint.Milliseconds(), 10)
	if err := s.send(append(b, "\n\n"...)); err != nil {
		return nil, err
	}
	s.written = 0
	return s, s.push()
}

// Write takes frames. They go out when 64 KiB are together, the rest with Flush.
func (s *Sink) Write(frames []dialect.Frame) error {
	if len(frames) == 0 {
		return nil
	}
	if s.buf == nil {
		s.buf = s.t.buffer()
	}
	for _, f := range frames {
		if err := s.frame(f); err != nil {
			return err
		}
	}
	return nil
}

func (s *Sink) frame(f dialect.Frame) error {
	b := *s.buf
	if len(b) > 0 && len(b)+len(f.Data) > chunk {
		if err := s.send(b); err != nil {
			return err
		}
		b = b[:0]
	}
	if len(f.Data) < chunk || breaksLine(f.Data) {
		*s.buf = AppendFrame(b, f)
		return nil
	}
	// A large event goes out from the pack's own memory: a reader that is slow on it costs nothing.
	b = appendBegin(b, f)
	if err := s.send(b); err != nil {
		return err
	}
	if err := s.send(f.Data); err != nil {
		return err
	}
	*s.buf = appendEnd(b[:0], f.Token)
	return nil
}

// Flush writes what is collected and pushes it to the client.
func (s *Sink) Flush() (int64, error) {
	if s.buf != nil {
		err := s.send(*s.buf)
		s.release()
		if err != nil {
			return s.count(), err
		}
	}
	err := s.push()
	return s.count(), err
}

func (s *Sink) count() int64 {
	n := s.written
	s.written = 0
	return n
}

// KeepAlive writes a comment (native §5).
func (s *Sink) KeepAlive() error {
	if err := s.send(keepAlive); err != nil {
		return err
	}
	return s.push()
}

var keepAlive = []byte(": keepalive\n\n")

// End writes the last frame, where there is one. Whether the body is complete or breaks off is the
// handler's: it returns, or panics with http.ErrAbortHandler.
func (s *Sink) End(e transport.End) error {
	s.release()
	if e.Last == nil {
		return nil
	}
	if err := s.send(AppendFrame(nil, *e.Last)); err != nil {
		return err
	}
	return s.push()
}

func (s *Sink) send(b []byte) error {
	for len(b) > 0 {
		part := b[:min(len(b), chunk)]
		if err := s.deadline(); err != nil {
			return err
		}
		n, err := s.w.Write(part)
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
	if err := s.rc.Flush(); err != nil {
		return s.writeError(err)
	}
	if err := s.rc.SetWriteDeadline(time.Time{}); err != nil {
		return s.writeError(err)
	}
	return nil
}

func (s *Sink) deadline() error {
	s.until = time.Now().Add(s.t.cfg.WriteTimeout)
	if err := s.rc.SetWriteDeadline(s.until); err != nil {
		if errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("sse: write deadline: %w", err)
		}
		return s.writeError(err)
	}
	return nil
}

// writeError tells a client that is slow from one that is gone. HTTP/2 resets the stream when the
// deadline passes and reports only that it is closed.
func (s *Sink) writeError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(s.until) {
		return fmt.Errorf("sse: write: %w", dialect.ErrSlowClient)
	}
	return fmt.Errorf("sse: write: %w: %w", dialect.ErrClientGone, err)
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
		s.t.buffers.Put(s.buf)
	}
	s.buf = nil
}

// AppendFrame appends one event: event, data, id and a blank line. The id is left out when the frame
// has no token, which leaves the client's cursor where it is; the event when it has no name.
func AppendFrame(dst []byte, f dialect.Frame) []byte {
	return appendEnd(appendValue(appendBegin(dst, f), f.Data), f.Token)
}

// appendBegin appends everything before the data.
func appendBegin(dst []byte, f dialect.Frame) []byte {
	if len(f.Event) > 0 {
		dst = append(appendValue(append(dst, "event: "...), f.Event), '\n')
	}
	return append(dst, "data: "...)
}

// appendEnd appends everything behind the data.
func appendEnd(dst, token []byte) []byte {
	dst = append(dst, '\n')
	if len(token) > 0 {
		dst = append(appendValue(append(dst, "id: "...), token), '\n')
	}
	return append(dst, '\n')
}

// appendValue appends a value. Bytes that would end its line, or that make a client ignore an id
// (NUL), become spaces: between the tokens of a JSON text, which is where alone they may stand, that
// changes nothing.
func appendValue(dst, value []byte) []byte {
	start := len(dst)
	dst = append(dst, value...)
	if breaksLine(value) {
		for i, c := range dst[start:] {
			if c == '\n' || c == '\r' || c == 0 {
				dst[start+i] = ' '
			}
		}
	}
	return dst
}

func breaksLine(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0 || bytes.IndexByte(b, 0) >= 0
}
