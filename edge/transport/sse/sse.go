package sse

import (
	"cmp"
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
	Poll         *poll.Poller  // reports when the client of a Direct leaves; nil: a goroutine each reads
}

func (c Config) withDefaults() Config {
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.Retry = cmp.Or(c.Retry, time.Second)
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

// EventSink is one response.
type EventSink struct {
	t      *Transport
	format *Format
	out    *transport.Response
	buf    *[]byte
}

var _ transport.Sink = (*EventSink)(nil)

// Open sends status 200, the headers and the reconnection hint at once, before any event: clients wait for them.
// Headers that are set on w go out with them. A nil format is Plain. An error wraps dialect.ErrSlowClient or
// dialect.ErrClientGone, or says that the response takes no deadlines; in that case nothing has been sent.
func (t *Transport) Open(w http.ResponseWriter, format *Format) (*EventSink, error) {
	s := &EventSink{t: t, format: format.ready(),
		out: transport.NewResponse("sse", w, http.NewResponseController(w), t.cfg.WriteTimeout)}
	if err := s.out.ArmDeadline(); err != nil {
		return nil, err
	}
	s.format.SetHeader(w.Header())
	w.WriteHeader(http.StatusOK)
	if err := s.send(t.appendRetry(nil, s.format)); err != nil {
		return nil, err
	}
	err := s.out.Flush()
	s.out.Count()
	return s, err
}

// Write takes frames. They go out when 64 KiB are together, the rest with Flush.
func (s *EventSink) Write(frames []dialect.Frame) error {
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

func (s *EventSink) frame(f dialect.Frame) error {
	if len(*s.buf) > 0 && len(*s.buf)+len(f.Data) > chunk {
		if err := s.pass(); err != nil {
			return err
		}
	}
	if !large(f) {
		*s.buf = s.format.Append(*s.buf, f)
		return nil
	}
	*s.buf = s.format.appendHead(*s.buf, f)
	if err := s.pass(); err != nil {
		return err
	}
	if err := s.send(f.Data); err != nil {
		return err
	}
	*s.buf = s.format.appendTail(*s.buf, f)
	return nil
}

// pass hands on what is collected.
func (s *EventSink) pass() error {
	b := *s.buf
	*s.buf = b[:0]
	return s.send(b)
}

// Flush writes what is collected and pushes it to the client.
func (s *EventSink) Flush() (int64, error) {
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

// KeepAlive writes a comment.
func (s *EventSink) KeepAlive() error {
	if err := s.send(keepAlive); err != nil {
		return err
	}
	return s.out.Flush()
}

// CloseWith writes the last frames, where there are any; what was written and not flushed is dropped. Whether
// the body is complete or breaks off is the handler's: it returns, or panics with http.ErrAbortHandler.
func (s *EventSink) CloseWith(e transport.End) error {
	s.release()
	if len(e.Last) == 0 {
		return nil
	}
	if err := s.Write(e.Last); err != nil {
		return err
	}
	_, err := s.Flush()
	return err
}

func (s *EventSink) send(b []byte) error {
	_, err := s.out.Write(b)
	return err
}

func (s *EventSink) release() {
	s.t.buffers.Put(s.buf)
	s.buf = nil
}
