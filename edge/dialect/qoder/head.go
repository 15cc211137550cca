package qoder

import (
	"bytes"
	"encoding/json"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// head is the optional part of an envelope, between the number and the payload. Of the deltas of one lane it is
// the same again and again: then it is not read anew.
type head struct {
	raw                []byte // with the payload's name behind it; empty when there is none
	turn, actor, cause string // decoded; "" when absent
}

const (
	seqMark     = `,"seq":`
	payloadMark = `,"payload":`
)

// payload returns a record's payload and makes the head that of the record. nil: the record is damaged.
func (h *head) payload(r schema.Record) []byte {
	// Before the number there are tokens alone, with no quote in them: the first mark is it.
	i := bytes.Index(r.Line, []byte(seqMark))
	if i < 0 {
		return nil
	}
	i += len(seqMark)
	for i < len(r.Line) && r.Line[i] >= '0' && r.Line[i] <= '9' {
		i++
	}
	if rest := r.Line[i:]; len(h.raw) > 0 && len(rest) > len(h.raw) && bytes.Equal(rest[:len(h.raw)], h.raw) {
		return rest[len(h.raw) : len(rest)-1]
	}
	payload, list := r.Payload(), r.Attributes()
	h.raw, h.turn, h.actor, h.cause = h.raw[:0], "", "", ""
	if payload == nil || len(r.Line) < i+len(list) {
		return payload
	}
	h.read(list)
	if rest := r.Line[i:]; bytes.HasPrefix(rest[len(list):], []byte(payloadMark)) && bytes.Equal(rest[:len(list)], list) {
		h.raw = append(append(h.raw, list...), payloadMark...)
	}
	return payload
}

// read takes the fields of the list, each of which has a comma before it.
func (h *head) read(list []byte) {
	for len(list) > 1 && list[0] == ',' {
		end := jsonscan.SkipValue(list, 1)
		if end < 0 || end >= len(list) || list[end] != ':' {
			return
		}
		name, from := list[1:end], end+1
		if end = jsonscan.SkipValue(list, from); end < 0 {
			return
		}
		switch v := list[from:end]; string(name) { // what is no string is none
		case `"turn_id"`:
			_ = json.Unmarshal(v, &h.turn)
		case `"actor"`:
			_ = json.Unmarshal(v, &h.actor)
		case `"cause"`:
			_ = json.Unmarshal(v, &h.cause)
		}
		list = list[end:]
	}
}
