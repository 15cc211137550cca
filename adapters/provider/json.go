package provider

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
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
	s, _ := jsonscan.Unquote(l.Get(name))
	return s
}

// Index reads a position; -1 when it is absent or none.
func (l Fields) Index(name string) int {
	n, err := strconv.Atoi(strings.Trim(string(l.Get(name)), `"`))
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

// Without returns the members but those of some names. The values are the same bytes.
func (l Fields) Without(names ...string) (out Fields) {
	for _, f := range l {
		if !slices.Contains(names, f.Name) {
			out = append(out, f)
		}
	}
	return out
}

// Copy returns the members in bytes of their own.
func (l Fields) Copy() Fields {
	out, _ := Parse(l.Encode())
	return out
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

// IsObject reports whether a value, which is valid JSON or nil, is an object.
func IsObject(v []byte) bool { return len(v) > 1 && v[0] == '{' }

// IsNull reports whether a value is there and is null.
func IsNull(v []byte) bool { return string(v) == "null" }

// HasValue reports whether a value is there, and is neither null nor empty.
func HasValue(v json.RawMessage) bool {
	switch string(v) {
	case "", "null", `""`, "{}", "[]":
		return false
	}
	return true
}

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
	list := json.RawMessage("[]")
	for _, v := range values {
		list = Append(list, v)
	}
	return list
}

// Append adds a value to a list, in its space where there is some.
func Append(list, value json.RawMessage) json.RawMessage {
	if len(list) <= len("[]") {
		return slices.Concat([]byte{'['}, value, []byte{']'})
	}
	return append(append(append(list[:len(list)-1], ','), value...), ']')
}

// Quote writes a string as JSON.
func Quote(s string) json.RawMessage { return jsonscan.AppendString(make([]byte, 0, len(s)+2), s) }

// Enquote puts quotes around what stands in a string, which has its escapes.
func Enquote(b []byte) json.RawMessage {
	return append(append(append(make([]byte, 0, len(b)+2), '"'), b...), '"')
}

// OneLine removes line breaks between tokens, which would break a line of the log.
func OneLine(v []byte) []byte {
	if !bytes.ContainsAny(v, "\n\r") {
		return v
	}
	var buf bytes.Buffer
	_ = json.Compact(&buf, v) // it is valid
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
