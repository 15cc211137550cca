package qoder

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// What is below reads JSON that is known to be valid and allocates nothing: every delta of the log passes here.
// What is damaged all the same ends early.

// objectReader gives the fields of an object, one by one. What is no object has none.
type objectReader struct {
	b []byte
	i int // index of the next name, or behind the end
}

func readObject(b []byte) objectReader {
	i := jsonscan.SkipSpace(b, 0)
	if i >= len(b) || b[i] != '{' {
		return objectReader{}
	}
	return objectReader{b, jsonscan.SkipSpace(b, i+1)}
}

// next returns a name, decoded, and the untouched value; parts of the object both, unless the name has escapes.
func (r *objectReader) next() (name, value []byte, ok bool) {
	b, i := r.b, r.i
	r.i = len(b)
	if i >= len(b) || b[i] != '"' {
		return nil, nil, false
	}
	end := jsonscan.SkipValue(b, i)
	if end < 0 {
		return nil, nil, false
	}
	name = b[i+1 : end-1]
	if bytes.IndexByte(name, '\\') >= 0 {
		var s string
		_ = json.Unmarshal(b[i:end], &s) // a name that cannot be read is nobody's
		name = []byte(s)
	}
	if i = jsonscan.SkipSpace(b, end); i >= len(b) || b[i] != ':' {
		return nil, nil, false
	}
	i = jsonscan.SkipSpace(b, i+1)
	if end = jsonscan.SkipValue(b, i); end < 0 {
		return nil, nil, false
	}
	value = b[i:end]
	if i = jsonscan.SkipSpace(b, end); i < len(b) && b[i] == ',' {
		i = jsonscan.SkipSpace(b, i+1)
	}
	r.i = i
	return name, value, true
}

// listReader gives the elements of a list. What is no list has none.
type listReader struct {
	b []byte
	i int
}

func readList(b []byte) listReader {
	i := jsonscan.SkipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return listReader{}
	}
	return listReader{b, jsonscan.SkipSpace(b, i+1)}
}

func (r *listReader) next() (value []byte, ok bool) {
	b, i := r.b, r.i
	r.i = len(b)
	if i >= len(b) || b[i] == ']' {
		return nil, false
	}
	end := jsonscan.SkipValue(b, i)
	if end < 0 {
		return nil, false
	}
	value = b[i:end]
	if i = jsonscan.SkipSpace(b, end); i < len(b) && b[i] == ',' {
		i = jsonscan.SkipSpace(b, i+1)
	}
	r.i = i
	return value, true
}

// isString reports whether a value is a string.
func isString(v []byte) bool { return len(v) >= 2 && v[0] == '"' }

// inner returns what is between the quotes of a string, escapes and all; nil for what is none.
func inner(v []byte) []byte {
	if !isString(v) {
		return nil
	}
	return v[1 : len(v)-1]
}

// whole reads a whole number that is not negative; -1 for everything else.
func whole(v []byte) int64 {
	if len(v) == 0 || v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return -1
	}
	var n int64
	for _, c := range v {
		if c < '0' || c > '9' || len(v) > 15 {
			return wholeFloat(v)
		}
		n = n*10 + int64(c-'0')
	}
	return n
}

// wholeFloat is for 1.0, 1e0 and -0.
func wholeFloat(v []byte) int64 {
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil || x < 0 || x > 1<<53 || x != float64(int64(x)) {
		return -1
	}
	return int64(x)
}

// tally stands for a text: how many UTF-16 units it has, as JSON counts, and a sum over them. Two texts that say
// the same have the same tally, however they are escaped and cut.
type tally struct {
	units int64
	sum   uint64
}

const (
	sumStart = 14695981039346656037 // FNV-1a
	sumPrime = 1099511628211
)

func (t *tally) unit(u uint16) {
	if t.units == 0 {
		t.sum = sumStart
	}
	t.units++
	t.sum = (t.sum ^ uint64(u)) * sumPrime
}

// add counts the inside of a JSON string.
func (t *tally) add(in []byte) {
	for i := 0; i < len(in); {
		u, low, n := unitsAt(in, i)
		t.unit(u)
		if low != 0 {
			t.unit(low)
		}
		i += n
	}
}

// rest returns what a text says behind the text that a tally stands for: the bytes, and a low surrogate before them
// when the border is within a character that is written raw. ok is false when the tally is not of a beginning.
func (t tally) rest(in []byte) (low uint16, rest []byte, ok bool) {
	var seen tally
	for i := 0; seen.units < t.units; {
		if i >= len(in) {
			return 0, nil, false
		}
		u, l, n := unitsAt(in, i)
		seen.unit(u)
		i += n
		in, i = in[i:], 0
		switch {
		case l == 0:
		case seen.units == t.units:
			return l, in, seen == t
		default:
			seen.unit(l)
		}
	}
	return 0, in, seen == t
}

// unitsAt returns the unit at i of the inside of a JSON string, a second one of a character beyond the basic plane
// that is not escaped, and how many bytes they have.
func unitsAt(in []byte, i int) (u, low uint16, n int) {
	switch c := in[i]; {
	case c == '\\':
		return escapeAt(in, i)
	case c < utf8.RuneSelf:
		return uint16(c), 0, 1
	}
	r, n := utf8.DecodeRune(in[i:])
	if r > 0xFFFF {
		r -= 0x10000
		return uint16(0xD800 + r>>10), uint16(0xDC00 + r&0x3FF), n
	}
	return uint16(r), 0, n
}

func escapeAt(in []byte, i int) (u, low uint16, n int) {
	if i+1 >= len(in) {
		return '\\', 0, 1
	}
	switch c := in[i+1]; c {
	case 'u':
		if i+6 > len(in) {
			return 'u', 0, len(in) - i
		}
		for _, d := range in[i+2 : i+6] {
			u = u<<4 | hexDigit(d)
		}
		return u, 0, 6
	case 'b':
		return '\b', 0, 2
	case 'f':
		return '\f', 0, 2
	case 'n':
		return '\n', 0, 2
	case 'r':
		return '\r', 0, 2
	case 't':
		return '\t', 0, 2
	default:
		return uint16(c), 0, 2
	}
}

func hexDigit(c byte) uint16 {
	switch {
	case c >= '0' && c <= '9':
		return uint16(c - '0')
	case c >= 'a' && c <= 'f':
		return uint16(c-'a') + 10
	}
	return uint16(c-'A') + 10
}

// appendLow appends a low surrogate as JSON writes it.
func appendLow(b []byte, low uint16) []byte {
	return strconv.AppendUint(append(b, `\u`...), uint64(low), 16)
}

// appendQuoted appends JSON as the inside of a JSON string: what it says when it is decoded is the JSON, byte for
// byte.
func appendQuoted(b, raw []byte) []byte {
	const hex = "0123456789abcdef"
	for _, c := range raw {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}
