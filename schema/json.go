package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxDepth bounds nesting of an event. PostgreSQL's and many clients' JSON parsers recurse.
const maxDepth = 128

// maxViewDepth bounds nesting of what holds values out of events: snapshots and bundles of deltas.
const maxViewDepth = maxDepth + 16

// checkJSON reports whether data is one JSON text, in valid UTF-8, nested at most maxDepth deep. The
// standard library's check alone passes invalid UTF-8 and ten thousand levels.
func checkJSON(data []byte) error { return checkNested(data, maxDepth) }

// checkNested is checkJSON with another depth.
func checkNested(data []byte, most int) error {
	if wellFormed(data, most) {
		return nil
	}
	if !utf8.Valid(data) {
		return fmt.Errorf("invalid UTF-8: %w", ErrMalformed)
	}
	if !json.Valid(data) {
		return fmt.Errorf("%s: %w", syntaxError(data), ErrMalformed)
	}
	if bytes.Count(data, []byte{'{'})+bytes.Count(data, []byte{'['}) <= most {
		return nil // too few brackets to be nested too deep: nearly every event
	}
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return fmt.Errorf("nested deeper than %d: %w", most, ErrMalformed)
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

// syntaxError returns the parser's own words for data that is known to be invalid.
func syntaxError(data []byte) string {
	var v json.RawMessage
	if err := json.Unmarshal(data, &v); err != nil {
		return "invalid JSON: " + err.Error()
	}
	return "invalid JSON"
}

// eachField calls fn with the name and the untouched value of each field of a JSON object that has
// passed checkJSON. White space around tokens is skipped. Names with escapes are decoded.
func eachField(obj []byte, fn func(name string, value []byte) error) error {
	return eachRawField(obj, func(raw, value []byte) error {
		name, err := unquote(raw)
		if err != nil {
			return err
		}
		return fn(name, value)
	})
}

// eachRawField is eachField with names as they stand, in their quotes.
func eachRawField(obj []byte, fn func(name, value []byte) error) error {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return fmt.Errorf("not an object: %w", ErrMalformed)
	}
	i = skipSpace(obj, i+1)
	for i < len(obj) && obj[i] != '}' {
		end := skipValue(obj, i)
		if end < 0 {
			return fmt.Errorf("cut short: %w", ErrMalformed)
		}
		name := obj[i:end]
		i = skipSpace(obj, end)
		if i >= len(obj) || obj[i] != ':' {
			return fieldFault(name, "has no value")
		}
		i = skipSpace(obj, i+1)
		if end = skipValue(obj, i); end < 0 {
			return fieldFault(name, "is cut short")
		}
		if err := fn(name, obj[i:end]); err != nil {
			return err
		}
		if i = skipSpace(obj, end); i < len(obj) && obj[i] == ',' {
			i = skipSpace(obj, i+1)
		}
	}
	return nil
}

func fieldFault(raw []byte, what string) error {
	name, err := unquote(raw)
	if err != nil {
		return err
	}
	return fmt.Errorf("field %s %s: %w", quote(name), what, ErrMalformed)
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns the index behind the JSON value that starts at i, or -1 when it does not end.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for i < len(b) {
			switch b[i] {
			case '"':
				if i = skipString(b, i); i < 0 {
					return -1
				}
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
		return -1
	}
	start := i
	for i < len(b) && b[i] != ',' && b[i] != '}' && b[i] != ']' && b[i] > ' ' {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

func skipString(b []byte, i int) int {
	for i++; i < len(b); {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return -1
		}
		quote, slashes := i+n, 0
		for quote-slashes > i && b[quote-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return quote + 1
		}
		i = quote + 1 // this one is escaped
	}
	return -1
}

// unquote decodes a JSON string. Plain ones, which are nearly all, cost one copy.
func unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", fmt.Errorf("not a string: %w", ErrMalformed)
	}
	if body := raw[1 : len(raw)-1]; bytes.IndexByte(body, '\\') < 0 {
		return string(body), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("bad string: %w", ErrMalformed)
	}
	return s, nil
}

// parseSeq reads a JSON number that must be a positive whole number up to MaxSeq.
func parseSeq(raw []byte) (Seq, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 1 || Seq(n) > MaxSeq {
		return 0, fmt.Errorf("%s is not a sequence number: %w", quote(string(raw)), ErrMalformed)
	}
	return Seq(n), nil
}

var jsonNull = []byte("null")

// appendString appends s as a JSON string. Valid UTF-8 passes unchanged.
func appendString(dst []byte, s string) []byte {
	plain := true
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			plain = false
			break
		}
	}
	if plain {
		dst = append(dst, '"')
		dst = append(dst, s...)
		return append(dst, '"')
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// EachField calls fn with the name and the untouched value of each field of a JSON object that is known to be
// valid, as all payloads of the log are. The value is a part of obj. It stops at fn's error.
func EachField(obj []byte, fn func(name string, value []byte) error) error { return eachField(obj, fn) }

// Field returns the untouched value of a field of such an object, a part of obj: the last one of that name; nil when
// there is none, or obj is no object.
func Field(obj []byte, name string) (value []byte) {
	_ = eachField(obj, func(n string, v []byte) error { // what is no object has no fields
		if n == name {
			value = v
		}
		return nil
	})
	return value
}

// SkipSpace returns the index of the next byte of b from i on that is no white space of JSON.
func SkipSpace(b []byte, i int) int { return skipSpace(b, i) }

// SkipValue returns the index behind the JSON value that starts at b[i], -1 when it does not end. It reads what is
// known to be valid: of other bytes it says nothing but where something like a value would end.
func SkipValue(b []byte, i int) int { return skipValue(b, i) }
