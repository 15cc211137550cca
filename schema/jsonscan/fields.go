package jsonscan

import (
	"strconv"
	"strings"
)

// Fields is a JSON object taken apart, in order.
type Fields []Field

// Field is a field of an object: its decoded name, and its value as it stands in the object's bytes.
type Field struct{ Name, Value []byte }

// Read takes a valid object apart and returns its fields, which reuse the memory of l. It returns nil for anything
// else than an object.
func (l Fields) Read(obj []byte) Fields {
	i := SkipSpace(obj, 0)
	if i >= len(obj) || obj[i] != '{' {
		return nil
	}
	if l = l[:0]; l == nil {
		l = make(Fields, 0, 8)
	}
	for i = SkipSpace(obj, i+1); i < len(obj) && obj[i] == '"'; {
		var f Field
		if f.Name, f.Value, i = member(obj, i); i < 0 {
			return nil
		}
		l = append(l, f)
	}
	return l
}

// Raw returns a field's value, nil when there is none. Of two fields with one name the last counts, as
// in JavaScript.
func (l Fields) Raw(name string) []byte {
	for i := len(l) - 1; i >= 0; i-- {
		if string(l[i].Name) == name {
			return l[i].Value
		}
	}
	return nil
}

// Kind returns the value if it begins with c, else nil: unknown fields are always allowed, so a name may mean
// something else in another type.
func (l Fields) Kind(name string, c byte) []byte {
	if v := l.Raw(name); len(v) > 0 && v[0] == c {
		return v
	}
	return nil
}

// Object returns the value if it is an object, else nil.
func (l Fields) Object(name string) []byte { return l.Kind(name, '{') }

// Array returns the value if it is an array, else nil.
func (l Fields) Array(name string) []byte { return l.Kind(name, '[') }

// Some returns the value, or nil when it is null.
func (l Fields) Some(name string) []byte {
	if v := l.Raw(name); len(v) > 0 && v[0] != 'n' {
		return v
	}
	return nil
}

// Number returns the value if it is a number, else nil.
func (l Fields) Number(name string) []byte {
	if v := l.Raw(name); len(v) > 0 && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') {
		return v
	}
	return nil
}

// Yes reports whether the value is true.
func (l Fields) Yes(name string) bool { return l.Kind(name, 't') != nil }

// Str returns the value if it is a string, decoded as DecodeString does, else "".
func (l Fields) Str(name string) string { return DecodeString(l.Kind(name, '"')) }

// Same is Str, without memory of its own where that is likely.
func (l Fields) Same(name, likely string) string {
	v := l.Kind(name, '"')
	if len(v) == len(likely)+2 && string(v[1:len(v)-1]) == likely && strings.IndexByte(likely, '\\') < 0 {
		return likely
	}
	return DecodeString(v)
}

// Inner returns the bytes between the quotes of a string, escapes and all, or nil when the value is no string.
func (l Fields) Inner(name string) []byte {
	if v := l.Kind(name, '"'); len(v) >= 2 {
		return v[1 : len(v)-1]
	}
	return nil
}

// Integer returns the value if WholeNumber reads it.
func (l Fields) Integer(name string) (int64, bool) { return WholeNumber(l.Raw(name)) }

// maxWhole is the largest whole number that a JavaScript client holds exactly.
const maxWhole = 1<<53 - 1

// WholeNumber reads a whole number from 0 to 2^53-1, also when it is written as 1.0 or 1e0: not every
// reader can tell.
func WholeNumber(v []byte) (int64, bool) {
	if len(v) == 0 || (v[0] < '0' || v[0] > '9') && v[0] != '-' {
		return 0, false
	}
	if n, ok := digits(v); ok { // nearly all: positions and counts
		return n, true
	}
	if n, err := strconv.ParseUint(string(v), 10, 64); err == nil {
		return int64(n), n <= maxWhole
	}
	x, err := strconv.ParseFloat(string(v), 64)
	if err != nil || x < 0 || x > maxWhole || x != float64(int64(x)) {
		return 0, false
	}
	return int64(x), true
}

// digits reads a number that is written with at most 15 digits and nothing else: it is below 2^53.
func digits(v []byte) (n int64, ok bool) {
	if len(v) > 15 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}
