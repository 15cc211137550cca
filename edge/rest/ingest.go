package rest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"agentstream/edge/auth"
	"agentstream/edge/protocol"
	"agentstream/producers"
	"agentstream/schema"
)

// ingest appends the events of the body to a run, in their order, and answers when all of them are durable. Events
// that fit one pack (producers.Appender) are stored whole or not at all. Of more, a beginning may be stored when
// the answer is an error that says stored, or when none arrives; a repeat with the same Idempotency-Key completes
// it. Every other refusal means that nothing was stored. Agentstream-Atomic: true refuses what is not one pack.
func (a *API) ingest(c *protocol.Call) error {
	key, err := c.Key()
	if err != nil {
		return err
	}
	opt, err := appendOptions(c.Request.Header)
	if err != nil {
		return err
	}
	opt.OneLane = c.Caller.Run != "" // of which the caller is to write that alone
	if opt.First, err = a.describe(c.Request.Header, key.Run); err != nil {
		return err
	}
	in := a.cfg.Bodies.Batches.Get()
	defer a.cfg.Bodies.Batches.Put(in)
	c.In.Most = a.movable()
	if in.Body, err = a.cfg.Bodies.Into(c.Incoming(), in.Body[:0], "application/x-ndjson", "application/json",
		"text/plain"); err != nil {
		return err
	}
	b := batch{key: key, from: &c.Caller, of: c, body: in.Body, events: in.Events[:0]}
	err = a.accept(c.Request.Context(), &b, &opt)
	in.Events = b.events
	if err == nil {
		a.warn(c, key, b.unknown)
		err = locateLine(a.store(c, key, in.Events, opt, http.StatusOK, nil), b.body)
	}
	a.disown(c.Request.Context(), key, b.fresh, err)
	return err
}

// batch is a body of events on its way into a run: that of a request, or one post of those that streams and NATS bring.
type batch struct {
	key    schema.RunKey
	from   *auth.Caller
	body   []byte         // without the outputs that were moved into blobs, when it is accepted
	events []schema.Event // those of the body behind those that were there, which alone count after an error
	fresh  []string       // blobs that were not there before

	unknown []string // fields of payloads that the schemas of their types do not name, of the first events that have some

	// whose body it is, and which makes room for its events; nil: who holds it has made it
	of *protocol.Call
	// without of: counts them against the tenant's limits, also those of a body that is refused
	spend func(events int, bytes int64) error
}

// makeRoom makes room for so many events.
func (b *batch) makeRoom(ctx context.Context, lines int) error {
	if b.of == nil {
		return nil
	}
	if err := b.of.In.Share.Reserve(ctx, int64(lines-cap(b.events))*eventBytes); err != nil {
		return err
	}
	b.events = slices.Grow(b.events, lines)
	return nil
}

// count counts events against the tenant's limits.
func (b *batch) count(events int, bytes int64) error {
	if b.of == nil {
		return b.spend(events, bytes)
	}
	return b.of.Spend(events, bytes)
}

