package provider

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"agentstream/schema"
)

// ErrClosed reports that bytes came after Close.
var ErrClosed = errors.New("decoder is closed")

// Config of a Decoder. The zero value works.
type Config struct {
	ChildID string   // lane of the events; "" is the run itself
	Path    []string // run ids from the root to a nested child
	TurnID  string   // turn of the events
	// Unnamed stands in the ids that are made up. Bodies of one run need different ones, or their ids are the same.
	// Default "unnamed".
	Unnamed string
	// MaxFrameBytes bounds one frame of the provider; a longer one is kept by its beginning alone. Default 8 MiB.
	MaxFrameBytes int
}

func (c Config) withDefaults() Config {
	c.Unnamed = cmp.Or(c.Unnamed, "unnamed")
	if c.MaxFrameBytes <= 0 {
		c.MaxFrameBytes = 8 << 20
	}
	return c
}

// Machine is what a provider's frames mean. It is called by the Decoder alone. One to which [DONE] says something has a
// method FinishStream, which is called for a frame that is that and nothing else.
type Machine interface {
	// Frame takes one frame: an object that is valid UTF-8 and valid JSON on one line, not nested too deeply. name is
	// that of the server-sent event, "" where there is none. Nothing of all may be kept without a copy.
	Frame(name string, all Fields)
	// Close ends what is open: the body is over, whether or not the provider has ended it.
	Close()
}

// Decoder is a pure state machine: bytes in, events out. Events have type, child, path, turn and
// payload; the publisher fills in the rest.
type Decoder struct {
	out     *Writer
	frames  Framer
	machine Machine
	closed  bool

	last      []byte // the frame before
	torn      []byte // the beginning of a frame whose rest is to come
	tornEvent string
}

// NewDecoder returns a decoder for one response body. name is the provider's in types and payloads.
func NewDecoder(name string, cfg Config, machine func(*Writer) Machine) *Decoder {
	d := &Decoder{out: NewWriter(name, cfg)}
	d.machine = machine(d.out)
	d.frames.max, d.frames.emit = d.out.cfg.MaxFrameBytes, d.frame
	return d
}

// Write takes the next bytes, which it does not keep, and returns the events that they complete. The
// only error is ErrClosed.
func (d *Decoder) Write(chunk []byte) ([]schema.Event, error) {
	if d.closed {
		return nil, ErrClosed
	}
	d.frames.write(chunk)
	return d.out.Drain(), nil
}

// Settle returns the ends that were announced, and would wait for what comes next. It is for callers who know that
// they are true.
func (d *Decoder) Settle() []schema.Event {
	d.out.settle()
	return d.out.Drain()
}

// Close ends the body. A last frame without its blank line still counts; a message that has not
// ended is ended as incomplete. Closing again emits nothing.
func (d *Decoder) Close() []schema.Event {
	if d.closed {
		return nil
	}
	d.closed = true
	d.frames.close()
	d.flush()
	d.machine.Close()
	return d.out.Drain()
}

// Rejoin announces that the body broke off and that the bytes to come are of another one, which goes on
// where it was or earlier. What was begun of a frame is dropped: the other body has it whole. Messages
// and blocks stay open. Only machines with a Rejoin method pass over what they know already; for all
// others the other body must begin where the first one broke off.
func (d *Decoder) Rejoin() {
	d.frames, d.torn, d.last = Framer{max: d.frames.max, emit: d.frames.emit}, nil, nil
	if m, ok := d.machine.(interface{ Rejoin() }); ok && !d.closed {
		m.Rejoin()
	}
}

// Decode reads a whole body through d and closes it. A read error comes last, after the events that
// end what was open.
func Decode(r io.Reader, d *Decoder) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			events, failed := d.Write(buf[:n])
			if err != nil {
				events = append(events, d.Close()...)
			}
			if err != nil && err != io.EOF && failed == nil {
				failed = fmt.Errorf("read the provider's stream: %w", err)
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if failed != nil {
				yield(schema.Event{}, failed)
			}
			if failed != nil || err != nil {
				return
			}
		}
	}
}

// frame takes what the framer has found.
func (d *Decoder) frame(f frame) {
	data := bytes.TrimSpace(f.data)
	if f.problem == "" {
		f.problem = Problem(data)
	}
	if string(data) == "null" || len(data) == 0 && f.problem == problemJSON { // it keeps the connection alive
		return
	}
	done := string(data) == "[DONE]"
	if f.problem == problemJSON && !done {
		d.mend(f.event, data)
		return
	}
	d.flush()
	switch {
	case done:
		if m, ok := d.machine.(interface{ FinishStream() }); ok {
			m.FinishStream()
		}
	case f.problem == "":
		d.read(f.event, data)
	default:
		d.out.badFrame(f.event, data, f.problem)
	}
}

// mend reads data that is no JSON: several frames in one, or one in two.
func (d *Decoder) mend(event string, data []byte) {
	list, rest := objects(append(d.torn, data...))
	if d.torn != nil && (list == nil || rest != nil) {
		d.flush()
		list, rest = objects(data)
	}
	if list == nil && rest == nil {
		d.out.badFrame(event, data, problemJSON)
	}
	if d.torn == nil {
		d.tornEvent = event
	}
	d.torn = rest
	for _, one := range list {
		d.read(d.tornEvent, one)
	}
}

// flush keeps a frame that was begun and that nothing has ended.
func (d *Decoder) flush() {
	if d.torn != nil {
		d.out.badFrame(d.tornEvent, d.torn, problemJSON)
		d.torn = nil
	}
}

// read reads a frame that is valid JSON, or a list of frames.
func (d *Decoder) read(event string, data []byte) {
	data = OneLine(data)
	list := Elements(data)
	if slices.ContainsFunc(list, func(v json.RawMessage) bool { return !IsObject(v) }) {
		list = nil
	}
	for _, one := range list {
		d.read(event, one)
	}
	all, ok := Parse(data)
	if !ok && list == nil {
		d.out.badFrame(event, data, "not an object")
	}
	if !ok {
		return
	}
	if bytes.Equal(data, d.last) && hasNumber(all) {
		return
	}
	d.last = append(d.last[:0], data[:min(len(data), maxBadFrame)]...)
	d.out.raw = data
	d.machine.Frame(event, all)
	d.out.raw = nil
}

// hasNumber reports whether a frame has what no two frames of one answer have in common: a number, padding by chance,
// or counts that grow with every piece. The same frame right behind it is a repeat then.
func hasNumber(all Fields) bool {
	n := all.Get("sequence_number")
	counted := all.Object("usageMetadata").Get("candidatesTokenCount") != nil || Weight(all.Object("usage")) > 0
	return counted || HasValue(n) && string(n) != "0" || all.Str("obfuscation") != ""
}
