package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentstream/schema"
	"agentstream/schema/schematest"
)

func fold(name string) *schema.Fold { return foldOf(schematest.ByName(name)) }

func foldOf(s schematest.Scenario) *schema.Fold {
	var f schema.Fold
	for _, e := range schematest.NumberEvents(testRun, s) {
		f.Add(&e)
	}
	return &f
}

// sketch prints a fold shortly: messages with their blocks, calls, children and state.
func sketch(f *schema.Fold) string {
	var b strings.Builder
	for _, m := range f.Messages {
		fmt.Fprintf(&b, "%s%s/%s", m.Child, m.ID, m.StopReason)
		if m.End == 0 {
			b.WriteString("(open)")
		}
		for _, bl := range m.Blocks {
			fmt.Fprintf(&b, " [%d %s%s %q", bl.Index, bl.Kind, bl.Call, bl.Text.String())
			if bl.Input != nil {
				fmt.Fprintf(&b, "=%s", bl.Input)
			}
			if !bl.Complete {
				b.WriteString(" cut")
			}
			b.WriteString("]")
		}
		b.WriteString("\n")
	}
	for _, c := range f.Calls {
		fmt.Fprintf(&b, "%s%s %s(%s) done=%v ok=%v out=%s %q\n", c.Child, c.ID, c.Tool, c.Input, c.Done, c.OK, c.Output,
			c.Stream.String())
	}
	children := []string{}
	for _, c := range f.Children {
		children = append(children, c.ID)
	}
	fmt.Fprintf(&b, "%v %s %s", children, f.State, f.Reason)
	return b.String()
}

func TestFoldScenarios(t *testing.T) {
	for name, want := range map[string]string{
		"plain": `msg_1/end_turn [0 reasoning "The question is short, so the answer can be."] [1 text "A log is a list that only grows. Readers remember where they were."]
[] done `,
		"tool": `msg_1/tool_use [0 text "I will look at the file."] [1 tool_usecall_1 "{\"path\":\"notes/queue.md\",\"lines\":[1,40]}"={"path":"notes/queue.md","lines":[1,40]}]
msg_2/end_turn [0 text "The file has three lines."]
call_1 read_file({"path":"notes/queue.md","lines":[1,40]}) done=true ok=true out="line 1\nline 2\nline 3\n" "line 1\nline 2\nline 3\n"
[] done `,
		"parallel-tools": `msg_1/tool_use [0 tool_usecall_a "{\"q\":\"ring buffer\"}"={"q":"ring buffer"}] [1 tool_usecall_b "{\"q\":\"linked list\"}"={"q":"linked list"}] [2 tool_usecall_c "{}"={}]
msg_2/end_turn [0 text "One search worked, one did not."]
call_a search({"q":"ring buffer"}) done=true ok=false out= "[0][1]"
call_b search({"q":"linked list"}) done=true ok=true out="node → node" "node → node"
call_c clock({}) done=true ok=true out={"now":"2026-01-02T03:04:05Z"} ""
[] done `,
		"failure": `msg_1/error [0 text "I was about to say" cut]
[] error provider: overloaded_error`,
		"cancel-in-text": `msg_1/cancelled [0 text "This sentence is not going to be fin" cut]
[] aborted cancelled by user`,
		"cancel-in-tool": `msg_1/tool_use [0 tool_usecall_1 "{\"target\":\"all\"}"={"target":"all"}]
call_1 build({"target":"all"}) done=true ok=false out= "compiling 1 of 900\n"
[] aborted cancelled by user`,
		"children": `msg_1/end_turn [0 text "I split the work."]
run_child_amsg_a/end_turn [0 text "There are two writers."]
run_child_bmsg_b/end_turn [0 text "There are many readers."]
run_child_a_1msg_g/end_turn [0 text "Checked: two."]
msg_2/end_turn [0 text "Two writers, many readers."]
[run_child_a run_child_b run_child_a_1] done `,
		"native": `/ [0 reasoning "I should ask the clock."] [1 text "Asking."] [2 text "tick tock"]
run_child_a/ [0 text "four past three"]
/ [0 text "It is four past three."]
call_1 clock({"zone":"UTC"}) done=true ok=true out="03:04" ""
[run_child_a] done `,
		"follow-up": `msg_1/end_turn [0 text "Done."]
msg_u/ [0 text "And what about readers?"]
msg_2/end_turn [0 text "They remember where they were."]
[] done `,
	} {
		got := sketch(fold(name))
		if name == "native" { // blocks that nobody announced are never said to be complete
			got = strings.ReplaceAll(got, " cut]", "]")
		}
		if got != want {
			t.Errorf("%s\nwant %s\n got %s", name, want, got)
		}
		if n := len(schematest.ByName(name).Events); fold(name).Last != schema.Seq(n) {
			t.Errorf("%s: last %d of %d", name, fold(name).Last, n)
		}
	}
}

func TestFoldPlan(t *testing.T) {
	f := fold("plan")
	var p struct {
		Plan struct{ ID string }
	}
	if err := json.Unmarshal(f.Plan.Payload, &p); err != nil || p.Plan.ID != "plan_1" {
		t.Errorf("%s %v", f.Plan.Payload, err)
	}
}

