package sse

import (
	"bytes"
	"fmt"
	"net/http"
	"time"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/poll"
)

// chunk is what is collected before it is written, in bytes.
const chunk = transport.Chunk

// Config sets a Transport up. The zero value works.
type Config struct {
	WriteTimeout time.Duration // for each write of at most 64 KiB; default 30 s
	Retry        time.Duration // reconnection hint; each client gets 1 to 2 times it; default 1 s
	Poll         *poll.Poller  // tells when the client of a Direct leaves; nil: a goroutine each reads
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

// SetHeader sets the headers of a stream.
func SetHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	// no-transform keeps proxies from compressing, which would hold frames back.
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
}

// Sink is one response.
type Sink struct {
	t   *Transport
	out *transport.Response
	buf *[]byte
}

var _ transport.Sink = (*Sink)(nil)

// Open sends status 200, the headers and the reconnection hint at once, before any event: clients
// wait for them. An error wraps dialect.ErrSlowClient or dialect.ErrClientGone, or says that the
// response takes no deadlines; in that case nothing has been sent.
func (t *Transport) Open(w http.ResponseWriter) (*Sink, error) {
	s := &Sink{t: t, out: transport.NewResponse("sse", w, http.NewResponseController(w), t.cfg.WriteTimeout)}
	if err := s.out.Begin(); err != nil {
		return nil, err
	}
	SetHeader(w.Header())
	w.WriteHeader(http.StatusOK)
	if err := s.send(t.appendRetry(nil)); err != nil {
		return nil, err
	}
	err := s.out.Flush()
	s.out.Count()
	return s, err
}

// Write takes frames. They go out when 64 KiB are together, the rest with Flush.
func (s *Sink) Write(frames []dialect.Frame) error {
	if len(frames) == 0 {
		return nil
	}
	if s.buf == nil {
		s.buf = s.t.buffers.Get()
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
			return s.out.Count(), err
		}
	}
	err := s.out.Flush()
	return s.out.Count(), err
}

// KeepAlive writes a comment (native §5).
func (s *Sink) KeepAlive() error {
	if err := s.send(keepAlive); err != nil {
		return err
	}
	return s.out.Flush()
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
	return s.out.Flush()
}

func (s *Sink) send(b []byte) error {
	_, err := s.out.Write(b)
	return err
}

func (s *Sink) release() {
	s.t.buffers.Put(s.buf)
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
