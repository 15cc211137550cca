package proxy

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// memory is what the log holds of a lane's model calls, as far as it decides what is new in the next request.
// It is made of events alone, those that this proxy stores and those that it reads, so it is the same at every proxy.
type memory struct {
	answers []*answer        // by their place in the log, the newest last
	asked   map[sum]*answer  // the newest answer to a request
	said    map[sum]struct{} // what the user said, anywhere in the lane
	before  map[sum]struct{} // the same, older
	open    map[string]*toolCall
}

// answer is one model call and what came of it.
type answer struct {
	seq       schema.Seq
	id        string   // of the model call
	request   sum      // identifies the conversation that was sent; zero: it is not known
	continues string   // the model call whose answer the conversation went on from
	older     *answer  // to the same request
	names     []string // of its messages: the provider's ids
	texts     []sum    // of its messages
	calls     []*toolCall
	said      []sum // what the user said next
	failed    bool
	partial   bool // a message of it was cut short
	ended     bool
}

type toolCall struct {
	seq   schema.Seq
	id    string // in the log
	given string // by the provider
	late  string // by the provider, in the end of the answer; "" where it is the same
	tool  string
	input sum
	done  bool
}

// Bounds of what is remembered of one lane; the oldest is forgotten first.
const (
	maxAnswers = 1024
	maxCalls   = 1024 // of one answer
	maxSaid    = 2048
)

// chapter is where the next event of a lane belongs, in the order of one writer.
type chapter struct {
	asked []sum   // messages of the user whose model call has not begun
	at    *answer // of the events that follow
}

// see remembers an event.
func (m *memory) see(ch *chapter, e *schema.Event) {
	if !slices.Contains(memoryTypes, e.Type) {
		return
	}
	all, _ := provider.Parse(e.Payload)
	switch e.Type {
	case schema.TypeModelStart:
		m.addCall(ch, e.Seq, all)
	case schema.TypeToolStart:
		m.call(m.maker(ch, all), e.Seq, all)
	case schema.TypeToolEnd:
		m.settle(all.Str("call_id"))
	case schema.TypeMessageEnd:
		m.message(ch, e.Actor, all)
	case schema.TypeModelEnd:
		if a := m.byID(all.Str("call_id")); a != nil {
			a.ended = true
			a.failed = a.failed || string(all.Get("ok")) == "false"
		}
	}
}

// maker returns the answer that an event is a part of: what it says, or else the newest of its chapter.
func (m *memory) maker(ch *chapter, all provider.Fields) *answer {
	if a := m.byID(all.Str(modelCall)); a != nil {
		return a
	}
	return ch.at
}

// modelCall is the member of events that names the model call that they are of. Several proxies may record calls of one
// lane at the same time.
const modelCall = "model_call_id"

// sign adds the member to what memories are made of.
func (c *call) sign(events []schema.Event) {
	for i := range events {
		e := &events[i]
		if e.Type != schema.TypeToolStart && e.Type != schema.TypeMessageEnd || len(e.Payload) < len(`{"":0}`) {
			continue
		}
		open := e.Payload[: len(e.Payload)-1 : len(e.Payload)-1]
		e.Payload = fmt.Appendf(open, `,%q:%q}`, modelCall, c.id())
	}
}

// addCall adds a model call that has begun.
func (m *memory) addCall(ch *chapter, seq schema.Seq, all provider.Fields) {
	if old := m.byID(all.Str("call_id")); old != nil { // its events are read again
		ch.asked, ch.at = nil, old
		return
	}
	a := &answer{
		seq: seq, id: all.Str("call_id"), request: readSum(all.Str("conversation")), continues: all.Str("continues"),
	}
	at := len(m.answers)
	for at > 0 && m.answers[at-1].seq > seq {
		at--
	}
	m.answers = append(m.answers, nil)
	copy(m.answers[at+1:], m.answers[at:])
	m.answers[at] = a
	if len(m.answers) > maxAnswers {
		m.forget()
	}
	if m.asked == nil {
		m.asked = make(map[sum]*answer)
	}
	if a.request != (sum{}) {
		a.older = m.asked[a.request]
		m.asked[a.request] = a
	}
	if from := m.byID(a.continues); from != nil {
		from.said = append(from.said, ch.asked...)
	}
	ch.asked, ch.at = nil, a
}

// forget drops the oldest answer.
func (m *memory) forget() {
	old := m.answers[0]
	m.answers = m.answers[1:]
	if m.asked[old.request] == old {
		delete(m.asked, old.request)
	}
	for _, a := range m.answers {
		if a.older == old {
			a.older = nil
			break
		}
	}
	for _, k := range old.calls {
		if m.open[k.id] == k {
			delete(m.open, k.id)
		}
	}
}

