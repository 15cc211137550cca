package edge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentstream/edge/dialect"
	"agentstream/producers"
	"agentstream/schema"
)

// ingest appends the events of the body to a run, in their order, and answers when all of them are durable. Events
// that fit one pack (producers.Appender) are stored whole or not at all. Of more, a beginning may be stored when
// the answer is an error that says stored, or when none arrives; a repeat with the same Idempotency-Key completes
// it. Every other refusal means that nothing was stored. Agentstream-Atomic: true refuses what is not one pack.
func (s *Server) ingest(c *call) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	opt, err := appendOptions(c.r.Header)
	if err != nil {
		return err
	}
	in := s.batches.get()
	defer s.batches.put(in)
	if in.body, err = s.bodyInto(c, in.body[:0], "application/x-ndjson", "application/json", "text/plain"); err != nil {
		return err
	}
	in.events, err = s.decode(in.events[:0], key.Run, in.body)
	if over := s.limits.spend(c.meter, len(in.events), int64(len(in.body))); over != nil {
		return over
	}
	if err != nil {
		return err
	}
	return located(s.store(c, key, in.events, opt, http.StatusOK, nil), in.body)
}

// decode appends a body's events to dst, checked; with an error it gives dst back as it was.
func (s *Server) decode(dst []schema.Event, run string, body []byte) ([]schema.Event, error) {
	events, err := schema.AppendBatch(dst, run, body)
	if err != nil {
		return dst, err
	}
	for i := range events[len(dst):] {
		if err := s.checks.check(&events[len(dst)+i]); err != nil {
			clear(events[len(dst):])
			return dst, &schema.BatchError{Line: lineOf(body, i), Err: err}
		}
	}
	return events, nil
}

// located turns the place of an event in a refused batch, counted from 1, into its line in the body.
func located(err error, body []byte) error {
	if err == nil {
		return nil
	}
	if part := new(producers.PartialError); errors.As(err, &part) {
		return &producers.PartialError{Stored: part.Stored, Of: part.Of, Err: located(part.Err, body)}
	}
	if at := new(schema.BatchError); errors.As(err, &at) {
		return &schema.BatchError{Line: lineOf(body, at.Line-1), Err: at.Err}
	}
	return err
}

// batches are bodies and their events, used again by request after request: nothing of them is kept once an
// append has returned.
type batches struct{ pool sync.Pool }

type batch struct {
	body   []byte
	events []schema.Event
}

// Bounds of what is worth keeping: a few large bodies must not hold memory for ever.
const (
	keptBody   = 256 << 10
	keptEvents = 1024
)

func (p *batches) get() *batch {
	if b, ok := p.pool.Get().(*batch); ok {
		return b
	}
	return new(batch)
}

