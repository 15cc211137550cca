package transcript

import (
	"encoding/json"
	"strings"
	"time"

	"agentstream/adapters/provider"
	"agentstream/schema"
)

// recorder is the run as it is emitted: what all formats share. Events pass through add, which sets
// their time, begins the run, and makes steps and calls end.
type recorder struct {
	cfg    Config
	own    *provider.Writer // for the recorder's own events of the run's lane
	events []schema.Event
	ts     string // of the line at hand
	began  bool
	broken string // why the first thing that cannot be read cannot

	steps map[string]*laneSteps
	calls []openCall
	// goesOn: the model cannot go on without an answer, and the format records none.
	goesOn bool
	aside  bool // what is emitted is an example and no step of the run
}

type laneSteps struct {
	w      *provider.Writer
	index  int
	open   bool
	called bool // a call was made in the open step
}

type openCall struct {
	lane, id string
	w        *provider.Writer
	ts       string
}

// maxOpenCalls bounds the calls without an end; the oldest ends when there are more.
const maxOpenCalls = 4096

func (s *recorder) writer() *provider.Writer {
	if s.own == nil {
		s.own = provider.NewWriter("transcript", s.cfg.lane())
	}
	return s.own
}

// clock takes the time of a line.
func (s *recorder) clock(all provider.Fields) {
	if ts := when(all.Str("timestamp")); ts != "" {
		s.ts = ts
	}
}

// when returns a time in RFC 3339, "" when it is none. One without a zone is UTC.
func when(text string) string {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999"} {
		t, err := time.Parse(layout, text)
		if err != nil || t.Year() < 1 || t.Year() > 9999 || len(text) > 40 {
			continue
		}
		if layout == time.RFC3339Nano {
			return strings.ReplaceAll(text, ",", ".")
		}
		return t.Format(time.RFC3339Nano)
	}
	return ""
}

// add takes events in order.
func (s *recorder) add(events ...schema.Event) {
	if len(events) > 0 && !s.began {
		s.began = true
		s.lifecycle(schema.StateRunning, "")
	}
	for _, e := range events {
		switch {
		case e.Type == schema.TypeMessageStart && !s.aside:
			all, _ := provider.Parse(e.Payload)
			if all.Str("role") == "assistant" {
				s.nextStep(&e)
			}
		case e.Type == schema.TypeToolStart:
			s.startCall(&e)
		case e.Type == schema.TypeToolEnd:
			s.endCall(&e)
		case s.broken == "" && strings.HasPrefix(e.Type, "custom.") && strings.HasSuffix(e.Type, ".bad_frame"):
			all, _ := provider.Parse(e.Payload)
			s.broken = "a part of the transcript cannot be read: " + all.Str("problem")
		}
		s.put(e)
	}
}

// put stores an event as it is.
func (s *recorder) put(e schema.Event) {
	e.TS = s.ts
	s.events = append(s.events, e)
}

// emit stores an event of the recorder's own.
func (s *recorder) emit(w *provider.Writer, typ string, payload provider.Fields) {
	rest := w.Drain()
	w.Add(typ, payload)
	for _, e := range w.Drain() {
		s.put(e)
	}
	s.add(rest...)
}

// flush hands over what is ready; false when the caller wants no more.
func (s *recorder) flush(yield func(schema.Event, error) bool) bool {
	for i := range s.events {
		if !yield(s.events[i], nil) {
			return false
		}
	}
	s.events = s.events[:0]
	return true
}

// lifecycle emits the run's state, where that is wanted.
func (s *recorder) lifecycle(state schema.RunState, reason string) {
	if s.cfg.Lifecycle {
		s.emit(s.writer(), schema.TypeRunLifecycle, provider.StateFields(state, reason))
	}
}

// laneOf returns the steps of an event's lane.
func (s *recorder) laneOf(e *schema.Event) *laneSteps {
	l := s.steps[e.ChildID]
	if l == nil {
		if s.steps == nil {
			s.steps = make(map[string]*laneSteps)
		}
		l = &laneSteps{w: provider.NewWriter("transcript",
			provider.Config{ChildID: e.ChildID, Path: e.Path, TurnID: e.TurnID})}
		s.steps[e.ChildID] = l
	}
	return l
}

