package edge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strconv"
	"time"

	"agentstream/edge/dialect"
	"agentstream/producers"
	"agentstream/schema"
)

// ingest appends events to a run: all of the body or nothing. It answers when they are durable.
func (s *Server) ingest(c *call) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	opt, err := appendOptions(c.r.Header)
	if err != nil {
		return err
	}
	body, err := s.body(c, "application/x-ndjson", "application/json", "text/plain")
	if err != nil {
		return err
	}
	events, err := schema.DecodeBatch(key.Run, body)
	if err != nil {
		return err
	}
	for i := range events {
		if err := s.checks.check(&events[i]); err != nil {
			return &schema.BatchError{Line: lineOf(body, i), Err: err}
		}
	}
	err = s.store(c, key, events, opt, http.StatusOK, nil)
	if at := new(schema.BatchError); errors.As(err, &at) {
		return &schema.BatchError{Line: lineOf(body, at.Line-1), Err: at.Err}
	}
	return err
}

// lineOf says where event i, counted from 0, stands in a body that schema.DecodeBatch has taken: its
// line in NDJSON, which may hold empty ones, its position in a JSON array.
func lineOf(body []byte, i int) int {
	if trimmed := bytes.TrimLeft(body, " \t\r\n"); len(trimmed) > 0 && trimmed[0] == '[' {
		return i + 1
	}
	line := 0
	for text := range bytes.Lines(body) {
		line++
		if len(bytes.TrimRight(text, "\r\n")) == 0 {
			continue
		}
		if i == 0 {
			break
		}
		i--
	}
	return line
}

// store appends, and answers with the numbers. extra follows them in the object.
func (s *Server) store(c *call, key schema.RunKey, events []schema.Event, opt producers.AppendOptions, status int, extra []byte) error {
	ctx, cancel := context.WithTimeout(c.r.Context(), s.cfg.LogTimeout)
	defer cancel()
	receipt, err := s.append.Append(ctx, key, events, opt)
	if err != nil {
		return err
	}
	c.seq, c.events = receipt.Last, len(events)
	if receipt.Replayed {
		c.w.Header().Set("Idempotency-Replayed", "true")
	} else if h := s.cfg.Hooks.Ingested; h != nil {
		h(len(events))
	}
	b := strconv.AppendInt([]byte(`{"first_seq":`), int64(receipt.First), 10)
	b = strconv.AppendInt(append(b, `,"last_seq":`...), int64(receipt.Last), 10)
	c.reply(status, append(append(b, extra...), '}'))
	return nil
}

// maxIdempotencyKey is the longest key, in bytes.
const maxIdempotencyKey = 255

func appendOptions(h http.Header) (producers.AppendOptions, error) {
	values := h.Values("Idempotency-Key")
	if len(values) == 0 {
		return producers.AppendOptions{}, nil
	}
	key := values[0]
	bad := len(values) > 1 || key == "" || len(key) > maxIdempotencyKey
	for i := 0; i < len(key) && !bad; i++ {
		bad = key[i] < ' ' || key[i] > '~'
	}
	if bad {
		return producers.AppendOptions{}, fmt.Errorf("Idempotency-Key is not one value of 1 to %d printable ASCII characters: %w",
			maxIdempotencyKey, dialect.ErrBadRequest)
	}
	return producers.AppendOptions{IdempotencyKey: key}, nil
}

// body reads the whole request body, bounded in size and time. A request without Content-Type is
// taken at its word; one with a Content-Encoding is refused, because what it expands to is not
// bounded by what arrives.
func (s *Server) body(c *call, types ...string) ([]byte, error) {
	if err := mediaType(c.r.Header, types); err != nil {
		return nil, err
	}
	if c.r.ContentLength > s.cfg.MaxBodyBytes {
		return nil, fmt.Errorf("%d bytes, %d allowed: %w", c.r.ContentLength, s.cfg.MaxBodyBytes, errBodyTooBig)
	}
	rc := http.NewResponseController(c.w)
	if err := rc.SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("read deadline: %w", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(c.w.ResponseWriter, c.r.Body, s.cfg.MaxBodyBytes))
	if err != nil {
		return nil, bodyError(err)
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("read deadline: %w", err)
	}
	return body, nil
}

func bodyError(err error) error {
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return fmt.Errorf("more than %d bytes: %w", big.Limit, errBodyTooBig)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errBodyTimeout
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("body is cut short: %w", dialect.ErrClientGone)
	}
	// Bad chunking, a reset: whatever it is, the body is not what its sender meant.
	return fmt.Errorf("body cannot be read: %w", dialect.ErrBadRequest)
}

func mediaType(h http.Header, types []string) error {
	if enc := h.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return errMediaType
	}
	ct := h.Get("Content-Type")
	if ct == "" {
		return nil
	}
	got, params, err := mime.ParseMediaType(ct)
	if err != nil {
		return errMediaType
	}
	if cs := params["charset"]; cs != "" && !isUTF8(cs) {
		return errMediaType
	}
	for _, t := range types {
		if got == t {
			return nil
		}
	}
	return errMediaType
}

func isUTF8(charset string) bool {
	switch charset {
	case "utf-8", "UTF-8", "utf8", "us-ascii":
		return true
	}
	return false
}
