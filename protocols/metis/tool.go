package metis

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/assemble"
	"agentstream/schema/jsonscan"
)

// toolCall is a call of a tool that was asked for, or has begun, and has not ended.
type toolCall struct {
	by       *atomic.Bool // that of the session whose own it is; others share it
	id, tool string
	model    int // serial of the request whose message asks for it, while that is open; 0: none is
	turn     schema.Seq
	ts       string
	hash     string // of its input
	size     int64
	effects  string
	asked    dialect.Place // llm.call_completed of that request
	place    dialect.Place // tool.called
	called   bool
	due      bool // it works, which is emitted behind llm.call_completed
	cut      bool // the request failed: nothing is emitted for it
	denied   string
	end      *ending // it has ended, which is emitted behind llm.call_completed
}

// ending is how a call ended.
type ending struct {
	ok      bool
	class   string
	message string
	size    []byte
	took    int64
}

// request is what somebody was asked to allow.
type request struct {
	id, call string
	place    dialect.Place
	sent     bool // it has an answer, which the agent may not have read
	resolved bool
}

// maxRequests bounds the requests that are remembered, answered or not.
const maxRequests = 64

// find returns the call with an id, which may be changed; nil when it is not open.
func (s *session) find(id string) *toolCall {
	c, _ := s.calls.Get(id)
	if c != nil && c.by != s.by {
		own := *c
		own.by, c = s.by, &own
		s.calls.Set(id, c)
	}
	return c
}

// add adds a call. It waits for the request whose message asks for it, if that is open.
func (s *session) add(c *toolCall) {
	c.by = s.by
	s.calls.Set(c.id, c)
	s.waiting++
	if m := s.modelOf(c.model); m != nil {
		m.calls.Set(c.id, struct{}{})
	}
}

func (s *session) drop(c *toolCall) {
	if !c.called && !c.cut {
		s.waiting--
	}
	s.calls.Delete(c.id)
	if m := s.modelOf(c.model); m != nil {
		m.calls.Delete(c.id)
	}
}

// callBegins reads that a model asks for a call, or that a call has what it needs to begin.
func (p *Projector) callBegins(s *session, t *assemble.Transition) {
	p.work(s)
	c := s.find(t.Item.ID)
	if c == nil {
		c = &toolCall{id: t.Item.ID, turn: s.turn.seq, ts: string(p.rec.ts), model: s.speaking(), asked: s.answered,
			effects: "execute"}
		s.add(c)
	}
	c.tool = cmp.Or(t.Item.Tool, c.tool)
	if t.Kind == assemble.CallAsk || t.Repaired {
		return
	}
	input := p.field("input")
	c.hash, c.size, c.ts = hashOf(input), int64(len(input)), string(p.rec.ts)
	if v := text(p.field("side_effects")); slices.Contains([]string{"none", "read", "write", "network"}, v) {
		c.effects = v
	}
	if s.speaking() == 0 {
		p.dispatch(s, c)
	}
}

// speaking returns the serial of the newest request that is open; 0: none is.
func (s *session) speaking() int {
	serial, _, _ := s.models.Last()
	return serial
}

// noteRunning reads that a tool works.
func (p *Projector) noteRunning(s *session) {
	if s.waiting == 0 { // the rule, and deltas are many
		return
	}
	if c := s.find(shortenText(text(p.field("call_id")))); c != nil {
		p.dispatch(s, c)
	}
}

// dispatch appends that a tool works, behind the end of the request that has asked for it: one whose message is
// complete ends with that.
func (p *Projector) dispatch(s *session, c *toolCall) {
	if c.called || c.cut {
		return
	}
	c.due = true
	if m := s.modelOf(c.model); m != nil {
		if m.spoke {
			p.modelCompletes(s, m, done) // which releases it
		}
		return
	}
	p.noteCalled(s, c)
}

// noteCalled notes that a tool was called.
func (p *Projector) noteCalled(s *session, c *toolCall) {
	c.called = true
	s.waiting--
	s.total.tools++
	if c.turn == s.turn.seq {
		s.turn.total.tools++
	}
	at, ok := p.beginEvent(s, toolCalled, agent, c.turn, cmp.Or(c.asked, s.turn.started))
	c.place = at
	if ok {
		p.buf = p.buf.Str("tool_use_id", c.id).Str("tool_name", c.tool).Str("input_hash", c.hash).
			Int("input_size_bytes", c.size).Str("side_effects", c.effects)
		p.endEvent()
	}
}