func (m *memory) byID(id string) *answer {
	for i := len(m.answers) - 1; i >= 0 && id != ""; i-- {
		if m.answers[i].id == id {
			return m.answers[i]
		}
	}
	return nil
}

// call takes a call of the newest answer. One that no model call of the log has made is nobody's.
func (m *memory) call(a *answer, seq schema.Seq, all provider.Fields) {
	if a == nil || len(a.calls) >= maxCalls {
		return
	}
	if slices.ContainsFunc(a.calls, func(k *toolCall) bool { return k.seq == seq }) {
		return // it is read again
	}
	k := &toolCall{
		seq: seq, id: all.Str("call_id"), given: all.Str("provider_call_id"), tool: all.Str("tool"),
		input: inputSum(all.Get("input")),
	}
	if k.given == "" {
		k.given = k.id
	}
	if m.open == nil {
		m.open = make(map[string]*toolCall)
	}
	a.calls = append(a.calls, k)
	m.open[k.id] = k
}

// settle takes the result of a call.
func (m *memory) settle(id string) {
	if k := m.open[id]; k != nil {
		k.done = true
		delete(m.open, id)
	}
}

// setLateIDs takes the ids that calls have in the end of an answer alone. An agent answers those.
func (a *answer) setLateIDs(content []json.RawMessage) {
	for _, raw := range content {
		b, _ := provider.Parse(raw)
		late, id := b.Str("late_id"), b.Str("id")
		for _, k := range a.calls {
			if late != "" && k.id == id {
				k.late = late
			}
		}
	}
}

// message takes a message that has ended.
func (m *memory) message(ch *chapter, actor string, all provider.Fields) {
	content := provider.Elements(all.Get("content"))
	if actor == "user" {
		if all.Get("content") == nil {
			return // it is too large for an event
		}
		s := messageSum(content)
		m.remember(s)
		ch.asked = append(ch.asked, s)
		return
	}
	a := m.maker(ch, all)
	if a == nil {
		return
	}
	a.setLateIDs(content)
	a.names = append(a.names, all.Str("message_id"))
	if id := all.Str("response_id"); id != "" {
		a.names = append(a.names, id)
	}
	if all.Get("error") != nil {
		a.failed = true
	}
	a.partial = a.partial || all.Get("incomplete") != nil
	if s := textSum(blockTexts(content)); s != (sum{}) {
		a.texts = append(a.texts, s)
	}
}

func blockTexts(content []json.RawMessage) (texts []json.RawMessage) {
	for _, raw := range content {
		f, _ := provider.Parse(raw)
		if v := f.Get("text"); f.Str("type") == "text" && jsonscan.IsString(v) {
			texts = append(texts, v)
		}
	}
	return texts
}

// remember keeps what the user said.
func (m *memory) remember(s sum) {
	if len(m.said) >= maxSaid {
		m.before, m.said = m.said, nil
	}
	if m.said == nil {
		m.said = make(map[sum]struct{})
	}
	m.said[s] = struct{}{}
}

// hasSaid reports whether the user said it anywhere in the lane.
func (m *memory) hasSaid(s sum) bool {
	_, now := m.said[s]
	_, before := m.before[s]
	return now || before
}

// messageSum identifies a user's message by its content as the log has it.
func messageSum(content []json.RawMessage) sum {
	var b []byte
	for _, raw := range content {
		f, _ := provider.Parse(raw)
		if v := f.Get("text"); f.Str("type") == "text" && len(f) == 2 && jsonscan.IsString(v) {
			b = append(append(b, 't'), jsonscan.Inner(v)...)
		} else {
			b = append(append(b, 'o'), raw...)
		}
		b = append(b, 0)
	}
	return sumOf(b)
}

// partsSum identifies a user's message as messageSum does when it is in the log.
func partsSum(parts []part) sum {
	content := make([]json.RawMessage, len(parts))
	for i, p := range parts {
		if p.text != nil {
			content[i] = provider.Fields{{Name: "type", Value: provider.Quote("text")}, {Name: "text", Value: p.text}}.Encode()
		} else {
			content[i] = slim(p.raw)
		}
	}
	return messageSum(content)
}

// String is the sum as events have it.
func (s sum) String() string { return hex.EncodeToString(s[:]) }

func readSum(text string) (s sum) {
	b, err := hex.DecodeString(text)
	if err == nil && len(b) == len(s) {
		copy(s[:], b)
	}
	return s
}
