package persister

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentstream/schema"
)

// Reasons of dead letters.
const (
	ReasonBadMessage = "bad_message" // not a pack at all: subject, headers or number of lines
	ReasonBadEvent   = "bad_event"   // a line of a pack that is not an event of its place
	ReasonRefused    = "refused"     // the store cannot keep the line
	ReasonConflict   = "conflict"    // another content is stored at this run and seq: an alarm
)

// DeadLetter is a message, or a line of one, that could not be stored, with all that is needed to inspect it and to
// try it again: nothing that the log has accepted disappears.
type DeadLetter struct {
	Stream   string
	Position uint64        // of the message in the stream
	Seq      schema.Seq    // place in the run that the event claims; 0 when the whole message is meant
	Key      schema.RunKey // zero when the subject names none
	Subject  string
	Header   map[string][]string
	Body     []byte // the event's line, or the message's whole body
	Reason   string
	Detail   string // the error's text
}

// ID returns a hash of place, reason and content. So a message that comes again is stored once, and another message at
// the same place of a stream that was created again has another ID.
func (l *DeadLetter) ID() []byte {
	h := sha256.New()
	for _, part := range []string{l.Stream, strconv.FormatUint(l.Position, 10), l.Seq.String(), l.Subject, l.Reason} {
		h.Write([]byte(strconv.Quote(part)))
	}
	h.Write(l.Body)
	return h.Sum(nil)
}

// HeaderBytes returns the headers as "name: value" lines, each ended by CR LF, in the order of their
// names. Values keep their bytes.
func (l *DeadLetter) HeaderBytes() []byte {
	b := []byte{} // stores take nil for null
	for _, name := range slices.Sorted(maps.Keys(l.Header)) {
		for _, v := range l.Header[name] {
			b = append(b, name+": "+v+"\r\n"...)
		}
	}
	return b
}

// ParseHeaderBytes parses what HeaderBytes returned.
func ParseHeaderBytes(b []byte) map[string][]string {
	h := make(map[string][]string)
	for line := range bytes.SplitSeq(b, []byte("\r\n")) {
		if name, v, ok := bytes.Cut(line, []byte(": ")); ok {
			h[string(name)] = append(h[string(name)], string(v))
		}
	}
	return h
}

// Text returns s in a form that every store can keep: what is not UTF-8 without NUL is escaped as by strconv.Quote.
func Text(s string) string {
	if utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 {
		return s
	}
	return strings.Trim(strconv.Quote(s), `"`)
}

// errLine reports that a dead letter's seq is not one of its pack.
var errLine = errors.New("the line's place is not in its pack")

// Decode reads the content again: the whole message when Seq is 0, else its one line. It returns the rows and what
// still cannot be read of it.
func (l *DeadLetter) Decode() (Chunk, []DeadLetter) {
	m := &Message{Stream: l.Stream, Position: l.Position, Subject: l.Subject, Header: l.Header, Body: l.Body}
	if l.Seq == 0 {
		return decode(m)
	}
	c, err := decodeLine(m, l.Seq)
	if err != nil {
		return c, []DeadLetter{m.deadLetter(l.Key, l.Seq, l.Body, l.Reason, err)}
	}
	return c, nil
}

// decodeLine reads a message whose body is one line of a pack. The head is that of the whole pack: the other lines are
// stored elsewhere.
func decodeLine(m *Message, seq schema.Seq) (Chunk, error) {
	c := Chunk{from: m}
	p, err := packOf(m)
	if err != nil {
		return c, err
	}
	if seq < p.First || seq > p.Last() {
		return c, fmt.Errorf("seq %d of %d to %d: %w", seq, p.First, p.Last(), errLine)
	}
	row, err := readRow(&p, seq, m.Body)
	if err != nil {
		return c, err
	}
	return Chunk{Key: p.Key, Child: p.Child, Head: p.Head, Rows: []Row{row}, from: m}, nil
}

// packOf reads the headers of a pack without its body.
func packOf(m *Message) (schema.Pack, error) {
	lines := 0
	if v := m.Header[schema.HeaderCount]; len(v) > 0 {
		lines, _ = strconv.Atoi(v[0]) // ParsePack refuses what is no number
	}
	p, err := schema.ParsePack(m.Subject, m.Header,
		bytes.Repeat([]byte{'\n'}, min(max(lines, 0), schema.MaxPackEvents)), m.Position)
	if err == nil {
		err = checkDay(p.Head.Day)
	}
	return p, err
}
