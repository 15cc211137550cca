package edge

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"unsafe"

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
	opt.OneLane = c.caller.Run != "" // of which the caller is to write that alone
	in := s.batches.get()
	defer s.batches.put(in)
	c.most = s.movable()
	if in.body, err = s.bodyInto(c, in.body[:0], "application/x-ndjson", "application/json", "text/plain"); err != nil {
		return err
	}
	body, moved, err := s.slim(in.body)
	if err != nil {
		return err
	}
	lines := lineCount(body)
	if err := c.room.take(c.r.Context(), int64(lines-cap(in.events))*eventBytes); err != nil {
		return err
	}
	in.events, err = s.decode(slices.Grow(in.events[:0], lines), key.Run, body)
	if over := s.limits.spend(c.meter, len(in.events), int64(len(in.body))); over != nil {
		return over
	}
	if err != nil {
		return err
	}
	fresh, err := s.keep(c.r.Context(), key, moved)
	if err == nil {
		err = s.store(c, key, in.events, opt, http.StatusOK, nil)
	}
	s.disown(c.r.Context(), key, fresh, err)
	return located(err, body)
}

// Bounds of what the events of a body take beside it, in bytes: each of them, and the shortest lines that are reckoned
// with. Where most are shorter, append finds the space for the rest.
const (
	eventBytes = int64(unsafe.Sizeof(schema.Event{}))
	shortLine  = 40
)

// lineCount returns how many events a body has, about: at most, unless they are very short.
func lineCount(body []byte) int {
	return min(bytes.Count(body, []byte{'\n'}), len(body)/shortLine) + 1
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
	keptBody   = 80 << 10 // what maxTrusted takes
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
	b = append(b, extra...)
	if receipt.Root != "" { // whose numbers these are
		b = append(append(append(b, `,"root_run_id":"`...), receipt.Root...), '"') // ids need no escaping
	}
	c.reply(status, append(b, '}'))
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
