package langchain

import (
	"strconv"

	"agentstream/schema/jsonscan"
)

// object is a JSON object that is being written. Names need no escapes.
type object []byte

func (o object) name(name string) object {
	if len(o) > 0 && o[len(o)-1] != '{' && o[len(o)-1] != '[' {
		o = append(o, ',')
	}
	return append(append(append(o, '"'), name...), `":`...)
}

func (o object) str(name, v string) object { return jsonscan.AppendString(o.name(name), v) }

// some writes a string that is not empty.
func (o object) some(name, v string) object {
	if v == "" {
		return o
	}
	return o.str(name, v)
}

func (o object) num(name string, n int64) object { return strconv.AppendInt(o.name(name), n, 10) }

// raw writes a JSON value, null for none.
func (o object) raw(name string, v []byte) object {
	if len(v) == 0 {
		return append(o.name(name), `null`...)
	}
	return append(o.name(name), v...)
}

// maybe writes a JSON value that is there.
func (o object) maybe(name string, v []byte) object {
	if len(v) == 0 {
		return o
	}
	return o.raw(name, v)
}

// inner writes a string of which the bytes between the quotes are given.
func (o object) inner(name string, v ...[]byte) object {
	o = append(o.name(name), '"')
	for _, part := range v {
		o = append(o, part...)
	}
	return append(o, '"')
}

func (o object) end() object { return append(o, '}') }

// text decodes a JSON string; "" for anything else.
func text(raw []byte) string {
	s, _ := jsonscan.Unquote(raw)
	return s
}

// quoted returns a JSON string.
func quoted(s string) []byte { return jsonscan.AppendString(nil, s) }

func isObject(v []byte) bool { return len(v) > 1 && v[0] == '{' }
