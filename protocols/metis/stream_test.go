package metis

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

// streams is how many random logs are tried.
const streams = 200

// random returns the log of a seed: a generated run that lost, doubled and swapped events, with others among them that
// fit nowhere. It ends with the end of the run.
func random(seed uint64) schematest.Scenario {
	rng := rand.New(rand.NewPCG(seed, 11))
	var s schematest.Scenario
	s.Name = fmt.Sprint("random ", seed)
	for _, e := range schematest.Generate(20+rng.IntN(60), seed).Events {
		switch rng.IntN(10) {
		case 0: // lost
		case 1:
			s.Events = append(s.Events, e, e)
		case 2:
			s.Events = append(s.Events, e, misfit(rng))
		default:
			s.Events = append(s.Events, e)
		}
		if n := len(s.Events); n > 2 && rng.IntN(10) == 0 {
			s.Events[n-1], s.Events[n-2] = s.Events[n-2], s.Events[n-1]
		}
	}
	end := []string{"done", "aborted", "error"}[rng.IntN(3)]
	s.Events = append(s.Events, schema.Event{Type: schema.TypeRunLifecycle,
		Payload: json.RawMessage(`{"state":"` + end + `"}`)})
	return s
}

// misfit is an event that fits nowhere.
func misfit(rng *rand.Rand) schema.Event {
	call := fmt.Sprintf(`"call_id":"call_%d"`, 1+rng.IntN(4))
	list := []schema.Event{
		{Type: schema.TypeTurnStart, Payload: json.RawMessage(`{"turn_id":"t"}`)},
		{Type: schema.TypeTurnEnd, Payload: json.RawMessage(`{"turn_id":"t","stop_reason":"cancelled"}`)},
		{Type: schema.TypeTurnEnd, Payload: json.RawMessage(`{"turn_id":"t"}`)},
		{Type: schema.TypeModelStart, Payload: json.RawMessage(`{` + call + `,"model":"m"}`)},
		{Type: schema.TypeModelEnd, Payload: json.RawMessage(`{` + call + `,"ok":true}`)},
		{Type: schema.TypeModelEnd, Payload: json.RawMessage(`{` + call + `,"ok":false,"error":{"type":"cancelled"}}`)},
		{Type: schema.TypeToolStart, Payload: json.RawMessage(`{` + call + `,"tool":"x","input":{}}`)},
		{Type: schema.TypeToolEnd, Payload: json.RawMessage(`{` + call + `,"ok":false,"error":"KAI-TOOL-CANCEL-0001"}`)},
		{Type: schema.TypeToolRun, Payload: json.RawMessage(`{` + call + `}`)},
		{Type: schema.TypeCommandMessage, Payload: json.RawMessage(`{"content":"go on"}`)},
		{Type: typeCancel, Payload: json.RawMessage(`{"reason":"timeout"}`)},
		{Type: schema.TypeCommandsTaken, Payload: json.RawMessage(`{"through":` + fmt.Sprint(1+rng.IntN(80)) + `}`)},
		{Type: schema.TypeInputRequested, Payload: json.RawMessage(`{"request_id":"r",` + call + `}`)},
		{Type: schema.TypeInputAnswered, Payload: json.RawMessage(`{"request_id":"r","answer":"deny"}`)},
		{Type: schema.TypeRunLifecycle, Payload: json.RawMessage(`{"state":"aborted"}`)},
		{Type: schema.TypeMessageStart, Payload: json.RawMessage(`{"message_id":"m","role":"assistant"}`)},
		{Type: schema.TypeMessageEnd, Payload: json.RawMessage(`{"message_id":"n","content":[{"type":"text","text":"x"},{"type":"tool_use","id":"call_9","name":"y","input":[1]}]}`)},
		{Type: "custom.metis.route.decided", Payload: json.RawMessage(`{"chosen_model":"x"}`)},
		{Type: "custom.metis.skill.loaded", Payload: json.RawMessage(`{"skill_id":"s"}`)},
	}
	e := list[rng.IntN(len(list))]
	if rng.IntN(4) == 0 {
		e.ChildID, e.Path = "run_gen_1", []string{schematest.Root, "run_gen_1"}
	}
	return e
}

