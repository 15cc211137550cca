package schematest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"agentstream/schema"
)

// Root stands in Event.Path for the run's own id, which a scenario does not know. Numbered and
// Packs put the real one there.
const Root = "run_root"

// Ids of the children in scenarios.
const (
	ChildA     = "run_child_a"
	ChildB     = "run_child_b"
	Grandchild = "run_child_a_1"
)

// Scenario is a run as its producer sends it. Its events have neither ID, TS, Seq nor RunID.
type Scenario struct {
	Name   string
	Events []schema.Event
}

// All returns every named scenario, always in the same order.
func All() []Scenario {
	all := make([]Scenario, 0, len(scenarios))
	for _, s := range scenarios {
		all = append(all, s.build())
	}
	return all
}

// ByName returns one scenario. It panics when there is none of that name: a test that asks for it cannot mean
// anything.
func ByName(name string) Scenario {
	for _, s := range scenarios {
		if s.name == name {
			return s.build()
		}
	}
	panic("schematest: no scenario " + name)
}

type entry struct {
	name  string
	write func(*script)
}

func (e entry) build() Scenario {
	var s script
	e.write(&s)
	return Scenario{Name: e.name, Events: s.events}
}

var scenarios = []entry{
	{"plain", plain},
	{"tool", tool},
	{"parallel-tools", parallelTools},
	{"failure", failure},
	{"cancel-in-text", cancelInText},
	{"cancel-in-tool", cancelInTool},
	{"cancel-between", cancelBetween},
	{"children", children},
	{"plan", plan},
	{"native", native},
	{"follow-up", followUp},
	{"session", session},
	{"late", late},
	{"dispatch", dispatch},
	{"long", long},
	{"unicode", unicodeText},
	{"hostile", hostile},
}

// script collects events. child is the lane that events go to.
type script struct {
	events []schema.Event
	child  string
	path   []string
	turn   string
	actor  string
}

// raw is JSON that goes into a payload as it stands.
type raw = json.RawMessage

// add appends an event whose payload is the object of the given names and values, in that order.
func (s *script) add(typ string, pairs ...any) { s.raw(typ, object(pairs...)) }

// raw appends an event with exactly these payload bytes.
func (s *script) raw(typ, payload string) {
	s.events = append(s.events, schema.Event{
		Type: typ, ChildID: s.child, Path: s.path, TurnID: s.turn, Actor: s.actor,
		Payload: json.RawMessage(payload),
	})
}

// as emits to another lane while fn runs.
func (s *script) as(child string, path []string, fn func()) {
	was, wasPath := s.child, s.path
	s.child, s.path = child, path
	fn()
	s.child, s.path = was, wasPath
}

// by makes events that fn emits another actor's, as commands of a user are.
func (s *script) by(actor string, fn func()) {
	was := s.actor
	s.actor = actor
	fn()
	s.actor = was
}

func (s *script) state(st schema.RunState, reason string) {
	if reason == "" {
		s.add(schema.TypeRunLifecycle, "state", st, "reason", nil)
		return
	}
	s.add(schema.TypeRunLifecycle, "state", st, "reason", reason)
}

// block is one content block of a message that a scenario emits in full.
type block struct {
	kind  string // text, reasoning or tool_use
	text  string // text, or the input of a tool as JSON
	call  string
	tool  string
	piece int // runes per delta; 0 is 8
}

// message emits a whole message with its framing. usage may be "".
func (s *script) message(id, stop, usage string, blocks ...block) {
	s.messageStart(id)
	content := make([]string, 0, len(blocks))
	for i, b := range blocks {
		s.block(id, i, b)
		content = append(content, b.content())
	}
	s.messageEnd(id, stop, usage, content)
}

func (s *script) messageStart(id string) {
	s.add(schema.TypeMessageStart, "message_id", id, "role", "assistant", "model", "scripted-1", "provider", "scripted")
}

func (s *script) messageEnd(id, stop, usage string, content []string) {
	pairs := []any{"message_id", id, "content", raw("[" + strings.Join(content, ",") + "]"), "stop_reason", stop,
		"stop_sequence", nil}
	if usage != "" {
		pairs = append(pairs, "usage", raw(usage))
	}
	s.add(schema.TypeMessageEnd, pairs...)
}

func (b block) content() string {
	if b.kind == "tool_use" {
		return object("type", b.kind, "id", b.call, "name", b.tool, "input", raw(b.text))
	}
	return object("type", b.kind, "text", b.text)
}

func (s *script) block(message string, index int, b block) {
	if b.kind == "tool_use" {
		s.add(schema.TypeBlockStart, "index", index, "kind", b.kind, "message_id", message, "call_id", b.call, "tool", b.tool)
		s.deltas(index, b)
		s.add(schema.TypeBlockEnd, "index", index, "message_id", message, "complete", true, "call_id", b.call, "input",
			raw(b.text))
		s.add(schema.TypeToolStart, "call_id", b.call, "tool", b.tool, "input", raw(b.text), "index", index)
		return
	}
	s.add(schema.TypeBlockStart, "index", index, "kind", b.kind, "message_id", message)
	s.deltas(index, b)
	s.add(schema.TypeBlockEnd, "index", index, "message_id", message, "complete", true)
}

// deltas emits a block's text in pieces.
func (s *script) deltas(index int, b block) {
	for _, piece := range pieces(b.text, b.piece) {
		switch b.kind {
		case "tool_use":
			s.add(schema.TypeToolInputDelta, "call_id", b.call, "text", piece, "index", index)
		case "reasoning":
			s.add(schema.TypeReasoningDelta, "text", piece, "index", index)
		default:
			s.add(schema.TypeTextDelta, "text", piece, "index", index)
		}
	}
}

// pieces cuts text into parts of n runes.
func pieces(text string, n int) []string {
	if n <= 0 {
		n = 8
	}
	var parts []string
	for runes := []rune(text); len(runes) > 0; {
		m := min(n, len(runes))
		parts = append(parts, string(runes[:m]))
		runes = runes[m:]
	}
	return parts
}

// object writes a JSON object with its fields in the given order and nothing escaped that need not
// be.
func object(pairs ...any) string {
	var buf bytes.Buffer
	buf.WriteByte('{')
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			buf.WriteByte(',')
		}
		fmt.Fprintf(&buf, "%q:", pairs[i])
		if r, ok := pairs[i+1].(raw); ok {
			buf.Write(r)
			continue
		}
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(pairs[i+1]); err != nil {
			panic(fmt.Sprintf("schematest: %v", err))
		}
		buf.Truncate(buf.Len() - 1) // the encoder's line feed
	}
	buf.WriteByte('}')
	return buf.String()
}
