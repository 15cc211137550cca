package anthropic

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"

	"agentstream/schema"
)

// ErrClosed says that bytes came after Close.
var ErrClosed = errors.New("decoder is closed")

// Provider is the value of "provider" in message.start.
const Provider = "anthropic"

// Config of a Decoder. The zero value works.
type Config struct {
	ChildID string   // lane of the events; "" is the run itself
	Path    []string // run ids from the root to a nested child
	TurnID  string   // turn of the events
	// MaxFrameBytes bounds one frame of the provider; a longer one is kept by its beginning alone.
	// Default 8 MiB.
	MaxFrameBytes int
}

func (c Config) withDefaults() Config {
	if c.MaxFrameBytes <= 0 {
		c.MaxFrameBytes = 8 << 20
	}
	return c
}

// Decoder is a pure state machine: bytes in, events out. Events have type, child and payload; the
// publisher fills in the rest.
type Decoder struct {
	cfg     Config
	frames  framer
	out     []schema.Event
	msg     *message
	raw     []byte // the frame at hand
	unnamed int    // messages without an id so far
	closed  bool
}

// NewDecoder returns a decoder for one response body, which may hold several messages.
func NewDecoder(cfg Config) *Decoder {
	d := &Decoder{cfg: cfg.withDefaults()}
	d.frames.max = d.cfg.MaxFrameBytes
	d.frames.emit = d.frame
	return d
}

// Write takes the next bytes, which it does not keep, and gives the events that they complete. The
// only error is ErrClosed.
func (d *Decoder) Write(chunk []byte) ([]schema.Event, error) {
	if d.closed {
		return nil, ErrClosed
	}
	d.frames.write(chunk)
	return d.take(), nil
}

// Close ends the body. A last frame without its blank line still counts; a message that has not
// ended is ended as incomplete. Closing again gives nothing.
func (d *Decoder) Close() []schema.Event {
	if d.closed {
		return nil
	}
	d.closed = true
	d.frames.close()
	d.abandon("the provider's stream ended before the message did")
	return d.take()
}

// Decode reads a whole body. A read error comes last, after the events that end what was open.
func Decode(r io.Reader, cfg Config) iter.Seq2[schema.Event, error] {
	return func(yield func(schema.Event, error) bool) {
		d := NewDecoder(cfg)
		buf := make([]byte, 32<<10)
		for {
			n, err := r.Read(buf)
			events, _ := d.Write(buf[:n]) // not closed yet
			if err != nil {
				events = append(events, d.Close()...)
			}
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				yield(schema.Event{}, fmt.Errorf("read the provider's stream: %w", err))
				return
			}
		}
	}
}

func (d *Decoder) take() []schema.Event {
	out := d.out
	d.out = nil
	return out
}

func (d *Decoder) add(typ string, payload fields) {
	d.out = append(d.out, schema.Event{
		Type: typ, ChildID: d.cfg.ChildID, Path: d.cfg.Path, TurnID: d.cfg.TurnID,
		Payload: fit(payload),
	})
}

func (d *Decoder) frame(f frame) {
	data := bytes.TrimSpace(f.data)
	if string(data) == "[DONE]" { // some proxies end every stream so
		return
	}
	if f.problem == "" {
		f.problem = problem(data)
	}
	var all fields
	if f.problem == "" {
		data = oneLine(data)
		var ok bool
		if all, ok = parse(data); !ok {
			f.problem = "not an object"
		}
	}
	if f.problem != "" {
		d.badFrame(f.event, data, f.problem)
		return
	}
	typ := all.str("type")
	if typ == "" {
		typ = f.event
	}
	d.raw = data
	d.event(typ, all)
	d.raw = nil
}

