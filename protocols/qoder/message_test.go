package qoder

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"strings"
	"testing"

	"agentstream/edge/dialect"
	"agentstream/edge/dialect/dialecttest"
	"agentstream/schema"
	"agentstream/schema/schematest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares with a file, or writes it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	dialecttest.Golden(t, *update, name, got)
}

// spoken leaves the frames of messages.
func spoken(frames []shown) (out []shown) {
	for _, f := range frames {
		for _, prefix := range []string{"agent.message", "agent.content_block", "agent.thinking", "user.message",
			"system.message", "event_"} {
			if strings.HasPrefix(f.event, prefix) {
				out = append(out, f)
				break
			}
		}
	}
	return out
}

// cases are logs by hand, each for one rule. The frames that they become are in testdata/messages.golden, to be
// read by people.
var cases = []struct{ name, log string }{
	{"what was not streamed is said before the stop of a block that has just ended", `
		message.start {"message_id":"m","role":"assistant","model":"x","usage":{"input_tokens":7,"output_tokens":1}}
		block.start {"index":0,"kind":"text"}
		text.delta {"text":"Hel","index":0}
		block.end {"index":0}
		message.end {"message_id":"m","content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn","usage":{"input_tokens":7,"output_tokens":2}}`},
	{"also when thoughts, progress, another text and a call came since", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"text"}
		text.delta {"text":"Hel","index":0}
		block.end {"index":0}
		progress {"note":"half"}
		block.start {"index":1,"kind":"reasoning"}
		reasoning.delta {"text":"Hm","index":1}
		block.end {"index":1}
		step.boundary {"label":"two"}
		block.start {"index":2,"kind":"text"}
		text.delta {"text":"Bye","index":2}
		block.end {"index":2}
		block.start {"index":3,"kind":"tool_use","call_id":"c1","tool":"ls"}
		tool.input.delta {"call_id":"c1","text":"{}","index":3}
		block.end {"index":3,"call_id":"c1","input":{}}
		tool.start {"call_id":"c1","tool":"ls","input":{}}
		message.end {"message_id":"m","content":[{"type":"text","text":"Hello"},{"type":"thinking","thinking":"Hm!"},{"type":"text","text":"Bye."},{"type":"tool_use","id":"c1","name":"ls","input":{}}]}`},
	{"a block that is said to be complete waits for thoughts and progress, and stops before the next text or call", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"text"}
		text.delta {"text":"Hel","index":0}
		block.end {"index":0,"complete":true}
		progress {"note":"half"}
		block.start {"index":1,"kind":"reasoning"}
		reasoning.delta {"text":"Hm","index":1}
		block.end {"index":1,"complete":true}
		text.delta {"text":"lo","index":0}
		block.start {"index":2,"kind":"text"}
		text.delta {"text":"Bye","index":2}
		block.end {"index":2,"complete":true}
		block.start {"index":3,"kind":"reasoning"}
		block.end {"index":3,"complete":true}
		message.end {"message_id":"m","content":[{"type":"text","text":"Hello!"},{"type":"thinking","thinking":"Hm"},{"type":"text","text":"Bye."},{"type":"thinking","thinking":"Ha"}]}`},
	{"and of text that nobody framed", `
		message.start {"message_id":"m","role":"assistant"}
		text.delta {"text":"Hel","index":0}
		reasoning.delta {"text":"Hm","index":1}
		text.delta {"text":"l","index":0}
		message.end {"message_id":"m","content":[{"type":"text","text":"Hello"},{"type":"thinking","thinking":"Hm"}]}`},
	{"inputs that are written in turns stop at the end, and one that has stopped does not go on", `
		message.start {"message_id":"m","role":"assistant"}
		tool.input.delta {"call_id":"a","text":"{\"x\":"}
		tool.input.delta {"call_id":"b","text":"{}"}
		tool.input.delta {"call_id":"a","text":"1}"}
		block.start {"index":2,"kind":"tool_use","call_id":"c","tool":"ls"}
		block.end {"index":2,"call_id":"c","input":{}}
		tool.input.delta {"call_id":"c","text":"{\"late\":1}"}
		message.end {"message_id":"m","content":[{"type":"tool_use","id":"a","name":"x","input":{"x":1}},{"type":"tool_use","id":"b","name":"y","input":{}},{"type":"tool_use","id":"c","name":"ls","input":{}}]}`},
	{"an input that is free text is told as the JSON string that it is", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"tool_use","call_id":"a","tool":"patch","free_text":true}
		tool.input.delta {"call_id":"a","text":"","index":0}
		tool.input.delta {"call_id":"a","text":"{\"it\": \ud83d","index":0}
		tool.input.delta {"call_id":"a","text":"\ude00\n\\d}","index":0}
		block.end {"index":0,"call_id":"a","complete":true,"input":"{\"it\": 😀\n\\d}"}
		block.start {"index":1,"kind":"tool_use","call_id":"b","tool":"sh"}
		tool.input.delta {"call_id":"b","text":"\nls -l","index":1}
		block.end {"index":1,"call_id":"b","input":"\nls -l"}
		block.start {"index":2,"kind":"tool_use","call_id":"c","tool":"sh","free_text":true}
		block.end {"index":2,"call_id":"c","input":"pwd"}
		block.start {"index":3,"kind":"tool_use","call_id":"d","tool":"sh","free_text":true}
		tool.input.delta {"call_id":"d","text":"cut he","index":3}
		message.end {"message_id":"m","content":[{"type":"tool_use","id":"a","name":"patch","input":"{\"it\": 😀\n\\d}"},{"type":"tool_use","id":"b","name":"sh","input":"\nls -l"},{"type":"tool_use","id":"c","name":"sh","input":"pwd"},{"type":"tool_use","id":"d","name":"sh","partial_json":"cut he"}]}`},
	{"thoughts as well", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"reasoning"}
		reasoning.delta {"text":"Hm","index":0}
		block.end {"index":0,"signature":"c2ln"}
		block.start {"index":1,"kind":"text"}
		text.delta {"text":"Yes","index":1}
		block.end {"index":1}
		message.end {"message_id":"m","content":[{"type":"thinking","thinking":"Hm, yes","signature":"c2ln"},{"type":"text","text":"Yes"}]}`},
	{"what was streamed and is no beginning of the content stays", `
		message.start {"message_id":"m","role":"assistant"}
		text.delta {"text":"Good morning"}
		message.end {"message_id":"m","content":[{"type":"text","text":"Good evening, all"}]}`},
	{"escapes and surrogates pass as they are, and are compared by what they say", `
		message.start {"message_id":"m\/1","role":"assistant"}
		block.start {"index":0,"kind":"text"}
		text.delta {"text":"\u00e9\/\ud83d","index":0}
		block.end {"index":0}
		message.end {"message_id":"m/1","content":[{"type":"text","text":"é/😀 and \ud800\u0000"}]}`},
	{"an escaped pair may be cut by the producer too", `
		message.start {"message_id":"m","role":"assistant"}
		text.delta {"text":"a\ud83d"}
		message.end {"message_id":"m","content":[{"type":"text","text":"a\ud83d\ude00\ud800"}]}`},
	{"input that was not streamed comes whole", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"tool_use","call_id":"c1","tool":"grep"}
		block.end {"index":0,"call_id":"c1","input":{"q":"a \"b\"\\","n":1.10}}
		block.start {"index":1,"kind":"tool_use","call_id":"c2","tool":"ls"}
		tool.input.delta {"call_id":"c2","text":"{\"p\":"}
		tool.input.delta {"call_id":"c2","text":"\"\/\"}"}
		block.end {"index":1,"call_id":"c2","input":{"p":"/"}}
		message.end {"message_id":"m","content":[{"type":"tool_use","id":"c1","name":"grep","input":{"q":"a \"b\"\\","n":1.10}},{"type":"tool_use","id":"c2","name":"ls","input":{"p":"/"}}],"stop_reason":"tool_use"}`},
	{"blocks that were not streamed at all come whole", `
		message.start {"message_id":"m","role":"assistant"}
		message.end {"message_id":"m","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"x"},{"type":"tool_use","id":"c","name":"n","input":{}},{"type":"redacted_thinking","data":"abc"}]}`},
	{"citations, and a provider's own block", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"compaction","block":{"type":"compaction","content":""}}
		text.delta {"text":"So far.","index":0}
		block.end {"index":0}
		block.start {"index":1,"kind":"text"}
		text.delta {"text":"Bern","index":1}
		block.end {"index":1,"citations":[{"url":"u1"},{"url":"u2"}]}
		block.start {"index":2,"kind":"redacted_thinking","block":{"type":"redacted_thinking","data":"eA=="}}
		block.end {"index":2}
		message.end {"message_id":"m","content":[{"type":"compaction","content":"So far."},{"type":"text","text":"Bern","citations":[{"url":"u1"},{"url":"u2"}]},{"type":"redacted_thinking","data":"eA=="}]}`},
	{"a refusal is read without increments as well", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"refusal"}
		text.delta {"text":"I can't","index":0}
		block.end {"index":0}
		message.end {"message_id":"m","content":[{"type":"refusal","refusal":"I can't"}],"stop_reason":"refusal"}`},
	{"content that was left out is said to be", `
		message.start {"message_id":"m","role":"assistant"}
		message.end {"message_id":"m","stop_reason":"end_turn","omitted":["content"],"omitted_bytes":900000}`},
	{"content that was not repeated is what was streamed", `
		message.start {"message_id":"m","role":"assistant"}
		reasoning.delta {"text":"a\ud83d"}
		text.delta {"text":"b"}
		tool.input.delta {"call_id":"c","text":"{\"half"}
		message.end {"message_id":"m","stop_reason":"error","error":{"type":"overloaded_error","message":"later"}}`},
	{"a message that another cuts ends before it", `
		message.start {"message_id":"m1","role":"assistant"}
		text.delta {"text":"I was"}
		message.start {"message_id":"m2","role":"assistant"}
		text.delta {"text":"Again"}
		run.lifecycle {"state":"error","reason":"gone"}`},
	{"an end whose beginning is not there", `
		message.end {"message_id":"m","content":[{"type":"text","text":"the end"}],"stop_reason":"end_turn"}`},
	{"an end of another message than the one that is open", `
		message.start {"message_id":"m1","role":"assistant"}
		text.delta {"text":"one"}
		message.end {"message_id":"m2","content":[{"type":"text","text":"two"}]}
		message.end {"message_id":"m1","content":[{"type":"text","text":"one"}]}`},
	{"without framing messages end with what is no delta", `
		run.lifecycle {"state":"running"}
		reasoning.delta {"text":"Let me see."}
		text.delta {"text":"I "}
		command.message {"content":"hurry"}
		text.delta {"text":"look."}
		tool.start {"call_id":"c","tool":"look","input":{}}
		text.delta {"text":"Looking."}
		tool.end {"call_id":"c","ok":true,"output":"x"}
		text.delta {"text":"Done."}
		run.lifecycle {"state":"planning","session":true}
		text.delta {"text":" Really."}
		run.lifecycle {"state":"done"}`},
	{"an end takes the message that nobody announced", `
		text.delta {"text":"Hel"}
		block.end {"index":0}
		message.end {"message_id":"m","content":[{"type":"text","text":"Hello"}]}`},
	{"lanes do not end each other's blocks", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"text"}
		text.delta {"text":"He","index":0}
		block.end {"index":0}
		run_child_a:text.delta {"text":"meanwhile"}
		message.end {"message_id":"m","content":[{"type":"text","text":"Hello"}]}
		run_child_a:text.delta {"text":", here"}
		run.lifecycle {"state":"done"}`},
	{"parallel blocks keep their places, whatever their indexes are", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":3,"kind":"text"}
		block.start {"index":9,"kind":"text"}
		text.delta {"text":"b","index":9}
		text.delta {"text":"a","index":3}
		block.end {"index":3}
		text.delta {"text":"b","index":9}
		text.delta {"text":"late","index":3}
		block.end {"index":9}
		message.end {"message_id":"m","content":[{"type":"text","text":"alate"},{"type":"text","text":"bb"}]}`},
	{"people's messages, and what systems and tools say", `
		message.start {"message_id":"u","role":"user"}
		block.start {"index":0,"kind":"text"}
		text.delta {"text":"Hi","index":0}
		block.end {"index":0}
		message.end {"message_id":"u","content":[{"type":"text","text":"Hi"}]}
		message.start {"message_id":"s","role":"system"}
		message.end {"message_id":"s","content":[{"type":"text","text":"Be brief."}]}
		message.start {"message_id":"t","role":"tool"}
		message.end {"message_id":"t","content":[{"type":"text","text":"42"}]}
		message.start {"message_id":"r","role":"user"}
		message.end {"message_id":"r","content":[{"type":"tool_result","tool_use_id":"c","content":"42"}]}`},
	{"a message that was shown when it was sent is not shown again", `
		command.message {"content":"yes","message_id":"u1"}
		command.message {"content":[{"type":"text","text":"and no"}]}
		message.start {"message_id":"other","role":"user"}
		message.end {"message_id":"other","content":[{"type":"text","text":"and no"}]}
		message.start {"message_id":"u1","role":"user"}
		message.end {"message_id":"u1","content":[{"type":"text","text":"Yes!"}]}
		message.start {"message_id":"u1","role":"user"}
		message.end {"message_id":"u1","content":[{"type":"text","text":"Yes!"}]}`},
	{"thoughts under other names", `
		message.start {"message_id":"m","role":"assistant"}
		block.start {"index":0,"kind":"reasoning","block":{"type":"reasoning_text"}}
		reasoning.delta {"text":"Hm","index":0}
		block.end {"index":0}
		message.end {"message_id":"m","content":[{"type":"reasoning_text","text":"Hm","id":"rs_1"},{"type":"text","text":"x"}]}`},
	{"an id that is too long to be said again and again", `
		message.start {"message_id":"` + strings.Repeat("long", 200) + `","role":"assistant"}
		message.end {"message_id":"` + strings.Repeat("long", 200) + `","content":[{"type":"text","text":"x"}]}`},
	{"data is no text", `
		message.start {"message_id":"m","role":"assistant"}
		text.delta {"text":"see:"}
		data.delta {"media_type":"image/png","data":"AAAA"}
		data.delta {"media_type":"image/png","data":"BBBB"}
		message.end {"message_id":"m","stop_reason":"end_turn"}`},
}

