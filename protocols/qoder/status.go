package qoder

import (
	"time"

	"agentstream/schema"
	"agentstream/schema/assemble"
)

// status is what the session's models were paid for; where it stands is that of its coordinator's thread.
type status struct {
	usage counts // of all threads
}

func (s *status) clone() status { return *s }

// stop is why a thread is idle (qoder §1.7).
type stop uint8

const (
	stopNone stop = iota // it has never run
	stopEndTurn
	stopCancelled
	stopFailed
	stopAction
	stopRefusal
	stopBudget
)

var stopNames = [...]string{
	stopNone: "end_turn", stopEndTurn: "end_turn", stopCancelled: "cancelled", stopFailed: "retries_exhausted",
	stopAction: "requires_action", stopRefusal: "refusal", stopBudget: "budget_reached",
}

// stopOf reads a turn's stop_reason. What models say of a message's end and what nobody knows is an end of the turn.
func stopOf(reason string) stop {
	switch schema.ReadStop(reason) {
	case schema.StopCancelled, schema.StopInterrupted:
		return stopCancelled
	case schema.StopFailed:
		return stopFailed
	}
	switch reason {
	case "refusal":
		return stopRefusal
	case "budget_reached":
		return stopBudget
	}
	return stopEndTurn
}

// state reads model calls, turns and lifecycle.
func (p *Projector) state() {
	switch t := p.rec.thread; string(p.rec.Type) {
	case schema.TypeTurnStart:
		if p.isNews(assemble.TurnBegin, "turn_id") {
			p.turn()
		}
	case schema.TypeTurnEnd:
		if p.isNews(assemble.TurnEnd, "turn_id") {
			p.turnEnd()
		}
	case schema.TypeModelStart:
		if p.run(t); p.isNews(assemble.ModelStart, "call_id") {
			p.request()
		}
	case schema.TypeModelEnd:
		if p.isNews(assemble.ModelEnd, "call_id") {
			p.response()
		}
	case schema.TypeRunLifecycle:
		p.lifecycle(t)
	}
}

func (p *Projector) turn() {
	id := text(p.rec.payload, "turn_id")
	if len(id) > maxName {
		id = ""
	}
	if p.rec.turn == "" {
		p.rec.turn = id
	}
	p.run(p.change(p.rec.thread, func(t *thread) { t.turn = id }))
}

func (p *Projector) turnEnd() {
	t := p.rec.thread
	if id := text(p.rec.payload, "turn_id"); p.rec.turn == "" && len(id) <= maxName {
		p.rec.turn = id
	}
	why := stopOf(text(p.rec.payload, "stop_reason"))
	if t.cancelled && why != stopFailed {
		why = stopCancelled
	}
	p.dropLapsed()
	if (why == stopEndTurn || why == stopCancelled) && p.tools.countWaiting(t.child) > 0 {
		// the question has interrupted it
		why = stopAction
	}
	if why == stopFailed {
		p.emitFailure(t)
	}
	p.change(p.finish(t, why), func(t *thread) { t.turn = "" })
}

// lifecycle reads the state of a lane. One that only serves to append to a run that has ended is none.
func (p *Projector) lifecycle(t *thread) {
	l, err := schema.ParseLifecycle(p.rec.payload)
	if err != nil || string(field(p.rec.payload, "session")) == "true" {
		return
	}
	switch l.State {
	case schema.StatePaused, schema.StateAwaitingApproval:
		p.change(p.finish(t, stopAction), func(t *thread) { t.held = true })
	case schema.StateDone, schema.StateAborted, schema.StateError:
		p.over(t, l.State)
	default:
		t = p.change(t, func(t *thread) { t.held = false })
		if p.tools.countWaiting(t.child) == 0 {
			p.run(t)
		}
	}
}

// over ends a lane: nothing of it waits any more, nor of those below it when it is the run itself.
func (p *Projector) over(t *thread, state schema.RunState) {
	why := stopEndTurn
	switch {
	case state == schema.StateError:
		why = stopFailed
	case state == schema.StateAborted || t.cancelled:
		why = stopCancelled
	}
	p.tools.forget(t.child)
	if t.child == "" {
		for _, child := range p.threads.working() {
			p.finish(child, why)
		}
	}
	if why == stopFailed {
		p.emitFailure(t)
	}
	t = p.change(p.finish(t, why), func(t *thread) { t.held, t.open, t.pending, t.turn, t.owed = false, false, false, "", 0 })
	if t.child == "" {
		return
	}
	if !t.terminated {
		p.terminate(t, false)
	}
	p.settle(p.threads.coordinator(), false)
}

func (p *Projector) terminate(t *thread, last bool) {
	t = p.change(t, func(t *thread) { t.terminated = true })
	body := appendString([]byte(`,"agent_name":`), t.name)
	p.emit(emission{typ: "session.thread_status_terminated", thread: t, also: true, body: body, last: last})
}

// stir is asked of what an agent only says when it works.
func (p *Projector) stir() {
	t := p.rec.thread
	switch string(p.rec.Type) {
	case schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta, schema.TypeDataDelta,
		schema.TypeBlockStart, schema.TypeToolStart:
		if !t.running && !t.held && p.tools.countWaiting(t.child) == 0 {
			p.run(t)
		}
	case schema.TypeMessageStart:
		if text(p.rec.payload, "role") == "assistant" {
			p.change(p.run(t), func(t *thread) { t.open = true })
		}
	}
}

