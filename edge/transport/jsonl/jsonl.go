package jsonl

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"agentstream/edge/transport"
)

// chunk is what is collected before it is written, in bytes.
const chunk = transport.Chunk

// What the encoders are set to, measured on 50,000 events of 220 bytes: zstd makes 8.1 % of them and
// holds 0.7 MiB; its next level holds 1.8 MiB and makes them no smaller, nor does a longer window. gzip
// makes 9.2 % and holds 1.1 MiB. Browsers take windows of up to 8 MiB (RFC 9659).
const (
	zstdLevel  = zstd.SpeedFastest
	zstdWindow = 128 << 10
	gzipLevel  = 6
)

// Config sets a Transport up. The zero value works.
type Config struct {
	WriteTimeout time.Duration // for each write of at most 64 KiB; default 30 s
}

func (c Config) withDefaults() Config {
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	return c
}

func (c Config) validate() error {
	if c.WriteTimeout < 0 {
		return fmt.Errorf("jsonl: write time-out %v is not positive", c.WriteTimeout)
	}
	return nil
}

// LineTransport is what all sinks share.
type LineTransport struct {
	cfg     Config
	buffers sync.Pool // *[]byte
	gzips   sync.Pool // encoder; an encoder is large and is used again
	zstds   sync.Pool // encoder
}

// New checks the configuration.
func New(cfg Config) (*LineTransport, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &LineTransport{cfg: cfg}, nil
}

// SetHeader sets the headers of a body in a coding.
func SetHeader(h http.Header, c Coding) {
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept-Encoding")
	if c != Identity {
		h.Set("Content-Encoding", string(c))
	}
}

// LineSink is one response.
type LineSink struct {
	t       *LineTransport
	coding  Coding
	out     *resting
	enc     encoder // nil: the lines go out as they are
	buf     *[]byte
	written int64 // bytes of lines
}

// encoder is what gzip.Writer and zstd.Encoder have in common.
type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// Open sends status 200 and the headers at once: a body that is broken off later must be seen to have
// begun. The caller ends the sink with End, or closes it and breaks the body off. An error wraps
// dialect.ErrSlowClient or dialect.ErrClientGone, or says that the response takes no deadlines; in that
// case nothing has been sent.
func (t *LineTransport) Open(w http.ResponseWriter, c Coding) (*LineSink, error) {
	out := &resting{transport.NewResponse("jsonl", w, http.NewResponseController(w), t.cfg.WriteTimeout)}
	if err := out.ArmDeadline(); err != nil {
		return nil, err
	}
	s := &LineSink{t: t, coding: c, out: out, buf: t.buffer()}
	if c != Identity {
		enc, err := t.encoder(c)
		if err != nil {
			return nil, err
		}
		enc.Reset(out)
		s.enc = enc
	}
	SetHeader(w.Header(), c)
	w.WriteHeader(http.StatusOK)
	if err := out.Flush(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// WriteLine takes a line without its line feed. Its bytes are not used afterwards.
func (s *LineSink) WriteLine(line []byte) error {
	s.written += int64(len(line)) + 1
	if len(*s.buf)+len(line)+1 > chunk {
		if err := s.pass(); err != nil {
			return err
		}
	}
	if len(line) >= chunk {
		if err := s.push(line); err != nil {
			return err
		}
		line = nil
	}
	*s.buf = append(append(*s.buf, line...), '\n')
	return nil
}

// Flush pushes what was written to the client.
func (s *LineSink) Flush() error {
	if err := s.pass(); err != nil {
		return err
	}
	if s.enc != nil {
		if err := s.enc.Flush(); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// Finish writes what is left and the end of the coding. An error says that the client has not got all.
func (s *LineSink) Finish() error {
	defer s.Close()
	if err := s.pass(); err != nil {
		return err
	}
	if s.enc != nil {
		if err := s.enc.Close(); err != nil {
			return err
		}
	}
	return s.out.Flush()
}

// Close lets go of everything without ending the body. After End it does nothing.
func (s *LineSink) Close() {
	if s.buf == nil {
		return
	}
	*s.buf = (*s.buf)[:0]
	s.t.buffers.Put(s.buf)
	s.buf = nil
	if s.enc != nil {
		s.enc.Reset(nil)
		s.t.pool(s.coding).Put(s.enc)
		s.enc = nil
	}
}

// BytesWritten is the number of bytes of lines so far, before compression.
func (s *LineSink) BytesWritten() int64 { return s.written }

func (s *LineSink) pass() error {
	b := *s.buf
	*s.buf = b[:0]
	return s.push(b)
}

func (s *LineSink) push(b []byte) error {
	var err error
	if s.enc != nil {
		_, err = s.enc.Write(b)
	} else {
		_, err = s.out.Write(b)
	}
	return err
}

func (t *LineTransport) buffer() *[]byte {
	if b, ok := t.buffers.Get().(*[]byte); ok {
		return b
	}
	b := make([]byte, 0, chunk)
	return &b
}

// resting takes the deadline away after each write: history is read before the next one.
type resting struct{ *transport.Response }

func (r *resting) Write(b []byte) (int, error) {
	n, err := r.Response.Write(b)
	if err == nil {
		err = r.Rest()
	}
	return n, err
}

func (t *LineTransport) pool(c Coding) *sync.Pool {
	if c == Gzip {
		return &t.gzips
	}
	return &t.zstds
}

func (t *LineTransport) encoder(c Coding) (encoder, error) {
	if enc, ok := t.pool(c).Get().(encoder); ok {
		return enc, nil
	}
	return newEncoder(c)
}

func newEncoder(c Coding) (encoder, error) {
	if c == Gzip {
		return gzip.NewWriterLevel(nil, gzipLevel)
	}
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), // no goroutines
		zstd.WithEncoderLevel(zstdLevel), zstd.WithWindowSize(zstdWindow), zstd.WithLowerEncoderMem(true))
}