// TestMessages holds each rule to a file that people have read.
func TestMessages(t *testing.T) {
	var got bytes.Buffer
	for _, c := range cases {
		list := records(t, scenario(c.log))
		fmt.Fprintf(&got, "# %s\n", c.name)
		for line := range strings.Lines(c.log) {
			if line = strings.TrimSpace(line); line != "" {
				fmt.Fprintf(&got, "%.400s\n", line)
			}
		}
		for _, form := range []struct {
			title      string
			increments bool
			form       form
		}{
			{"with increments", true, form{}}, {"without", false, form{}},
			{"with previews", false, form{previews: previewMessage | previewThinking}},
		} {
			fmt.Fprintf(&got, "---- %s\n%s", form.title, brief(spoken(projected(t, form.increments, form.form, list))))
		}
		if strings.Contains(c.log, schematest.ChildA) {
			child := form{thread: ThreadID(testRun, schematest.ChildA)}
			fmt.Fprintf(&got, "---- the child's thread\n%s", brief(spoken(projected(t, true, child, list))))
		}
		fmt.Fprintln(&got)
	}
	golden(t, "messages.golden", got.Bytes())
}

// TestGolden has one file per scenario: the events of the log above the rule, the frames below, of the session and
// of each child's thread. Of blocks there is what is their own, but for the scenario plain.
func TestGolden(t *testing.T) {
	for _, s := range schematest.All() {
		t.Run(s.Name, func(t *testing.T) {
			list := records(t, s)
			var got bytes.Buffer
			forms, names := []form{{}}, []string{"session"}
			seen := map[string]bool{}
			for _, r := range list {
				fmt.Fprintf(&got, "%s\n", r.Line)
				if child := string(r.Child); child != "" && !seen[child] {
					seen[child] = true
					forms, names = append(forms, form{thread: ThreadID(testRun, child)}), append(names, child)
				}
			}
			for i, f := range forms {
				fmt.Fprintf(&got, "%s %s\n", strings.Repeat("-", 60), names[i])
				for _, f := range projected(t, true, f, list) {
					if _, increment := strings.CutPrefix(f.event, "agent.content_block"); increment && s.Name != "plain" {
						fmt.Fprintf(&got, "%s %s", f.id, brief([]shown{f}))
						continue
					}
					fmt.Fprintf(&got, "event %s, id %s, data %s\n", f.event, f.id, f.data)
				}
			}
			golden(t, s.Name+".golden", got.Bytes())
		})
	}
}