// spoke reads the end of a message for what it has cost, and says what has waited for it.
func (p *Projector) spoke() {
	t := p.rec.thread
	if n := countsOf(schema.UsageOf(p.rec.payload)); n != (counts{}) {
		p.status.usage = p.status.usage.plus(n)
		t = p.change(t, func(t *thread) { t.usage, t.called = t.usage.plus(n), t.called.plus(n) })
	}
	if !t.open {
		return
	}
	pending := t.pending
	t = p.change(t, func(t *thread) { t.open, t.pending = false, false })
	if pending {
		p.waiting(t)
	}
}

// run emits that a thread runs, unless it does.
func (p *Projector) run(t *thread) *thread {
	if t.running {
		return t
	}
	t = p.change(t, func(t *thread) {
		t.running, t.terminated, t.asked, t.held = true, false, false, false
		t.cancelled = t.cancelled && t.stop == stopAction
		t.stop, t.updated, t.since = stopNone, p.rec.ts, clock(p.rec.ts)
		if !t.takes { // what it begins is what was asked
			t.owed = 0
		}
	})
	e := emission{typ: "session.status_running", thread: t}
	if t.child != "" {
		e.typ, e.also, e.body = "session.thread_status_running", true, appendString([]byte(`,"agent_name":`), t.name)
	}
	p.emit(e)
	return t
}

// emitFailure emits that a thread has failed, with the record's reason, unless that was emitted last.
func (p *Projector) emitFailure(t *thread) {
	if !t.running && !t.asked && t.stop == stopFailed {
		return
	}
	message := field(p.rec.payload, "reason")
	if !isString(message) || len(message) == 2 {
		message = []byte(`"the agent has failed"`)
	}
	p.fail(t, message, "exhausted")
}

// finish emits that a thread does not run any more, and why. One that has not run, of which nothing was asked, and
// which does not wait for the client, is idle already.
func (p *Projector) finish(t *thread, why stop) *thread {
	if t.asked || t.stop == stopAction && why != stopAction {
		t = p.run(t)
	}
	if !t.running {
		if why == stopFailed {
			t = p.change(t, func(t *thread) { t.stop = why })
		}
		return t
	}
	t = p.change(t, func(t *thread) {
		t.running, t.asked, t.stop, t.updated = false, false, why, p.rec.ts
		if t.pending = false; why != stopAction {
			t.cancelled = false
		}
		if took := clock(p.rec.ts).Sub(t.since); took > 0 {
			t.active += took
		}
	})
	e := emission{typ: "session.status_idle", thread: t}
	if t.child != "" {
		e.typ, e.also, e.body = "session.thread_status_idle", true, appendString([]byte(`,"agent_name":`), t.name)
	}
	if p.rec.out == nil {
		p.emit(e)
		return t
	}
	e.body = p.appendStop(append(e.body, `,"stop_reason":`...), t)
	if why == stopRefusal {
		e.body = append(e.body, `,"stop_details":{"type":"refusal","category":null,"explanation":null}`...)
	} else {
		e.body = append(e.body, `,"stop_details":null`...)
	}
	p.emit(e)
	return t
}

// appendStop appends a stop reason.
func (p *Projector) appendStop(b []byte, t *thread) []byte {
	b = append(append(append(b, `{"type":"`...), stopNames[t.stop]...), '"')
	if t.stop != stopAction {
		return append(b, '}')
	}
	b = append(b, `,"event_ids":[`...)
	n := 0
	for _, c := range p.tools.waiting.All() {
		if t.child != "" && t.child != c.child {
			continue
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b = appendString(b, c.id)
	}
	return append(b, `]}`...)
}

// fail emits what went wrong; retry is exhausted or terminal (qoder §1.7). message is a JSON string.
func (p *Projector) fail(t *thread, message []byte, retry string) {
	b := append([]byte(`,"error":{"type":"unknown_error","message":`), message...)
	b = append(append(b, `,"retry_status":{"type":"`...), retry...)
	p.emit(emission{typ: "session.error", thread: t, body: append(b, `"}}`...)})
}

// waiting counts something more that waits for the client, in a lane, and so in the session.
func (p *Projector) waiting(t *thread) {
	if p.tools.countWaiting(t.child) == 0 {
		return // it was ended before it was emitted
	}
	if !t.running {
		t = p.run(t)
	}
	t = p.finish(t, stopAction)
	if t.child != "" {
		p.settle(p.threads.coordinator(), true)
	}
}

// settle brings the status of a lane in line with what waits: grown says that there is more than before. A
// coordinator that is idle of its own is left so.
func (p *Projector) settle(t *thread, grown bool) {
	waits := p.tools.countWaiting(t.child)
	switch {
	case grown && waits > 0 && (t.running || t.stop == stopAction):
		p.finish(p.run(t), stopAction)
	case waits == 0 && !t.running && t.stop == stopAction && !t.held:
		p.run(t)
	}
}

// clock reads a time of the log; the zero time for what is none.
func clock(ts string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, ts)
	return t
}
