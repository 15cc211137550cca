package assemble

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/schematest"
)

// keeping keeps as much as dialects that need the content do.
var keeping = Limits{Message: 32 << 10, All: 1 << 20}

var (
	scenario = schematest.Short
	records  = schematest.Records
)

var names = [...]string{
	TurnBegin: "turn.begin", TurnEnd: "turn.end", MessageOpen: "message.open", MessageClose: "message.close",
	BlockOpen: "block.open", BlockClose: "block.close", BlockText: "text", BlockPart: "part", BlockInput: "input",
	BlockSignature: "signature",
	BlockCitations: "citations", BlockEnd: "block.end", CallAsk: "call.ask", CallStart: "call.start", CallEnd: "call.end",
	CallRun:    "call.run",
	ModelStart: "model.start", ModelEnd: "model.end", TaskStart: "task.start", TaskEnd: "task.end",
	InputRequest: "input.request", InputAnswer: "input.answer", ChildBegin: "child.begin", ChildEnd: "child.end",
	StateChange: "state", UsageAdd: "usage",
}

// written returns transitions as text, one per line.
func written(steps []Transition) string {
	var b []byte
	for i := range steps {
		s := &steps[i]
		b = append(b, names[s.Kind]...)
		if s.Lane.Child != "" {
			b = append(append(b, " @"...), s.Lane.Child...)
		}
		if s.Block != nil {
			b = strconv.AppendInt(append(b, ' '), int64(s.Block.Place), 10)
		}
		for _, id := range []string{s.ID, nameOfItem(s.Item)} {
			if id != "" {
				b = append(append(b, ' '), id...)
			}
		}
		if s.Low != 0 {
			b = strconv.AppendInt(append(b, ' '), int64(s.Low), 16)
		}
		if s.Text != nil {
			b = append(append(append(b, ` "`...), s.Text...), '"')
		}
		if s.Value != nil {
			b = append(append(b, ' '), s.Value...)
		}
		if s.Repaired {
			b = append(b, " (repaired)"...)
		}
		b = append(b, '\n')
	}
	return string(b)
}

func nameOfItem(it *Item) string {
	if it == nil {
		return ""
	}
	return it.ID
}

func next(tb testing.TB, a *Run, r schema.Record) []Transition {
	tb.Helper()
	steps, err := a.Next(r)
	if err != nil {
		tb.Fatalf("seq %d: %v", r.Seq, err)
	}
	return steps
}

// stream returns the random log of a seed: a generated run that lost, doubled and swapped events, with others among
// them that fit nowhere. It ends with the end of the run.
func stream(seed uint64) schematest.Scenario {
	rng := rand.New(rand.NewPCG(seed, 7))
	var s schematest.Scenario
	for _, e := range schematest.Generate(20+rng.IntN(40), seed).Events {
		switch rng.IntN(8) {
		case 0: // lost
		case 1:
			s.Events = append(s.Events, e, e)
		case 2:
			s.Events = append(s.Events, e, misfit(rng))
		default:
			s.Events = append(s.Events, e)
		}
	}
	for range rng.IntN(6) {
		i, j := rng.IntN(len(s.Events)), rng.IntN(len(s.Events))
		s.Events[i], s.Events[j] = s.Events[j], s.Events[i]
	}
	s.Events = append(s.Events, schema.Event{Type: schema.TypeRunLifecycle, Payload: json.RawMessage(`{"state":"done"}`)})
	return s
}

