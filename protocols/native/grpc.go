package native

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/dialect"
	"agentstream/schema"
)

// Field numbers of schema/contracts/agent/v1/agent.proto.
const (
	eventID       = 1
	eventTS       = 2
	eventType     = 3
	eventRunID    = 4
	eventChildID  = 5
	eventSeq      = 6
	eventFirstSeq = 7
	eventTurnID   = 8
	eventPath     = 9
	eventCause    = 10
	eventActor    = 11
	eventExtra    = 12
	eventPayload  = 13
)

// errLine reports that a stored line is not in the form of the log.
var errLine = errors.New("line is not in the form of the log")

// AppendEvent appends the message agent.v1.Event that holds what the record's line holds. The payload
// passes as it is, undecoded.
func AppendEvent(dst []byte, r schema.Record) ([]byte, error) {
	var m messages
	payload, err := m.encodeHead(r)
	if err != nil {
		return dst, err
	}
	return append(append(dst, m.head...), payload...), nil
}

// messages projects records to encoded agent.v1.Event messages.
type messages struct {
	letter bool // the Profile

	head  []byte // of the message under way: all but the payload's bytes
	extra []byte // its unknown fields
}

// Project makes one frame, whose data is the message.
func (m *messages) Project(out *dialect.Frames, r schema.Record) error {
	if m.letter && string(r.Type) == gapType {
		return nil
	}
	payload, err := m.encodeHead(r)
	if err != nil {
		return err
	}
	out.Add(dialect.Frame{Event: r.Type, Data: out.Text(m.head, payload)})
	return nil
}

// encodeHead encodes into head everything up to the payload's bytes, which it returns: they are copied once.
func (m *messages) encodeHead(r schema.Record) ([]byte, error) {
	sc := scanner{rest: r.Line}
	id, ts := sc.token(`{"id":"`), sc.token(`","ts":"`)
	sc.token(`","type":"`)
	run := sc.token(`","run_id":"`)
	b := appendText(m.head[:0], eventID, id)
	b = appendText(b, eventTS, ts)
	typ := r.Type
	if m.letter && string(typ) == schema.TypeToolOutputDelta {
		typ = textDelta
	}
	b = appendText(b, eventType, typ)
	b = appendText(b, eventRunID, run)
	if r.Child == nil {
		sc.skip(`","child_id":null`)
	} else {
		sc.token(`","child_id":"`)
		sc.skip(`"`)
		b = protowire.AppendTag(b, eventChildID, protowire.BytesType) // optional: present even when empty
		b = protowire.AppendBytes(b, r.Child)
	}
	sc.skip(`,"seq":`)
	sc.number()
	b = appendInt(b, eventSeq, int64(r.Seq))
	payload, b := m.tail(&sc, b)
	if sc.bad || payload == nil {
		return nil, fmt.Errorf("seq %d: %w", r.Seq, errLine)
	}
	if len(m.extra) > 0 {
		m.extra = append(m.extra, '}')
		b = appendText(b, eventExtra, m.extra)
	}
	b = protowire.AppendTag(b, eventPayload, protowire.BytesType)
	m.head = protowire.AppendVarint(b, uint64(len(payload)))
	return payload, nil
}

// tail encodes the fields behind seq, but the payload, which it returns, and the unknown ones, which it
// collects.
func (m *messages) tail(sc *scanner, b []byte) (payload, _ []byte) {
	m.extra = m.extra[:0]
	for {
		const mark = `,"payload":`
		if bytes.HasPrefix(sc.rest, []byte(mark)) {
			// It is the last field (schema.Event.AppendLine), and only its end need be found.
			return sc.rest[len(mark) : len(sc.rest)-1], b
		}
		name, value, raw := sc.field()
		if name == nil {
			return nil, b
		}
		switch string(name) {
		case `"first_seq"`:
			n, err := strconv.ParseInt(string(value), 10, 64)
			sc.bad = sc.bad || err != nil
			b = appendInt(b, eventFirstSeq, n)
		case `"turn_id"`:
			b = appendText(b, eventTurnID, sc.text(value))
		case `"cause"`:
			b = appendText(b, eventCause, sc.text(value))
		case `"actor"`:
			b = appendText(b, eventActor, sc.text(value))
		case `"path"`:
			b = appendPath(sc, b, value)
		default:
			if len(m.extra) == 0 {
				m.extra = append(m.extra, '{')
			} else {
				m.extra = append(m.extra, ',')
			}
			m.extra = append(m.extra, raw...)
		}
	}
}