// release lets go on what has waited for the end of a request; after a failure nothing is emitted for its calls.
func (p *Projector) release(s *session, m *modelCall, ok bool, at dialect.Place) {
	for id := range m.calls.All() {
		c := s.find(id)
		c.model, c.asked = 0, at
		if !ok {
			c.cut = true
			s.waiting--
			continue
		}
		if c.due {
			p.noteCalled(s, c)
		}
		if c.end != nil {
			s.drop(c)
			p.emitCallEnd(s, c, c.end)
		}
	}
}

// callEnds reads the end of a call.
func (p *Projector) callEnds(s *session, t *assemble.Transition) {
	c := s.find(t.Item.ID)
	if c == nil {
		return
	}
	if t.Repaired { // its turn is over, or it begins anew
		how := done
		if p.is(schema.TypeTurnEnd) {
			how = min(outcomeOf(text(p.field("stop_reason"))), cancelled)
		}
		p.lapseCall(s, c, how)
		return
	}
	e := p.endingOf(c)
	if e.class != "cancelled" && e.class != "user_denied" && e.class != "confirmation_timeout" {
		p.dispatch(s, c)
	} else if m := s.modelOf(c.model); m != nil && m.spoke {
		p.modelCompletes(s, m, done)
	}
	if s.find(c.id) != c { // its request has ended, and with that an end which the call had
		return
	}
	if c.model != 0 {
		c.end = e
		return
	}
	s.drop(c)
	if !c.cut {
		p.emitCallEnd(s, c, e)
	}
}

// endingOf reads a tool.end.
func (p *Projector) endingOf(c *toolCall) *ending {
	e := &ending{ok: string(p.field("ok")) != "false", took: p.since(c.ts).Milliseconds()}
	if ms, ok := millisOf(p.field("duration_ms")); ok {
		e.took = ms
	}
	if e.ok {
		e.size = p.field("output_bytes")
		if _, ok := jsonscan.WholeNumber(e.size); !ok {
			e.size = strconv.AppendInt(nil, int64(len(p.field("output"))), 10)
		}
		e.size = slices.Clone(e.size)
		return e
	}
	code, detail := text(p.field("error")), p.field("error_detail")
	e.message = shortenText(cmp.Or(text(schema.Field(detail, "message")), text(detail),
		text(schema.Field(p.field("error"), "message")), code))
	e.class = cmp.Or(c.denied, toolClass(code, e.message))
	return e
}

// toolClass finds the class of a tool's error.
func toolClass(code, message string) string {
	switch code {
	case schema.CodeToolCancelled, "cancelled":
		return "cancelled"
	case schema.CodeToolRefused:
		return "user_denied"
	}
	return find(code+" "+message, "execution_error", "kai-tool-time", "timeout", "timed out", "timeout", "timeout",
		"timeout",
		"permission denied", "permission_denied", "not found", "not_found", "no such", "not_found", "invalid",
		"validation_error")
}

// emitCallEnd appends how a call has ended.
func (p *Projector) emitCallEnd(s *session, c *toolCall, e *ending) {
	k, parent := toolCompleted, c.place
	if !e.ok {
		k, parent = toolFailed, cmp.Or(c.place, c.asked)
	}
	at, ok := p.beginEvent(s, k, tool, c.turn, parent)
	if c.turn == s.turn.seq {
		s.completed = at
	}
	if ok {
		if p.buf = p.buf.Str("tool_use_id", c.id); e.ok {
			p.buf = p.buf.Bool("success", true).Raw("output_size_bytes", e.size)
		} else {
			p.buf = p.buf.Str("error_class", e.class).Str("error_message", e.message)
		}
		p.buf = p.buf.Int("latency_ms", e.took)
		p.endEvent()
	}
	if p.is(schema.TypeToolEnd) && shortenText(text(p.field("call_id"))) == c.id {
		p.list(s, span{start: p.rec.seq, end: p.rec.seq}, func(b jsonscan.Object) jsonscan.Object {
			return appendResult(b, p.run, s.id(p.run), p.rec.seq, p.rec.ts, p.rec.payload)
		})
	}
}

// lapseCall ends a call whose tool reports nothing of its end: one that was called, and any where its turn was
// cancelled or has failed.
func (p *Projector) lapseCall(s *session, c *toolCall, how outcome) {
	s.drop(c)
	e := &ending{class: "execution_error", message: "it did not end", took: p.since(c.ts).Milliseconds()}
	if how == cancelled {
		e.class, e.message = "cancelled", "the turn was cancelled"
	}
	if !c.cut && c.model == 0 && (how != done || c.called) {
		p.emitCallEnd(s, c, e)
	}
}

