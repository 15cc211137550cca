package provider

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Message is one message that is being emitted: between its message.start and its message.end.
type Message struct {
	w      *Writer
	ID     string
	Blocks []*Block // in the order in which they began
	Usage  Fields   // the provider's own members; emitted by End when it is not nil
	Stop   json.RawMessage
	// Fault is an error of the provider that came within the message: it fails, however it ends. Anything but an object
	// becomes one.
	Fault json.RawMessage
	// Rest are the provider's members of the message that have no name in the catalogue; End emits them
	// behind its own. stop_sequence is one that has.
	Rest  Fields
	ended bool
	actor string // of the events; "" is the assistant

	counted int  // in the usage so far
	size    int  // bytes that the content has at least, so far
	full    bool // the content does not fit an event: it is not kept any more
}

// Bounds of what is kept of one message.
const (
	// maxInput bounds the text of a call's input, in bytes as it is written. No input that fits an event
	// is longer: an escape has at most six bytes for one.
	maxInput = 6 * maxPayload
	// maxBlocks bounds the blocks that are known at a time.
	maxBlocks = 1 << 14
)

// roles that the catalogue knows.
var roles = []string{"user", "assistant", "system", "tool"}

// Start emits message.start. An empty id is made up; a role that the catalogue does not know is the
// assistant's; model is a JSON string or left out; usage may be nil.
func (w *Writer) Start(id, role string, model json.RawMessage, usage Fields) *Message {
	m := &Message{w: w, ID: ShortenID(id)}
	if m.ID == "" {
		w.unnamed++
		m.ID = fmt.Sprintf("msg_%s_%d", w.cfg.Unnamed, w.unnamed)
	}
	if !slices.Contains(roles, role) {
		role = "assistant"
	}
	if role != "assistant" {
		m.actor = role
	}
	start := Fields{{"message_id", Quote(m.ID)}, {"role", Quote(role)}}
	if len(jsonscan.Inner(model)) > 0 {
		start = append(start, Field{"model", model})
	}
	start = append(start, Field{"provider", Quote(w.provider)})
	if usage != nil {
		start = append(start, Field{"usage", usage.Encode()})
		m.Usage = m.Usage.Overlay(usage)
	}
	w.settle()
	m.emit(schema.TypeMessageStart, start)
	return m
}

// emit emits an event of the message itself.
func (m *Message) emit(typ string, payload Fields) {
	m.w.emit(typ, payload)
	m.speaker()
}

// speaker sets the actor of the newest event, where that is not the assistant: a view without the messages' borders
// must not take it for the assistant's.
func (m *Message) speaker() { m.w.out[len(m.w.out)-1].Actor = m.actor }

// reserved are the names of members that the catalogue gives message.end.
var reserved = []string{
	"message_id", "content", "usage", "error", "incomplete", "omitted", "omitted_bytes", "stop_reason",
}

// Keep stores a member of the message for its end, and returns what it replaces. One that has no room there, or the
// name of one that the catalogue has, is emitted at once. null replaces nothing.
func (m *Message) Keep(f Field) (old json.RawMessage) {
	old = m.Rest.Get(f.Name)
	if bytes.Equal(old, f.Value) || IsNull(f.Value) && old != nil {
		return nil
	}
	stop := f.Name != "stop_sequence" || jsonscan.IsString(f.Value) || IsNull(f.Value)
	if stop && !slices.Contains(reserved, f.Name) {
		m.Rest = m.Rest.Overlay(Fields{f})
	}
	if !bytes.Equal(m.Rest.Get(f.Name), f.Value) {
		m.w.Custom("member", Fields{f})
		return nil
	}
	return old
}

// Count takes the usage of the message so far. Services send it with every piece, and an empty or smaller one behind
// the real one: the last that is neither counts.
func (m *Message) Count(usage Fields) {
	if n := Weight(usage); n >= Weight(m.Usage) && (n > 0 || m.Usage == nil) {
		m.Usage = Fields(nil).Overlay(usage)
	}
}

