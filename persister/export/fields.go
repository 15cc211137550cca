package export

import (
	"math"
	"strconv"

	"agentstream/schema/jsonscan"
)

// fields is a JSON object decoded one level deep. It is for payloads that the schema has checked.
type fields struct{ jsonscan.Fields }

// read decodes an object, with the list's own memory. Anything but an object has no fields.
func (l fields) read(obj []byte) fields { return fields{l.Read(obj)} }

// str returns a string, nil when there is none. Unpaired surrogates become U+FFFD.
func (l fields) str(name string) *string {
	s, ok := jsonscan.Unquote(l.Raw(name))
	if !ok {
		return nil
	}
	return &s
}

// whole returns a whole number from 0 to the greatest int64.
func (l fields) whole(name string) *int64 {
	n, err := strconv.ParseInt(string(l.Raw(name)), 10, 64)
	if err != nil || n < 0 {
		return nil
	}
	return &n
}

// float returns a number, nil when there is none or it exceeds a double.
func (l fields) float(name string) *float64 { return number(l.Raw(name)) }

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
	switch string(l.Raw(name)) {
	case "true":
		return new(true)
	case "false":
		return new(false)
	}
	return nil
}
