package qoder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"pgregory.net/rapid"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

var lanes = []string{"", schematest.ChildA, schematest.ChildB}

// pieces are texts as they stand in JSON: with escapes, halves of surrogate pairs, and what looks like structure.
var pieces = []string{
	``, `a`, `Hello`, ` world`, `\"`, `\\`, `\u00e9`, `é`, `\ud83d`, `\ude00`, `😀`, `\ud83d\ude00`, `\u0000`, `\/`,
	`{\"q\":`, `1}`, `\n`,
}

func drawText(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 4).Draw(t, "text"), "")
}

func drawContent(t *rapid.T) string {
	blocks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		text := drawText(t)
		return rapid.SampledFrom([]string{
			`{"type":"text","text":"` + text + `"}`, `{"type":"thinking","thinking":"` + text + `","signature":"s"}`,
			`{"type":"reasoning","text":"` + text + `"}`,
			`{"type":"tool_use","id":"c1","name":"n","input":{"a":"` + text + `"}}`,
			`{"type":"tool_use","id":"c2","name":"n","partial_json":"` + text + `"}`,
			`{"type":"refusal","refusal":"` + text + `"}`,
			`{"type":"redacted_thinking","data":"x"}`, `{"type":7,"text":[]}`, `{}`,
			`{"text":"` + text + `","type":"text","text":null}`,
		}).Draw(t, "block")
	}), 0, 4).Draw(t, "blocks")
	return "[" + strings.Join(blocks, ",") + "]"
}

// drawEvent draws an event of any lane: framing that fits or does not, and payloads that are hard to read.
func drawEvent(t *rapid.T, toggles bool) schema.Event {
	index := rapid.SampledFrom([]string{``, `,"index":0`, `,"index":1`, `,"index":2.0`, `,"index":-1`,
		`,"index":9007199254740991`, `,"index":"x"`}).Draw(t, "index")
	id := rapid.SampledFrom([]string{`"m1"`, `"m2"`, `"m\u0031"`, `7`, `""`,
		`"` + strings.Repeat("i", 700) + `"`}).Draw(t, "id")
	text := drawText(t)
	kinds := rapid.SampledFrom([]string{`"text"`, `"reasoning"`, `"tool_use"`, `"compaction"`, `"refusal"`,
		`null`}).Draw(t, "kind")
	call := rapid.SampledFrom([]string{`"c1"`, `"c2"`}).Draw(t, "call")
	type choice struct {
		weight       int
		typ, payload string
	}
	choices := []choice{
		{10, "text.delta", `{"text":"` + text + `"` + index + `}`},
		{6, "reasoning.delta", `{"text":"` + text + `"` + index + `}`},
		{5, "tool.input.delta", `{"call_id":` + call + `,"text":"` + text + `"` + index + `}`},
		{2, "data.delta", `{"media_type":"a/b","data":"AA=="` + index + `}`},
		{2, "text.delta", rapid.SampledFrom(schematest.HostilePayloads()).Draw(t, "hostile")},
		{1, "text.delta", `{"te\u0078t":"` + text + `"}`},
		{6, "message.start", `{"message_id":` + id + `,"role":` +
			rapid.SampledFrom([]string{`"assistant"`, `"assistant"`, `"assistant"`, `"user"`, `"system"`, `"tool"`,
				`1`}).Draw(t, "role") + `,"usage":{"n":1e400}}`},
		{6, "message.end", `{"message_id":` + id + `,"content":` + drawContent(t) + `,"stop_reason":"end_turn"}`},
		{2, "message.end", `{"message_id":` + id + `}`},
		{1, "message.end", `{"message_id":` + id + `,"omitted":["content"]}`},
		{6, "block.start", `{"kind":` + kinds + `,"call_id":` + call + `,"block":{"type":"x","content":""}` + index + `}`},
		{6, "block.end", `{"input":{"a":"` + text + `"},"signature":"s","citations":[1,{}]` + index + `}`},
		{2, "tool.start", `{"call_id":` + call + `,"tool":"n","input":{}}`},
		{2, "tool.end", `{"call_id":` + call + `,"ok":true,"output":"x"}`},
		{1, "step.boundary", `{"step_index":0,"step_kind":"done"}`},
		{2, "run.lifecycle", `{"state":` + rapid.SampledFrom([]string{`"running"`, `"done"`, `"error"`, `"paused"`,
			`"planning","session":true`}).Draw(t, "state") + `}`},
		{1, "turn.start", `{"turn_id":"t1"}`},
		{1, "turn.end", `{"turn_id":"t1","stop_reason":"end_turn"}`},
		{2, "command.message", `{"content":"` + text + `","message_id":` +
			rapid.SampledFrom([]string{`"m1"`, `"u"`}).Draw(t, "told") + `}`},
		{1, "command.cancel", `{"reason":null}`},
		{1, "custom.x", `{}`},
	}
	if toggles {
		choices = append(choices, choice{2, "session.updated",
			fmt.Sprintf(`{"incremental_streaming_enabled":%v}`, rapid.Bool().Draw(t, "on"))})
	}
	var of []choice
	for _, c := range choices {
		for range c.weight {
			of = append(of, c)
		}
	}
	c := rapid.SampledFrom(of).Draw(t, "event")
	child := rapid.SampledFrom([]string{"", "", "", lanes[1], lanes[2]}).Draw(t, "lane")
	if strings.HasPrefix(c.typ, "session.") {
		child = ""
	}
	e := said(child, c.typ, c.payload)
	if rapid.IntRange(0, 9).Draw(t, "caused") == 0 {
		e.Cause, e.TurnID, e.Actor = schematest.EventID(schema.Seq(rapid.IntRange(1, 20).Draw(t,
			"cause"))), "turn \"1\"", "user"
	}
	return e
}

