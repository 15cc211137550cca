package schema

import (
	"bytes"
	"strconv"

	"agentstream/schema/jsonscan"
)

// Views of a run show events that stand for several (design: first_seq). What is below builds their
// lines from stored ones without decoding a payload.

// Attributes returns the envelope between the number and the payload, a part of Line: first_seq,
// turn_id, path and whatever else there is, each with a comma before it. nil when the payload is not
// the last field, as in lines that AppendLine did not write.
func (r Record) Attributes() []byte {
	payload := r.Payload()
	if payload == nil {
		return nil
	}
	end := len(r.Line) - 1 - len(payload) - len(payloadMark)
	if end < r.tail || !bytes.HasPrefix(r.Line[end:], []byte(payloadMark)) {
		return nil
	}
	return r.Line[r.tail:end:end]
}

const (
	payloadMark = `,"payload":`
	firstMark   = `,"first_seq":`
)

// AppendSpan appends the record's line as it stands for events from first on, with another payload
// unless that is nil. A first_seq that the line has already is replaced.
func (r Record) AppendSpan(dst []byte, first Seq, payload []byte) []byte {
	if payload != nil {
		return r.AppendMerged(dst, first, r.Attributes(), payload)
	}
	dst = append(dst, r.Line[:r.tail]...)
	if first != r.Seq {
		dst = strconv.AppendInt(append(dst, firstMark...), int64(first), 10)
	}
	return append(dst, withoutFirst(r.Line[r.tail:])...)
}

// AppendMerged is AppendSpan with other attributes as well.
func (r Record) AppendMerged(dst []byte, first Seq, attributes, payload []byte) []byte {
	dst = append(dst, r.Line[:r.tail]...)
	if first != r.Seq {
		dst = strconv.AppendInt(append(dst, firstMark...), int64(first), 10)
	}
	dst = append(dst, withoutFirst(attributes)...)
	return append(append(append(dst, payloadMark...), payload...), '}')
}

// withoutFirst leaves a first_seq out that stands at the very beginning, where AppendSpan puts it.
func withoutFirst(rest []byte) []byte {
	after, ok := bytes.CutPrefix(rest, []byte(firstMark))
	if !ok {
		return rest
	}
	i := 0
	for i < len(after) && after[i] >= '0' && after[i] <= '9' {
		i++
	}
	return after[i:]
}

// First returns the seq of the first event that the line stands for: Seq itself in the log, less in
// views.
func (r Record) First() Seq {
	after, ok := bytes.CutPrefix(r.Line[r.tail:], []byte(firstMark))
	if !ok {
		return r.Seq
	}
	var n Seq
	for i := 0; i < len(after) && i < 16 && after[i] >= '0' && after[i] <= '9'; i++ {
		n = n*10 + Seq(after[i]-'0')
	}
	return n
}

// AppendOwn appends a child's line as the child's own stream shows it: the child is the run, and seq
// counts its events alone (native digest §4.4). id and payload are the same.
func (r Record) AppendOwn(dst []byte, seq Seq) []byte {
	const mark = `","run_id":"`
	i := bytes.Index(r.Line, []byte(mark))
	if i < 0 { // ScanLine has seen it
		return append(dst, r.Line...)
	}
	dst = append(append(dst, r.Line[:i+len(mark)]...), r.Child...)
	dst = strconv.AppendInt(append(dst, `","child_id":null,"seq":`...), int64(seq), 10)
	return append(dst, r.Line[r.tail:]...)
}

// SplitText cuts a payload around the bytes of its text: before ends with the opening quote, after
// begins with the closing one. The text keeps its escapes, so that joining two of them joins what
// they say, also when a surrogate pair was cut in two. ok is false for a payload that has no text, or
// more than one field of that name.
func SplitText(payload []byte) (before, text, after []byte, ok bool) {
	start, end := -1, -1
	for i := 1; i < len(payload) && payload[0] == '{'; {
		if i = jsonscan.SkipSpace(payload, i); i < len(payload) && payload[i] == '}' {
			break
		}
		name, value, next := jsonscan.RawMember(payload, i)
		if next < 0 || bytes.IndexByte(name, '\\') >= 0 { // a name with an escape may be another spelling of text
			return nil, nil, nil, false
		}
		if string(name) == `"text"` {
			if start >= 0 || !jsonscan.IsString(value) {
				return nil, nil, nil, false
			}
			start, end = next-len(value)+1, next-1
		}
		i = jsonscan.Behind(payload, next)
	}
	if start < 0 {
		return nil, nil, nil, false
	}
	return payload[:start:start], payload[start:end:end], payload[end:], true
}