// accept decodes and checks a body, and keeps its outputs. opt gets who admits its commands.
func (a *API) accept(ctx context.Context, b *batch, opt *producers.AppendOptions) error {
	body, moved, err := a.slim(b.key.Tenant, b.body)
	if err != nil {
		return err
	}
	held, size := len(b.events), int64(len(b.body))
	b.body = body
	if err := b.makeRoom(ctx, lineCount(body)); err != nil {
		return err
	}
	events, err := a.decode(b, body)
	if over := b.count(len(events)-held, size); over != nil {
		clear(events[held:])
		return over
	}
	if err != nil {
		return err
	}
	if hasCommands(events[held:]) {
		opt.Admit = a.admitFrom(b.from)
		a.readAhead(ctx, b.key)
	}
	b.events = events
	b.fresh, err = a.keep(ctx, b.key, moved)
	return err
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

// decode appends a body's events to those of b, checked, and the commands among them signed by who sends it, and
// returns all; with an error it returns those of b.
func (a *API) decode(b *batch, body []byte) ([]schema.Event, error) {
	dst, run := b.events, b.key.Run
	events, err := schema.AppendBatch(dst, run, body)
	if err != nil {
		return dst, err
	}
	for i := range events[len(dst):] {
		e := &events[len(dst)+i]
		changed, err := authorize(b.from, e)
		if err == nil && changed {
			err = e.Prepare(run)
		}
		plain := true
		if err == nil {
			plain, err = a.cfg.Node.Check(e)
		}
		if !plain && err == nil {
			b.unknown = appendUnknown(b.unknown, e)
		}
		if err != nil {
			clear(events[len(dst):])
			return dst, &schema.BatchError{Line: lineOf(body, i), Err: err}
		}
	}
	return events, nil
}

// locateLine turns the number of an event in a refused batch, counted from 1, into its line in the body.
func locateLine(err error, body []byte) error {
	if err == nil {
		return nil
	}
	if part := new(producers.PartialError); errors.As(err, &part) {
		return &producers.PartialError{Stored: part.Stored, Of: part.Of, Err: locateLine(part.Err, body)}
	}
	if at := new(schema.BatchError); errors.As(err, &at) {
		return &schema.BatchError{Line: lineOf(body, at.Line-1), Err: at.Err}
	}
	return err
}

// lineOf returns where event i, counted from 0, stands in a body that schema.DecodeBatch has taken: its
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
func (a *API) store(c *protocol.Call, key schema.RunKey, events []schema.Event, opt producers.AppendOptions, status int,
	extra []byte) error {
	opt.Within = a.cfg.LogTimeout
	receipt, err := c.Store(c.Request.Context(), key, events, opt)
	if err != nil {
		return err
	}
	tag(c, receipt.Last)
	b := append(make([]byte, 0, 128), `{"first_seq":`...)
	b = strconv.AppendInt(b, int64(receipt.First), 10)
	b = strconv.AppendInt(append(b, `,"last_seq":`...), int64(receipt.Last), 10)
	b = append(b, extra...)
	if receipt.Root != "" { // whose numbers these are
		b = append(append(append(b, `,"root_run_id":"`...), receipt.Root...), '"') // ids need no escaping
	}
	c.Reply(status, append(b, '}'))
	return nil
}

// Bounds of what is told of fields that are not known: of one request, and how many different lists are logged.
const (
	maxUnknown     = 8
	maxUnknownLog  = 100
	maxUnknownName = 64 // bytes
)

// appendUnknown appends the fields of an event's payload that its type does not name, each once, as type.field.
func appendUnknown(dst []string, e *schema.Event) []string {
	if len(dst) >= maxUnknown {
		return dst
	}
	for _, name := range schema.UnknownFields(nil, e.Type, e.Payload, maxUnknown) {
		name = e.Type + " " + schema.CutText(name, maxUnknownName)
		if len(dst) < maxUnknown && !slices.Contains(dst, name) {
			dst = append(dst, name)
		}
	}
	return dst
}

// warn names fields that are not known in the header Warning of the answer, and once in the log. They are stored all
// the same: the writer may be newer than this node. More often one is misspelt.
func (a *API) warn(c *protocol.Call, key schema.RunKey, unknown []string) {
	if len(unknown) == 0 {
		return
	}
	text := "unknown payload fields: " + strings.Join(unknown, ", ")
	c.Writer.Header().Set("Warning", "299 agentstream "+strconv.QuoteToASCII(text))
	if a.warned.first(text) {
		a.cfg.Logger.Warn("unknown payload fields are stored, and no reader knows them", "run", key.String(), "fields",
			unknown)
	}
}

// once remembers texts, up to a bound. The zero once is ready to use, by any number of goroutines.
type once struct {
	mu    sync.Mutex
	texts map[string]bool
}

// first reports whether a text comes for the first time. It is false when too many others came before.
func (o *once) first(text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.texts[text] || len(o.texts) >= maxUnknownLog {
		return false
	}
	if o.texts == nil {
		o.texts = make(map[string]bool)
	}
	o.texts[text] = true
	return true
}
