package metis

import (
	"strconv"

	"agentstream/schema/jsonscan"
)

// object is a JSON object that is being written. Names need no escapes.
type object []byte

func (o object) name(name string) object {
	if o[len(o)-1] != '{' {
		o = append(o, ',')
	}
	return append(append(append(o, '"'), name...), `":`...)
}

func (o object) str(name, v string) object { return appendString(o.name(name), v) }

// opt writes a string, or null for "".
func (o object) opt(name, v string) object { return appendOptional(o.name(name), v) }

func (o object) num(name string, n int64) object { return strconv.AppendInt(o.name(name), n, 10) }

func (o object) float(name string, f float64) object {
	return strconv.AppendFloat(o.name(name), f, 'f', -1, 64)
}

func (o object) yes(name string, v bool) object { return strconv.AppendBool(o.name(name), v) }

// raw writes a JSON value, null for none.
func (o object) raw(name string, v []byte) object {
	if len(v) == 0 {
		return append(o.name(name), `null`...)
	}
	return append(o.name(name), v...)
}

// inner writes a string of which the bytes between the quotes are given.
func (o object) inner(name string, v []byte) object {
	return append(append(append(o.name(name), '"'), v...), '"')
}

func (o object) end() object { return append(o, '}') }

// text decodes a JSON string; "" for anything else.
func text(raw []byte) string {
	s, _ := jsonscan.Unquote(raw)
	return s
}

func appendString(b []byte, s string) []byte { return jsonscan.AppendString(b, s) }

// appendOptional appends a string, or null for "".
func appendOptional(b []byte, s string) []byte {
	if s == "" {
		return append(b, `null`...)
	}
	return appendString(b, s)
}