// TestFoldAgreesWithContent: the text of deltas is what the producer says at the end.
func TestFoldAgreesWithContent(t *testing.T) {
	for _, s := range schematest.All() {
		if s.Name == "hostile" { // its content says something else on purpose
			continue
		}
		f := foldOf(s)
		byID := map[string]*schema.FoldMessage{}
		for _, m := range f.Messages {
			byID[m.ID] = m
		}
		for _, e := range s.Events {
			var end struct {
				MessageID string `json:"message_id"`
				Content   []struct {
					Type, Text string
					Input      json.RawMessage
				}
			}
			if e.Type != schema.TypeMessageEnd || json.Unmarshal(e.Payload, &end) != nil || end.Content == nil {
				continue
			}
			blocks := byID[end.MessageID].Blocks
			if len(blocks) != len(end.Content) {
				t.Fatalf("%s %s: %d blocks, content has %d", s.Name, end.MessageID, len(blocks), len(end.Content))
			}
			for i, c := range end.Content {
				want := c.Text
				if c.Input != nil {
					want = string(c.Input)
				}
				if got := blocks[i].Text.String(); got != want || blocks[i].Kind != c.Type {
					t.Errorf("%s %s block %d: %q, content says %q", s.Name, end.MessageID, i, got, want)
				}
			}
		}
	}
}

// TestFoldHostile: exact names, last of doubles, and no field of another meaning hides the text.
func TestFoldHostile(t *testing.T) {
	text := fold("hostile").Text("", "text")
	for _, want := range []string{"nul \x00 and", "last wins", "escaped name", "pair 😀 and raw 😀",
		"\r\n\r\ndata: injected", "</script><!--&amp;<", "names", "white  space"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if strings.Contains(text, "first wins") || strings.Contains(text, "inner") {
		t.Error("wrong text was taken")
	}
	f := schema.Fold{}
	for i, p := range []string{`{"text":"a","Text":"wrong"}`,
		`{"text":"b","role":7,"usage":[],"state":{},"index":"x","ok":"no"}`, `{"TEXT":"no","text":"c"}`} {
		f.Add(&schema.Event{Type: "text.delta", Seq: schema.Seq(i + 1), Payload: []byte(p)})
	}
	if got := f.Text("", "text"); got != "abc" {
		t.Errorf("%q", got)
	}
	if f.Last != 3 {
		t.Errorf("last %d", f.Last)
	}
}

// TestFoldInputWithoutIndex: inputs of parallel calls are told apart by their call.
func TestFoldInputWithoutIndex(t *testing.T) {
	f := schema.Fold{}
	seq := schema.Seq(0)
	add := func(typ, payload string) {
		seq++
		f.Add(&schema.Event{Type: typ, Seq: seq, Payload: []byte(payload)})
	}
	add("message.start", `{"message_id":"m","role":"assistant"}`)
	add("block.start", `{"index":0,"kind":"tool_use","call_id":"a","tool":"x"}`)
	add("block.start", `{"index":1,"kind":"server_tool_use","call_id":"b","tool":"y"}`)
	for _, p := range []string{`{"call_id":"a","text":"1"}`, `{"call_id":"b","text":"2"}`, `{"call_id":"c","text":"3"}`,
		`{"call_id":"a","text":"4"}`, `{"call_id":"c","text":"5"}`} {
		add("tool.input.delta", p)
	}
	if got, want := sketch(&f), "m/(open) [0 tool_usea \"14\" cut] [1 server_tool_useb \"2\" cut] [2 tool_usec \"35\" cut]\n[]  "; got != want {
		t.Errorf("\nwant %s\n got %s", want, got)
	}
}

// TestFoldBehindTheEnd: what follows the end of a run waits for nobody, and only a follow-up makes it go on.
func TestFoldBehindTheEnd(t *testing.T) {
	f := schema.Fold{}
	seq := schema.Seq(0)
	add := func(typ, child, payload string) {
		seq++
		f.Add(&schema.Event{Type: typ, ChildID: child, Seq: seq, Payload: []byte(payload)})
	}
	add(schema.TypeChildSpawn, "", `{"child_id":"run_c"}`)
	add(schema.TypeInputRequested, "run_c", `{"request_id":"r","prompt":"?"}`)
	add(schema.TypeRunLifecycle, "", `{"state":"done","reason":"all is said"}`)
	add("command.cancel", "", `{}`)
	add("command.cancel", "run_c", `{}`)
	add("command.answer", "run_c", `{"request_id":"r","answer":1}`)
	add(schema.TypeCommandMessage, "run_c", `{"content":"on"}`)
	add(schema.TypeCommandMessage, "", `{"content":"be brief","role":"system"}`)
	if f.State != schema.StateDone || f.Reason != "all is said" || f.StateSeq != 3 || len(f.Commands()) != 0 ||
		len(f.Messages) != 2 {
		t.Errorf("%s %q of %d, %d commands, %d messages", f.State, f.Reason, f.StateSeq, len(f.Commands()), len(f.Messages))
	}
	add(schema.TypeCommandMessage, "", `{"content":"on"}`)
	if f.State != schema.StatePlanning || len(f.Commands()) != 1 {
		t.Errorf("%s, %d commands", f.State, len(f.Commands()))
	}
}

// TestFoldOfStragglers: ends without beginnings and payloads of the wrong shape do no harm.
func TestFoldOfStragglers(t *testing.T) {
	for _, info := range schema.Types() {
		for _, p := range []string{`{}`, `null`, `[]`,
			`{"index":99,"call_id":"x","message_id":"y","text":"z","child_id":"c"}`, ``, `{"index":-1}`} {
			f := schema.Fold{}
			f.Add(&schema.Event{Type: info.Name, Seq: 1, Payload: []byte(p)})
			f.Add(&schema.Event{Type: info.Name, Seq: 2, ChildID: "run_c", Payload: []byte(p)})
			if f.Last != 2 {
				t.Errorf("%s %s: last %d", info.Name, p, f.Last)
			}
		}
	}
}