func drawLog(t *rapid.T, tb testing.TB, toggles bool) []schema.Record {
	var s schematest.Scenario
	for range rapid.IntRange(1, 60).Draw(t, "length") {
		s.Events = append(s.Events, drawEvent(t, toggles))
	}
	for _, child := range []string{lanes[1], lanes[2], ""} { // so that all messages end
		s.Events = append(s.Events, said(child, schema.TypeRunLifecycle, `{"state":"done"}`))
	}
	return records(tb, s)
}

// forms are all that clients may ask for.
func forms() (all []form) {
	for _, child := range lanes {
		for p := range previewThinking * 2 {
			all = append(all, form{thread: ThreadID(testRun, child), previews: p})
		}
	}
	return append(all, form{}, form{previews: previewMessage | previewThinking})
}

// structure holds increments to their order. Messages of one id may follow each other.
type structure struct {
	open     map[string]*outline
	stopped  map[string]*outline
	compared int
}

type outline struct {
	texts [][]byte // inside of what was said of each block; nil: it is no text
	begun []bool   // and has not stopped
}

func newStructure() *structure {
	return &structure{open: map[string]*outline{}, stopped: map[string]*outline{}}
}

func (s *structure) read(f shown) string {
	var e struct {
		ID      string `json:"message_id"`
		Index   int
		Block   struct{ Type any } `json:"content_block"`
		Delta   struct{ Text json.RawMessage }
		Content []struct {
			Type any
			Text json.RawMessage
		}
	}
	if !strings.HasPrefix(f.event, "agent.message") && !strings.HasPrefix(f.event, "agent.content_block") {
		return ""
	}
	if err := json.Unmarshal([]byte(f.data), &e); err != nil {
		return err.Error()
	}
	m := s.open[e.ID]
	switch f.event {
	case "agent.message_start":
		if m != nil {
			return "begins twice"
		}
		s.open[e.ID] = &outline{}
		return ""
	case "agent.message":
		return s.whole(e.ID, func(i int) (string, []byte, bool) {
			if i >= len(e.Content) {
				return "", nil, false
			}
			typ, _ := e.Content[i].Type.(string)
			return typ, inner(e.Content[i].Text), true
		})
	}
	if m == nil {
		return "is of no message"
	}
	switch f.event {
	case "agent.content_block_start":
		if e.Index != len(m.begun) {
			return "begins out of order"
		}
		m.begun, m.texts = append(m.begun, true), append(m.texts, nil)
		if e.Block.Type == "text" {
			m.texts[e.Index] = []byte{}
		}
	case "agent.content_block_delta":
		if e.Index >= len(m.begun) {
			return "is of no block"
		}
		if !m.begun[e.Index] {
			return "is told behind the stop of its block"
		}
		m.texts[e.Index] = append(m.texts[e.Index], inner(e.Delta.Text)...)
	case "agent.content_block_stop":
		if e.Index >= len(m.begun) || !m.begun[e.Index] {
			return "is of a block that is not open"
		}
		m.begun[e.Index] = false
	case "agent.message_stop":
		if slices.Contains(m.begun, true) {
			return "stops with open blocks"
		}
		delete(s.open, e.ID)
		s.stopped[e.ID] = m
	}
	return ""
}

// whole compares texts with those of the content: what was streamed may be something else, but never too little.
func (s *structure) whole(id string, content func(int) (string, []byte, bool)) string {
	m := s.stopped[id]
	switch {
	case s.open[id] != nil:
		return "comes before its stop"
	case m == nil:
		return "" // it began when the session had no increments
	}
	delete(s.stopped, id)
	for i := 0; ; i++ {
		typ, text, ok := content(i)
		if !ok {
			return ""
		}
		if typ != "text" || i >= len(m.texts) || m.texts[i] == nil {
			continue
		}
		s.compared++
		said, want := units(m.texts[i]), units(text)
		if len(said) < len(want) && slices.Equal(said, want[:len(said)]) {
			return fmt.Sprintf("block %d: only %q was streamed", i, m.texts[i])
		}
	}
}

// units decodes the inside of a JSON string into UTF-16, by means of the standard library alone: each escape by
// itself, so that halves of pairs stay.
func units(in []byte) (out []uint16) {
	for len(in) > 0 {
		n := 1
		if in[0] == '\\' && in[1] == 'u' {
			var u uint16
			_, _ = fmt.Sscanf(string(in[2:6]), "%x", &u)
			out, in = append(out, u), in[6:]
			continue
		}
		if in[0] == '\\' {
			n = 2
		} else if i := bytes.IndexByte(in, '\\'); i >= 0 {
			n = i
		} else {
			n = len(in)
		}
		var s string
		_ = json.Unmarshal([]byte(`"`+string(in[:n])+`"`), &s)
		out, in = append(out, utf16.Encode([]rune(s))...), in[n:]
	}
	return out
}
