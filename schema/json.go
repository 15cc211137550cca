package schema

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
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
	if jsonscan.Valid(data, most) {
		return nil
	}
	if !utf8.Valid(data) {
		return fmt.Errorf("not UTF-8: %w", ErrMalformed)
	}
	if !json.Valid(data) {
		return fmt.Errorf("%s: %w", syntaxError(data), ErrMalformed)
	}
	return fmt.Errorf("nested deeper than %d: %w", most, ErrMalformed)
}

// syntaxError returns what is wrong with data that is known to be invalid, in the parser's words, which say it twice
// of what is cut short.
func syntaxError(data []byte) string {
	var v json.RawMessage
	err := json.Unmarshal(data, &v)
	switch {
	case err == nil:
		return "not JSON"
	case err.Error() == "unexpected end of JSON input":
		return "not JSON: it ends too early"
	default:
		return "not JSON: " + err.Error()
	}
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
	i := jsonscan.SkipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return fmt.Errorf("not a JSON object: %w", ErrMalformed)
	}
	i = jsonscan.SkipSpace(obj, i+1)
	for i < len(obj) && obj[i] != '}' {
		end := jsonscan.SkipValue(obj, i)
		if end < 0 {
			return fmt.Errorf("cut short: %w", ErrMalformed)
		}
		name := obj[i:end]
		i = jsonscan.SkipSpace(obj, end)
		if i >= len(obj) || obj[i] != ':' {
			return fieldFault(name, "has no value")
		}
		i = jsonscan.SkipSpace(obj, i+1)
		if end = jsonscan.SkipValue(obj, i); end < 0 {
			return fieldFault(name, "is cut short")
		}
		if err := fn(name, obj[i:end]); err != nil {
			return err
		}
		i = jsonscan.Behind(obj, end)
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

// unquote decodes a JSON string.
func unquote(raw []byte) (string, error) {
	if s, ok := jsonscan.Unquote(raw); ok {
		return s, nil
	}
	return "", stringFault(raw)
}

// stringFault returns why raw is no JSON string.
func stringFault(raw []byte) error {
	if len(raw) < 2 || raw[0] != '"' {
		return fmt.Errorf("not a string: %w", ErrMalformed)
	}
	return fmt.Errorf("not a string of JSON: %w", ErrMalformed)
}

// parseSeq reads a JSON number that must be a positive whole number up to MaxSeq.
func parseSeq(raw []byte) (Seq, error) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || n < 1 || Seq(n) > MaxSeq {
		return 0, fmt.Errorf("not a sequence number, but %s: %w", quote(string(raw)), ErrMalformed)
	}
	return Seq(n), nil
}

var jsonNull = []byte("null")

// EachField calls fn with the name and the untouched value of each field of a JSON object that is known to be
// valid, as all payloads of the log are. The value is a part of obj. It stops at fn's error.
func EachField(obj []byte, fn func(name string, value []byte) error) error { return eachField(obj, fn) }

// Field returns the untouched value of a field of such an object, a part of obj: the last one of that name; nil when
// there is none, or obj is no object.
func Field(obj []byte, name string) (value []byte) {
	for n, v := range jsonscan.Members(obj) {
		if string(n) == name {
			value = v
		}
	}
	return value
}
