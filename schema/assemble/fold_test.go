package assemble

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/jsonscan"
	"agentstream/schema/schematest"
)

// told is a message in short: lane, role, "?" when nobody announced it, records, and blocks with their texts or inputs.
type told struct {
	head, end string
	blocks    []string
}

func list(all []*told) string {
	var b strings.Builder
	for _, m := range all {
		fmt.Fprintf(&b, "%s-%s %s\n", m.head, m.end, strings.Join(m.blocks, " "))
	}
	return b.String()
}

func headOf(child, role string, implicit bool, start schema.Seq) string {
	return fmt.Sprint(child, map[bool]string{true: "?"}[implicit], role, " ", start)
}

// byReading returns a run's messages as the transitions have them.
func byReading(tb testing.TB, records []schema.Record) string {
	a, open := New(Limits{}), map[string]*told{}
	var all []*told
	for _, r := range records {
		for _, s := range next(tb, a, r) {
			if s.Message == nil || s.Kind == UsageAdd {
				continue
			}
			key := fmt.Sprint(s.Lane.Child, s.Message.Start)
			m := open[key]
			switch s.Kind {
			case MessageOpen:
				open[key] = &told{head: headOf(s.Lane.Child, s.Message.Role, s.Message.Implicit, s.Message.Start)}
				all = append(all, open[key])
			case MessageClose:
				m.end = fmt.Sprint(r.Seq)
				delete(open, key)
			case BlockOpen:
				word, _ := jsonscan.Unquote(schema.Field(s.Value, "type"))
				if s.Block.Kind == Other && s.Block.Word != "" {
					word = s.Block.Word
				}
				m.blocks = append(m.blocks, word+":")
			case BlockText:
				m.blocks[s.Block.Place] += string(s.Text)
			case BlockInput:
				m.blocks[s.Block.Place] += string(s.Value)
			}
		}
	}
	return list(all)
}

// byFold returns those that schema.Fold has, but what people write.
func byFold(records []schema.Record) string {
	var f schema.Fold
	for _, r := range records {
		f.AddRecord(r)
	}
	var all []*told
	for _, m := range f.Messages {
		if m.End == m.Start && m.Role == "user" {
			continue
		}
		t := &told{head: headOf(m.Child, m.Role, m.ID == "" && m.Model == "", m.Start)}
		if m.End > 0 {
			t.end = fmt.Sprint(m.End)
		}
		for _, b := range m.Blocks {
			kind, text := b.Kind, b.Text.Inner()
			if kind == "reasoning" {
				kind = "thinking"
			}
			if p := ReadPart(b.Raw); len(text) == 0 && p.IsThought() {
				text = p.Reasoning()
			}
			if len(text) == 0 {
				text = b.Input
			}
			t.blocks = append(t.blocks, fmt.Sprintf("%s:%s", kind, text))
		}
		all = append(all, t)
	}
	return list(all)
}

// TestFoldAgrees: of what well-formed producers send, the transitions make the messages of a snapshot.
func TestFoldAgrees(t *testing.T) {
	// no framing, and calls
	all := slices.DeleteFunc(schematest.All(), func(s schematest.Scenario) bool { return s.Name == "native" })
	for seed := range uint64(200) {
		s := schematest.Generate(100, seed)
		s.Events = slices.DeleteFunc(s.Events, func(e schema.Event) bool {
			return e.Type == schema.TypeTextDelta && slices.Contains(schematest.HostilePayloads(), string(e.Payload))
		})
		all = append(all, s)
	}
	for _, s := range all {
		rs := records(t, s)
		if got, want := byReading(t, rs), byFold(rs); got != want {
			t.Errorf("%s: the transitions make\n%s the fold\n%s", s.Name, got, want)
		}
	}
}

