package schema

import (
	"bytes"
	"fmt"
	"iter"
	"time"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// Record is one line of the log, looked at but not decoded. All fields are parts of the pack's
// bytes: they stay valid as long as those and must not be changed.
type Record struct {
	Seq   Seq
	Type  []byte // name of the catalogue or custom.*
	Child []byte // nil for the root itself
	Line  []byte // the whole event, without line feed

	tail int // index after the number in Line
}

// ScanLine reads the fixed beginning of a line that AppendLine wrote. It allocates nothing and does
// not look at the payload. A line in another form is an error that wraps ErrMalformed; DecodeLine
// may still read it.
func ScanLine(line []byte) (Record, error) {
	r := Record{Line: line}
	rest, ok := cutToken(line, `{"id":"`, nil)
	if ok {
		rest, ok = cutToken(rest, `","ts":"`, nil)
	}
	if ok {
		rest, ok = cutToken(rest, `","type":"`, &r.Type)
	}
	if ok {
		rest, ok = cutToken(rest, `","run_id":"`, nil)
	}
	if !ok {
		return Record{}, fmt.Errorf("line is not in the order of the log: %w", ErrMalformed)
	}
	// cutToken leaves the closing quote of run_id in front of rest.
	if after, isNull := bytes.CutPrefix(rest, []byte(`","child_id":null`)); isNull {
		rest = after
	} else if rest, ok = cutToken(rest, `","child_id":"`, &r.Child); ok {
		rest = rest[1:]
	}
	rest, found := bytes.CutPrefix(rest, []byte(`,"seq":`))
	if !ok || !found {
		return Record{}, fmt.Errorf("line is not in the order of the log: %w", ErrMalformed)
	}
	i := 0
	for i < len(rest) && i < 16 && rest[i] >= '0' && rest[i] <= '9' {
		r.Seq = r.Seq*10 + Seq(rest[i]-'0')
		i++
	}
	if i == 0 || i == len(rest) || rest[i] != ',' || line[len(line)-1] != '}' {
		return Record{}, fmt.Errorf("line is not in the order of the log: %w", ErrMalformed)
	}
	r.tail = len(line) - len(rest) + i
	return r, nil
}

// cutToken cuts prefix and the string after it, up to but without its closing quote. Strings
// before the payload hold no escapes: ids, times and types come from allow-lists. One that does is
// refused, because its bytes are not its value.
func cutToken(b []byte, prefix string, into *[]byte) ([]byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, false
	}
	b = b[len(prefix):]
	end := bytes.IndexByte(b, '"')
	if end < 0 || bytes.IndexByte(b[:end], '\\') >= 0 {
		return nil, false
	}
	if into != nil {
		*into = b[:end]
	}
	return b[end:], true
}

// Time returns the event's time, and whether the line has one where AppendLine writes it. It allocates nothing.
func (r Record) Time() (t time.Time, ok bool) {
	var ts []byte
	rest, ok := cutToken(r.Line, `{"id":"`, nil)
	if ok {
		_, ok = cutToken(rest, `","ts":"`, &ts)
	}
	return t, ok && t.UnmarshalText(ts) == nil
}

// Rest returns what follows the number, a part of Line: the optional fields, the payload and the end.
func (r Record) Rest() []byte { return r.Line[r.tail:] }

// Payload returns the payload's bytes, a part of Line, or nil when the line is damaged.
func (r Record) Payload() []byte {
	const mark = `,"payload":`
	b := r.Line[r.tail:]
	if bytes.HasPrefix(b, []byte(mark)) { // no optional fields: nearly every line
		return b[len(mark) : len(b)-1]
	}
	for len(b) > 1 && b[0] == ',' {
		end := jsonscan.SkipValue(b, 1)
		if end < 0 || end >= len(b) || b[end] != ':' {
			return nil
		}
		name := b[1:end]
		start := end + 1
		if end = jsonscan.SkipValue(b, start); end < 0 {
			return nil
		}
		if string(name) == `"payload"` {
			return b[start:end]
		}
		b = b[end:]
	}
	return nil
}