// TestLongMessageWithoutFraming: one that nobody announced ends when it is long, and nothing of it is lost.
func TestLongMessageWithoutFraming(t *testing.T) {
	var s schematest.Scenario
	const n = 700
	for range n {
		s.Events = append(s.Events, said("", schema.TypeTextDelta, `{"text":"`+strings.Repeat("x", 1000)+`"}`))
	}
	s.Events = append(s.Events, said("", schema.TypeStepBoundary, `{"step_index":0,"step_kind":"done"}`))
	var lengths []int
	total := 0
	for _, f := range projected(t, false, form{}, records(t, s)) {
		if f.event != "agent.message" {
			continue
		}
		var e struct{ Content []struct{ Text string } }
		if err := json.Unmarshal([]byte(f.data), &e); err != nil {
			t.Fatal(err)
		}
		lengths = append(lengths, len(e.Content[0].Text))
		total += len(e.Content[0].Text)
	}
	if total != n*1000 || len(lengths) != 3 || lengths[0] > 256<<10+2000 {
		t.Errorf("%d messages of %v, in all %d", len(lengths), lengths, total)
	}
}

// TestMemory: what is remembered of a message with framing does not grow with it, also when its producer does not
// keep to any measure.
func TestMemory(t *testing.T) {
	p := Dialect{Increments: true}.Projector(dialect.Request{Run: testRun}).(*Projector)
	size := func(log string, times int) int {
		s := scenario(log)
		for range times {
			feed(t, p, records(t, s))
		}
		return p.Size()
	}
	size(`message.start {"message_id":"m","role":"assistant"}`, 1)
	most := p.Size() + 2*limits.Message + 300*256
	for _, log := range []string{
		`text.delta {"text":"` + strings.Repeat("x", 1000) + `","index":0}`,
		`block.start {"index":1,"kind":"compaction","block":{"type":"compaction","content":"` +
			strings.Repeat("x", 200) + `"}}`,
		`tool.input.delta {"call_id":"c","text":"` + strings.Repeat("x", 1000) + `"}`,
		`data.delta {"media_type":"a/b","data":"` + strings.Repeat("x", 1000) + `"}`,
	} {
		if got := size(log, 2000); got > most {
			t.Errorf("%.40s…: %d bytes, want at most %d", log, got, most)
		}
	}
	if got := size(`message.end {"message_id":"m"}`, 1); got > 1<<13 {
		t.Errorf("%d bytes when all messages have ended", got)
	}
}

