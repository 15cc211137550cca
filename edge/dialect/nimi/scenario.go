package nimi

import (
	"bytes"
	"encoding/base64"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/dialect"
	"agentstream/schema"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
	"agentstream/schema/jsonscan"
)

// Sizes of deltas, in bytes (K-STREAM-006).
const (
	minText  = 32       // that are held back at most one less of
	maxAudio = 32 << 10 // in one delta
)

// Fields of StreamScenarioEvent and of what is in it.
const (
	eventType      = 1
	eventSequence  = 2
	eventTrace     = 3
	eventTime      = 4
	eventStarted   = 10
	eventDelta     = 11
	eventCompleted = 15
	eventFailed    = 16

	deltaText      = 1
	deltaArtifact  = 2
	deltaReasoning = 3
)

// scenario shows the root lane of a run as one generation (mode A).
type scenario struct {
	run      string
	sequence uint64
	separate bool // reasoning is shown
	text     []byte
	thought  []byte
	heard    heard

	fields jsonscan.Fields
	at     []byte // encoded time of the record
	body   []byte
	inner  []byte
	frame  []byte
}

// Project makes the frames of a record.
func (p *scenario) Project(out *dialect.Frames, r schema.Record) error {
	if r.Child != nil {
		return nil
	}
	switch string(r.Type) {
	case schema.TypeTextDelta:
		p.fields = p.fields.Read(r.Payload())
		if p.heard.refuses(p.fields) {
			return nil
		}
		if p.text = appendText(p.text, p.fields); len(p.text) >= minText {
			p.time(r)
			p.text = p.delta(out, deltaText, p.text)
		}
	case schema.TypeReasoningDelta:
		if !p.separate {
			return nil
		}
		p.fields = p.fields.Read(r.Payload())
		if p.thought = appendText(p.thought, p.fields); len(p.thought) >= minText {
			p.time(r)
			p.thought = p.delta(out, deltaReasoning, p.thought)
		}
	case schema.TypeDataDelta:
		p.time(r)
		p.audio(out, r)
	case schema.TypeSessionCreated:
		p.time(r)
		p.start(out, r)
	case schema.TypeRunLifecycle:
		p.time(r)
		p.end(out, r)
	default:
		p.heard.hear(r)
	}
	return nil
}

// appendText appends the text in the payload of a delta.
func appendText(to []byte, payload jsonscan.Fields) []byte {
	v := payload.Kind("text", '"')
	if len(v) < 2 {
		return to
	}
	if in := v[1 : len(v)-1]; bytes.IndexByte(in, '\\') < 0 {
		return append(to, in...)
	}
	return append(to, jsonscan.DecodeString(v)...)
}

func (p *scenario) time(r schema.Record) {
	_, ts, _ := r.Envelope()
	p.at = appendTime(p.at[:0], ts)
}

// appendTime encodes a google.protobuf.Timestamp.
func appendTime(b, ts []byte) []byte {
	t, err := time.Parse(time.RFC3339Nano, string(ts))
	if err != nil {
		return b
	}
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), uint64(t.Unix()))
	if n := t.Nanosecond(); n > 0 {
		b = protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), uint64(n))
	}
	return b
}

// emit makes the next frame, with a payload that is encoded already.
func (p *scenario) emit(out *dialect.Frames, typ runtimev1.StreamEventType, field protowire.Number, payload []byte, last bool) {
	p.sequence++
	p.frame = appendEvent(p.frame[:0], uint64(typ), p.sequence, p.run, p.at, field, len(payload))
	out.Add(dialect.Frame{Event: []byte("event"), Data: out.Text(p.frame, payload), Last: last})
}

// appendEvent appends an event up to its payload, which has n bytes: the beginning is the same of both kinds of events.
func appendEvent(b []byte, typ, sequence uint64, run string, at []byte, field protowire.Number, n int) []byte {
	b = appendNumber(b, eventType, typ)
	b = appendNumber(b, eventSequence, sequence)
	b = appendBytes(b, eventTrace, []byte(run))
	b = appendBytes(b, eventTime, at)
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
}

// delta makes a delta of what was held, and returns it emptied.
func (p *scenario) delta(out *dialect.Frames, kind protowire.Number, held []byte) []byte {
	if len(held) == 0 {
		return held
	}
	p.inner = appendBytes(p.inner[:0], 1, held)
	p.body = appendBytes(p.body[:0], kind, p.inner)
	p.emit(out, runtimev1.StreamEventType_STREAM_EVENT_DELTA, eventDelta, p.body, false)
	return held[:0]
}

// audio makes deltas of sound.
func (p *scenario) audio(out *dialect.Frames, r schema.Record) {
	p.fields = p.fields.Read(r.Payload())
	media, data := Sound(p.fields)
	for len(data) > 0 {
		n := min(len(data), maxAudio)
		p.inner = appendBytes(appendBytes(p.inner[:0], 1, data[:n]), 2, media)
		p.body = appendBytes(p.body[:0], deltaArtifact, p.inner)
		p.emit(out, runtimev1.StreamEventType_STREAM_EVENT_DELTA, eventDelta, p.body, false)
		data = data[n:]
	}
}

// Sound returns the audio in the payload of a data.delta; nil for any other data.
func Sound(payload jsonscan.Fields) (media, data []byte) {
	media = []byte(payload.Str("media_type"))
	if !bytes.HasPrefix(media, []byte("audio/")) {
		return nil, nil
	}
	data, err := base64.StdEncoding.DecodeString(payload.Str("data"))
	if err != nil {
		return nil, nil
	}
	return media, data
}

func (p *scenario) start(out *dialect.Frames, r schema.Record) {
	if p.sequence > 0 {
		return
	}
	s := ReadScenario(r.Payload())
	p.separate = s.Separate
	b := appendBytes(p.body[:0], 1, []byte(s.Model))
	p.body = appendNumber(b, 2, uint64(s.Route))
	p.emit(out, runtimev1.StreamEventType_STREAM_EVENT_STARTED, eventStarted, p.body, false)
}

// end makes the terminal frame, if the run is over.
func (p *scenario) end(out *dialect.Frames, r schema.Record) {
	p.fields = p.fields.Read(r.Payload())
	state := schema.RunState(p.fields.Str("state"))
	switch {
	case !state.Final():
	case state == schema.StateDone:
		p.thought = p.delta(out, deltaReasoning, p.thought)
		p.text = p.delta(out, deltaText, p.text)
		b := appendNumber(p.body[:0], 1, uint64(p.heard.finish()))
		p.body = appendBytes(b, 2, p.heard.appendUsage(nil))
		p.emit(out, runtimev1.StreamEventType_STREAM_EVENT_COMPLETED, eventCompleted, p.body, true)
	default:
		reason := runtimev1.ReasonCode_AI_STREAM_BROKEN
		if state == schema.StateError {
			reason = ReasonOf(p.fields.Str("reason"))
		}
		p.body = appendNumber(p.body[:0], 1, uint64(reason))
		p.emit(out, runtimev1.StreamEventType_STREAM_EVENT_FAILED, eventFailed, p.body, true)
	}
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
