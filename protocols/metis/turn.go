package metis

import (
	"bytes"
	"cmp"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// turn is what is known of the turn in flight.
type turn struct {
	seq      schema.Seq // of the record whose place is the turn's id; 0: there is none
	started  dialect.Place
	ts       string
	agent    bool // an agent has begun to answer: turn.start
	implied  bool // nobody has begun it
	worked   bool // something was done in it
	routed   bool
	override string // model that the client has asked for
	total    totals
}

// asked is a message that begins a turn.
type asked struct {
	seq      schema.Seq
	ts       string
	hash     string
	size     int64 // bytes
	images   bool
	override string
}

// cancellation is the newest request to end a turn before its time.
type cancellation struct {
	seq    schema.Seq
	reason string
}

// outcome is how something ended.
type outcome uint8

const (
	done outcome = iota
	cancelled
	failed
)

// classes are those of errors of which no more is known.
var classes = [...]string{cancelled: "cancelled", failed: "other"}

// maxQueue bounds the messages that wait for the turn in flight. Those beyond it begin no turn of their own.
const maxQueue = 256

// promptOf returns what a turn was asked for with a record.
func promptOf(seq schema.Seq, ts, content []byte) asked {
	return asked{seq: seq, ts: string(ts), hash: hashOf(content), size: int64(len(content)),
		images: bytes.Contains(content, []byte(`"image"`))}
}

// tokens is an estimate: nobody has counted them yet.
func (a *asked) tokens() int64 { return (a.size + 3) / 4 }

// cause is what a request to a model comes from: the turn, or the newest tool of it.
func (s *session) cause() dialect.Place {
	if s.completed.Seq > 0 {
		return s.completed
	}
	return s.turn.started
}

// message reads what a person says to the session. The turn that it begins has this record's place as its id; it starts
// when the turn in flight is over.
func (p *Projector) message(s *session) {
	p.list(s, span{start: p.rec.seq, end: p.rec.seq}, func(b jsonscan.Object) jsonscan.Object {
		return appendSent(b, p.run, s.id(p.run), p.rec.seq, p.rec.ts, p.rec.payload)
	})
	if text(p.field("role")) == "system" {
		return
	}
	a := promptOf(p.rec.seq, p.rec.ts, p.field("content"))
	a.override = shortenText(text(p.field("per_message_override")))
	if s.turn.seq > 0 && s.turn.worked && !s.turn.agent && s.models.Len() == 0 && s.calls.Len() == 0 && s.open == nil {
		p.endTurn(s, done, "") // of an agent that says no turns
	}
	if s.turn.seq > 0 {
		if len(s.queue) < maxQueue {
			s.queue = append(s.queue, a)
		}
		return
	}
	p.startTurn(s, a)
}

func (p *Projector) startTurn(s *session, a asked) {
	p.resume(s)
	history := s.total.tools > 0
	s.turn = turn{seq: a.seq, ts: string(p.rec.ts), override: a.override}
	s.turns++
	s.completed = dialect.Place{}
	at, ok := p.beginEvent(s, turnStarted, user, a.seq, dialect.Place{})
	s.turn.started = at
	if ok {
		p.buf = p.buf.Str("user_message_hash", a.hash).NullStr("user_message_text_redacted",
			"").Int("estimated_input_tokens", a.tokens()).
			Bool("has_images", a.images).Bool("has_tool_calls_in_history", history)
		p.endEvent()
	}
}

// turnBegins reads that an agent begins to answer: the message whose turn has started, or something nobody has asked
// for.
func (p *Projector) turnBegins(s *session) {
	if s.turn.agent || s.turn.implied {
		p.endTurn(s, done, "")
	}
	if s.turn.seq == 0 {
		a := s.prompt
		if a.hash == "" {
			a = promptOf(0, nil, nil)
		}
		a.seq = p.rec.seq
		p.startTurn(s, a)
	}
	s.turn.agent = true
}

// work makes sure that something is done within a turn.
func (p *Projector) work(s *session) {
	if s.turn.seq == 0 {
		p.turnBegins(s)
		s.turn.agent, s.turn.implied = false, true
	}
	s.turn.worked = true
}

// cutOff ends the message, and the request to the model, of a turn that was cancelled or has failed in the middle of it
// (6.2.1). Most producers end them themselves.
func (p *Projector) cutOff(child string) {
	how := outcomeOf(text(p.field("stop_reason")))
	if s := p.sessions[child]; s == nil || s.open == nil || how == done {
		return
	}
	s := p.of(child)
	if m := s.modelOf(s.open.call); m != nil && m.result == done {
		m.result, m.class, m.over = how, classes[how], true
	}
	steps := p.reading.Cut(child)
	for i := range steps {
		p.step(&steps[i])
	}
}

// turnEnds reads the end of a turn; repaired: of one that the next one ends.
func (p *Projector) turnEnds(s *session, repaired bool) {
	if s.turn.seq == 0 {
		return
	}
	how, stop := done, ""
	if !repaired {
		stop = text(p.field("stop_reason"))
		how = outcomeOf(stop)
	}
	p.close(s, how)
}

// outcomeOf reads a stop reason.
func outcomeOf(stop string) outcome {
	switch schema.ReadStop(stop) {
	case schema.StopCancelled, schema.StopInterrupted:
		return cancelled
	case schema.StopFailed:
		return failed
	}
	return done
}

// close ends what a lane has open, and its turn. Tools that go on beyond a turn that ended well are left.
func (p *Projector) close(s *session, how outcome) {
	for s.models.Len() > 0 && s.open == nil {
		serial, _, _ := s.models.First()
		p.modelCompletes(s, s.modelOf(serial), how)
	}
	if how != done || p.rec.over {
		for _, c := range s.calls.All() {
			if s.modelOf(c.model) == nil {
				p.lapseCall(s, c, how)
			}
		}
	}
	p.endTurn(s, how, text(p.field("reason")))
	if !p.rec.over && len(s.queue) > 0 {
		a := s.queue[0]
		s.queue = s.queue[1:]
		p.startTurn(s, a)
	}
}

// endTurn appends the end of the turn.
func (p *Projector) endTurn(s *session, how outcome, reason string) {
	t := s.turn
	if t.seq == 0 {
		return
	}
	s.turn, s.completed = turn{}, dialect.Place{}
	if how == cancelled {
		p.turnCancelled(s, t, reason)
		return
	}
	took := p.since(t.ts).Seconds()
	if _, ok := p.beginEvent(s, turnCompleted, agent, t.seq, t.started); ok {
		stop := "end_turn"
		if how == failed {
			stop = "error"
		} else if v := text(p.field("stop_reason")); p.is(schema.TypeTurnEnd) && v != "" {
			stop = stopOf(v, false)
		}
		p.buf = p.buf.Str("stop_reason", stop).Int("llm_call_count", int64(t.total.models)).Int("tool_call_count",
			int64(t.total.tools)).
			Int("total_input_tokens", t.total.used.input).Int("total_output_tokens", t.total.used.output).
			Float("total_cost_usd", t.total.used.cost).Float("wall_time_seconds", took)
		if s.child != "" {
			p.buf = p.buf.Str("parent_session_id", cmp.Or(s.parent, p.run))
		}
		p.endEvent()
	}
}

// turnCancelled appends that the turn was cancelled: by the client, as its request says, or by somebody else.
func (p *Projector) turnCancelled(s *session, t turn, reason string) {
	a := system
	if c := s.cancelled; c.seq > t.seq {
		a, reason = user, cmp.Or(c.reason, "user_cancel")
	}
	word := "user_cancel"
	switch reason {
	case "client_disconnect", "timeout":
		word = reason
	case "user_cancel":
		a = user
	}
	if _, ok := p.beginEvent(s, turnCancelled, a, t.seq, t.started); ok {
		p.buf = p.buf.Str("reason", word)
		if word != reason && reason != "" {
			p.buf = p.buf.Str("reason_text", reason)
		}
		p.buf = p.buf.Int("partial_llm_calls", int64(t.total.models)).Int("partial_tool_calls", int64(t.total.tools))
		p.endEvent()
	}
}

// cancel reads a request to end the turn. What comes of it its agent says.
func (p *Projector) cancel(s *session) {
	if s.turn.seq > 0 && s.cancelled.seq < s.turn.seq {
		s.cancelled = cancellation{p.rec.seq, shortenText(text(p.field("reason")))}
	}
}

// readTaken reads that an agent has dealt with messages. A turn that was cancelled before it began ends so.
func (p *Projector) readTaken(s *session) {
	n, _ := jsonscan.WholeNumber(p.field("through"))
	through := schema.Seq(n)
	for len(s.queue) > 0 && s.queue[0].seq <= through {
		s.queue = s.queue[1:]
	}
	t := &s.turn
	if t.seq == 0 || t.agent || t.seq > through {
		return
	}
	if c := s.cancelled.seq; c > t.seq && c <= through && s.models.Len() == 0 && s.calls.Len() == 0 && s.open == nil {
		p.close(s, cancelled)
	}
}

// Turn returns the id of the turn in flight; "" when there is none. A message that nobody has begun to answer counts.
func (p *Projector) Turn() string {
	s := p.sessions[p.req.Child]
	if s == nil || s.turn.seq == 0 {
		return ""
	}
	return TurnID(p.run, s.turn.seq)
}

// Cancelling reports whether the turn in flight was asked to end.
func (p *Projector) Cancelling() bool {
	s := p.sessions[p.req.Child]
	return s != nil && s.turn.seq > 0 && s.cancelled.seq > s.turn.seq
}
