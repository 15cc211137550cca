package brokentest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"agentstream/adapters/provider"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Aspect is something in which two outcomes may differ.
type Aspect int

// The aspects.
const (
	IDs    Aspect = 1 << iota // of messages, calls, items and models
	Usage                     // the counts are missing
	Stop                      // the reason to stop, and whether the message is complete or has failed
	Split                     // a text is in one block more or less
	Twice                     // a piece of content is there twice
	Result                    // results of calls
	Many                      // one message more or less
)

// ReadOutcome is what a reader of the events knows.
type ReadOutcome []*ReadMessage

// ReadMessage is one message of an outcome.
type ReadMessage struct {
	ID, Model, Stop, Finish, Usage, Error string
	Incomplete                            bool
	Blocks                                []*Block
	Results                               []string
}

// Block is one block of a message.
type Block struct {
	Kind, Text, Call, Tool, Input, Raw string
	Complete                           bool
	started                            bool
}

// Of puts events together.
func Of(events []schema.Event) (o ReadOutcome) {
	open := map[string]*Block{}
	var m *ReadMessage
	for i := range events {
		e := &events[i]
		if strings.HasPrefix(e.Type, "custom.") {
			continue
		}
		p, _ := provider.Parse(e.Payload)
		index := string(p.Get("index"))
		switch e.Type {
		case schema.TypeMessageStart:
			m = &ReadMessage{ID: p.Str("message_id"), Model: p.Str("model")}
			o = append(o, m)
			open = map[string]*Block{}
		case schema.TypeBlockStart:
			raw, _ := provider.Parse(p.Get("block"))
			open[index] = &Block{Kind: p.Str("kind"), Call: p.Str("call_id"), Tool: p.Str("tool"), Raw: raw.Str("type")}
			m.Blocks = append(m.Blocks, open[index])
		case schema.TypeTextDelta, schema.TypeReasoningDelta, schema.TypeToolInputDelta:
			open[index].Text += p.Str("text")
		case schema.TypeDataDelta:
			open[index].Text += p.Str("data")
		case schema.TypeBlockEnd:
			open[index].Complete, open[index].Input = string(p.Get("complete")) == "true", same(p.Get("input"))
		case schema.TypeToolStart:
			if b := open[index]; b != nil {
				b.started = true
			}
		case schema.TypeToolEnd:
			m.Results = append(m.Results, fmt.Sprint(p.Str("call_id"), " ", string(p.Get("ok")), " ", same(p.Get("output"))))
		case schema.TypeMessageEnd:
			m.Stop, m.Finish, m.Usage, m.Error = p.Str("stop_reason"), p.Str("finish_reason"), same(p.Get("usage")), same(p.Get("error"))
			m.Incomplete = p.Get("incomplete") != nil
			m.content(p.Get("content"))
		}
	}
	return o
}

// content holds the content of message.end to the blocks: a text that the provider corrects stands there alone.
func (m *ReadMessage) content(list json.RawMessage) {
	for i, raw := range provider.Elements(list) {
		b, _ := provider.Parse(raw)
		if i >= len(m.Blocks) {
			m.Blocks = append(m.Blocks, &Block{Kind: "content of no block"})
			return
		}
		for _, name := range []string{"text", "thinking"} {
			if v := b.Get(name); jsonscan.IsString(v) && b.Str("type") == name {
				m.Blocks[i].Text = b.Str(name)
			}
		}
	}
}

// same returns a value in one spelling.
func same(v json.RawMessage) string {
	if v == nil {
		return ""
	}
	var x any
	if json.Unmarshal(v, &x) != nil {
		return string(v)
	}
	return encode(x)
}

// Diff returns how an outcome differs from the unbroken one in what is none of the aspects; "" when it does
// not.
func (o ReadOutcome) Diff(want ReadOutcome, but Aspect) string {
	if but&Many != 0 {
		return ""
	}
	if len(o) != len(want) {
		return fmt.Sprintf("%d messages, want %d", len(o), len(want))
	}
	for i, m := range o {
		if d := m.plain(but).diff(want[i].plain(but), but); d != "" {
			return fmt.Sprintf("message %d: %s", i, d)
		}
	}
	return ""
}

// plain returns the message without what may differ.
func (m *ReadMessage) plain(but Aspect) *ReadMessage {
	out := *m
	out.Blocks = nil
	if but&IDs != 0 {
		out.ID, out.Model, out.Results = "", "", nil
	}
	if but&Result != 0 {
		out.Results = nil
	}
	if but&Usage != 0 {
		out.Usage = ""
	}
	if but&Stop != 0 {
		out.Stop, out.Finish, out.Error, out.Incomplete = "", "", "", false
	}
	for _, b := range m.Blocks {
		k := *b
		if but&IDs != 0 {
			k.Call = ""
		}
		if k.Kind == "tool_use" { // how the text of an input came is not what it says
			k.Text = ""
		}
		last := len(out.Blocks) - 1
		if but&Split != 0 && last >= 0 && out.Blocks[last].Kind == k.Kind && (k.Kind == "text" || k.Kind == "reasoning") {
			out.Blocks[last].Text += k.Text
			continue
		}
		if but&Split != 0 && k.Text == "" && (k.Kind == "text" || k.Kind == "reasoning") {
			continue
		}
		out.Blocks = append(out.Blocks, &k)
	}
	return &out
}

// diff is Outcome.Diff of one message.
func (m *ReadMessage) diff(want *ReadMessage, but Aspect) string {
	blocks, wanted := m.Blocks, want.Blocks
	a, b := *m, *want
	a.Blocks, b.Blocks = nil, nil
	if !reflect.DeepEqual(a, b) {
		return fmt.Sprintf("\n got %.600s\nwant %.600s", fmt.Sprintf("%+v", a), fmt.Sprintf("%+v", b))
	}
	if but&Twice != 0 {
		return ""
	}
	for i := range min(len(blocks), len(wanted)) {
		if but&Stop != 0 && !blocks[i].Complete { // what has no end has not begun either
			b, w := *blocks[i], *wanted[i]
			w.Complete, w.Input, w.started, b.Input = false, "", false, ""
			blocks[i], wanted[i] = &b, &w
		}
	}
	for i := range max(len(blocks), len(wanted)) {
		if i >= len(blocks) || i >= len(wanted) || !reflect.DeepEqual(blocks[i], wanted[i]) {
			return fmt.Sprintf("block %d of %d, want %d\n got %.800s\nwant %.800s", i, len(blocks), len(wanted),
				describe(blocks, i), describe(wanted, i))
		}
	}
	return ""
}

// describe returns a block as text.
func describe(list []*Block, i int) string {
	if i >= len(list) {
		return "none"
	}
	return fmt.Sprintf("%+v", *list[i])
}
