package provider

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
)

// Writer collects the events that a Machine emits.
type Writer struct {
	cfg      Config
	provider string
	out      []schema.Event
	raw      []byte   // the frame at hand
	unnamed  int      // messages without an id so far
	pending  []*Block // whose beginning or end has not been emitted, in order
}

// NewWriter returns a writer to who has no bytes to decode. A Decoder makes its own.
func NewWriter(name string, cfg Config) *Writer {
	return &Writer{cfg: cfg.withDefaults(), provider: name}
}

// Drain returns the events that were emitted since the last Drain, in order. Within a Machine it takes them
// from what Write and Close return.
func (w *Writer) Drain() []schema.Event {
	out := w.out
	w.out = nil
	return out
}

// Aside returns a writer of other events like these, and Join adds what it has to this one.
func (w *Writer) Aside() *Writer { return &Writer{cfg: w.cfg, provider: w.provider} }

// Join emits the events that were emitted by another writer.
func (w *Writer) Join(other *Writer) {
	w.settle()
	w.out = append(w.out, other.Drain()...)
}

// Add emits one event, behind the beginnings and ends that wait for what comes next.
func (w *Writer) Add(typ string, payload Fields) {
	w.settle()
	w.emit(typ, payload)
}

// Beside emits an event that accompanies others, and is no sign that something has ended.
func (w *Writer) Beside(name string, all Fields) {
	w.emit("custom."+w.provider+"."+typeName(name), all)
}

func (w *Writer) emit(typ string, payload Fields) { w.add(typ, payload, "", 0) }

// settle emits the beginnings and ends that waited for what comes next.
func (w *Writer) settle() {
	list := w.pending
	w.pending = nil
	for _, b := range list {
		waits := b.waiting && b.Tool == "" || b.stopped && b.size > 0 && !b.FreeText && !b.Whole()
		if !b.closed && b.ToolUse && waits {
			w.pending = append(w.pending, b)
			continue
		}
		if b.waiting {
			b.start()
		}
		if b.stopped {
			b.End(true)
		}
	}
}

// add emits an event that has already left out a member of so many bytes; "" is none.
func (w *Writer) add(typ string, payload Fields, omitted string, bytes int) {
	w.out = append(w.out, schema.Event{
		Type: typ, ChildID: w.cfg.ChildID, Path: w.cfg.Path, TurnID: w.cfg.TurnID,
		Payload: fit(payload, omitted, bytes),
	})
}

// Custom keeps a frame, or a part of one, that the catalogue has no place for. Where all is the whole
// frame at hand its bytes are kept as they came.
func (w *Writer) Custom(name string, all Fields) {
	w.settle()
	w.Beside(name, all)
	same := func(a, b Field) bool { return a.Name == b.Name && bytes.Equal(a.Value, b.Value) }
	whole, ok := Parse(w.raw)
	if ok && len(w.raw) <= maxPayload && slices.EqualFunc(whole, all, same) {
		w.out[len(w.out)-1].Payload = bytes.Clone(w.raw)
	}
}

// badFrame keeps a frame that cannot be read.
func (w *Writer) badFrame(event string, data []byte, why string) {
	text := data[:min(len(data), maxBadFrame)]
	w.Add("custom."+w.provider+".bad_frame", Fields{
		{"problem", Quote(why)}, {"event", Quote(event)}, {"bytes", Number(len(data))}, {"text", Quote(string(text))},
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
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '_' && c != '-' {
			b[i] = '_'
		}
	}
	return cmp.Or(string(b), "unnamed")
}

// maxPayload leaves room for the envelope.
const maxPayload = schema.MaxEventBytes - 8<<10

// fit encodes a payload. When it is too large it leaves out its largest members, one by one, and
// records which and how much, behind the one that was left out before.
func fit(payload Fields, omitted string, bytesOut int) json.RawMessage {
	var names []json.RawMessage
	members := payload
	if omitted != "" {
		names = append(names, Quote(omitted))
		members = append(payload, Field{"omitted", List(names)}, Field{"omitted_bytes", Number(bytesOut)})
	}
	b := members.Encode()
	if len(b) <= maxPayload {
		return b
	}
	rest := slices.Clone(payload)
	order := make([]*Field, len(rest)) // the largest first
	for i := range rest {
		order[i] = &rest[i]
	}
	slices.SortStableFunc(order, func(a, c *Field) int { return Fields{*c}.Size() - Fields{*a}.Size() })
	left := len(b) + len(`,"omitted_members":,"omitted":[],"omitted_bytes":`) + 40
	missing := len(names)
	for i := 0; i < len(order) && left > maxPayload; i++ {
		f := order[i]
		missing++
		bytesOut += len(f.Value)
		left -= Fields{*f}.Size()
		if len(names) < maxOmitted {
			names = append(names, Quote(f.Name[:min(len(f.Name), maxName)]))
			left += len(names[len(names)-1]) + 1
		}
		f.Value = nil
	}
	rest = slices.DeleteFunc(rest, func(f Field) bool { return f.Value == nil })
	if missing > len(names) {
		rest = append(rest, Field{omittedMembers, Number(missing)})
	}
	return append(rest, Field{"omitted", List(names)}, Field{"omitted_bytes", Number(bytesOut)}).Encode()
}

// maxOmitted bounds the members that are named where they were left out; of more there is their number,
// omitted_members.
const maxOmitted = 64

// maxID bounds an id or name of the provider, in bytes.
const maxID = 512

// ShortenID shortens an id that no provider would make; equal ids stay equal, and different ones different.
func ShortenID(id string) string {
	if len(id) <= maxID {
		return id
	}
	return fmt.Sprintf("%s_%x", strings.ToValidUTF8(id[:maxID/2], ""), sha256.Sum256([]byte(id)))
}
