package schema

import (
	"bytes"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

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