// misfit returns an event that nothing has prepared.
func misfit(rng *rand.Rand) schema.Event {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	index := pick(``, ``, `,"index":0`, `,"index":1`, `,"index":2.0`, `,"index":-1`, `,"index":9007199254740991`,
		`,"index":"x"`)
	id := pick(`"msg_1"`, `"msg_2"`, `"m"`, `"m\u0031"`, `7`, `""`, `"`+strings.Repeat("i", 2000)+`"`)
	call := pick(`"call_1"`, `"call_2"`, `"c"`, `7`, `""`)
	text := pick(``, `a`, `Hello`, `\ud83d`, `\ude00`, `😀`, `{\"q\":`, `\n`)
	hostile := schematest.HostilePayloads()
	content := pick(`[]`, `"text"`, `{}`, `[{"type":"text","text":"Hello`+text+`"}]`,
		`[{},{"type":"reasoning","text":"a"},{"type":"tool_use","id":"c","name":"n","input":{}}]`)
	all := [][2]string{
		{"text.delta", `{"text":"` + text + `"` + index + `}`}, {"reasoning.delta", `{"text":"` + text + `"` + index + `}`},
		{"text.delta", hostile[rng.IntN(len(hostile))]},
		{"tool.input.delta", `{"call_id":` + call + `,"text":"` + text + `"` + index + `}`},
		{"data.delta", `{"media_type":"a/b","data":"AA=="` + index + `}`},
		{"message.start", `{"message_id":` + id + `,"role":` + pick(`"assistant"`, `"user"`, `1`) + `}`},
		{"message.end", `{"message_id":` + id + `,"content":` + content + `}`},
		{"message.end", `{"message_id":` + id + `,"usage":{"input_tokens":1}}`},
		{"block.start", `{"kind":` + pick(`"text"`, `"tool_use"`, `"compaction"`, `null`) + `,"call_id":` + call +
			`,"block":{"type":"x","content":"","server_name":"s"}` + index + `}`},
		{"block.end", `{"input":{"a":1},"signature":"s","citations":[1],"complete":` + pick("true", "false") + index + `}`},
		{"tool.start", `{"call_id":` + call + `,"tool":"n"}`}, {"tool.end", `{"call_id":` + call + `,"ok":true}`},
		{"tool.run", `{"call_id":` + call + `}`},
		{"model.start", `{"call_id":` + call + `}`}, {"model.end", `{"call_id":` + call + `,"usage":{"output_tokens":2}}`},
		{"task.start", `{"task_id":` + call + `}`}, {"task.end", `{"task_id":` + call + `}`},
		{"input.requested", `{"request_id":` + call + `}`}, {"input.answered", `{"request_id":` + call + `}`},
		{"turn.start", `{"turn_id":` + id + `}`}, {"turn.end", `{"turn_id":` + id + `}`},
		{"step.boundary", `{"step_index":0}`},
		{"child.spawn", `{"child_id":` + pick(`"run_gen_1"`, `"kid"`, `"bad id"`, `3`) + `}`},
		{"command.message", `{"content":"x"}`},
		{"run.lifecycle", `{"state":` + pick(`"running"`, `"done"`, `"error"`, `"paused"`, `"none"`,
			`"planning","session":true`, `"done","reason":7`) + `}`},
	}
	c := all[rng.IntN(len(all))]
	e := schema.Event{Type: c[0], Payload: json.RawMessage(c[1])}
	if child := pick("", "", "run_gen_1", "kid", "grandkid"); child != "" {
		e.ChildID, e.Path = child, []string{schematest.Root, child}
		if child == "grandkid" {
			e.Path = []string{schematest.Root, "kid", child}
		}
	}
	return e
}

// checker holds transitions to their order.
type checker struct {
	lanes  map[string]*laneCheck
	record int // number of the record at hand
}

type laneCheck struct {
	turn, child bool
	open, whole *messageCheck
	items       map[string]Kind
	works       map[string]bool
}

type messageCheck struct {
	start  schema.Seq
	blocks []*blockCheck
}

type blockCheck struct {
	closed int // record that closed it
	kind   BlockKind
	sum    jsonscan.Sum
}

func newChecker() *checker { return &checker{lanes: map[string]*laneCheck{}} }

func (c *checker) lane(child string) *laneCheck {
	l := c.lanes[child]
	if l == nil {
		l = &laneCheck{items: map[string]Kind{}, works: map[string]bool{}}
		c.lanes[child] = l
	}
	return l
}

