package nimi

import (
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
	text   []byte
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
		if p.text = appendText(p.text[:0], p.fields); len(p.text) > 0 {
			p.emit(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_TEXT_DELTA, realtimeText, appendBytes(p.body[:0], 1, p.text))
		}
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
	p.frame = appendEvent(p.frame[:0], uint64(typ), uint64(r.Seq), p.run, p.at, field, len(payload))
	out.Add(dialect.Frame{Event: []byte("event"), Data: out.Text(p.frame, payload)})
}