// Event decodes the line.
func (r Record) Event() (Event, error) { return decodeEvent(r.Line) }

// Lines walks the lines of an NDJSON body without copying. Empty lines are left out.
func Lines(body []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(body) > 0 {
			line := body
			if i := bytes.IndexByte(body, '\n'); i >= 0 {
				line, body = body[:i], body[i+1:]
			} else {
				body = nil
			}
			if len(line) > 0 && !yield(line) {
				return
			}
		}
	}
}

// envelope returns id, time and run of a line that was scanned.
func (r Record) envelope() (id, ts, run []byte) {
	id, rest := plainToken(r.Line, `{"id":"`)
	ts, rest = plainToken(rest, `","ts":"`)
	if n := len(`","type":"`) + len(r.Type); len(rest) >= n {
		run, _ = plainToken(rest[n:], `","run_id":"`)
	}
	return id, ts, run
}

// plainToken is cutToken of a line that was scanned, so it has no escapes there.
func plainToken(b []byte, prefix string) (token, rest []byte) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, nil
	}
	b = b[len(prefix):]
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return nil, nil
	}
	return b[:end], b[end:]
}

// Envelope returns id, time and run of a line that was scanned, parts of Line.
func (r Record) Envelope() (id, ts, run []byte) { return r.envelope() }

// Attribute returns a string of the envelope between the number and the payload (turn_id, cause, actor …), decoded;
// "" when it is absent or no string.
func (r Record) Attribute(name string) string { return attribute(r.Attributes(), name) }

// attribute returns a string of Record.Attributes.
func attribute(attributes []byte, name string) string {
	if len(attributes) < 2 {
		return ""
	}
	return attributeFields(attributes).Str(name)
}

func attributeFields(attributes []byte) jsonscan.Fields {
	obj := make([]byte, 0, len(attributes)+1)
	obj = append(append(append(obj, '{'), attributes[1:]...), '}')
	return jsonscan.Fields(nil).Read(obj)
}

func pathOf(attributes []byte) []string {
	if len(attributes) < 2 {
		return nil
	}
	return ReadPath(attributeFields(attributes).Raw("path"))
}

// ReadPath reads the path of an event, a JSON list of the ids of runs; nil when it is none.
func ReadPath(raw []byte) []string {
	path, err := decodePath(raw)
	if err != nil {
		return nil
	}
	return path
}

// The functions below decide in one pass that bytes are what they should be, and decide nothing about those
// that are not: the functions that report each fault look at them again. So the two
// must never disagree on what is valid (FuzzQuick).

// scanNew is decodeNew for events that have nothing unusual: no field of their own beside the envelope, no
// name with an escape. ok is false for all others and for those that must be refused. Payload is a part of
// raw.
func scanNew(run string, raw []byte) (e Event, ok bool) {
	i := jsonscan.SkipSpace(raw, 0)
	if len(raw) > MaxEventBytes || i == len(raw) || raw[i] != '{' || !utf8.Valid(raw) {
		return e, false
	}
	seen := 0
	for {
		i = jsonscan.SkipSpace(raw, i+1)
		if i >= len(raw) || raw[i] != '"' {
			return e, false
		}
		end := jsonscan.ScanString(raw, i)
		if end < 0 {
			return e, false
		}
		name, bit := envelopeField(raw[i+1 : end-1])
		if bit == 0 || seen&bit != 0 {
			return e, false
		}
		seen |= bit
		if i = jsonscan.SkipSpace(raw, end); i >= len(raw) || raw[i] != ':' {
			return e, false
		}
		i = jsonscan.SkipSpace(raw, i+1)
		if end = jsonscan.ScanValue(raw, i, maxDepth-1); end < 0 || !e.setQuick(name, raw[i:end:end]) {
			return e, false
		}
		if i = jsonscan.SkipSpace(raw, end); i >= len(raw) {
			return e, false
		}
		if raw[i] == ',' {
			continue
		}
		if raw[i] != '}' || jsonscan.SkipSpace(raw, i+1) != len(raw) {
			return e, false
		}
		if e.Payload == nil {
			e.Payload = []byte(`{}`)
		}
		return e, e.CheckNew(run) == nil
	}
}

