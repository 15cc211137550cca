package nimi

import (
	"bytes"
	"encoding/base64"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Sizes of deltas, in bytes (K-STREAM-006).
const (
	minText  = 32       // that are held back at most one less of
	maxAudio = 32 << 10 // in one delta
)

// Fields of a delta.
const (
	deltaText      = 1
	deltaArtifact  = 2
	deltaReasoning = 3
)

// scenario shows the root lane of a run as one generation (mode A).
type scenario struct {
	encoder
	sequence uint64
	separate bool // reasoning is shown
	text     []byte
	thought  []byte
	heard    heard
}

// Project makes the frames of a record.
func (p *scenario) Project(out *dialect.Frames, r schema.Record) error {
	if r.Child != nil {
		return nil
	}
	switch string(r.Type) {
	case schema.TypeTextDelta:
		if p.heard.isRefusal(p.read(r)) {
			return nil
		}
		if p.text = appendText(p.text, p.fields); len(p.text) >= minText {
			p.text = p.delta(out, r, deltaText, p.text)
		}
	case schema.TypeReasoningDelta:
		if !p.separate {
			return nil
		}
		if p.thought = appendText(p.thought, p.read(r)); len(p.thought) >= minText {
			p.thought = p.delta(out, r, deltaReasoning, p.thought)
		}
	case schema.TypeDataDelta:
		for media, data := Sound(p.read(r)); len(data) > 0; data = data[min(len(data), maxAudio):] {
			p.inner = appendBytes(appendBytes(p.inner[:0], 1, data[:min(len(data), maxAudio)]), 2, media)
			p.event(out, r, runtimev1.StreamEventType_STREAM_EVENT_DELTA, eventDelta,
				appendBytes(p.body[:0], deltaArtifact, p.inner), false)
		}
	case schema.TypeSessionCreated:
		if p.sequence > 0 {
			return nil
		}
		s := ReadScenario(r.Payload())
		p.separate = s.Separate
		b := appendBytes(p.body[:0], 1, []byte(s.Model))
		p.event(out, r, runtimev1.StreamEventType_STREAM_EVENT_STARTED, eventStarted,
			appendNumber(b, 2, uint64(s.Route)), false)
	case schema.TypeRunLifecycle:
		p.emitEnd(out, r)
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

// event makes the next frame.
func (p *scenario) event(out *dialect.Frames, r schema.Record, typ runtimev1.StreamEventType, field protowire.Number,
	payload []byte, last bool) {
	p.sequence++
	p.emit(out, r, uint64(typ), p.sequence, field, payload, last)
}

// delta makes a delta of what was held, and returns it emptied.
func (p *scenario) delta(out *dialect.Frames, r schema.Record, kind protowire.Number, held []byte) []byte {
	if len(held) > 0 {
		p.inner = appendBytes(p.inner[:0], 1, held)
		p.event(out, r, runtimev1.StreamEventType_STREAM_EVENT_DELTA, eventDelta,
			appendBytes(p.body[:0], kind, p.inner), false)
	}
	return held[:0]
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

// emitEnd makes the terminal frame, if the run is over.
func (p *scenario) emitEnd(out *dialect.Frames, r schema.Record) {
	f := p.read(r)
	state := schema.RunState(f.Str("state"))
	switch {
	case !state.Final():
	case state == schema.StateDone:
		p.thought = p.delta(out, r, deltaReasoning, p.thought)
		p.text = p.delta(out, r, deltaText, p.text)
		b := appendNumber(p.body[:0], 1, uint64(p.heard.finish()))
		p.event(out, r, runtimev1.StreamEventType_STREAM_EVENT_COMPLETED, eventCompleted,
			appendBytes(b, 2, p.heard.appendUsage(nil)), true)
	default:
		reason := ""
		if state == schema.StateError {
			reason = f.Str("reason")
		}
		p.event(out, r, runtimev1.StreamEventType_STREAM_EVENT_FAILED, eventFailed, appendFailed(p.body[:0], reason), true)
	}
}