// nextStep ends the lane's step, because a message of the model begins.
func (s *recorder) nextStep(e *schema.Event) {
	l := s.laneOf(e)
	if s.goesOn {
		s.endCalls(e.ChildID, true)
	}
	s.endStep(l)
	l.open, l.called = true, false
}

func (s *recorder) endStep(l *laneSteps) {
	if !l.open {
		return
	}
	kind := "text-only"
	if l.called {
		kind = "tool-roundtrip"
	}
	s.emit(l.w, schema.TypeStepBoundary, provider.Fields{
		{Name: "step_index", Value: provider.Number(l.index)}, {Name: "step_kind", Value: provider.Quote(kind)},
		{Name: "checkpoint_id", Value: json.RawMessage("null")},
	})
	l.open = false
	l.index++
}

func (s *recorder) startCall(e *schema.Event) {
	l := s.laneOf(e)
	l.called = true
	all, _ := provider.Parse(e.Payload)
	s.calls = append(s.calls, openCall{lane: e.ChildID, id: all.Str("call_id"), w: l.w, ts: s.ts})
	if len(s.calls) > maxOpenCalls {
		s.endOpen(s.calls[0], false)
		s.calls = s.calls[1:]
	}
}

func (s *recorder) endCall(e *schema.Event) {
	all, _ := provider.Parse(e.Payload)
	id := all.Str("call_id")
	for i, c := range s.calls {
		if c.lane == e.ChildID && c.id == id {
			s.calls = append(s.calls[:i], s.calls[i+1:]...)
			return
		}
	}
}

// since returns how long the open call of the run's lane has taken at the time of the line at hand, in
// milliseconds; -1 when that is unknown.
func (s *recorder) since(call string) int {
	for _, c := range s.calls {
		if c.lane != s.cfg.ChildID || c.id != call {
			continue
		}
		began, err := time.Parse(time.RFC3339Nano, c.ts)
		ended, err2 := time.Parse(time.RFC3339Nano, s.ts)
		if took := ended.Sub(began).Milliseconds(); err == nil && err2 == nil && took >= 0 && took < 1<<31 {
			return int(took)
		}
	}
	return -1
}

// endCalls ends the open calls of a lane.
func (s *recorder) endCalls(lane string, answered bool) {
	var rest []openCall
	for _, c := range s.calls {
		if c.lane == lane {
			s.endOpen(c, answered)
		} else {
			rest = append(rest, c)
		}
	}
	s.calls = rest
}

// endOpen ends a call whose result the transcript lacks. answered: there must have been one.
func (s *recorder) endOpen(c openCall, answered bool) {
	payload := provider.Fields{{Name: "call_id", Value: provider.Quote(c.id)},
		{Name: "ok", Value: provider.Bool(answered)}}
	if answered {
		payload = append(payload, provider.Field{Name: "output", Value: json.RawMessage("null")},
			provider.Field{Name: "unrecorded", Value: provider.Bool(true)})
	} else {
		payload = append(payload, provider.FailureFields(schema.CodeToolLost,
			provider.ErrorOf("no_result", "the transcript holds no result of this call"))...)
	}
	s.emit(c.w, schema.TypeToolEnd, payload)
}

// endLane ends what is open in the lane of a child, and the child itself.
func (s *recorder) endLane(w *provider.Writer, lane string, state schema.RunState, reason string) {
	s.endCalls(lane, false)
	if l := s.steps[lane]; l != nil {
		s.endStep(l)
		delete(s.steps, lane)
	}
	s.emit(w, schema.TypeRunLifecycle, provider.StateFields(state, reason))
}

// endRun ends the run.
func (s *recorder) endRun(v verdict) {
	if s.broken != "" && (!v.known || v.state == schema.StateDone) {
		v.state, v.reason = schema.StateError, s.broken
	}
	if !s.began {
		s.began = true
		s.lifecycle(schema.StateRunning, "")
	}
	for _, c := range s.calls {
		s.endOpen(c, false)
	}
	s.calls = nil
	if l := s.steps[s.cfg.ChildID]; l != nil {
		s.endStep(l)
	}
	s.lifecycle(v.state, v.reason)
}
