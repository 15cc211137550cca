package metis

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// noteFirst makes the run known with its first record. One whose beginning is no longer kept was created
// before.
func (p *Projector) noteFirst(run string) {
	p.run = run
	s := p.of("")
	if p.rec.seq > 1 {
		return
	}
	if p.is(schema.TypeSessionCreated) {
		p.describe(s)
	}
	p.emitCreated(s)
}

// emitCreated emits that there is a session.
func (p *Projector) emitCreated(s *session) {
	if _, ok := p.beginEvent(s, sessionCreated, system, 0, dialect.Place{}); ok {
		p.buf = p.buf.Str("workspace_path", s.workspace).Str("workspace_hash", hashOf([]byte(s.workspace))).
			NullStr("initial_active_model", s.model).Str("routing_policy_version", unmanaged)
		if s.child != "" {
			p.buf = p.buf.Str("parent_session_id", cmp.Or(s.parent, p.run))
		}
		p.endEvent()
	}
}

// unmanaged is the version of a policy or of prices where nobody has any.
const unmanaged = "unmanaged"

// describe reads what the session says of itself.
func (p *Projector) describe(s *session) {
	if s.child != "" {
		return
	}
	p.deleted = p.deleted || p.is(schema.TypeSessionDeleted)
	if v := text(p.field("workspace_path")); v != "" && len(v) <= maxText {
		s.workspace = v
	}
	if v := text(p.field("initial_active_model")); v != "" && len(v) <= maxText {
		s.model = v
	}
}

// addWorker makes a worker known, or begins one anew that has ended.
func (p *Projector) addWorker(t *assemble.Transition) {
	up, use, prompt := p.of(t.Lane.Parent), "", asked{}
	if p.is(schema.TypeChildSpawn) && text(p.field("child_id")) == t.Lane.Child {
		use, prompt = shortenText(text(p.field("call_id"))), promptOf(p.rec.seq, p.rec.ts, p.field("prompt"))
		if c := up.find(use); c != nil {
			p.dispatch(up, c)
		}
	}
	if p.sessions[t.Lane.Child] != nil {
		p.resume(p.of(t.Lane.Child))
		return
	}
	at := p.emitDelegate(up, t.Lane.Child, use, &prompt)
	s := p.meet(t.Lane.Child, t.Lane.Parent)
	s.started, s.call, s.prompt = at, use, prompt
	p.emitCreated(s)
}

// emitDelegate appends that a session has a worker.
func (p *Projector) emitDelegate(up *session, child, use string, prompt *asked) dialect.Place {
	at, ok := p.beginEvent(up, delegateStarted, system, up.turn.seq, up.answered)
	if ok {
		p.buf = p.buf.Str("tool_use_id", use).Str("worker_session_id", child).Str("tier", "balanced").
			Str("resolved_model", cmp.Or(up.model, unknown)).Str("context_mode", "minimal").Int("context_reference_count", 0).
			Int("task_size_tokens", prompt.tokens()).Int("allowed_tool_count", elements(p.field("tools_allowed"))).
			Raw("dropped_tools", []byte(`[]`))
		p.endEvent()
	}
	return at
}

// resume begins a session anew that has ended.
func (p *Projector) resume(s *session) {
	if !s.ended {
		return
	}
	last := s.newest
	if s.ended = false; s.child != "" {
		p.working.Set(s.child, struct{}{})
		s.started = p.emitDelegate(p.of(s.parent), s.child, s.call, &s.prompt)
		p.used = s
	}
	if _, ok := p.beginEvent(s, sessionResumed, system, 0, dialect.Place{}); ok {
		p.buf = p.buf.Str("workspace_hash", hashOf([]byte(s.workspace))).Str("last_event_id_at_resume", EventID(p.run, last))
		p.endEvent()
	}
}

// readState reads the state of a lane.
func (p *Projector) readState(s *session, t *assemble.Transition) {
	switch {
	case string(p.field("session")) == "true": // it only served to append to a run that had ended
	case t.Lane.State.Final():
		p.endSession(s, t.Lane.State)
	default:
		p.resume(s)
	}
}

// endSession ends a session; the run with all of its workers, the deepest first.
func (p *Projector) endSession(s *session, state schema.RunState) {
	if s.child == "" {
		var below []*session
		for child := range p.working.All() {
			below = append(below, p.sessions[child])
		}
		slices.SortFunc(below, func(x, y *session) int { return cmp.Or(y.depth-x.depth, x.order-y.order) })
		for _, w := range below {
			p.endOne(p.of(w.child), state)
		}
		s = p.of("")
	}
	p.endOne(s, state)
}

var dispositions = map[schema.RunState]string{schema.StateDone: "completed", schema.StateAborted: "abandoned",
	schema.StateError: "error"}