// most is how many events of a log are tried behind each of which something is done.
const most = 150

// all returns the logs that properties are checked on.
func all(t *testing.T) (list []schematest.Scenario) {
	list = schematest.All()
	for seed := range uint64(streams) {
		list = append(list, random(seed))
	}
	return append(list, recordings(t)...)
}

// short returns their beginnings.
func short(t *testing.T) (list []schematest.Scenario) {
	for _, s := range all(t) {
		s.Events = s.Events[:min(most, len(s.Events))]
		list = append(list, s)
	}
	return list
}

// checker knows what must hold in the order of events, in each session.
type checker struct {
	ids      map[string]string // types of events by id
	last     string
	sessions map[string]*state
}

type state struct {
	ended           bool
	turn            string
	route           map[string]int
	models          map[string]bool // open, by id of llm.call_started
	messages        map[string]*reply
	tools           map[string]string // called
	asked, delegate map[string]bool
}

// reply is a message that is put together from what a client sees.
type reply struct {
	text  map[int]string
	input map[int]string
	open  map[int]bool
	kind  map[int]string
}

func newChecker() *checker {
	return &checker{ids: map[string]string{}, sessions: map[string]*state{}}
}

// see checks one event. It returns what is wrong.
func (c *checker) see(e event) string {
	s := c.sessions[e.Session]
	if s == nil {
		s = &state{route: map[string]int{}, models: map[string]bool{}, messages: map[string]*reply{},
			tools: map[string]string{}, asked: map[string]bool{}, delegate: map[string]bool{}}
		c.sessions[e.Session] = s
		if e.Type != "session.created" {
			return "a session that was not created"
		}
	}
	if e.ID <= c.last {
		return "ids are not in order"
	}
	c.last, c.ids[e.ID] = e.ID, e.Type
	parent := ""
	if e.Parent != nil {
		if parent = c.ids[*e.Parent]; parent == "" {
			return "a parent that was not seen"
		}
	}
	turn := ""
	if e.Turn != nil {
		turn = *e.Turn
	}
	if s.ended && e.Type != "session.resumed" && !strings.HasPrefix(e.Type, "delegate.") &&
		!strings.HasPrefix(e.Type, "custom.") && e.Type != "skill.loaded" && e.Type != "bus.gap_detected" {
		return "the session has ended"
	}
	switch e.Type {
	case "session.ended":
		s.ended = true
		if s.turn != "" || len(s.models)+len(s.messages)+len(s.tools) > 0 {
			return fmt.Sprintf("open at the end: %q %v %v %v", s.turn, s.models, s.messages, s.tools)
		}
	case "session.resumed":
		s.ended = false
	case "turn.started":
		if s.turn != "" || parent != "" {
			return "a turn within a turn"
		}
		s.turn = turn
	case "turn.completed", "turn.cancelled":
		if s.turn != turn || turn == "" || parent != "turn.started" {
			return "the end of another turn"
		}
		s.turn = ""
	case "route.decided":
		if s.route[turn]++; s.route[turn] > 1 || s.turn != turn {
			return "a second route"
		}
	case "llm.call_started":
		if s.route[turn] != 1 || s.turn != turn || parent != "turn.started" && parent != "tool.completed" &&
			parent != "tool.failed" {
			return "a request without route or turn, from " + parent
		}
		s.models[e.ID] = true
	case "llm.call_completed", "llm.call_failed":
		if e.Parent == nil || !s.models[*e.Parent] {
			return "the end of no request"
		}
		delete(s.models, *e.Parent)
	default:
		return s.content(e, parent)
	}
	return ""
}

