package producers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"agentstream/schema"
)

// object is a JSON object that is being written, member by member in the order of the calls. The zero
// value is empty.
type object []byte

func (o object) name(name string) object {
	if len(o) == 0 {
		o = append(o, '{')
	} else {
		o = append(o, ',')
	}
	return append(append(append(o, '"'), name...), '"', ':')
}

// str adds a string, and nothing when it is empty.
func (o object) str(name, value string) object {
	if value == "" {
		return o
	}
	return o.text(name, value)
}

// text adds a string, also an empty one.
func (o object) text(name, value string) object {
	return append(appendEscaped(append(o.name(name), '"'), value), '"')
}

// inner adds a string whose inside is escaped already.
func (o object) inner(name string, value []byte) object {
	return append(append(append(o.name(name), '"'), value...), '"')
}

func (o object) integer(name string, value int64) object {
	return strconv.AppendInt(o.name(name), value, 10)
}

func (o object) yes(name string, value bool) object { return strconv.AppendBool(o.name(name), value) }

// raw adds a value that is JSON, and nothing when there is none.
func (o object) raw(name string, value []byte) object {
	if len(value) == 0 {
		return o
	}
	return append(o.name(name), value...)
}

// close closes the object.
func (o object) close() json.RawMessage {
	if len(o) == 0 {
		return json.RawMessage("{}")
	}
	return json.RawMessage(append(o, '}'))
}

// maxReason bounds the reason why something ended, in bytes: it is in each event that ends something.
const maxReason = 4 << 10

// maxError bounds the text of one error, in bytes.
const maxError = 64 << 10

// shorten cuts a text for people, and adds how much is missing.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	n := most
	for n > most-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return fmt.Sprintf("%s… (%d bytes more)", s[:n], len(s)-n)
}

// maxName bounds ids and names that an agent passes, in bytes.
const maxName = 256

// shortNames refuses names that would not fit every event that has them.
func shortNames(names ...string) error {
	for _, s := range names {
		if len(s) > maxName {
			return fmt.Errorf("a name of %d bytes, %d allowed: %w", len(s), maxName, schema.ErrTooLarge)
		}
	}
	return nil
}

// errorOf returns an error as events have it.
func errorOf(err error) json.RawMessage {
	return object(nil).text("type", "error").text("message", shorten(errorText(err), maxError)).close()
}

// usageOf returns what a model used, an object; nil where that is unknown.
func usageOf(usage any) (json.RawMessage, error) {
	v, err := jsonOf(usage)
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	v = bytes.TrimSpace(v)
	switch {
	case len(v) == 0 || string(v) == "null":
		return nil, nil
	case v[0] != '{':
		return nil, fmt.Errorf("usage is not an object: %w", schema.ErrMalformed)
	case len(v) > maxUsage:
		return nil, fmt.Errorf("usage of %d bytes, %d allowed: %w", len(v), maxUsage, schema.ErrTooLarge)
	}
	return v, nil
}

// errorText returns the text of an error.
func errorText(err error) string {
	if err == nil {
		return "unknown error"
	}
	return err.Error()
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends text as the inside of a JSON string. Bytes that are no UTF-8 become U+FFFD.
func appendEscaped(dst []byte, s string) []byte {
	plain := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		size := 1
		if c >= utf8.RuneSelf {
			var r rune
			if r, size = utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		dst = append(dst, s[plain:i]...)
		switch {
		case c >= utf8.RuneSelf:
			dst = append(dst, "\ufffd"...)
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i += size
		plain = i
	}
	return append(dst, s[plain:]...)
}

// jsonOf encodes what a caller passes as tool input, output or usage: json.RawMessage passes as it is,
// anything else by encoding/json. nil is nothing.
func jsonOf(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if len(v) > 0 && !json.Valid(v) {
			return nil, fmt.Errorf("json.RawMessage of %d bytes is not JSON: %w", len(v), schema.ErrMalformed)
		}
		if len(v) == 0 {
			return nil, nil
		}
		return v, nil
	case string:
		return append(appendEscaped([]byte{'"'}, v), '"'), nil
	}
	return json.Marshal(v)
}

// CommandsTaken returns a commands.taken event: the commands of a lane up to through have been dealt with. cause is
// the id of the event that brought this about, or "".
func CommandsTaken(lane string, through schema.Seq, cause string) schema.Event {
	payload := strconv.AppendInt([]byte(`{"through":`), int64(through), 10)
	return schema.Event{Type: schema.TypeCommandsTaken, ChildID: lane, Cause: cause, Payload: append(payload, '}')}
}