// TestFoldDiffers lists where the rules of a snapshot (contracts/snapshot.schema.json) and those of this package
// contradict each other: decision 0041.
func TestFoldDiffers(t *testing.T) {
	const start, end = `message.start {"message_id":"m","role":"assistant"}` + "\n", `message.end {"message_id":"m"}` +
		"\n"
	for name, c := range map[string]struct{ log, reading, fold string }{
		"a call in a message that nobody announced": {
			`text.delta {"text":"a"}
			 tool.start {"call_id":"c","tool":"t"}
			 tool.end {"call_id":"c","ok":true}
			 text.delta {"text":"b"}
			 step.boundary {}`,
			"?assistant 1-2 text:a\n?assistant 4-5 text:b\n",
			"?assistant 1-5 text:a text:b\n",
		},
		"a request to a model, a plan or a child in one": {
			`text.delta {"text":"a"}
			 model.start {"call_id":"r"}
			 text.delta {"text":"b"}
			 child.spawn {"child_id":"kid"}
			 text.delta {"text":"c"}`,
			"?assistant 1-2 text:a\n?assistant 3-4 text:b\n?assistant 5- text:c\n",
			"?assistant 1- text:abc\n",
		},
		"one that is longer than 256 blocks": {
			strings.Repeat(`block.start {"kind":"x"}`+"\n", 257),
			"?assistant 1-257" + strings.Repeat(" x:", 256) + "\n?assistant 257- x:\n",
			"?assistant 1-" + strings.Repeat(" x:", 257) + "\n",
		},
		"a piece without a text": {`text.delta {"text":7}`, "", "?assistant 1- text:\n"},
		"one index for two kinds of blocks": {
			start + `reasoning.delta {"text":"a","index":0}
			 text.delta {"text":"b","index":0}` + "\n" + end,
			"assistant 1-4 thinking:a text:b\n",
			"assistant 1-4 thinking:ab\n",
		},
		"a piece of a block that has closed": {
			start + `block.start {"kind":"x","index":0}
			 block.end {"index":0}
			 text.delta {"text":"a","index":0}` + "\n" + end,
			"assistant 1-5 x:\n",
			"assistant 1-5 x:a\n",
		},
		"a content that has more than was streamed": {
			start + `text.delta {"text":"a","index":0}
			 message.end {"message_id":"m","content":[{"type":"text","text":"ab"},{"type":"text","text":"c"}]}`,
			"assistant 1-3 text:ab text:c\n",
			"assistant 1-3 text:a\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			rs := records(t, scenario(c.log))
			if got := byReading(t, rs); got != c.reading {
				t.Errorf("the transitions make\n%s want\n%s", got, c.reading)
			}
			if got := byFold(rs); got != c.fold {
				t.Errorf("the fold makes\n%s want\n%s", got, c.fold)
			}
		})
	}
}

// TestUnannounced: the fold and the transitions end a message that nobody announced at the same events, and both know
// it by its name from the first event that says it.
func TestUnannounced(t *testing.T) {
	for _, end := range []string{
		`step.boundary {}`, `turn.start {"turn_id":"t"}`, `turn.end {"turn_id":"t"}`, `task.start {"task_id":"t"}`,
		`task.end {"task_id":"t"}`, `run.lifecycle {"state":"paused"}`, `input.requested {"request_id":"q"}`,
	} {
		rs := records(t, scenario(`text.delta {"text":"a"}`+"\n"+end+"\n"+`text.delta {"text":"b"}`))
		want := "?assistant 1-2 text:a\n?assistant 3- text:b\n"
		if reading, fold := byReading(t, rs), byFold(rs); reading != want || fold != want {
			t.Errorf("%s: the transitions make\n%s the fold\n%s", end, reading, fold)
		}
	}
	for _, name := range []string{
		`block.start {"message_id":"m","index":0,"kind":"text"}`, `block.end {"message_id":"m","index":0}`,
	} {
		rs := records(t, scenario(`text.delta {"text":"a","index":0}
			`+name+`
			tool.start {"call_id":"c","tool":"t"}
			turn.end {"turn_id":"t"}
			message.end {"message_id":"m","content":[{"type":"text","text":"a"}]}
			message.start {"message_id":"m","role":"assistant"}`))
		a, f := New(Limits{}), new(schema.Fold)
		open, closed := 0, ""
		for _, r := range rs {
			f.AddRecord(r)
			for _, s := range next(t, a, r) {
				switch s.Kind {
				case MessageOpen:
					open++
				case MessageClose:
					closed = fmt.Sprint(s.Message.ID, " ", r.Seq)
				}
			}
		}
		if open != 1 || closed != "m 5" {
			t.Errorf("%s: %d messages begin, and %q ends", name, open, closed)
		}
		if n := len(f.Messages); n != 1 || f.Messages[0].ID != "m" || f.Messages[0].End != 5 {
			t.Errorf("%s: the fold has %d messages: %+v", name, n, f.Messages[0])
		}
	}
}
