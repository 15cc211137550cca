package assemble

import (
	"bytes"
	"encoding/json"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Head is what a record has beside its number, type and lane.
type Head struct {
	Payload            []byte
	Turn, Actor, Cause string // decoded; "" when absent

	raw     []byte // optional part of the envelope, with the payload's name after it; empty when there is none
	rawPath []byte
	ids     []string // the path, of an event
}

const payloadMark = `,"payload":`

// read reads a record and reports whether it has a payload. The optional part of the envelope stands between the
// number and the payload. It is the same in most deltas of a lane; then it is not read anew.
func (h *Head) read(r schema.Record) bool {
	rest := r.Rest()
	h.ids = nil
	if len(h.raw) > 0 && len(rest) > len(h.raw) && bytes.Equal(rest[:len(h.raw)], h.raw) {
		h.Payload = rest[len(h.raw) : len(rest)-1]
		return true
	}
	payload, list := r.Payload(), r.Attributes()
	*h = Head{Payload: payload, raw: h.raw[:0]}
	if payload == nil || len(rest) < len(list) {
		return payload != nil
	}
	h.attributes(list)
	if bytes.HasPrefix(rest[len(list):], []byte(payloadMark)) && bytes.Equal(rest[:len(list)], list) {
		h.raw = append(append(h.raw, list...), payloadMark...)
		h.attributes(h.raw[:len(list)]) // the path lies in what is kept
	}
	return true
}

// attributes reads fields, each of which has a comma before it.
func (h *Head) attributes(list []byte) {
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
			_ = json.Unmarshal(v, &h.Turn)
		case `"actor"`:
			_ = json.Unmarshal(v, &h.Actor)
		case `"cause"`:
			_ = json.Unmarshal(v, &h.Cause)
		case `"path"`:
			h.rawPath = v
		}
		list = list[end:]
	}
}

// path returns the ids of the runs from the root to a nested child, where the record has them.
func (h *Head) path() []string {
	if h.ids != nil || h.rawPath == nil {
		return h.ids
	}
	return schema.ReadPath(h.rawPath)
}