// CommonFields returns the payload around the text of two deltas, as SplitText cuts them, for one that
// stands for both: the fields that they have alike. ok is false when their texts belong to different
// places: one names another block or another call than the other.
func CommonFields(before, after, nextBefore, nextAfter []byte) (b, a []byte, ok bool) {
	for _, name := range placeFields {
		if !bytes.Equal(fieldIn(before, after, 1, name), fieldIn(nextBefore, nextAfter, 1, name)) {
			return nil, nil, false
		}
	}
	if allIn(before, 1, nextBefore, nextAfter) && allIn(after, 1, nextBefore, nextAfter) {
		return before, after, true // nothing to leave out: what has been joined before is mostly so
	}
	b, a = append(b, '{'), append(a, '"')
	for name, value, i := nextField(before, 1); i >= 0; name, value, i = nextField(before, i) {
		if bytes.Equal(value, fieldIn(nextBefore, nextAfter, 1, name)) {
			b = append(append(append(append(b, name...), ':'), value...), ',')
		}
	}
	for name, value, i := nextField(after, 1); i >= 0; name, value, i = nextField(after, i) {
		if bytes.Equal(value, fieldIn(nextBefore, nextAfter, 1, name)) {
			a = append(append(append(append(a, ','), name...), ':'), value...)
		}
	}
	return append(b, `"text":"`...), append(a, '}'), true
}

// CommonAttributes is CommonFields of two envelopes, as Attributes returns them. ok is false when one
// of the protocol's own fields differs.
func CommonAttributes(attributes, next []byte) (shared []byte, ok bool) {
	for _, name := range ownAttributes {
		if !bytes.Equal(fieldIn(attributes, nil, 0, name), fieldIn(next, nil, 0, name)) {
			return nil, false
		}
	}
	shared = []byte{}
	for name, value, i := nextField(attributes, 0); i >= 0; name, value, i = nextField(attributes, i) {
		if bytes.Equal(value, fieldIn(next, nil, 0, name)) {
			shared = append(append(append(append(shared, ','), name...), ':'), value...)
		}
	}
	return shared, true
}

// placeFields are the fields of a delta's payload that place its text.
var placeFields = [][]byte{[]byte(`"index"`), []byte(`"call_id"`), []byte(`"message_id"`)}

// ownAttributes are those of an envelope that identify the actor and the cause.
var ownAttributes = [][]byte{[]byte(`"turn_id"`), []byte(`"path"`), []byte(`"cause"`), []byte(`"actor"`)}

// fieldIn returns the value of a field in one of two lists, each from i on; nil when there is none.
func fieldIn(one, other []byte, i int, name []byte) []byte {
	for _, list := range [2][]byte{one, other} {
		for n, value, at := nextField(list, i); at >= 0; n, value, at = nextField(list, at) {
			if bytes.Equal(n, name) {
				return value
			}
		}
	}
	return nil
}

// allIn reports whether all fields of a list, from i on, stand with the same bytes in one of two others.
func allIn(list []byte, i int, one, other []byte) bool {
	for name, value, at := nextField(list, i); at >= 0; name, value, at = nextField(list, at) {
		if !bytes.Equal(value, fieldIn(one, other, 1, name)) {
			return false
		}
	}
	return true
}

// nextField returns the field at i or after the comma there, and the index after it; -1 when there is
// none that is whole.
func nextField(b []byte, i int) (name, value []byte, next int) {
	return jsonscan.RawMember(b, jsonscan.Behind(b, i))
}

// AppendBundle appends a line of the run itself with the record's id, time and number, another type,
// and the payload that fill appends.
func (r Record) AppendBundle(dst []byte, typ string, first Seq, fill func([]byte) []byte) []byte {
	const mark, run = `","type":"`, `","run_id":"`
	i := bytes.Index(r.Line, []byte(mark)) + len(mark)
	dst = append(append(dst, r.Line[:i]...), typ...)
	j := i + bytes.Index(r.Line[i:], []byte(run))
	end := j + len(run) + bytes.IndexByte(r.Line[j+len(run):], '"')
	dst = append(dst, r.Line[j:end]...)
	dst = strconv.AppendInt(append(dst, `","child_id":null,"seq":`...), int64(r.Seq), 10)
	if first != r.Seq {
		dst = strconv.AppendInt(append(dst, firstMark...), int64(first), 10)
	}
	return append(fill(append(dst, payloadMark...)), '}')
}