// readRequest reads a request for input that is about a call.
func (p *Projector) readRequest(s *session, it *assemble.Item) {
	id := shortenText(text(p.field("call_id")))
	if id == "" {
		return
	}
	p.work(s)
	r := request{id: it.ID, call: id}
	name, effects, parent := "", "execute", s.turn.started
	if c := s.find(id); c != nil {
		name, parent = c.tool, cmp.Or(c.place, c.asked, parent)
		if c.effects == "write" || c.effects == "network" {
			effects = c.effects
		}
	}
	at, ok := p.beginEvent(s, confirmationRequested, system, s.turn.seq, parent)
	r.place = at
	if ok {
		p.buf = p.buf.Str("tool_use_id", id).Str("tool_name", name).Str("side_effects",
			effects).Str("confirmation_request_id", r.id).
			Str("input_summary", text(p.field("prompt")))
		if until := p.field("expires_at"); jsonscan.IsString(until) {
			p.buf = p.buf.Raw("expires_at", until)
		} else {
			p.buf = p.buf.Str("expires_at", p.later(5*time.Minute))
		}
		p.endEvent()
	}
	s.requests = slices.DeleteFunc(s.requests, func(o request) bool { return o.id == r.id })
	if len(s.requests) >= maxRequests {
		s.requests = slices.Delete(s.requests, 0, 1)
	}
	s.requests = append(s.requests, r)
}

// later returns a time behind the record's.
func (p *Projector) later(d time.Duration) string {
	t, _ := time.Parse(time.RFC3339Nano, string(p.rec.ts))
	return t.Add(d).UTC().Format(microLayout)
}

func (s *session) request(id string) *request {
	for i := range s.requests {
		if s.requests[i].id == id {
			return &s.requests[i]
		}
	}
	return nil
}

// answer reads what somebody has answered. Its agent says what comes of it.
func (p *Projector) answer(s *session) {
	if r := s.request(shortenText(text(p.field("request_id")))); r != nil {
		r.sent = true
	}
}

// readAnswer reads that an agent has taken an answer.
func (p *Projector) readAnswer(s *session, t *assemble.Transition) {
	r := s.request(t.Item.ID)
	if r == nil || r.resolved || t.Repaired {
		return
	}
	r.sent, r.resolved = true, true
	decision, scope := decisionOf(p.field("answer"))
	a := user
	if c := s.find(r.call); c != nil && decision != "allow" {
		c.denied = map[string]string{"deny": "user_denied", "timeout": "confirmation_timeout"}[decision]
	}
	if decision == "timeout" {
		a = system
	}
	if _, ok := p.beginEvent(s, confirmationResolved, a, s.turn.seq, r.place); ok {
		p.buf = p.buf.Str("tool_use_id", r.call).Str("confirmation_request_id", r.id).Str("decision",
			decision).NullStr("scope", scope)
		p.endEvent()
	}
}

// decisionOf reads an answer: a word, true, or an object with a decision as one of the protocols has it.
func decisionOf(answer []byte) (decision, scope string) {
	var o struct{ Decision, Result, Scope string }
	word := text(answer)
	switch {
	case len(answer) == 0 || string(answer) == "null":
		return "timeout", ""
	case string(answer) == "true":
		word = "allow"
	case answer[0] == '{':
		_ = json.Unmarshal(answer, &o) // what does not fit decides nothing
		word = cmp.Or(o.Decision, o.Result)
	}
	if o.Scope != "once" && o.Scope != "session" {
		o.Scope = ""
	}
	switch strings.ToLower(word) {
	case "allow", "approve", "yes":
		return "allow", cmp.Or(o.Scope, "once")
	case "timeout":
		return "timeout", ""
	}
	return "deny", o.Scope
}

// Confirmation is what somebody is asked to allow.
type Confirmation struct {
	Call     string // tool_use_id
	Waits    bool   // for a decision
	Resolved bool   // it has an answer, which the agent may not have read yet
}

// Confirmation returns the one with a request's id. ok is false when there is none, or none that is remembered.
func (p *Projector) Confirmation(id string) (c Confirmation, ok bool) {
	if s := p.sessions[p.req.Child]; s != nil {
		if r := s.request(id); r != nil {
			return Confirmation{r.call, p.reading.Questions().Request(p.req.Child, id), r.sent}, true
		}
	}
	return c, false
}

// Waiting returns the ids of the requests that wait for a decision.
func (p *Projector) Waiting() (ids []string) {
	if s := p.sessions[p.req.Child]; s != nil {
		for i := range s.requests {
			if id := s.requests[i].id; p.reading.Questions().Request(p.req.Child, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}
