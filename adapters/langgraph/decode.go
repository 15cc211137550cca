package langgraph

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// Config of a Decoder. RunID is required.
type Config struct {
	RunID string // the run that the events are for: the thread
	// Lifecycle asks for the run's own run.lifecycle events, and for the answers to its requests when it goes on.
	// Without it who publishes says how the run goes, for instance with turns.
	Lifecycle bool
	// Requests are the ids of the requests for input that wait in the run already.
	Requests []string
	// MaxLineBytes bounds one line. A longer one cannot be read. Default 16 MiB.
	MaxLineBytes int
}

// LineError reports a line that cannot be read. It wraps schema.ErrMalformed.
type LineError struct {
	Line int // from 1
	Why  string
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Why) }

// Unwrap returns schema.ErrMalformed.
func (e *LineError) Unwrap() error { return schema.ErrMalformed }

// Decoder is a state machine: lines in, events out.
type Decoder struct {
	cfg    Config
	line   int
	ts     string // of the line at hand
	events []schema.Event
	lanes
	messages map[string]*openMessage // open, by who says them
	open     map[string]bool         // calls and tasks that have begun
	asked    map[string]bool         // requests for input that wait
	state    schema.RunState         // of the run; "" before it began
}

// NewDecoder returns a decoder for the lines of one stream.
func NewDecoder(cfg Config) *Decoder {
	if cfg.MaxLineBytes <= 0 {
		cfg.MaxLineBytes = 16 << 20
	}
	d := &Decoder{cfg: cfg, messages: map[string]*openMessage{}, open: map[string]bool{}, asked: map[string]bool{}}
	d.lanes = lanes{root: &namespaceLane{}, active: map[string]*namespaceLane{}, pools: map[string][]*namespaceLane{}}
	for _, id := range cfg.Requests {
		d.asked[id] = true
	}
	return d
}

// Decode reads all lines of a stream, each as it comes. A line that cannot be read yields a *LineError between the
// events; the reader's own error comes last.
func Decode(r io.Reader, cfg Config) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		d, in := NewDecoder(cfg), bufio.NewReaderSize(r, 64<<10)
		for {
			line, err := d.next(in)
			events, bad := d.Line(line)
			if err != nil {
				events = append(events, d.Close()...)
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if bad != nil && !yield(schema.Event{}, bad) || err == io.EOF {
				return
			}
			if err != nil {
				yield(schema.Event{}, fmt.Errorf("read protocol events: %w", err))
				return
			}
		}
	}
}

// next returns the next line, of which at most one byte more than allowed is kept.
func (d *Decoder) next(in *bufio.Reader) (line []byte, err error) {
	for {
		piece, err := in.ReadSlice('\n')
		line = append(line, piece[:min(len(piece), d.cfg.MaxLineBytes+1-len(line))]...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// event is a line that was read.
type event struct {
	Type, Method string
	Params       struct {
		Namespace []string
		Node      string
		Timestamp float64
		Data      json.RawMessage
	}
	data provider.Fields // members of Params.Data; nil when it is no object
}

// Line takes one line, of which nothing is kept, and returns its events; an empty line has none. The error is a
// *LineError, and the events then are the loss of the line.
func (d *Decoder) Line(line []byte) ([]schema.Event, error) {
	d.line++
	d.events = nil
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")))
	if len(line) == 0 {
		return nil, nil
	}
	e, why := d.parse(line)
	if why != "" {
		err := &LineError{d.line, why}
		d.add(d.root, schema.TypeLoss, fields(quoteField("reason", err.Error()), field("events", provider.Number(1)),
			field("bytes", provider.Number(len(line)))))
		return d.events, err
	}
	d.decodeEvent(e)
	return d.events, nil
}

// parse reads a line, or says why it cannot be read.
func (d *Decoder) parse(line []byte) (e *event, why string) {
	if len(line) > d.cfg.MaxLineBytes {
		return nil, fmt.Sprintf("longer than %d bytes", d.cfg.MaxLineBytes)
	}
	if why = provider.Problem(line); why != "" {
		return nil, why
	}
	e = &event{}
	if err := json.Unmarshal(line, e); err != nil {
		return nil, "not a protocol event: " + provider.Clip(err.Error())
	}
	switch {
	case e.Type != "event" && e.Type != "":
		return nil, `not a protocol event: its type is not "event"`
	case e.Method == "":
		return nil, "not a protocol event: no method"
	case e.Params.Data == nil:
		return nil, "not a protocol event: no params.data"
	}
	e.data, _ = provider.Parse(e.Params.Data)
	d.ts = ""
	if ms := e.Params.Timestamp; ms > 0 && ms < 253402300800000 { // before the year 10000
		d.ts = time.UnixMilli(int64(ms)).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	return e, ""
}

func fields(list ...provider.Field) provider.Fields { return list }

func field(name string, v []byte) provider.Field { return provider.Field{Name: name, Value: v} }

// quoteField returns a member whose value is a text, cut to its bound.
func quoteField(name, v string) provider.Field {
	return field(name, provider.Quote(provider.ShortenID(v)))
}

// payload returns a payload for an event that says all of the line's data.
func (e *event) payload(p ...provider.Field) provider.Fields {
	scope, _ := json.Marshal(append([]string{}, e.Params.Namespace...)) // strings always encode
	if p = append(p, field("namespace", scope)); e.Params.Node != "" {
		p = append(p, field("node", provider.Quote(e.Params.Node)))
	}
	return p
}

// with returns a payload with the line's data.
func (e *event) with(p ...provider.Field) provider.Fields {
	return append(e.payload(p...), field("data", e.Params.Data))
}

// maxPayload leaves room for the envelope.
const maxPayload = schema.MaxEventBytes - 8<<10

// add adds an event of a lane, and a loss where it is too large to be stored whole.
func (d *Decoder) add(l *namespaceLane, typ string, p provider.Fields) {
	size := p.Size()
	if v := p.Get("values"); len(v) > maxPayload/2 && size > maxPayload { // the type requires it
		p = p.Set("values", json.RawMessage("null")).Set("omitted", json.RawMessage(`["values"]`)).Set("omitted_bytes",
			provider.Number(len(v)))
	}
	w := provider.NewWriter("langgraph", provider.Config{ChildID: l.id, Path: l.path})
	w.Add(typ, p)
	if size > maxPayload {
		w.Add(schema.TypeLoss, fields(quoteField("reason", typ+" is too large to be stored whole"),
			field("bytes", provider.Number(size))))
	}
	for _, e := range w.Drain() {
		e.TS = d.ts
		d.events = append(d.events, e)
	}
}
