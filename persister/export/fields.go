package export

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
)

// fields is a JSON object decoded one level deep: names and raw values, in order. It is for payloads that the schema
// has checked. Anything but an object has no fields.
type fields []struct{ name, value []byte }

// read decodes an object, with the list's own memory.
func (l fields) read(obj []byte) fields {
	l = l[:0]
	i := space(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return l
	}
	for i = space(obj, i+1); i < len(obj) && obj[i] == '"'; i = space(obj, i) {
		end := value(obj, i)
		if end < 0 {
			return l
		}
		name := obj[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(unquote(obj[i:end]))
		}
		if i = space(obj, end); i >= len(obj) || obj[i] != ':' {
			return l
		}
		i = space(obj, i+1)
		if end = value(obj, i); end < 0 {
			return l
		}
		l = append(l, struct{ name, value []byte }{name, obj[i:end]})
		if i = space(obj, end); i < len(obj) && obj[i] == ',' {
			i++
		}
	}
	return l
}

// raw returns a field's value, nil when there is none. Of two fields with the same name the last counts, as in the
// whole project.
func (l fields) raw(name string) []byte {
	for i := len(l) - 1; i >= 0; i-- {
		if string(l[i].name) == name {
			return l[i].value
		}
	}
	return nil
}

// str returns a string, nil when there is none.
func (l fields) str(name string) *string {
	v := l.raw(name)
	if len(v) < 2 || v[0] != '"' {
		return nil
	}
	if inner := v[1 : len(v)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return new(string(inner))
	}
	return new(unquote(v))
}

// object returns a field that is an object.
func (l fields) object(name string) []byte {
	if v := l.raw(name); len(v) > 0 && v[0] == '{' {
		return v
	}
	return nil
}

// whole returns a whole number from 0 to the greatest int64.
func (l fields) whole(name string) *int64 {
	n, err := strconv.ParseInt(string(l.raw(name)), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// float returns a number, nil when there is none or it exceeds a double.
func (l fields) float(name string) *float64 { return number(l.raw(name)) }

func number(v []byte) *float64 {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return nil
	}
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

func (l fields) bool(name string) *bool {
	switch string(l.raw(name)) {
	case "true":
		return new(true)
	case "false":
		return new(false)
	}
	return nil
}

// unquote decodes a JSON string. Unpaired surrogates become U+FFFD.
func unquote(v []byte) string {
	var s string
	_ = json.Unmarshal(v, &s) // a valid string
	return s
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// value returns the index after the JSON value that starts at i, or -1 when it does not end.
func value(b []byte, i int) int {
	depth := 0
	for start := i; i < len(b); {
		switch b[i] {
		case '"':
			if i = stringEnd(b, i); i < 0 {
				return -1
			}
			if depth == 0 {
				return i
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return plainEnd(start, i)
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return plainEnd(start, i)
			}
		}
		i++
	}
	return -1
}

// plainEnd returns the index after a number or a word, which must not be empty.
func plainEnd(start, i int) int {
	if i == start {
		return -1
	}
	return i
}

func stringEnd(b []byte, i int) int {
	for i++; i < len(b); i++ {
		n := bytes.IndexAny(b[i:], `"\`)
		if n < 0 {
			return -1
		}
		if i += n; b[i] == '"' {
			return i + 1
		}
		i++ // the escaped character
	}
	return -1
}