// content checks what messages and tools say.
func (s *state) content(e event, parent string) string {
	m := s.messages[e.p.Message]
	switch e.Type {
	case "message.start":
		if m != nil || parent != "llm.call_started" {
			return "a message twice, or of no request"
		}
		s.messages[e.p.Message] = newReply()
	case "text.delta", "thinking.delta", "tool.use_start", "tool.use_input_delta", "tool.use_end", "message.complete":
		if m == nil {
			return "no such message"
		}
		if wrong := m.see(e); wrong != "" {
			return wrong
		}
		if e.Type == "message.complete" {
			delete(s.messages, e.p.Message)
		}
	case "tool.called":
		if s.tools[e.p.ToolUse] != "" || parent != "llm.call_completed" && parent != "turn.started" {
			return "called twice, or by " + parent
		}
		s.tools[e.p.ToolUse] = e.ID
	case "tool.completed":
		if s.tools[e.p.ToolUse] == "" || parent != "tool.called" {
			return "the end of no call"
		}
		delete(s.tools, e.p.ToolUse)
	case "tool.failed":
		if s.tools[e.p.ToolUse] == "" && e.p.Class != "cancelled" && e.p.Class != "user_denied" &&
			e.p.Class != "confirmation_timeout" && e.p.Class != "execution_error" {
			return "the failure of no call"
		}
		delete(s.tools, e.p.ToolUse)
	case "delegate.started":
		s.delegate[e.p.Worker] = true
	case "delegate.completed", "delegate.failed":
		if !s.delegate[e.p.Worker] || parent != "delegate.started" {
			return "a worker that was not sent"
		}
		delete(s.delegate, e.p.Worker)
	}
	return ""
}

func newReply() *reply {
	return &reply{text: map[int]string{}, input: map[int]string{}, open: map[int]bool{}, kind: map[int]string{}}
}

func (m *reply) see(e event) string {
	i := e.p.Index
	switch e.Type {
	case "text.delta", "thinking.delta":
		m.text[i] += e.p.Text
		m.kind[i] = strings.TrimSuffix(e.Type, ".delta")
	case "tool.use_start":
		m.open[i], m.kind[i] = true, "tool_use"
	case "tool.use_input_delta":
		if !m.open[i] {
			return "input of no call"
		}
	case "tool.use_end":
		if !m.open[i] || !json.Valid(e.p.Input) || e.p.Input[0] != '{' {
			return "the input of no call, or none"
		}
		m.open[i], m.input[i] = false, string(e.p.Input)
	case "message.complete":
		for _, open := range m.open {
			if open {
				return "a call is open"
			}
		}
		return ""
	}
	return ""
}

// same compares what was streamed with the final content. replaced reports that the log's content is another.
func (m *reply) same(e event) string {
	if e.p.Omitted > 0 {
		return ""
	}
	for i, raw := range e.p.Content {
		var b struct {
			Type, Text string
			Input      json.RawMessage
		}
		_ = json.Unmarshal(raw, &b)
		switch {
		case b.Type == "tool_use":
			if string(b.Input) != m.input[i] {
				return fmt.Sprintf("block %d: input %s, streamed %s", i, b.Input, m.input[i])
			}
		case (b.Type == "text" || b.Type == "thinking") && b.Text != m.text[i]:
			return fmt.Sprintf("block %d: %q, streamed %q", i, b.Text, m.text[i])
		}
	}
	return ""
}

// filters are those that properties are checked with.
func filters() map[string]Filter {
	return map[string]Filter{"chat": Chat(), "workers": {Workers: true},
		"agents": {Types: []string{"text.delta", "turn.completed"}, Actors: []string{"agent"}}}
}

// prefix compares the content of a message under way with what was streamed of it.
func (m *reply) prefix(content []json.RawMessage) string {
	if m == nil {
		return "it has not begun"
	}
	for i, raw := range content {
		var b struct{ Type, Text string }
		_ = json.Unmarshal(raw, &b)
		if (b.Type == "text" || b.Type == "thinking") && b.Text != m.text[i] {
			return fmt.Sprintf("block %d: %q, streamed %q", i, b.Text, m.text[i])
		}
	}
	return ""
}
