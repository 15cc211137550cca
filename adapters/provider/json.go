package provider

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"agentstream/schema/jsonscan"
)

// Fields are the members of a JSON object in their order, with untouched values.
type Fields []Field

// Field is one member.
type Field struct {
	Name  string
	Value json.RawMessage
}

// Parse reads an object that is valid JSON. ok is false for anything else than an object.
func Parse(data []byte) (list Fields, ok bool) {
	for name, value := range jsonscan.Members(data) {
		list = append(list, Field{string(name), value})
	}
	i := jsonscan.SkipSpace(data, 0)
	return list, i < len(data) && data[i] == '{'
}

// Elements reads a list that is valid JSON; nil for anything else.
func Elements(data []byte) (list []json.RawMessage) {
	for value := range jsonscan.Elements(data) {
		list = append(list, value)
	}
	return list
}

// Get returns the value of a name, the last of doubles, as JavaScript does; nil when there is none.
func (l Fields) Get(name string) json.RawMessage {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].Name == name {
			return l[i].Value
		}
	}
	return nil
}

// Object returns the members of a nested object.
func (l Fields) Object(name string) Fields {
	list, _ := Parse(l.Get(name))
	return list
}

// Str decodes a string; "" when it is absent or none.
func (l Fields) Str(name string) string {
	v := l.Get(name)
	if !IsString(v) {
		return ""
	}
	if inner := Inner(v); bytes.IndexByte(inner, '\\') < 0 {
		return string(inner) // the frame is valid JSON, and valid UTF-8
	}
	var s string
	_ = json.Unmarshal(v, &s)
	return s
}

// Index reads a position of a block; -1 when it is absent or none.
func (l Fields) Index() int {
	n, err := strconv.Atoi(strings.Trim(string(l.Get("index")), `"`))
	if err != nil || n < 0 || n > 1<<30 {
		return -1
	}
	return n
}

// Set replaces or appends a member. Of doubles it is the last that counts.
func (l Fields) Set(name string, value json.RawMessage) Fields {
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].Name == name {
			l[i].Value = value
			return l
		}
	}
	return append(l, Field{name, value})
}

// Overlay sets every member of with that is not empty. Members that are too many, or too
// much in all, are counted in omitted_members.
func (l Fields) Overlay(with Fields) Fields {
	for _, f := range with {
		old := l.Get(f.Name)
		if IsNull(f.Value) && old != nil {
			continue
		}
		if old == nil && len(l) >= maxMembers || l.Size()-len(old)+len(f.Name)+len(f.Value) > maxGathered {
			n, _ := strconv.Atoi(string(l.Get(omittedMembers)))
			l = l.Set(omittedMembers, Number(n+1))
			continue
		}
		l = l.Set(f.Name, bytes.Clone(f.Value))
	}
	return l
}

const (
	// maxMembers bounds the members that are gathered out of many frames.
	maxMembers     = 256
	maxGathered    = 16 << 20 // bytes of them; what does not fit an event is left out there
	omittedMembers = "omitted_members"
)

// Size returns about how long the object is when it is written, in bytes.
func (l Fields) Size() (n int) {
	for _, f := range l {
		n += len(f.Name) + len(f.Value) + len(`"":,`)
	}
	return n
}

// Encode writes the object.
func (l Fields) Encode() json.RawMessage {
	b := append(make([]byte, 0, len("{}")+l.Size()), '{')
	for i, f := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsonscan.AppendDecoded(b, f.Name), ':')
		b = append(b, f.Value...)
	}
	return append(b, '}')
}

// IsString reports whether a value, which is valid JSON or nil, is a string.
func IsString(v []byte) bool { return len(v) > 1 && v[0] == '"' }

// IsObject reports whether a value, which is valid JSON or nil, is an object.
func IsObject(v []byte) bool { return len(v) > 1 && v[0] == '{' }

// IsNull reports whether a value is there and is null.
func IsNull(v []byte) bool { return string(v) == "null" }

// OrNull returns null for a value that is not there.
func OrNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// Bool writes true or false.
func Bool(yes bool) json.RawMessage { return strconv.AppendBool(nil, yes) }

// Number writes an integer.
func Number(n int) json.RawMessage { return strconv.AppendInt(nil, int64(n), 10) }

// List writes a list of values.
func List(values []json.RawMessage) json.RawMessage {
	b := []byte{'['}
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, v...)
	}
	return append(b, ']')
}

// Quote writes a string as JSON.
func Quote(s string) json.RawMessage { return jsonscan.AppendString(make([]byte, 0, len(s)+2), s) }

// Inner takes the quotes off a string.
func Inner(s json.RawMessage) []byte { return s[1 : len(s)-1] }

// Enquote puts them back.
func Enquote(b []byte) json.RawMessage {
	return append(append(append(make([]byte, 0, len(b)+2), '"'), b...), '"')
}

// Unescape decodes the inside of a JSON string. An escape that stands for half a character stays
// written as an escape: within a tool's input, where it must stand in a string, it then means the
// same.
func Unescape(s []byte) []byte {
	if bytes.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 >= len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		switch s[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := hex4(s, i+1)
			if low := hex4(s, i+7); i+6 < len(s) && s[i+5] == '\\' && s[i+6] == 'u' && utf16.DecodeRune(r, low) != utf8.RuneError {
				r = utf16.DecodeRune(r, low)
				i += 6
			}
			if utf16.IsSurrogate(r) {
				out = append(out, s[i-1:i+5]...)
			} else {
				out = utf8.AppendRune(out, r)
			}
			i += 4
		default:
			out = append(out, s[i])
		}
	}
	return out
}

func hex4(s []byte, i int) rune {
	if i+4 > len(s) {
		return -1
	}
	n, err := strconv.ParseUint(string(s[i:i+4]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(n)
}

// Split cuts the inside of a JSON string into parts of at most limit bytes (at least 32), never
// within an escape, a character or a pair of surrogates.
func Split(s []byte, limit int) [][]byte {
	var parts [][]byte
	for len(s) > limit {
		cut, i := 0, 0
		for i <= limit {
			cut = i
			i += unit(s[i:])
		}
		parts = append(parts, s[:cut])
		s = s[cut:]
	}
	return append(parts, s)
}

// unit returns the length of the character that a string begins with, as it is written.
func unit(s []byte) int {
	if s[0] != '\\' {
		_, n := utf8.DecodeRune(s)
		return n
	}
	if len(s) < 6 || s[1] != 'u' {
		return min(2, len(s))
	}
	if len(s) >= 12 && s[6] == '\\' && s[7] == 'u' && utf16.DecodeRune(hex4(s, 2), hex4(s, 8)) != utf8.RuneError {
		return 12
	}
	return 6
}

// OneLine removes line breaks between tokens, which would break a line of the log.
func OneLine(v []byte) []byte {
	if !bytes.ContainsAny(v, "\n\r") {
		return v
	}
	var buf bytes.Buffer
	if json.Compact(&buf, v) != nil {
		return v
	}
	return buf.Bytes()
}

// maxDepth bounds the nesting of what is carried, so that events stay within the schema's 128.
const maxDepth = 100

// problemJSON is why data is no JSON at all.
const problemJSON = "invalid JSON"

// Problem returns why data cannot be carried as JSON, or "".
func Problem(data []byte) string {
	switch {
	case jsonscan.Valid(data, maxDepth):
		return ""
	case !utf8.Valid(data):
		return "invalid UTF-8"
	case !json.Valid(data):
		return problemJSON
	}
	return "nested too deeply"
}
