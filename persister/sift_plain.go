package persister

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"agentstream/schema"
)

// plainLines reads the lines that nearly all are, without decoding them: those which hold an envelope
// without optional fields exactly as schema.Event.AppendLine writes it, and a payload. What it reads,
// readRow reads to the same row; what it does not, readRow reads or refuses.
type plainLines struct {
	run string // the end of run_id and all up to the number
}

func (l *plainLines) of(p *schema.Pack) {
	child := `null,"seq":`
	if p.Child != "" {
		child = `"` + p.Child + `","seq":`
	}
	l.run = p.Key.Run + `","child_id":` + child
}

// read leaves everything unusual to readRow.
func (l *plainLines) read(seq schema.Seq, line []byte) (Row, bool) {
	id, rest, ok := cutField(line, `{"id":"`)
	if !ok || schema.ValidEventID(id) != nil {
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
	info, err := schema.Lookup(name)
	if err != nil {
		return Row{}, false
	}
	payload, ok := l.payload(seq, rest)
	if !ok {
		return Row{}, false
	}
	ts, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return Row{}, false
	}
	return Row{Seq: seq, ID: id, Type: info.Name, TS: ts, Line: line, Payload: payload}, true
}

// payload checks what follows the type and gives the payload: a JSON object that reaches to the end of
// the line, and so is the last field.
func (l *plainLines) payload(seq schema.Seq, rest []byte) ([]byte, bool) {
	rest, ok := bytes.CutPrefix(rest, []byte(`","run_id":"`))
	if !ok || len(rest) < len(l.run) || string(rest[:len(l.run)]) != l.run {
		return nil, false
	}
	var buf [40]byte
	number := append(strconv.AppendInt(buf[:0], int64(seq), 10), `,"payload":`...)
	payload, ok := bytes.CutPrefix(rest[len(l.run):], number)
	if n := len(payload); !ok || seq > schema.MaxSeq || n < 3 || payload[0] != '{' || payload[n-2] != '}' || payload[n-1] != '}' {
		return nil, false
	}
	payload = payload[:len(payload)-1]
	// Fewer brackets than levels are allowed; a line break between tokens, which JSON takes for a space,
	// is not the log's form.
	ok = bytes.Count(payload, []byte{'{'})+bytes.Count(payload, []byte{'['}) < plainDepth &&
		bytes.IndexByte(payload, '\r') < 0 && utf8.Valid(payload) && json.Valid(payload)
	return payload, ok
}

// plainDepth is well below how deep the schema lets events be nested.
const plainDepth = 64

// cutField cuts prefix and the string behind it, up to but without its closing quote.
func cutField(b []byte, prefix string) (string, []byte, bool) {
	if len(b) < len(prefix) || string(b[:len(prefix)]) != prefix {
		return "", nil, false
	}
	b = b[len(prefix):]
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		return "", nil, false
	}
	return string(b[:end]), b[end:], true
}

// plainTime says that s has the bytes and the length of a usual time in UTC.
func plainTime(s string) bool {
	if len(s) < len("2006-01-02T15:04:05Z") || len(s) > len("2006-01-02T15:04:05.000000000Z") || s[len(s)-1] != 'Z' {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c == '-', c == ':', c == '.', c == 'T', c == 'Z':
		default:
			return false
		}
	}
	return true
}
