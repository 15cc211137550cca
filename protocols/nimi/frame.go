package nimi

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Fields of StreamScenarioEvent and of RealtimeEvent; 1 to 4 are the same of both.
const (
	eventType     = 1
	eventSequence = 2
	eventTrace    = 3
	eventTime     = 4

	eventStarted   = 10
	eventDelta     = 11
	eventCompleted = 15
	eventFailed    = 16

	realtimeOpened = 10 // the payloads of the other types follow
)

// encoder makes the frames of events that come by the thousand, and has the memory for it.
type encoder struct {
	run    string
	fields jsonscan.Fields // of the record under way
	at     []byte
	body   []byte
	inner  []byte
	frame  []byte
}

// read reads the payload of a record.
func (p *encoder) read(r schema.Record) jsonscan.Fields {
	p.fields = p.fields.Read(r.Payload())
	return p.fields
}

// emit makes the frame of an event, with a payload that is encoded already.
func (p *encoder) emit(out *dialect.Frames, r schema.Record, typ, sequence uint64, field protowire.Number,
	payload []byte, last bool) {
	_, ts, _ := r.Envelope()
	p.at, p.body = appendTime(p.at[:0], ts), payload
	b := appendNumber(p.frame[:0], eventType, typ)
	b = appendNumber(b, eventSequence, sequence)
	b = appendBytes(b, eventTrace, []byte(p.run))
	b = appendBytes(b, eventTime, p.at)
	p.frame = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(payload)))
	out.Add(dialect.Frame{Event: []byte("event"), Data: out.Text(p.frame, payload), Last: last})
}

// add makes the frame of an event that comes now and then.
func add(out *dialect.Frames, m proto.Message, last bool) error {
	b, err := proto.Marshal(m)
	if err == nil {
		out.Add(dialect.Frame{Event: []byte("event"), Data: b, Last: last})
	}
	return err
}

// appendTime encodes a google.protobuf.Timestamp.
func appendTime(b, ts []byte) []byte {
	t, err := time.Parse(time.RFC3339Nano, string(ts))
	if err != nil {
		return b
	}
	return appendNumber(appendNumber(b, 1, uint64(t.Unix())), 2, uint64(t.Nanosecond()))
}

// appendNumber appends an unsigned field; 0 is absent (proto3).
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

// appendBytes appends a field of text, bytes or a message; an empty one is absent.
func appendBytes(b []byte, field protowire.Number, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), v)
}