func (p *batches) put(b *batch) {
	clear(b.events)
	if cap(b.body) <= keptBody && cap(b.events) <= keptEvents {
		p.pool.Put(b)
	}
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

// Values of headers that all answers share. http.Header's methods replace a slice, they do not write into it.
var (
	headerJSON    = []string{"application/json"}
	headerNoStore = []string{"no-store"}
	headerNoSniff = []string{"nosniff"}
)

// store appends, and answers with the numbers. extra follows them in the object.
func (s *Server) store(c *call, key schema.RunKey, events []schema.Event, opt producers.AppendOptions, status int, extra []byte) error {
	opt.Within = s.cfg.LogTimeout
	receipt, err := s.append.Append(c.r.Context(), key, events, opt)
	if refused := new(positionError); errors.As(err, &refused) {
		return refused // in words for the client, without the trail
	}
	if err != nil {
		return err
	}
	c.seq, c.events = receipt.Last, len(events)
	c.tag(receipt.Last)
	if receipt.Replayed {
		c.w.Header().Set("Idempotency-Replayed", "true")
	} else if h := s.cfg.Hooks.Ingested; h != nil {
		h(len(events))
	}
	b := append(make([]byte, 0, 128), `{"first_seq":`...)
	b = strconv.AppendInt(b, int64(receipt.First), 10)
	b = strconv.AppendInt(append(b, `,"last_seq":`...), int64(receipt.Last), 10)
	c.reply(status, append(append(b, extra...), '}'))
	return nil
}

// maxIdempotencyKey is the longest key, in bytes.
const maxIdempotencyKey = 255

// keyed reads the values of the header in which an idempotency key comes.
func keyed(header string, values []string) (producers.AppendOptions, error) {
	if len(values) == 0 {
		return producers.AppendOptions{}, nil
	}
	key := values[0]
	bad := len(values) > 1 || key == "" || len(key) > maxIdempotencyKey
	for i := 0; i < len(key) && !bad; i++ {
		bad = key[i] < ' ' || key[i] > '~'
	}
	if bad {
		return producers.AppendOptions{}, fmt.Errorf("%s is not one value of 1 to %d printable ASCII characters: %w",
			header, maxIdempotencyKey, dialect.ErrBadRequest)
	}
	return producers.AppendOptions{IdempotencyKey: key}, nil
}

// body reads the whole request body, bounded in size and time, and inflated. A request without Content-Type is
// taken at its word.
func (s *Server) body(c *call, types ...string) ([]byte, error) { return s.bodyInto(c, nil, types...) }

// bodyInto is body in the space of dst, which it gives back also with an error.
func (s *Server) bodyInto(c *call, dst []byte, types ...string) ([]byte, error) {
	if err := mediaType(c.r.Header, types); err != nil {
		return dst, err
	}
	coding, err := codingOf(c.r.Header)
	if err != nil {
		return dst, err
	}
	if coding == "" {
		return s.arrived(c, dst)
	}
	in := s.batches.get()
	defer s.batches.put(in)
	if in.body, err = s.arrived(c, in.body[:0]); err != nil {
		return dst, err
	}
	return s.inflate.inflate(c.r.Context(), coding, dst, in.body)
}

// arrived reads the body as it is.
func (s *Server) arrived(c *call, dst []byte) ([]byte, error) {
	if c.r.ContentLength > s.cfg.MaxBodyBytes {
		return dst, fmt.Errorf("%d bytes, %d allowed: %w", c.r.ContentLength, s.cfg.MaxBodyBytes, errBodyTooBig)
	}
	rc := http.NewResponseController(c.w)
	if err := rc.SetReadDeadline(time.Now().Add(s.cfg.BodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return dst, fmt.Errorf("read deadline: %w", err)
	}
	from := c.r.Body
	if c.r.ContentLength < 0 { // else it ends where it said
		from = http.MaxBytesReader(c.w.ResponseWriter, from, s.cfg.MaxBodyBytes)
	}
	body, err := readAll(from, dst, c.r.ContentLength)
	if err != nil {
		return body, bodyError(err)
	}
	if err := rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return body, fmt.Errorf("read deadline: %w", err)
	}
	return body, nil
}

// maxTrusted is how much space is made for a body on its word alone, in bytes.
const maxTrusted = 64 << 10

// readAll appends what r has to dst. size is what is expected, if it is known; one byte more lets the end be
// seen without growing.
func readAll(r io.Reader, dst []byte, size int64) ([]byte, error) {
	if size = min(max(size, 511), maxTrusted) + 1; int64(cap(dst)-len(dst)) < size {
		dst = slices.Grow(dst, int(size))
	}
	for {
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, nil
		}
		if err != nil {
			return dst, err
		}
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, cap(dst))
		}
	}
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

// mediaType holds Content-Type to what a route takes. Parameters other than charset say nothing here.
func mediaType(h http.Header, types []string) error {
	values := h["Content-Type"]
	if len(values) == 0 || len(values) == 1 && (values[0] == "" || slices.Contains(types, values[0])) { // as most write it
		return nil
	}
	if len(values) > 1 {
		return errMediaType
	}
	got, params, err := mime.ParseMediaType(values[0])
	if err != nil || !slices.Contains(types, got) {
		return errMediaType
	}
	if cs, ok := params["charset"]; ok && !isUTF8(cs) {
		return errMediaType
	}
	return nil
}

// isUTF8 says whether a charset is UTF-8, or a part of it.
func isUTF8(charset string) bool {
	switch strings.ToLower(charset) {
	case "utf-8", "utf8", "us-ascii":
		return true
	}
	return false
}