func (p *Projector) endOne(s *session, state schema.RunState) {
	if s.ended {
		return
	}
	how := map[schema.RunState]outcome{schema.StateAborted: cancelled, schema.StateError: failed}[state]
	p.close(s, how)
	s.ended, s.queue = true, nil
	p.working.Delete(s.child)
	took := p.since(s.ts).Seconds()
	if _, ok := p.beginEvent(s, sessionEnded, system, 0, dialect.Place{}); ok {
		p.buf = p.buf.Str("disposition", dispositions[state]).Int("turn_count", int64(s.turns)).
			Float("total_cost_usd", s.total.used.cost).Float("duration_seconds", took)
		p.endEvent()
	}
	if s.child != "" {
		p.reportWorker(p.of(s.parent), s, how, took)
	}
}

// reportWorker reports to a session how its worker has ended.
func (p *Projector) reportWorker(up, s *session, how outcome, took float64) {
	k := delegateFailed
	if how == done {
		k = delegateCompleted
	}
	if _, ok := p.beginEvent(up, k, system, up.turn.seq, s.started); !ok {
		return
	}
	cost := strconv.FormatFloat(s.total.used.cost, 'f', -1, 64)
	o := p.buf.Str("tool_use_id", s.call).Str("worker_session_id", s.child)
	if how == done {
		o = o.Bool("success", true).Int("output_size_bytes", int64(s.said)).Str("worker_total_cost_usd", cost).
			Str("pricing_version", s.total.used.version()).Int("turn_count", int64(s.turns)).Int("llm_call_count",
			int64(s.total.models)).
			Int("tool_call_count", int64(s.total.tools)).Float("wall_time_seconds", took).Str("model", cmp.Or(s.model, unknown))
	} else {
		mode := "worker_error"
		if how == cancelled {
			mode = "cancelled_by_user"
		}
		o = o.Str("failure_mode", mode).Str("error_message", text(p.field("reason"))).
			Str("worker_total_cost_usd", cost).Str("pricing_version", s.total.used.version())
	}
	p.buf = o
	p.endEvent()
}

// custom passes on what the log has no word for, and what producers have made up.
func (p *Projector) custom(s *session) {
	p.rec.name = string(p.rec.typ)
	k := own
	if name, ok := strings.CutPrefix(p.rec.name, "custom.metis."); ok {
		switch k = kindOf(name); {
		case k == routeDecided:
			if p.emitRoute(s, p.rec.payload) {
				return
			}
			k = own
		case k == own || k >= published:
			p.rec.name = name
		default: // what the log says itself
			k = own
		}
	}
	a := catalogue[k].actor
	if i := slices.Index(actors[:], p.rec.actor); k == own && i >= 0 {
		a = actor(i)
	}
	if _, ok := p.beginEvent(s, k, a, s.turn.seq, s.turn.started); ok {
		p.raw(append(p.buf[:len(p.buf)-1], p.rec.payload...))
	}
}

// loss reports that something was let go: it is never silent.
func (p *Projector) loss(s *session) {
	last := s.newest
	at, ok := p.beginEvent(s, gapDetected, system, s.turn.seq, dialect.Place{})
	if !ok {
		return
	}
	o := p.buf.Str("session_id", s.id(p.run)).Str("gap_start_id", EventID(p.run, last)).Str("gap_end_id",
		EventID(p.run, at))
	o = append(p.appendTime(append(o.Raw("estimated_missing_count", numberOf(p.field("events"))).Name("detected_at"),
		'"')), '"')
	p.buf = o.Str("reason", text(p.field("reason")))
	p.endEvent()
}

// since returns how much time has passed up to the record at hand; none is negative.
func (p *Projector) since(ts string) time.Duration {
	from, err := time.Parse(time.RFC3339Nano, ts)
	to, err2 := time.Parse(time.RFC3339Nano, string(p.rec.ts))
	if err != nil || err2 != nil {
		return 0
	}
	return max(0, to.Sub(from))
}

// shortenText returns a text that is short enough to be remembered, and a hash in the place of any other.
func shortenText(s string) string {
	if len(s) > maxText {
		return hashOf([]byte(s))
	}
	return s
}

func elements(list []byte) (n int64) {
	for range jsonscan.Elements(list) {
		n++
	}
	return n
}

func hashOf(v []byte) string {
	sum := sha256.Sum256(v)
	return hex.EncodeToString(sum[:])
}

// Run returns the root run, which ids of events, turns and messages are made of; "" before the first record.
func (p *Projector) Run() string { return p.run }

// LastEventID returns the id of the newest event of the session, or of its workers where the filter has them, shown or
// not; "" when there is none.
func (p *Projector) LastEventID() string {
	at := dialect.Place{}
	if s := p.sessions[p.req.Child]; s != nil {
		at = s.newest
	}
	if by, ok := p.req.Select.(*selection); ok && by.workers {
		at = p.newest
	}
	if at.Seq == 0 {
		return ""
	}
	return EventID(p.run, at)
}

// HasEnded reports whether the session has ended, and IsDeleted whether it is not there any more.
func (p *Projector) HasEnded() bool {
	s := p.sessions[p.req.Child]
	return s != nil && s.ended
}

// IsDeleted is described at HasEnded.
func (p *Projector) IsDeleted() bool { return p.deleted }
