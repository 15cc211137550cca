package metis

import (
	"cmp"
	"slices"
	"strings"
	"sync/atomic"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
	"agentstream/schema/ordered"
)

// modelCall is a request to a model that has begun and has not ended.
type modelCall struct {
	by      *atomic.Bool // that of the session whose own it is; others share it
	serial  int
	id      string // of the log's; "" where only the message shows it
	started dialect.Place
	turn    schema.Seq
	ts      string
	model   string

	spoke    bool // its message is complete
	over     bool // its producer has ended it while its message was open
	result   outcome
	stop     string // of its message
	problem  string // why it failed
	class    string
	used     usage
	thoughts int
	tools    int
	took     int64                         // ms; -1: not reported
	calls    ordered.Map[string, struct{}] // ids of those that wait for its end
}

// unknown is the model of a request that does not name one.
const unknown = "unknown"

// modelName is a model as the protocol names it: provider:model.
func modelName(provider, model string) string {
	if provider != "" && model != "" && !strings.HasPrefix(model, provider+":") {
		model = provider + ":" + model
	}
	return shortenText(model)
}

// providerOf returns the provider in a model's name; "" when it has none.
func providerOf(model string) string {
	provider, _, ok := strings.Cut(model, ":")
	if !ok {
		return ""
	}
	return provider
}

// modelOf returns the request with a serial, which may be changed; nil when it is not open.
func (s *session) modelOf(serial int) *modelCall {
	m, _ := s.models.Get(serial)
	if m != nil && m.by != s.by {
		own := *m
		own.by, own.calls, m = s.by, m.calls.Clone(), &own
		s.models.Set(serial, m)
	}
	return m
}

// requestByID returns the request with an id of the log's; nil when none is open. Of two it is the older: its
// message goes on while another one has begun with its id.
func (s *session) requestByID(id string) *modelCall {
	serials, _ := s.byID.Get(id)
	if len(serials) == 0 {
		return nil
	}
	return s.modelOf(serials[0])
}

// ask adds a request.
func (s *session) ask(m *modelCall) {
	m.by = s.by
	s.models.Set(m.serial, m)
	if m.id != "" {
		serials, _ := s.byID.Get(m.id)
		s.byID.Set(m.id, append(slices.Clip(serials), m.serial))
	}
}

func (s *session) forget(m *modelCall) {
	s.models.Delete(m.serial)
	serials, _ := s.byID.Get(m.id)
	if serials = slices.DeleteFunc(slices.Clone(serials), func(n int) bool { return n == m.serial }); len(serials) > 0 {
		s.byID.Set(m.id, serials)
	} else {
		s.byID.Delete(m.id)
	}
}

// modelStarts begins a request to a model; of a message without one it is nil.
func (p *Projector) modelStarts(s *session, it *assemble.Item) *modelCall {
	p.work(s)
	s.serial++
	m := &modelCall{serial: s.serial, turn: s.turn.seq, ts: string(p.rec.ts), took: -1,
		model: cmp.Or(modelName(text(p.field("provider")), text(p.field("model"))), s.model, unknown)}
	if it != nil {
		m.id = it.ID
	}
	s.model = m.model
	p.emitRoute(s, nil)
	s.turn.total.models++
	s.total.models++
	at, ok := p.beginEvent(s, llmCallStarted, agent, m.turn, s.cause())
	m.started = at
	if ok {
		request := m.id
		if request == "" {
			request = "req_" + EventID(p.run, at)[len(eventPrefix):]
		}
		p.buf = p.buf.Str("model", m.model).Str("provider", cmp.Or(providerOf(m.model), unknown)).
			Int("estimated_input_tokens", s.total.used.input+s.total.used.cached).Str("request_id", request)
		p.parent(s, "is_worker")
		p.endEvent()
	}
	s.ask(m)
	return m
}

// parent writes the session above, where there is one.
func (p *Projector) parent(s *session, flag string) {
	if flag != "" {
		p.buf = p.buf.Bool(flag, s.child != "")
	}
	if s.child != "" {
		p.buf = p.buf.Str("parent_session_id", cmp.Or(s.parent, p.run))
	}
}

