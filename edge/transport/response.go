package transport

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"agentstream/edge/dialect"
)

// Chunk is the most that is written under one deadline, in bytes.
const Chunk = 64 << 10

// Response writes to an HTTP response, each Chunk under a deadline of its own. Its errors wrap
// dialect.ErrSlowClient or dialect.ErrClientGone, or say that the response takes no deadlines. One
// goroutine at a time.
type Response struct {
	name    string
	w       io.Writer
	rc      *http.ResponseController
	timeout time.Duration
	until   time.Time // deadline of the write under way
	slowest time.Duration
	written int64
}

// NewResponse writes to w, whose deadlines and flushing are rc's. name stands before errors.
func NewResponse(name string, w io.Writer, rc *http.ResponseController, timeout time.Duration) *Response {
	return &Response{name: name, w: w, rc: rc, timeout: timeout}
}

// Write writes all of b.
func (r *Response) Write(b []byte) (n int, err error) {
	for len(b) > 0 {
		part := b[:min(len(b), Chunk)]
		if err := r.ArmDeadline(); err != nil {
			return n, err
		}
		m, err := r.w.Write(part)
		n += m
		r.written += int64(m)
		if err != nil {
			return n, r.WriteError(err)
		}
		r.took()
		b = b[len(part):]
	}
	return n, nil
}

// Flush pushes what was written to the client, and rests.
func (r *Response) Flush() error {
	if err := r.ArmDeadline(); err != nil {
		return err
	}
	if err := r.rc.Flush(); err != nil {
		return r.WriteError(err)
	}
	r.took()
	return r.Rest()
}

// took notes how long the write under way has waited for the client.
func (r *Response) took() { r.slowest = max(r.slowest, r.timeout-time.Until(r.until)) }

// Slowest returns how long the slowest write took since it was last called.
func (r *Response) Slowest() time.Duration {
	d := r.slowest
	r.slowest = 0
	return d
}

// ArmDeadline sets the deadline for what is written next.
func (r *Response) ArmDeadline() error {
	r.until = time.Now().Add(r.timeout)
	err := r.rc.SetWriteDeadline(r.until)
	if err != nil && errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%s: write deadline: %w", r.name, err)
	}
	if err != nil {
		return r.WriteError(err)
	}
	return nil
}

// Rest takes the deadline away: on HTTP/2 one that passes while nothing is being written resets the
// stream.
func (r *Response) Rest() error {
	if err := r.rc.SetWriteDeadline(time.Time{}); err != nil {
		return r.WriteError(err)
	}
	return nil
}

// Count returns the bytes written since it was last called.
func (r *Response) Count() int64 {
	n := r.written
	r.written = 0
	return n
}

// WriteError returns what an error of a write means: a client that is slow, or one that is gone. HTTP/2 resets
// the stream when the deadline passes and reports only that it is closed.
func (r *Response) WriteError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(r.until) {
		return fmt.Errorf("%s: write: %w", r.name, dialect.ErrSlowClient)
	}
	return fmt.Errorf("%s: write: %w: %w", r.name, dialect.ErrClientGone, err)
}