// CountMore takes the usage of a provider that sends it in parts: the first is an estimate, and of the others the
// last that is not smaller counts. What went in is known from the beginning: 0 in the place of that is a service's
// that has lost it.
func (m *Message) CountMore(usage Fields) {
	n := Weight(usage)
	if n < m.counted {
		return
	}
	m.counted = n
	for _, f := range usage {
		lost := strings.HasPrefix(f.Name, "input") && string(f.Value) == "0" && m.Usage.Get(f.Name) != nil
		if !lost {
			m.Usage = m.Usage.Overlay(Fields{f})
		}
	}
}

// Weight is the sum of the counts in a usage.
func Weight(usage Fields) (sum int) {
	for _, f := range usage {
		n, ok := jsonscan.WholeNumber(f.Value)
		if ok {
			sum += int(n)
		}
	}
	return sum
}

// grow counts n bytes that the content will hold. Content that does not fit an event would have to be
// left out in the end: it is not kept to begin with.
func (m *Message) grow(n int) {
	m.size += n
	if m.full || m.size <= maxPayload {
		return
	}
	m.full = true
	for _, b := range m.Blocks {
		b.release()
	}
}

// room makes some for one more block.
func (m *Message) room() {
	if len(m.Blocks) < maxBlocks {
		return
	}
	m.grow(maxPayload)
	for _, b := range m.Blocks[:maxBlocks/2] {
		b.End(b.stopped)
	}
	m.Blocks = slices.DeleteFunc(m.Blocks, func(b *Block) bool { return b.closed })
}

// End closes the open blocks as cut short, and the message. more are members beside the usual ones.
// Ending again emits nothing.
func (m *Message) End(more Fields) {
	if m.ended {
		return
	}
	m.ended = true
	if e := m.Fault; e != nil {
		if !IsObject(e) {
			e = Fields{{"value", e}}.Encode()
		}
		m.Stop, more = Quote("error"), Fields{{"error", e}}
	}
	for _, b := range m.Blocks {
		b.End(b.stopped)
	}
	end := Fields{{"message_id", Quote(m.ID)}}
	omitted, size := "content", m.size
	if !m.full {
		omitted, size = "", 0
		content := make([]json.RawMessage, len(m.Blocks))
		for i, b := range m.Blocks {
			content[i] = b.Content()
		}
		end = append(end, Field{"content", List(content)})
	}
	end = append(end, Field{"stop_reason", OrNull(m.Stop)}, Field{"stop_sequence", OrNull(m.Rest.Get("stop_sequence"))})
	if m.Usage != nil {
		end = append(end, Field{"usage", m.Usage.Encode()})
	}
	end = append(end, more...)
	end = append(end, m.Rest.Without("stop_sequence")...)
	m.w.add(schema.TypeMessageEnd, end, omitted, size)
	m.speaker()
}

// errorCut is the type of the error of a message whose stream ended before it.
const errorCut = "stream_cut"

// Abandon ends a message that the provider did not end. One that had its stop reason lacks nothing but
// the end; any other has an error.
func (m *Message) Abandon(why string) {
	more := Fields{{"incomplete", Bool(true)}}
	if m.Stop == nil || IsNull(m.Stop) {
		more = append(more, Field{"error", ErrorOf(errorCut, why)})
	}
	m.End(more)
}

// maxData bounds the data of one event, in bytes of base64. It is a multiple of 4: every piece can be
// decoded by itself.
const maxData = 256 << 10

// DataBlock makes a block of data: an image, sound, a file. rest are members that it has beside.
func DataBlock(index int, media string, rest Fields) *Block {
	base := Fields{{"type", Quote("data")}, {"media_type", Quote(ShortenID(media))}}
	return &Block{Index: index, Kind: "data", Base: append(base, rest...)}
}

// Data emits a piece of the block's data, a JSON string of base64.
func (b *Block) Data(value json.RawMessage) {
	pieces := [][]byte{jsonscan.Inner(value)}
	if len(value) > maxData { // a character of base64 may be written as an escape
		pieces = slices.Collect(slices.Chunk(jsonscan.Unescape(pieces[0]), maxData))
	}
	for _, piece := range pieces {
		b.size += len(piece)
		media := b.Base.Get("media_type")
		payload := Fields{{"media_type", media}, {"data", Enquote(piece)}, {"index", Number(b.Index)}}
		if name := b.Base.Get("name"); jsonscan.IsString(name) {
			payload = append(payload, Field{"name", name})
		}
		b.m.w.Add(schema.TypeDataDelta, payload)
	}
}