// TestPreviewsNameWhatComes: every event that is previewed comes, with the id that was named, and with the text of
// the pieces as its beginning.
func TestPreviewsNameWhatComes(t *testing.T) {
	n := 0
	for _, s := range schematest.All() {
		for _, increments := range []bool{false, true} {
			all := form{previews: previewMessage | previewThinking}
			pending := map[string]string{}
			texts := map[string]string{}
			for _, f := range projected(t, increments, all, records(t, s)) {
				var e struct {
					ID      string
					Event   struct{ ID, Type string }
					EventID string `json:"event_id"`
					Delta   struct {
						Content struct{ Text string }
					}
				}
				_ = json.Unmarshal([]byte(f.data), &e) // what is of no interest has other fields
				switch f.event {
				case "event_start":
					pending[e.Event.ID] = e.Event.Type
				case "event_delta":
					if pending[e.EventID] != "agent.message" {
						t.Errorf("%s: a piece of %s, which has not begun", s.Name, e.EventID)
					}
					texts[e.EventID] += e.Delta.Content.Text
				case "agent.message", "agent.thinking":
					if f.event == "agent.message" && !strings.Contains(f.data, `"type":"text"`) {
						continue // nothing to read: only those with increments get it
					}
					if pending[e.ID] != f.event {
						t.Errorf("%s: %s %s was not previewed", s.Name, f.event, e.ID)
					}
					delete(pending, e.ID)
					n++
				}
			}
			if len(pending) > 0 {
				t.Errorf("%s: %v were previewed and never came", s.Name, pending)
			}
		}
	}
	if n < 100 {
		t.Errorf("only %d events", n)
	}
}