// setQuick is setField without copies of what is nearly always there.
func (e *Event) setQuick(name string, v []byte) bool {
	switch {
	case name == "type" && v[0] == '"':
		if i, known := catalogueIndex[string(v[1:len(v)-1])]; known {
			e.Type = catalogue[i].Name
			return true
		}
	case name == "payload" && v[0] == '{' && !hasLineBreak(v):
		e.Payload = v
		return true
	}
	return e.setField(name, v) == nil
}

// envelopeField returns the name of an envelope's field as a constant, and a bit of its own; 0 for others.
func envelopeField(raw []byte) (name string, bit int) {
	switch string(raw) {
	case "type":
		return "type", 1 << 0
	case "payload":
		return "payload", 1 << 1
	case "child_id":
		return "child_id", 1 << 2
	case "id":
		return "id", 1 << 3
	case "ts":
		return "ts", 1 << 4
	case "run_id":
		return "run_id", 1 << 5
	case "seq":
		return "seq", 1 << 6
	case "turn_id":
		return "turn_id", 1 << 7
	case "path":
		return "path", 1 << 8
	case "cause":
		return "cause", 1 << 9
	case "actor":
		return "actor", 1 << 10
	}
	return "", 0 // first_seq too: it is refused
}

// plainDelta is Prepare for deltas that bring nothing unusual. false is for all others, and for those that
// must be refused.
func (e *Event) plainDelta(run string) bool {
	i, known := catalogueIndex[e.Type]
	if !known || !catalogue[i].Delta || e.ID != "" || e.TS != "" || e.FirstSeq != 0 || len(e.Extra) > 0 {
		return false
	}
	if e.RunID != "" && e.RunID != run || e.size() > MaxEventBytes || e.checkOptional() != nil {
		return false
	}
	if e.ChildID != "" && (e.ChildID == run || e.ChildID == RootLane || !token(e.ChildID, MaxRunID)) {
		return false
	}
	text, ok := scanDelta(e.Payload)
	return ok && (text || catalogue[i].Family == FamilyData)
}

// scanDelta reports whether b is an object on one line, and whether its member "text" is a string. ok is false
// for one that has a name with an escape, too.
func scanDelta(b []byte) (text, ok bool) {
	if len(b) == 0 || b[0] != '{' || !utf8.Valid(b) || hasLineBreak(b) {
		return false, false
	}
	i := jsonscan.SkipSpace(b, 1)
	if i < len(b) && b[i] == '}' {
		return false, jsonscan.SkipSpace(b, i+1) == len(b)
	}
	for i < len(b) && b[i] == '"' {
		end := jsonscan.ScanString(b, i)
		if end < 0 || bytes.IndexByte(b[i:end], '\\') >= 0 {
			return false, false
		}
		name := b[i+1 : end-1]
		if i = jsonscan.SkipSpace(b, end); i >= len(b) || b[i] != ':' {
			return false, false
		}
		if i = jsonscan.SkipSpace(b, i+1); i < len(b) && string(name) == "text" {
			text = b[i] == '"'
		}
		if i = jsonscan.ScanValue(b, i, maxDepth-1); i < 0 {
			return false, false
		}
		if i = jsonscan.SkipSpace(b, i); i >= len(b) {
			return false, false
		}
		if b[i] == '}' {
			return text, jsonscan.SkipSpace(b, i+1) == len(b)
		}
		if b[i] != ',' {
			return false, false
		}
		i = jsonscan.SkipSpace(b, i+1)
	}
	return false, false
}

func hasLineBreak(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0
}