func appendPath(sc *scanner, b, list []byte) []byte {
	if bytes.Equal(list, []byte("null")) {
		return b
	}
	if len(list) < 2 || list[0] != '[' {
		sc.bad = true
		return b
	}
	in := scanner{rest: list[1 : len(list)-1]}
	for len(in.rest) > 0 && !in.bad {
		b = protowire.AppendTag(b, eventPath, protowire.BytesType)
		b = protowire.AppendBytes(b, in.text(in.value()))
		if len(in.rest) > 0 {
			in.skip(",")
		}
	}
	sc.bad = sc.bad || in.bad
	return b
}

// appendText appends a string field. Empty ones are absent (proto3).
func appendText(b []byte, field protowire.Number, text []byte) []byte {
	if len(text) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), text)
}

func appendInt(b []byte, field protowire.Number, n int64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(n))
}

// scanner walks a line that schema.Event.AppendLine wrote, without decoding it.
type scanner struct {
	rest []byte
	bad  bool
}

// skip steps over what must stand here.
func (sc *scanner) skip(want string) {
	if len(sc.rest) < len(want) || string(sc.rest[:len(want)]) != want {
		sc.bad = true
		return
	}
	sc.rest = sc.rest[len(want):]
}

// token steps over want and returns what is behind it up to a quote, which stays.
func (sc *scanner) token(want string) []byte {
	sc.skip(want)
	end := bytes.IndexByte(sc.rest, '"')
	if sc.bad || end < 0 {
		sc.bad = true
		return nil
	}
	t := sc.rest[:end]
	sc.rest = sc.rest[end:]
	return t
}

func (sc *scanner) number() {
	for len(sc.rest) > 0 && sc.rest[0] >= '0' && sc.rest[0] <= '9' {
		sc.rest = sc.rest[1:]
	}
}

// field returns the next ,"name":value with the name in its quotes and both as they stand; nil at the
// end of the object.
func (sc *scanner) field() (name, value, raw []byte) {
	if sc.bad || string(sc.rest) == "}" {
		return nil, nil, nil
	}
	sc.skip(",")
	begin := sc.rest
	name = sc.value()
	sc.skip(":")
	value = sc.value()
	if sc.bad || len(name) < 2 || name[0] != '"' {
		sc.bad = true
		return nil, nil, nil
	}
	return name, value, begin[:len(begin)-len(sc.rest)]
}

// value returns the JSON value that stands here.
func (sc *scanner) value() []byte {
	b := sc.rest
	i, depth := 0, 0
	for i < len(b) {
		switch b[i] {
		case '"':
			i = endOfString(b, i)
		case '{', '[':
			depth++
			i++
		case '}', ']', ',':
			if depth == 0 {
				return sc.cut(i) // of a number, true, false or null
			}
			if b[i] != ',' {
				depth--
			}
			i++
		default:
			i++
			continue
		}
		if depth == 0 {
			return sc.cut(i)
		}
	}
	return sc.cut(i)
}

// cut returns the first n bytes, of which there must be one.
func (sc *scanner) cut(n int) []byte {
	if n == 0 || n > len(sc.rest) {
		sc.bad = true
		return nil
	}
	v := sc.rest[:n]
	sc.rest = sc.rest[n:]
	return v
}

// endOfString returns the index behind the string that starts at i, or one beyond b when it does not end.
func endOfString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b) + 1
}

// text returns a JSON string's value. Only one with escapes is copied. null is empty.
func (sc *scanner) text(v []byte) []byte {
	if string(v) == "null" {
		return nil
	}
	if len(v) < 2 || v[0] != '"' {
		sc.bad = true
		return nil
	}
	if body := v[1 : len(v)-1]; bytes.IndexByte(body, '\\') < 0 {
		return body
	}
	var s string
	if err := json.Unmarshal(v, &s); err != nil {
		sc.bad = true
	}
	return []byte(s)
}
