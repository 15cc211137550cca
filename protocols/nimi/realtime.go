package nimi

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
	"agentstream/schema"
)

// realtime shows a session: at most one frame of a record, whose sequence is the record's, so that a number resumes
// exactly. Each answer ends with COMPLETED or FAILED, and the session goes on; COMPLETED is the last frame once the
// session is closed.
type realtime struct {
	encoder
	text []byte
	answer
}

// answer is what the root lane has recorded of the answer that is under way.
type answer struct {
	turn  bool   // its turn.end will end it; without turns its last message does
	id    string // of the turn
	mine  bool   // the newest message is the agent's
	heard heard
}

// project makes the frame of a record; a nil out keeps it to itself.
func (p *realtime) project(out *dialect.Frames, r schema.Record) {
	if r.Child != nil {
		return
	}
	typ := string(r.Type)
	switch typ {
	case schema.TypeTextDelta, schema.TypeDataDelta, schema.TypeSessionCreated:
		if out != nil {
			p.content(out, r, typ)
		}
	case schema.TypeTurnStart:
		p.answer = answer{turn: true, id: strings.Clone(p.read(r).Str("turn_id"))}
	case schema.TypeTurnEnd:
		p.endTurn(out, r)
	case schema.TypeMessageStart:
		p.heard.hear(r)
		p.mine = p.read(r).Str("role") != "user"
	case schema.TypeMessageEnd:
		p.endMessage(out, r)
	case schema.TypeRunLifecycle:
		p.endSession(out, r)
	default:
		p.heard.hear(r)
	}
}

// content makes the frame of a record that says something.
func (p *realtime) content(out *dialect.Frames, r schema.Record, typ string) {
	b := p.body[:0]
	switch typ {
	case schema.TypeSessionCreated:
		if r.Seq > 1 { // it is stored once more
			return
		}
		s := ReadScenario(r.Payload())
		b = appendBytes(appendBytes(b, 1, []byte(p.run)), 2, []byte(s.Model))
		p.event(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_OPENED, appendNumber(b, 3, uint64(s.Route)), false)
	case schema.TypeTextDelta:
		p.text = appendText(p.text[:0], p.read(r))
		if len(p.text) > 0 {
			p.event(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_TEXT_DELTA, appendBytes(b, 1, p.text), false)
		}
	case schema.TypeDataDelta:
		media, data := Sound(p.read(r))
		if len(data) > 0 {
			b = appendBytes(appendBytes(b, 1, data), 2, media)
			p.event(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_AUDIO_CHUNK, b, false)
		}
	}
}

// endTurn ends the answer with its turn, also one that was cancelled. An end after which nothing has begun is a repeat,
// and one of another turn is late.
func (p *realtime) endTurn(out *dialect.Frames, r schema.Record) {
	if !p.turn && !p.mine {
		return
	}
	f := p.read(r)
	if id := f.Str("turn_id"); id != "" && p.id != "" && id != p.id {
		return
	}
	if f.Str("stop_reason") == "error" {
		p.event(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_FAILED, appendFailed(p.body[:0], f.Str("reason")), false)
	} else {
		p.complete(out, r, false)
	}
	p.answer = answer{}
}

// endMessage ends the answer with its message, if the agent writes no turns and waits for no result of a call.
func (p *realtime) endMessage(out *dialect.Frames, r schema.Record) {
	p.heard.stop = ""
	p.heard.hear(r)
	if p.turn || !p.mine || p.heard.finish() == runtimev1.FinishReason_FINISH_REASON_TOOL_CALL ||
		p.heard.stop == "pause_turn" {
		return
	}
	if p.heard.stop == "error" {
		p.event(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_FAILED, appendFailed(p.body[:0], ""), false)
	} else {
		p.complete(out, r, false)
	}
	p.answer = answer{}
}

// endSession makes the last frame, if the run is over.
func (p *realtime) endSession(out *dialect.Frames, r schema.Record) {
	f := p.read(r)
	switch schema.RunState(f.Str("state")) {
	case schema.StateDone, schema.StateAborted:
		p.complete(out, r, true)
	case schema.StateError:
		p.event(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_FAILED, appendFailed(p.body[:0], f.Str("reason")), true)
	default:
		return
	}
	p.answer = answer{}
}

// complete makes the COMPLETED of what was heard since the last one.
func (p *realtime) complete(out *dialect.Frames, r schema.Record, last bool) {
	b := appendNumber(p.body[:0], 1, uint64(p.heard.finish()))
	p.event(out, r, runtimev1.RealtimeEventType_REALTIME_EVENT_COMPLETED, appendBytes(b, 2, p.heard.appendUsage(nil)),
		last)
}

// event makes a frame, if there is anybody to show it to.
func (p *realtime) event(out *dialect.Frames, r schema.Record, typ runtimev1.RealtimeEventType, payload []byte,
	last bool) {
	if out == nil {
		return
	}
	// The fields of the payloads follow each other in the order of the types.
	field := realtimeOpened + protowire.Number(typ-runtimev1.RealtimeEventType_REALTIME_EVENT_OPENED)
	p.emit(out, r, uint64(typ), uint64(r.Seq), field, payload, last)
}
