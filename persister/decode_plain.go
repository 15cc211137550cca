package persister

import (
	"bytes"
	"strconv"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// plainLines reads lines of the usual form without decoding JSON: an envelope without optional fields, exactly as
// schema.Event.AppendLine writes it, and a payload. For a line that it reads, readRow returns the same row. All other
// lines are left to readRow.
type plainLines struct {
	run, child string // child with its quotes, or null
}

func (l *plainLines) of(p *schema.Pack) {
	l.run, l.child = p.Key.Run, "null"
	if p.Child != "" {
		l.child = `"` + p.Child + `"`
	}
}

// read reports false for a line of another form.
func (l *plainLines) read(seq schema.Seq, line []byte) (Row, bool) {
	id, rest, ok := cutField(line, `{"id":"`)
	if !ok {
		return Row{}, false
	}
	stamp, rest, ok := cutField(rest, `","ts":"`)
	if !ok || !plainTime(stamp) {
		return Row{}, false
	}
	name, rest, ok := cutField(rest, `","type":"`)
	if !ok {
		return Row{}, false
	}
	payload, ok := l.payload(seq, rest)
	if !ok {
		return Row{}, false
	}
	row := Row{Seq: seq, ID: string(id), Type: typeName(name), Line: line, Payload: payload, plain: true}
	if row.Type == "" || schema.ValidEventID(row.ID) != nil || row.TS.UnmarshalText(stamp) != nil {
		return Row{}, false
	}
	return row, true
}

// typeName returns the name of a known type, "" for others.
func typeName(name []byte) string {
	if known, ok := catalogued[string(name)]; ok {
		return known
	}
	info, err := schema.Lookup(string(name))
	if err != nil {
		return ""
	}
	return info.Name
}

// catalogued holds the names of the catalogue, so that rows share their memory.
var catalogued = func() map[string]string {
	names := make(map[string]string)
	for _, t := range schema.Types() {
		names[t.Name] = t.Name
	}
	return names
}()

// payload checks what follows the type and returns the payload: a JSON object that ends with the line, so that it is
// the last field.
func (l *plainLines) payload(seq schema.Seq, rest []byte) ([]byte, bool) {
	var buf [40]byte
	number := append(strconv.AppendInt(buf[:0], int64(seq), 10), `,"payload":`...)
	payload := rest
	for _, part := range [...]string{`","run_id":"`, l.run, `","child_id":`, l.child, `,"seq":`} {
		if len(payload) < len(part) || string(payload[:len(part)]) != part {
			return nil, false
		}
		payload = payload[len(part):]
	}
	payload, ok := bytes.CutPrefix(payload, number)
	if n := len(payload); !ok || seq > schema.MaxSeq || n < 3 || payload[0] != '{' || payload[n-2] != '}' ||
		payload[n-1] != '}' {
		return nil, false
	}
	payload = payload[:len(payload)-1]
	// JSON allows a line break between tokens, the log does not.
	return payload, bytes.IndexByte(payload, '\r') < 0 && jsonscan.Valid(payload, plainDepth)
}

// plainDepth is well below the depth to which the schema lets events be nested.
const plainDepth = 64

// cutField cuts the prefix and the string after it. rest begins with the closing quote.
func cutField(b []byte, prefix string) (value, rest []byte, ok bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return nil, nil, false
	}
	b = b[len(prefix):]
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return nil, nil, false
	}
	return b[:end], b[end:], true
}

// plainTime reports whether s has the characters and the length of a usual time in UTC.
func plainTime(s []byte) bool {
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > len("2006-01-02T15:04:05.000000000Z") || s[len(s)-1] != 'Z' {
		return false
	}
	for _, c := range s {
		switch {
		case c >= '0' && c <= '9', c == '-', c == ':', c == '.', c == 'T', c == 'Z':
		default:
			return false
		}
	}
	return true
}
