package jsonscan

import (
	"slices"
	"strconv"
)

// Object is a JSON object that is being written: append(Object(dst), '{') begins one, End ends it. Every method appends
// and returns what it has appended to. Names need no escapes.
type Object []byte

// Name writes the name of a member, whose value the caller appends.
func (o Object) Name(name string) Object {
	return append(append(append(o.next(), '"'), name...), `":`...)
}

// next writes what stands between two members.
func (o Object) next() Object {
	if n := len(o); n > 0 && o[n-1] != '{' && o[n-1] != '[' {
		return append(o, ',')
	}
	return o
}

// Str writes a string.
func (o Object) Str(name, v string) Object { return AppendString(o.Name(name), v) }

// NullStr writes a string, or null for "".
func (o Object) NullStr(name, v string) Object {
	if v == "" {
		return append(o.Name(name), `null`...)
	}
	return o.Str(name, v)
}

// OptStr writes a string, or no member for "".
func (o Object) OptStr(name, v string) Object {
	if v == "" {
		return o
	}
	return o.Str(name, v)
}

// Inner writes a string of which the bytes between the quotes are given, in parts.
func (o Object) Inner(name string, parts ...[]byte) Object {
	o = append(o.Name(name), '"')
	for _, part := range parts {
		o = append(o, part...)
	}
	return append(o, '"')
}

// Int writes a whole number.
func (o Object) Int(name string, n int64) Object { return strconv.AppendInt(o.Name(name), n, 10) }

// Float writes a number, without an exponent.
func (o Object) Float(name string, f float64) Object {
	return strconv.AppendFloat(o.Name(name), f, 'f', -1, 64)
}

// Bool writes true or false.
func (o Object) Bool(name string, v bool) Object { return strconv.AppendBool(o.Name(name), v) }

// Raw writes a JSON value, or null for none.
func (o Object) Raw(name string, v []byte) Object {
	if len(v) == 0 {
		return append(o.Name(name), `null`...)
	}
	return append(o.Name(name), v...)
}

// OptRaw writes a JSON value, or no member for none.
func (o Object) OptRaw(name string, v []byte) Object {
	if len(v) == 0 {
		return o
	}
	return o.Raw(name, v)
}

// End ends the object.
func (o Object) End() Object { return append(o, '}') }

// Members writes the members of an object as they stand, but for those that are named.
func (o Object) Members(from []byte, but ...string) Object {
	for name, v := range Members(from) {
		if !slices.Contains(but, string(name)) {
			o = append(append(AppendDecoded(o.next(), string(name)), ':'), v...)
		}
	}
	return o
}
