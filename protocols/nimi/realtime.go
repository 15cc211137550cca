package nimi

import (
	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// realtime shows a session: at most one frame of a record, whose sequence is the record's, so that a number resumes exactly.
type realtime struct {
	encoder
	text []byte
}

// Project makes the frame of a record.
func (p *realtime) Project(out *dialect.Frames, r schema.Record) error {
	if r.Child != nil {
		return nil
	}
	b := p.body[:0]
	switch string(r.Type) {
	case schema.TypeSessionCreated:
		s := ReadScenario(r.Payload())
		b = appendBytes(appendBytes(b, 1, []byte(p.run)), 2, []byte(s.Model))
		p.emit(out, r, uint64(runtimev1.RealtimeEventType_REALTIME_EVENT_OPENED), uint64(r.Seq), realtimeOpened, appendNumber(b, 3, uint64(s.Route)), false)
	case schema.TypeTextDelta:
		if p.text = appendText(p.text[:0], p.read(r)); len(p.text) > 0 {
			p.emit(out, r, uint64(runtimev1.RealtimeEventType_REALTIME_EVENT_TEXT_DELTA), uint64(r.Seq), realtimeText, appendBytes(b, 1, p.text), false)
		}
	case schema.TypeDataDelta:
		if media, data := Sound(p.read(r)); len(data) > 0 {
			b = appendBytes(appendBytes(b, 1, data), 2, media)
			p.emit(out, r, uint64(runtimev1.RealtimeEventType_REALTIME_EVENT_AUDIO_CHUNK), uint64(r.Seq), realtimeAudio, b, false)
		}
	case schema.TypeRunLifecycle:
		switch f := p.read(r); schema.RunState(f.Str("state")) {
		case schema.StateDone, schema.StateAborted:
			b = appendNumber(b, 1, uint64(runtimev1.FinishReason_FINISH_REASON_STOP))
			b = appendBytes(b, 2, (&heard{}).appendUsage(nil))
			p.emit(out, r, uint64(runtimev1.RealtimeEventType_REALTIME_EVENT_COMPLETED), uint64(r.Seq), realtimeCompleted, b, true)
		case schema.StateError:
			b = appendFailed(b, f.Str("reason"))
			p.emit(out, r, uint64(runtimev1.RealtimeEventType_REALTIME_EVENT_FAILED), uint64(r.Seq), realtimeFailed, b, true)
		}
	}
	return nil
}