// emitRoute appends the model of the turn's route, once: as it was published, or as the first request to a
// model shows. It reports whether it was emitted.
func (p *Projector) emitRoute(s *session, payload []byte) bool {
	if s.turn.seq == 0 || s.turn.routed {
		return false
	}
	s.turn.routed = true
	if _, ok := p.beginEvent(s, routeDecided, system, s.turn.seq, s.turn.started); !ok {
		return true
	}
	if payload != nil {
		p.raw(append(p.buf[:len(p.buf)-1], payload...))
		return true
	}
	policy := "global_default"
	if s.turn.override != "" {
		policy = "per_message_override"
	}
	link := append(jsonscan.Object{'{'}.Str("policy", policy).Str("verdict", "chose").Str("candidate_model", s.model).
		Str("reason", "as the agent reports it"), '}')
	p.buf = p.buf.Str("chosen_model", s.model).Int("winner_index", 0).Int("elapsed_ms", 0).
		Raw("chain", slices.Concat([]byte{'['}, link, []byte{']'}))
	p.endEvent()
	return true
}

// modelEnds reads the end of a request.
func (p *Projector) modelEnds(s *session, t *assemble.Transition) {
	m := s.requestByID(t.Item.ID)
	if m == nil {
		return // it ended with what its message asks for
	}
	if !t.Repaired {
		if u := p.field("usage"); len(u) > 0 && u[0] == '{' {
			m.used = usageOf(u)
		}
		if ms, ok := millisOf(p.field("duration_ms")); ok {
			m.took = ms
		}
		if string(p.field("ok")) == "false" {
			m.noteFailure(p.field("error"))
		}
	}
	if s.open != nil && s.open.call == m.serial {
		m.over = true
		return
	}
	p.modelCompletes(s, m, done)
}

// noteFailure notes why a request failed.
func (m *modelCall) noteFailure(problem []byte) {
	word := text(schema.Field(problem, "type"))
	m.problem = cmp.Or(text(schema.Field(problem, "message")), text(problem), word)
	m.result, m.class = failed, classOf(word+" "+m.problem)
	if outcomeOf(word) == cancelled {
		m.result, m.class = cancelled, classes[cancelled]
	}
}

// classOf finds the class of an error by what providers call it.
func classOf(s string) string {
	return find(s, "other", "rate_limit", "rate_limit", "429", "rate_limit", "auth", "auth", "permission", "auth",
		"context", "context_overflow",
		"invalid", "invalid_request", "overloaded", "server_error", "server", "server_error", "api_error", "server_error",
		"network", "network", "connection", "network", "timeout", "network")
}

// find returns what stands behind the first word that a text has, of pairs, or something else for one that has none.
func find(s, or string, pairs ...string) string {
	s = strings.ToLower(s)
	for ; len(pairs) > 1; pairs = pairs[2:] {
		if strings.Contains(s, pairs[0]) {
			return pairs[1]
		}
	}
	return or
}

// modelCompletes appends how a request has ended, and then what of its tools has waited for that. how is that of
// whatever ends it, if that is not the request itself.
func (p *Projector) modelCompletes(s *session, c *modelCall, how outcome) {
	s.forget(c)
	if c.result == done && !c.spoke && (how != done || !p.is(schema.TypeModelEnd)) {
		if c.result = how; how == done {
			c.result = failed
		}
		c.class = classes[c.result]
	}
	if c.took < 0 {
		c.took = p.since(c.ts).Milliseconds()
	}
	k := llmCallCompleted
	if c.result != done {
		k = llmCallFailed
	}
	at, ok := p.beginEvent(s, k, agent, c.turn, c.started)
	if ok {
		p.buf = p.buf.Str("model", c.model).Str("provider", cmp.Or(providerOf(c.model), unknown))
		if c.result == done {
			p.buf = c.used.appendTo(p.buf).Int("latency_ms", c.took).Str("stop_reason", stopOf(c.stop, c.tools > 0)).
				Int("produced_tool_calls", int64(c.tools)).Int("produced_thinking_blocks", int64(c.thoughts))
			p.parent(s, "")
		} else {
			p.buf = p.buf.Str("error_class", c.class).Str("error_message_redacted",
				shortenText(c.problem)).Int("retry_count", 0).Int("latency_ms", c.took)
		}
		p.endEvent()
	}
	s.total.used = s.total.used.plus(c.used)
	if c.turn == s.turn.seq {
		s.turn.total.used = s.turn.total.used.plus(c.used)
	}
	if c.result == done {
		s.answered = at
	}
	p.release(s, c, c.result == done, at)
}

// stopOf writes why a model has stopped as the protocol has it.
func stopOf(stop string, tools bool) string {
	switch strings.ToLower(stop) {
	case "end_turn", "max_tokens", "stop_sequence", "tool_use":
		return strings.ToLower(stop)
	case "length", "max_output_tokens":
		return "max_tokens"
	case "tool_calls", "function_call":
		return "tool_use"
	}
	switch outcomeOf(stop) {
	case cancelled:
		return "cancelled"
	case failed:
		return "error"
	}
	if tools && stop == "" {
		return "tool_use"
	}
	return "end_turn"
}