// event takes one event of the provider.
func (d *Decoder) event(typ string, all fields) {
	switch typ {
	case "ping":
	case "message_start":
		d.startMessage(all.object("message"))
	case "message": // a response that was not streamed
		d.startMessage(all)
		d.endMessage(nil)
	case "content_block_start":
		d.startBlock(all)
	case "content_block_delta":
		d.delta(all)
	case "content_block_stop":
		if b := d.openBlock(all.index()); b != nil {
			d.endBlock(b, true)
		} else {
			d.custom(typ, all)
		}
	case "message_delta":
		d.messageDelta(all)
	case "message_stop":
		if d.msg == nil {
			d.custom(typ, all)
			return
		}
		d.endMessage(nil)
	case "error":
		d.fail(all)
	default:
		d.custom(typ, all)
	}
}

// fail takes an error event (overloaded, time-out) that the provider sends in place of the rest.
func (d *Decoder) fail(all fields) {
	d.custom("error", all)
	if d.msg == nil {
		return
	}
	e := bytes.Clone(all.get("error"))
	if !isObject(e) {
		e = fields{{"value", orNull(e)}}.encode()
	}
	d.msg.end = d.msg.end.set("stop_reason", quote("error"))
	d.endMessage(fields{{"error", e}})
}

// abandon ends a message that the provider did not end.
func (d *Decoder) abandon(why string) {
	if d.msg == nil {
		return
	}
	more := fields{{"incomplete", json.RawMessage("true")}}
	if r := d.msg.end.get("stop_reason"); r == nil || isNull(r) {
		more = append(more, field{"error", fields{{"type", quote("stream_cut")}, {"message", quote(why)}}.encode()})
	}
	d.endMessage(more)
}

// custom keeps an event of the provider that the catalogue has no place for, as it came.
func (d *Decoder) custom(name string, all fields) {
	d.add("custom.anthropic."+typeName(name), all)
	if len(d.raw) <= maxPayload {
		d.out[len(d.out)-1].Payload = bytes.Clone(d.raw)
	}
}

// badFrame keeps a frame that cannot be read.
func (d *Decoder) badFrame(event string, data []byte, why string) {
	text := data[:min(len(data), maxBadFrame)]
	d.add("custom.anthropic.bad_frame", fields{
		{"problem", quote(why)}, {"event", quote(event)}, {"bytes", number(len(data))}, {"text", quote(string(text))},
	})
}

const (
	maxBadFrame = 64 << 10
	maxName     = 64
)

// typeName makes a name of the provider fit for an event type.
func typeName(s string) string {
	b := []byte(s[:min(len(s), maxName)])
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "unnamed"
	}
	return string(b)
}

// maxPayload leaves room for the envelope.
const maxPayload = schema.MaxEventBytes - 8<<10

// fit encodes a payload. When it is too large it leaves out its largest members, one by one, and
// says which and how much.
func fit(payload fields) json.RawMessage {
	b := payload.encode()
	if len(b) <= maxPayload {
		return b
	}
	payload = append(fields{}, payload...)
	var names []json.RawMessage
	bytesOut := 0
	for len(b) > maxPayload && len(payload) > 0 {
		big := 0
		for i, f := range payload {
			if len(f.name)+len(f.value) > len(payload[big].name)+len(payload[big].value) {
				big = i
			}
		}
		name := payload[big].name
		bytesOut += len(payload[big].value)
		names = append(names, quote(name[:min(len(name), maxName)]))
		payload = append(payload[:big], payload[big+1:]...)
		b = append(payload, field{"omitted", list(names)}, field{"omitted_bytes", number(bytesOut)}).encode()
	}
	return b
}

// maxID bounds an id or name of the provider, in bytes.
const maxID = 512

// bounded shortens an id that no provider would give; equal ids stay equal, and different ones
// different.
func bounded(id string) string {
	if len(id) <= maxID {
		return id
	}
	return fmt.Sprintf("%s_%x", strings.ToValidUTF8(id[:maxID/2], ""), sha256.Sum256([]byte(id)))
}

func number(n int) json.RawMessage { return strconv.AppendInt(nil, int64(n), 10) }

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}