// TestCopiesKeepTheirOwn: two copies that are fed different things by turns do not write into each other's memory.
func TestCopiesKeepTheirOwn(t *testing.T) {
	start := records(t, scenario(`
		command.message {"content":"one"}
		command.message {"content":"two"}
		command.message {"content":"three"}
		message.start {"message_id":"m","role":"assistant"}
		text.delta {"text":"so far, it is long enough for more"}
		text.delta {"text":", "}`))
	rest := func(letter string) []schema.Record {
		s := scenario(strings.Repeat("custom.x {}\n", len(start)) + strings.ReplaceAll(`
			command.message {"content":"said X"}
			text.delta {"text":"X"}
			text.delta {"text":"XX"}
			message.end {"message_id":"m"}
			message.start {"message_id":"u","role":"user"}
			message.end {"message_id":"u","content":[{"type":"text","text":"said X"}]}`, "X", letter))
		return records(t, s)[len(start):]
	}
	first := Dialect{}.Projector(dialect.Request{Run: testRun}).(dialect.Stateful)
	feed(t, first, start)
	request := dialect.Request{Run: testRun, Form: form{}.key()}
	a, b := first.For(request), first.For(request)
	var gotA, gotB []shown
	logA, logB := rest("A"), rest("B")
	for i := range logA {
		gotA = append(gotA, feed(t, a, logA[i:i+1])...)
		gotB = append(gotB, feed(t, b, logB[i:i+1])...)
	}
	for letter, got := range map[string][]shown{"A": gotA, "B": gotB} {
		text := brief(spoken(got))
		if !strings.Contains(text, `"so far, it is long enough for more, `+strings.Repeat(letter, 3)+`"`) ||
			strings.Count(text, "said "+letter) != 1 {
			t.Errorf("copy %s has\n%s", letter, text)
		}
	}
}
