package schema

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// fieldList is a JSON object taken apart: names and untouched values, in order. Its values are parts
// of the object's bytes.
type fieldList []struct{ name, value []byte }

// read takes an object apart, into the list's own memory. nil: it is not an object.
func (l fieldList) read(obj []byte) fieldList {
	i := skipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return nil
	}
	if l = l[:0]; l == nil {
		l = make(fieldList, 0, 8)
	}
	i = skipSpace(obj, i+1)
	for i < len(obj) && obj[i] != '}' {
		end := skipValue(obj, i)
		if end < i+2 || obj[i] != '"' {
			return nil
		}
		name := obj[i+1 : end-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(decodeExact(obj[i:end]))
		}
		if i = skipSpace(obj, end); i >= len(obj) || obj[i] != ':' {
			return nil
		}
		i = skipSpace(obj, i+1)
		if end = skipValue(obj, i); end < 0 {
			return nil
		}
		l = append(l, struct{ name, value []byte }{name, obj[i:end]})
		if i = skipSpace(obj, end); i < len(obj) && obj[i] == ',' {
			i = skipSpace(obj, i+1)
		}
	}
	return l
}

// raw returns a field's value, nil when there is none. Of two fields with one name the last counts, as
// in JavaScript.
func (l fieldList) raw(name string) []byte {
	for i := len(l) - 1; i >= 0; i-- {
		if string(l[i].name) == name {
			return l[i].value
		}
	}
	return nil
}

// kind returns the value if it begins with c; else the field counts as absent: unknown fields are
// always allowed, so a name may mean something else in another type.
func (l fieldList) kind(name string, c byte) []byte {
	if v := l.raw(name); len(v) > 0 && v[0] == c {
		return v
	}
	return nil
}

func (l fieldList) object(name string) []byte { return l.kind(name, '{') }
func (l fieldList) array(name string) []byte  { return l.kind(name, '[') }

// some returns the value unless it is null.
func (l fieldList) some(name string) []byte {
	if v := l.raw(name); len(v) > 0 && v[0] != 'n' {
		return v
	}
	return nil
}

// number returns the value if it is a number.
func (l fieldList) number(name string) []byte {
	if v := l.raw(name); len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') {
		return v
	}
	return nil
}

// yes reports whether the value is true.
func (l fieldList) yes(name string) bool { return l.kind(name, 't') != nil }

// str decodes a string; "" when there is none.
func (l fieldList) str(name string) string { return decodeExact(l.kind(name, '"')) }

// inner returns a string's bytes between the quotes, escapes and all.
func (l fieldList) inner(name string) []byte {
	if v := l.kind(name, '"'); len(v) >= 2 {
		return v[1 : len(v)-1]
	}
	return nil
}

// integer reads a whole number from 0 to 2^53-1, also when it is written as 1.0 or 1e0: not every
// reader can tell.
func (l fieldList) integer(name string) (int64, bool) { return wholeNumber(l.raw(name)) }

func wholeNumber(v []byte) (int64, bool) {
	if len(v) == 0 || (v[0] < '0' || v[0] > '9') && v[0] != '-' {
		return 0, false
	}
	if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
		return int64(n), n <= uint64(MaxSeq)
	}
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil || x < 0 || x > float64(MaxSeq) || x != float64(int64(x)) {
		return 0, false
	}
	return int64(x), true
}

// each calls fn with the elements of a JSON array.
func each(list []byte, fn func([]byte)) {
	if len(list) == 0 {
		return
	}
	_ = eachElement(list, 0, func(_ int, v []byte) error { fn(v); return nil })
}

// decodeExact decodes a JSON string. A surrogate without its other half is kept, in the three bytes
// that UTF-8 would have for it.
func decodeExact(raw []byte) string {
	s, err := unquote(raw)
	if err != nil || !strings.ContainsRune(s, utf8.RuneError) {
		return s
	}
	var b strings.Builder
	for in := raw[1 : len(raw)-1]; len(in) > 0; {
		n := 1
		switch {
		case in[0] != '\\':
			for n < len(in) && in[n] != '\\' {
				n++
			}
			b.Write(in[:n])
		case in[1] != 'u':
			n = 2
			b.WriteString(jsonText(in[:n]))
		default:
			n = 6
			switch u := hex4(in); {
			case u>>10 == 0xD800>>10 && len(in) >= 12 && in[6] == '\\' && in[7] == 'u' && hex4(in[6:])>>10 == 0xDC00>>10:
				n = 12
				b.WriteString(jsonText(in[:n]))
			case u>>11 == 0xD800>>11:
				b.Write([]byte{0xE0 | byte(u>>12), 0x80 | byte(u>>6&0x3F), 0x80 | byte(u&0x3F)})
			default:
				b.WriteString(jsonText(in[:n]))
			}
		}
		in = in[n:]
	}
	return b.String()
}

// hex4 reads \uXXXX of a valid string.
func hex4(b []byte) uint64 {
	u, _ := strconv.ParseUint(string(b[2:6]), 16, 32)
	return u
}

// jsonText decodes a string's inner bytes. Half surrogates become U+FFFD.
func jsonText(inner []byte) string {
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	quoted := make([]byte, 0, len(inner)+2)
	quoted = append(append(append(quoted, '"'), inner...), '"')
	var s string
	_ = json.Unmarshal(quoted, &s) // the inside of a valid string
	return s
}

// appendExact appends what decodeExact gave.
func appendExact(dst []byte, s string) []byte {
	if utf8.ValidString(s) {
		return appendString(dst, s)
	}
	dst = append(dst, '"')
	for len(s) > 0 {
		n := 0
		for n < len(s) {
			if r, size := utf8.DecodeRuneInString(s[n:]); r == utf8.RuneError && size == 1 {
				break
			} else {
				n += size
			}
		}
		part := appendString(nil, s[:n])
		dst = append(dst, part[1:len(part)-1]...)
		if s = s[n:]; len(s) >= 3 && s[0] == 0xED && s[1] >= 0xA0 {
			u := uint64(s[0]&0xF)<<12 | uint64(s[1]&0x3F)<<6 | uint64(s[2]&0x3F)
			dst = strconv.AppendUint(append(dst, `\u`...), u, 16)
			s = s[3:]
		} else if len(s) > 0 {
			dst = append(dst, "\ufffd"...)
			s = s[1:]
		}
	}
	return append(dst, '"')
}

// envelope returns id, time and run of a line that was scanned.
func (r Record) envelope() (id, ts, run []byte) {
	rest, _ := cutToken(r.Line, `{"id":"`, &id)
	rest, _ = cutToken(rest, `","ts":"`, &ts)
	rest, _ = cutToken(rest, `","type":"`, nil)
	_, _ = cutToken(rest, `","run_id":"`, &run)
	return id, ts, run
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
	return attributeFields(attributes).str(name)
}

func attributeFields(attributes []byte) fieldList {
	obj := make([]byte, 0, len(attributes)+1)
	obj = append(append(append(obj, '{'), attributes[1:]...), '}')
	return fieldList(nil).read(obj)
}

func pathOf(attributes []byte) []string {
	if len(attributes) < 2 {
		return nil
	}
	return decodedPath(attributeFields(attributes).raw("path"))
}

func decodedPath(raw []byte) []string {
	path, err := decodePath(raw)
	if err != nil {
		return nil
	}
	return path
}
