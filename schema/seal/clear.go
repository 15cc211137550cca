package seal

import (
	"bytes"
	"strings"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Clear returns the part of a payload that stays readable: the fields by which stores, lists and statistics find their
// way. It is an object without its last brace. What is a text of people or of models is not in it, and nothing of the
// events of a producer's own types (custom.*).
func Clear(dst []byte, typ string, payload []byte) []byte {
	o := append(jsonscan.Object(dst), '{')
	if strings.HasPrefix(typ, "custom.") || len(payload) > maxScan && !hasClear(payload) {
		return o
	}
	begin := len(o)
	for name, v := range jsonscan.Members(payload) {
		kind, ok := clearFields[string(name)]
		if !ok || len(v) > maxClear || len(o)-begin+len(v) > mostClear {
			continue
		}
		switch {
		case kind == asCode && isCode(v), kind == asNumber && isNumber(v):
			o = o.Raw(string(name), v)
		case kind == asUsage:
			if u := usage(v); u != nil {
				o = o.Raw(string(name), u)
			}
		}
	}
	return o
}

// Bounds of what stays readable of one event, in bytes.
const (
	maxClear  = 2 << 10 // a field
	mostClear = 3 << 10 // all
	maxScan   = 64 << 10
)

// hasClear reports whether a large payload is worth a look.
func hasClear(payload []byte) bool {
	return bytes.Contains(payload, []byte(`_id"`)) || bytes.Contains(payload, []byte(`"state"`))
}

// valueKind is what a field must hold to stay.
type valueKind byte

const (
	asCode   valueKind = iota + 1 // an id, or a word of a table
	asNumber                      // a number, true or false
	asUsage                       // numbers by name, as models report them
)

// clearFields are the fields that stay.
var clearFields = map[string]valueKind{
	"message_id": asCode, "call_id": asCode, "request_id": asCode, "child_id": asCode, "checkpoint_id": asCode,
	"task_id": asCode, "turn_id": asCode, "state": asCode, "role": asCode, "kind": asCode, "step_kind": asCode,
	"stop_reason": asCode, "model": asCode, "provider": asCode, "tool": asCode,
	"index": asNumber, "step_index": asNumber, "ok": asNumber, "complete": asNumber, "incomplete": asNumber,
	"duration_ms": asNumber, "through": asNumber, "events": asNumber, "bytes": asNumber, "output_bytes": asNumber,
	"done": asNumber, "total": asNumber, "usage": asUsage,
}

// maxCode bounds an id or a word, in bytes.
const maxCode = 128

// isCode reports whether a value is a string that looks like an id or a word of a table: text of people has spaces.
func isCode(v []byte) bool {
	s := jsonscan.Inner(v)
	return len(s) > 0 && len(s) <= maxCode && isCodeText(s)
}

// isCodeText is isCode without quotes.
func isCodeText[T string | []byte](s T) bool {
	if len(s) > maxCode {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case c == '_', c == '-', c == '.', c == ':', c == '/', c == '@':
		default:
			return false
		}
	}
	return true
}

func isNumber(v []byte) bool {
	return len(v) > 0 && len(v) <= 32 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9' || v[0] == 't' || v[0] == 'f')
}

// usage returns the numbers of an object, and of objects in it; nil for none.
func usage(v []byte) []byte {
	o := append(jsonscan.Object(nil), '{')
	for name, v := range jsonscan.Members(v) {
		if !isName(name) {
			continue
		}
		if isNumber(v) {
			o = o.Raw(string(name), v)
			continue
		}
		if len(v) == 0 || v[0] != '{' {
			continue
		}
		in := append(jsonscan.Object(nil), '{')
		for name, v := range jsonscan.Members(v) {
			if isName(name) && isNumber(v) {
				in = in.Raw(string(name), v)
			}
		}
		if len(in) > 1 {
			o = o.Raw(string(name), in.End())
		}
	}
	if len(o) == 1 {
		return nil
	}
	return o.End()
}

// isName reports whether the name of a number is one: it is a place for a text as well.
func isName(name []byte) bool {
	if len(name) == 0 || len(name) > 64 {
		return false
	}
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// cutEnvelope returns an event with that of its optional fields which stays readable: ids, and the trace of a request.
func cutEnvelope(e *schema.Event) schema.Event {
	shown := *e
	shown.Extra = nil
	if trace := e.Trace(); trace != "" {
		shown.Extra = jsonscan.AppendString([]byte(`"trace":`), trace)
	}
	for _, field := range []*string{&shown.TurnID, &shown.Cause, &shown.Actor} {
		if !isCodeText(*field) {
			*field = ""
		}
	}
	return shown
}