// see returns what is wrong with a transition; "" when nothing is.
func (c *checker) see(s *Transition, whole bool) string {
	l := c.lane(s.Lane.Child)
	switch s.Kind {
	case TurnBegin, TurnEnd:
		if l.turn == (s.Kind == TurnBegin) {
			return "turns do not alternate"
		}
		l.turn = !l.turn
	case ChildBegin, ChildEnd:
		if l.child == (s.Kind == ChildBegin) {
			return "beginnings and ends of a child do not alternate"
		}
		l.child = !l.child
	case MessageOpen:
		m := &messageCheck{start: s.Message.Start}
		switch {
		case l.open == nil:
			l.open = m
		case l.whole == nil && whole:
			l.whole = m
		default:
			return "a second message opens"
		}
	case CallAsk, CallStart, ModelStart, TaskStart, InputRequest, CallEnd, ModelEnd, TaskEnd, InputAnswer:
		return l.item(s)
	case CallRun:
		key := fmt.Sprint(CallEnd, s.Item.key)
		if l.items[key] != CallStart || l.works[key] {
			return "a tool works whose call has not started, or works already"
		}
		l.works[key] = true
	case StateChange, UsageAdd:
	default:
		return l.message(s, c.record)
	}
	return ""
}

func (l *laneCheck) item(s *Transition) string {
	end := s.Kind
	if int(s.Kind) < len(ends) && ends[s.Kind] != 0 {
		end = ends[s.Kind]
	}
	key := fmt.Sprint(end, s.Item.key)
	switch was, open := l.items[key]; {
	case s.Kind == end && !open:
		return "what ends has not begun"
	case s.Kind == end:
		delete(l.items, key)
		delete(l.works, key)
	case open && !(was == CallAsk && s.Kind == CallStart):
		return "what begins has begun"
	default:
		l.items[key] = s.Kind
	}
	return ""
}

func (l *laneCheck) message(s *Transition, record int) string {
	m := l.open
	if l.whole != nil {
		m = l.whole
	}
	if m == nil || m.start != s.Message.Start {
		return "no such message is open"
	}
	if s.Kind == MessageClose {
		for _, b := range m.blocks {
			if b.closed == 0 {
				return "a message closes before its blocks"
			}
		}
		if l.whole == nil {
			l.open = nil
		}
		l.whole = nil
		return m.complete(s.Value, record)
	}
	if s.Kind == BlockOpen {
		if s.Block.Place != len(m.blocks) {
			return "a block opens out of order"
		}
		m.blocks = append(m.blocks, &blockCheck{kind: s.Block.Kind})
		return ""
	}
	b := m.blocks[s.Block.Place]
	if b.closed > 0 {
		return "something follows the close of a block"
	}
	switch s.Kind {
	case BlockClose:
		b.closed = record
	case BlockText:
		if s.Low != 0 {
			b.sum.AddUnit(s.Low)
		}
		b.sum.Add(s.Text)
	}
	return ""
}

// complete compares what was streamed with the content: it is not only a beginning of it, unless the block closed
// before.
func (m *messageCheck) complete(content []byte, record int) string {
	place := 0
	for raw := range jsonscan.Elements(content) {
		c := ReadPart(raw)
		if place < len(m.blocks) && m.blocks[place].kind == Text && c.IsText() && m.blocks[place].closed == record {
			if _, rest, ok := m.blocks[place].sum.Rest(c.Text); ok && len(rest) > 0 {
				return fmt.Sprintf("block %d lacks %q", place, rest)
			}
		}
		place++
	}
	return ""
}

// left returns what is open.
func (c *checker) left() string {
	for child, l := range c.lanes {
		if l.turn || l.open != nil || l.whole != nil || len(l.items) > 0 || child != "" && l.child {
			return fmt.Sprintf("%q: %+v", child, l)
		}
	}
	return ""
}
