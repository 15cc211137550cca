package schema

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"
)

// What is below decides in one pass that bytes are what they should be, and says nothing about those
// that are not: the careful way, which has the words for each fault, looks at them again. So the two
// must never disagree on what is good (FuzzQuick).

// wellFormed reports whether data is one JSON text in valid UTF-8, nested at most levels deep.
func wellFormed(data []byte, levels int) bool {
	if !utf8.Valid(data) {
		return false
	}
	i := scanValue(data, skipSpace(data, 0), levels)
	return i >= 0 && skipSpace(data, i) == len(data)
}

// scanValue returns the index behind the JSON value that starts at i (RFC 8259), or -1 when there is none or
// it is nested deeper than levels. It does not look at UTF-8.
func scanValue(b []byte, i, levels int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; c {
	case '"':
		return scanString(b, i)
	case '{':
		return scanObject(b, i, levels-1)
	case '[':
		return scanArray(b, i, levels-1)
	case 't':
		return scanWord(b, i, "true")
	case 'f':
		return scanWord(b, i, "false")
	case 'n':
		return scanWord(b, i, "null")
	}
	return scanNumber(b, i)
}

func scanWord(b []byte, i int, word string) int {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return -1
	}
	return i + len(word)
}

func scanObject(b []byte, i, levels int) int {
	if levels < 0 {
		return -1
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == '}' {
		return i + 1
	}
	for i < len(b) && b[i] == '"' {
		if i = scanString(b, i); i < 0 {
			return -1
		}
		if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
			return -1
		}
		if i = scanValue(b, skipSpace(b, i+1), levels); i < 0 {
			return -1
		}
		if i = skipSpace(b, i); i >= len(b) {
			return -1
		}
		if b[i] == '}' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
	return -1
}

func scanArray(b []byte, i, levels int) int {
	if levels < 0 {
		return -1
	}
	if i = skipSpace(b, i+1); i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = scanValue(b, i, levels); i < 0 {
			return -1
		}
		if i = skipSpace(b, i); i >= len(b) {
			return -1
		}
		if b[i] == ']' {
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i = skipSpace(b, i+1)
	}
}

// scanString looks for the closing quote eight bytes and more at a time. Each byte is looked at a bounded
// number of times, however many escapes there are.
func scanString(b []byte, i int) int {
	i++
	quote := -1
	for {
		if quote < i {
			n := bytes.IndexByte(b[i:], '"')
			if n < 0 {
				return -1
			}
			quote = i + n
		}
		n := bytes.IndexByte(b[i:quote], '\\')
		if n < 0 {
			break
		}
		if hasControl(b[i : i+n]) {
			return -1
		}
		if i = scanEscape(b, i+n+1); i < 0 {
			return -1
		}
	}
	if hasControl(b[i:quote]) {
		return -1
	}
	return quote + 1
}

// scanEscape returns the index behind the escape whose letter is at i.
func scanEscape(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 1
	case 'u':
		if len(b)-i < 5 {
			return -1
		}
		for _, c := range b[i+1 : i+5] {
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return -1
			}
		}
		return i + 5
	}
	return -1
}

// hasControl reports whether a byte is below 0x20.
func hasControl(b []byte) bool {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for len(b) >= 8 {
		if x := binary.LittleEndian.Uint64(b); (x-0x20*ones)&^x&tops != 0 {
			return true
		}
		b = b[8:]
	}
	for _, c := range b {
		if c < 0x20 {
			return true
		}
	}
	return false
}

func scanNumber(b []byte, i int) int {
	if i < len(b) && b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else if i = scanDigits(b, i); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		if i = scanDigits(b, i+1); i < 0 {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return scanDigits(b, i)
	}
	return i
}

// scanDigits wants one at least.
func scanDigits(b []byte, i int) int {
	start := i
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// scanNew is decodeNew for events that have nothing unusual: no field of their own beside the envelope, no
// name with an escape. ok is false for all others and for those that must be refused. Payload is a part of
// raw.
func scanNew(run string, raw []byte) (e Event, ok bool) {
	i := skipSpace(raw, 0)
	if len(raw) > MaxEventBytes || i == len(raw) || raw[i] != '{' || !utf8.Valid(raw) {
		return e, false
	}
	seen := 0
	for {
		i = skipSpace(raw, i+1)
		if i >= len(raw) || raw[i] != '"' {
			return e, false
		}
		end := scanString(raw, i)
		if end < 0 {
			return e, false
		}
		name, bit := envelopeField(raw[i+1 : end-1])
		if bit == 0 || seen&bit != 0 {
			return e, false
		}
		seen |= bit
		if i = skipSpace(raw, end); i >= len(raw) || raw[i] != ':' {
			return e, false
		}
		i = skipSpace(raw, i+1)
		if end = scanValue(raw, i, maxDepth-1); end < 0 || !e.setQuick(name, raw[i:end:end]) {
			return e, false
		}
		if i = skipSpace(raw, end); i >= len(raw) {
			return e, false
		}
		if raw[i] == ',' {
			continue
		}
		if raw[i] != '}' || skipSpace(raw, i+1) != len(raw) {
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
	i := skipSpace(b, 1)
	if i < len(b) && b[i] == '}' {
		return false, skipSpace(b, i+1) == len(b)
	}
	for i < len(b) && b[i] == '"' {
		end := scanString(b, i)
		if end < 0 || bytes.IndexByte(b[i:end], '\\') >= 0 {
			return false, false
		}
		name := b[i+1 : end-1]
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return false, false
		}
		if i = skipSpace(b, i+1); i < len(b) && string(name) == "text" {
			text = b[i] == '"'
		}
		if i = scanValue(b, i, maxDepth-1); i < 0 {
			return false, false
		}
		if i = skipSpace(b, i); i >= len(b) {
			return false, false
		}
		if b[i] == '}' {
			return text, skipSpace(b, i+1) == len(b)
		}
		if b[i] != ',' {
			return false, false
		}
		i = skipSpace(b, i+1)
	}
	return false, false
}

func hasLineBreak(b []byte) bool {
	return bytes.IndexByte(b, '\n') >= 0 || bytes.IndexByte(b, '\r') >= 0
}
