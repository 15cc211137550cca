package nimi

import (
	"bytes"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/dialect"
	"agentstream/schema"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
	"agentstream/schema/jsonscan"
)

// Fields of RealtimeEvent that StreamScenarioEvent has not; 1 to 4 are the same.
const (
	realtimeOpened    = 10
	realtimeText      = 11
	realtimeAudio     = 12
	realtimeCompleted = 13
	realtimeFailed    = 14
)

// realtime shows a session: at most one frame of a record, whose sequence is the record's, so that a number resumes exactly.
type realtime struct {
	run    string
	fields jsonscan.Fields
	at     []byte
	body   []byte
	frame  []byte
}

// Project makes the frame of a record.
func (p *realtime) Project(out *dialect.Frames, r schema.Record) error {
	if r.Child != nil {
		return nil
	}
	p.fields = p.fields.Read(r.Payload())
	switch string(r.Type) {
	case schema.TypeSessionCreated:
		s := ReadScenario(r.Payload())
		b := appendBytes(appendBytes(p.body[:0], 1, []byte(p.run)), 2, []byte(s.Model))
		p.emit(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_OPENED, realtimeOpened, appendNumber(b, 3, uint64(s.Route)))
	case schema.TypeTextDelta:
		v := p.fields.Kind("text", '"')
		if len(v) <= 2 {
			return nil
		}
		text := v[1 : len(v)-1]
		if bytes.IndexByte(text, '\\') >= 0 {
			text = []byte(jsonscan.DecodeString(v))
		}
		p.emit(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_TEXT_DELTA, realtimeText, appendBytes(p.body[:0], 1, text))
	case schema.TypeDataDelta:
		if media, data := Sound(p.fields); len(data) > 0 {
			b := appendBytes(appendBytes(p.body[:0], 1, data), 2, media)
			p.emit(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_AUDIO_CHUNK, realtimeAudio, b)
		}
	case schema.TypeRunLifecycle:
		p.end(out, r)
	}
	return nil
}

func (p *realtime) end(out *dialect.Frames, r schema.Record) {
	switch schema.RunState(p.fields.Str("state")) {
	case schema.StateDone, schema.StateAborted:
		b := appendNumber(p.body[:0], 1, uint64(runtimev1.FinishReason_FINISH_REASON_STOP))
		b = appendBytes(b, 2, (&heard{}).appendUsage(nil))
		p.emit(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_COMPLETED, realtimeCompleted, b)
	case schema.StateError:
		b := appendNumber(p.body[:0], 1, uint64(ReasonOf(p.fields.Str("reason"))))
		p.emit(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_FAILED, realtimeFailed, b)
	default:
		return
	}
	out.List[len(out.List)-1].Last = true
}

func (p *realtime) emit(out *dialect.Frames, r schema.Record, typ runtimev1.RealtimeEventType, field protowire.Number, payload []byte) {
	_, ts, _ := r.Envelope()
	p.at, p.body = appendTime(p.at[:0], ts), payload
	b := appendNumber(p.frame[:0], eventType, uint64(typ))
	b = appendNumber(b, eventSequence, uint64(r.Seq))
	b = appendBytes(b, eventTrace, []byte(p.run))
	b = appendBytes(b, eventTime, p.at)
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(payload)))
	p.frame = b
	out.Add(dialect.Frame{Event: []byte("event"), Data: out.Text(b, payload)})
}
