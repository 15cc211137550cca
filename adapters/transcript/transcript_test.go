package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"agentstream/adapters/provider/providertest"
	"agentstream/adapters/transcript/transcripttest"
	"agentstream/schema"
)

// checkEvents holds events to what the log takes: bounds, form, JSON Schema, framing in each lane, and
// that nothing stays open.
func checkEvents(t testing.TB, events []schema.Event, lifecycle bool) {
	t.Helper()
	providertest.CheckEvents(t, events)
	ended := map[string]bool{}
	for i := range events {
		e := &events[i]
		if ended[e.ChildID] {
			t.Fatalf("event %d, %s: lane %q has ended", i, e.Type, e.ChildID)
		}
		if e.Type == schema.TypeRunLifecycle {
			ended[e.ChildID] = schema.RunState(providertest.Object(t, e.Payload)["state"].(string)).Final()
		}
	}
	if ended[""] != lifecycle {
		t.Fatalf("the run has ended: %v", ended[""])
	}
	transcripttest.FromFold(t, events) // complains of calls and children
}

// told prints events as lane, type and payload, one a line.
func told(events []schema.Event) string {
	var b strings.Builder
	for _, e := range events {
		lane := ""
		if e.ChildID != "" {
			lane = strings.Join(e.Path, "/") + "> "
		}
		fmt.Fprintf(&b, "%s%s %s\n", lane, e.Type, e.Payload)
	}
	return b.String()
}

func sample(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden compares with what stands beside the sample.
func golden(t *testing.T, name string, events []schema.Event) {
	t.Helper()
	got, file := told(events), "testdata/"+name
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s\n got\n%s\nwant\n%s", name, got, want)
	}
}

// TestSamples: whole runs, event by event.
func TestSamples(t *testing.T) {
	for name, format := range map[string]string{
		"plain.claude-code.jsonl": ClaudeCode, "partial.claude-code.jsonl": ClaudeCode,
		"children.claude-code.jsonl": ClaudeCode,
		"finished.openhands.jsonl":   OpenHands, "thoughts.swe-agent.json": SWEAgent,
	} {
		t.Run(name, func(t *testing.T) {
			data := sample(t, name)
			events := decodeAll(t, format, data, whole)
			checkEvents(t, events, true)
			golden(t, name+".golden", events)
			if got, ok := Recognise(data); got != format || !ok {
				t.Errorf("recognised as %q", got)
			}
			all := transcripttest.FromFold(t, events)
			if testing.Short() {
				return
			}
			for at := range len(bytes.TrimRight(data, "\n")) {
				cut := decodeAll(t, format, data[:at], whole)
				if at%16 == 0 {
					checkEvents(t, cut, true)
				}
				got := transcripttest.FromFold(t, cut)
				// Of a trajectory that was cut before its history, the demonstration is not known.
				isPrefix := strings.HasPrefix(all.Text, got.Text) ||
					strings.HasPrefix(strings.TrimPrefix(all.Text, "As shown"), got.Text)
				if !got.State.Final() || got.State == schema.StateDone || !isPrefix {
					t.Fatalf("cut at %d: %s, %q\n%s", at, got.State, got.Text, told(cut))
				}
			}
		})
	}
}

// TestSameContent: with and without partial messages the same is said.
func TestSameContent(t *testing.T) {
	plain := transcripttest.FromFold(t, decodeAll(t, ClaudeCode, sample(t, "plain.claude-code.jsonl"), whole))
	partial := transcripttest.FromFold(t, decodeAll(t, ClaudeCode, sample(t, "partial.claude-code.jsonl"), whole))
	if plain.Text != partial.Text || len(plain.Calls) != len(partial.Calls) || plain.Steps != partial.Steps ||
		plain.State != partial.State || plain.Results != partial.Results {
		t.Errorf("\n%+v\n%+v", plain, partial)
	}
}

func TestUnknownFormat(t *testing.T) {
	for e, err := range Decode("native", strings.NewReader("{}"), Config{}) {
		if !errors.Is(err, ErrFormat) || e.Type != "" {
			t.Errorf("%v %v", e, err)
		}
	}
}

// TestReadError: the error comes last, behind a run that has ended.
func TestReadError(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, format := range map[string]string{"plain.claude-code.jsonl": ClaudeCode,
		"finished.openhands.jsonl": OpenHands, "thoughts.swe-agent.json": SWEAgent} {
		var events []schema.Event
		var last error
		for e, err := range Decode(format, io.MultiReader(bytes.NewReader(sample(t, name)), iotest.ErrReader(broken)),
			whole) {
			if last = err; err == nil {
				events = append(events, e)
			}
		}
		checkEvents(t, events, true)
		o := transcripttest.FromFold(t, events)
		if !errors.Is(last, broken) || o.State != schema.StateError || o.Text == "" {
			t.Errorf("%s: %v, %s: %s", format, last, o.State, o.Reason)
		}
		for range Decode(format, bytes.NewReader(sample(t, name)), whole) {
			break // leaving early is no fault
		}
	}
}

// TestLane: a transcript may be a child's.
func TestLane(t *testing.T) {
	cfg := Config{RunID: "run_1", ChildID: "run_c", Path: []string{"run_1", "run_c"}, TurnID: "t1", Lifecycle: true}
	for _, e := range decodeAll(t, ClaudeCode, sample(t, "children.claude-code.jsonl"), cfg) {
		if e.ChildID == "" || e.TurnID != "t1" || e.Path[1] != "run_c" {
			t.Errorf("%+v", e)
		}
	}
}

const (
	agent = `{"type":"assistant","message":{"id":"m1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"a"}]}}`
	won   = `{"type":"result","subtype":"success","is_error":false}`
	acted = `{"id":"e1","timestamp":"2026-01-01T00:00:00","source":"agent","thought":[],"tool_name":"t","tool_call_id":"c1","tool_call":{"id":"c1","name":"t","arguments":"{}"},"llm_response_id":"r1","kind":"ActionEvent"}`
	chunk = `{"method":"generateContentStream","response":[{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}]}`
)

// TestEnds: how the run ends, and why.
func TestEnds(t *testing.T) {
	huge := strings.Repeat("x", 10<<20)
	deep := strings.Repeat("[", 300) + strings.Repeat("]", 300)
	step := func(info string) string {
		return `{"trajectory":[{"action":"ls","observation":"o","response":"a"}],"history":[{"role":"assistant","content":"a"}]` + info + `}`
	}
	state := func(s string) string {
		return `{"id":"s","timestamp":"2026-01-01T00:00:01","source":"environment","key":"execution_status","value":"` +
			s + `","kind":"ConversationStateUpdateEvent"}`
	}
	for name, tt := range map[string]struct {
		format, body string
		state        schema.RunState
		reason       string
	}{
		"claude":           {ClaudeCode, agent + "\n" + won, "done", ""},
		"claude no result": {ClaudeCode, agent, "error", "the transcript ends before the run does"},
		"claude goes on": {ClaudeCode, agent + "\n" + won + "\n" + strings.Replace(agent, "m1", "m2", 1), "error",
			"the transcript ends before the run does"},
		"claude failed": {ClaudeCode, agent + "\n" +
			`{"type":"result","subtype":"error_max_turns","is_error":false}`, "error", "error_max_turns"},
		"claude is_error": {ClaudeCode, agent + "\n" +
			`{"type":"result","subtype":"success","is_error":true,"result":"API Error"}`, "error", "success: API Error"},
		"claude aborted": {ClaudeCode, agent + "\n" +
			`{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","errors":["stop"]}`, "aborted", "error_during_execution: stop"},
		"claude broken line": {ClaudeCode, agent + "\n{broken\n" + won, "error",
			"a part of the transcript cannot be read: invalid JSON"},
		"claude bytes": {ClaudeCode, agent + "\n" + `{"type":"x","y":"` + "\xff" + `"}` + "\n" + won, "error",
			"a part of the transcript cannot be read: invalid UTF-8"},
		"claude deep": {ClaudeCode, agent + "\n" + `{"type":"x","y":` + deep + `}` + "\n" + won, "error",
			"a part of the transcript cannot be read: nested too deeply"},
		"claude huge": {ClaudeCode, agent + "\n" + `{"type":"user","message":{"role":"user","content":"` + huge +
			`"}}` + "\n" + won, "done", ""},
		"claude too huge": {ClaudeCode, agent + "\n" + `{"type":"user","message":{"role":"user","content":"` + huge +
			huge + `"}}` + "\n" + won, "error", "a part of the transcript cannot be read: longer than a frame may be"},
		"openhands": {OpenHands, acted + "\n" + state("finished"), "done", ""},
		"openhands running": {OpenHands, state("running") + "\n" + acted, "error",
			"the transcript ends while the conversation is running"},
		"openhands nothing": {OpenHands, acted, "error", "the transcript does not say how the conversation ended"},
		"openhands paused": {OpenHands, state("running") + "\n" + state("paused"), "aborted",
			"the transcript ends while the conversation is paused"},
		"openhands resumed": {OpenHands, state("running") + "\n" + state("paused") + "\n" + state("running") + "\n" +
			state("finished"), "done", ""},
		"openhands stuck": {OpenHands, acted + "\n" + state("stuck"), "error", "the conversation's status is stuck"},
		"openhands error": {OpenHands, `{"kind":"ConversationErrorEvent","code":"LLM","detail":"no","timestamp":"2026-01-01T00:00:00","source":"agent"}` + "\n" + state("error"), "error", "LLM: no"},
		"openhands broken": {OpenHands, acted + "\n[1]\n" + state("finished"), "error",
			"a part of the transcript cannot be read: not an object"},
		"openhands idle":   {OpenHands, `{"id":"m","timestamp":"2026-01-01T00:00:00","source":"agent","llm_message":{"role":"assistant","content":[{"type":"text","text":"a"}]},"kind":"MessageEvent"}` + "\n" + state("idle"), "done", ""},
		"openhands finish": {OpenHands, strings.ReplaceAll(acted, `"t"`, `"finish"`), "done", ""},
		"gemini":           {GeminiCLI, chunk, "done", ""},
		"gemini unfinished": {GeminiCLI, strings.Replace(chunk, `,"finishReason":"STOP"`, "", 1), "error",
			"stream_cut: the provider's stream ended before the message did"},
		"gemini retried": {GeminiCLI, strings.Replace(chunk, `,"finishReason":"STOP"`, "", 1) + "\n" + chunk, "done", ""},
		"gemini broken":  {GeminiCLI, chunk + "\n" + chunk[:40], "error", ""},
		"gemini other":   {GeminiCLI, `{"method":"countTokens","response":{"totalTokens":3}}` + "\n" + chunk, "done", ""},
		"gemini odd":     {GeminiCLI, `{"method":"generateContentStream","response":[7]}` + "\n" + chunk, "done", ""},
		"gemini nothing": {GeminiCLI, `{"method":"generateContentStream","response":5}`, "error",
			"the stream holds no message"},
		"swe":             {SWEAgent, step(`,"info":{"exit_status":"submitted"}`), "done", ""},
		"swe cost":        {SWEAgent, step(`,"info":{"exit_status":"submitted (exit_cost)"}`), "done", ""},
		"swe error":       {SWEAgent, step(`,"info":{"exit_status":"exit_error"}`), "error", "exit_error"},
		"swe skipped":     {SWEAgent, step(`,"info":{"exit_status":"skipped"}`), "aborted", "skipped"},
		"swe no status":   {SWEAgent, step(`,"info":{}`), "error", "the transcript has no exit status"},
		"swe no info":     {SWEAgent, step(""), "error", "the transcript does not say how the run ended"},
		"swe bad step":    {SWEAgent, `{"trajectory":[{"response":tru},7],"history":[{"role":"assistant","content":"a"},{"role":` + deep + `}],"info":{"exit_status":"submitted"}}`, "error", "a part of the transcript cannot be read: invalid JSON"},
		"swe cut":         {SWEAgent, step("")[:90], "error", "the transcript was cut"},
		"swe huge":        {SWEAgent, step(`,"more":"` + huge + `","info":{"exit_status":"submitted"}`), "done", ""},
		"swe wrong":       {SWEAgent, "[1,2]", "error", "this is no trajectory of SWE-agent"},
		"utf16":           {ClaudeCode, "{\x00\"\x00t\x00", "error", ""},
		"page":            {OpenHands, "<html>", "error", ""},
		"empty claude":    {ClaudeCode, "", "error", "the transcript ends before the run does"},
		"empty openhands": {OpenHands, "\n\n", "error", "the transcript does not say how the conversation ended"},
		"empty gemini":    {GeminiCLI, "", "error", "the stream holds no message"},
		"empty swe":       {SWEAgent, "", "error", "this is no trajectory of SWE-agent"},
	} {
		t.Run(name, func(t *testing.T) {
			events := decodeAll(t, tt.format, []byte(tt.body), whole)
			checkEvents(t, events, true)
			o := transcripttest.FromFold(t, events)
			if o.State != tt.state || tt.reason != "" && o.Reason != tt.reason {
				t.Errorf("%s: %q\n%.2000s", o.State, o.Reason, told(events))
			}
			if strings.Contains(tt.body, `"a"`) && o.Text == "" {
				t.Errorf("nothing is left of the text\n%.2000s", told(events))
			}
		})
	}
}

// TestBoundedDocument: of a larger document the beginning is told.
func TestBoundedDocument(t *testing.T) {
	data := sample(t, "thoughts.swe-agent.json")
	events := decodeAll(t, SWEAgent, data, Config{Lifecycle: true, MaxDocumentBytes: len(data) / 2})
	checkEvents(t, events, true)
	o := transcripttest.FromFold(t, events)
	if o.Text == "" || o.State != schema.StateError || !strings.Contains(o.Reason, "longer than") {
		t.Errorf("%s: %s\n%s", o.State, o.Reason, told(events))
	}
}

// TestManyChildren: more sub-agents than are kept open lose nothing.
func TestManyChildren(t *testing.T) {
	var b strings.Builder
	for i := range maxChildren + 10 {
		fmt.Fprintf(&b, `{"type":"assistant","parent_tool_use_id":"call %d","message":{"id":"m%d","role":"assistant","content":"a"}}`+"\n", i, i)
	}
	events := decodeAll(t, ClaudeCode, []byte(b.String()+won), whole)
	checkEvents(t, events, true)
	o := transcripttest.FromFold(t, events)
	if n := len(o.Customs["custom.claude_code.assistant"]); n != 10 || o.Roles["assistant"] != maxChildren {
		t.Errorf("%d kept, %v", n, o.Roles)
	}
}

func TestRecogniseStreams(t *testing.T) {
	_, read := transcripttest.Recordings(t)
	entries := 0
	for _, folder := range []string{Anthropic, OpenAIChat, OpenAIResponses, Gemini} {
		files, err := os.ReadDir(providertest.Dir(t) + "/" + folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			data := read(folder + "/" + f.Name())
			for _, n := range []int{1024, 4096, len(data)} {
				if got, _ := Recognise(data[:min(n, len(data))]); got != folder {
					t.Errorf("%s/%s: %q by %d bytes", folder, f.Name(), got, n)
				}
			}
			entries++
		}
	}
	if entries < 55 {
		t.Errorf("only %d files", entries)
	}
	for head, want := range map[string]string{
		`{"id":"evt_1","ts":"2026-01-02T03:04:05Z","type":"text.delta","run_id":"r","child_id":null,"seq":1,"payload":{}}`: Native,
		`{"type":"event","seq":0,"method":"values","params":{"namespace":[],"data":{}}}`:                                   LangGraph,
		`{"type":"custom.x","payload":{}}`:                  Native,
		`{"type":"text.delta"}`:                             Native, // all else of an event has a default
		`[{"type":"run.lifecycle","payload":{}}]`:           Native,
		"\xef\xbb\xbf\r\n [{\r\n  \"candidates\": [":        Gemini,
		`{"error":{"code":400,"message":"m","status":"S"}}`: Gemini,
		`{"error":{"message":"m","type":"t","param":null}}`: OpenAIChat,
		": ping\n\ndata: {\"choices\":[":                    OpenAIChat,
		"event: ping\r\ndata: {\"type\": \"ping\"}\r\n":     Anthropic,
		`{"type":"message","role":"assistant","content":[]`: Anthropic,
		`{"type":"error","sequence_number":1}`:              OpenAIResponses,
		`{"object":"response","id":"x"`:                     OpenAIResponses,
		`{"a":1}` + "\n" + won:                              ClaudeCode,
		"":                                                  "", "hello": "", "{": "", "[[[[": "", `{"type":`: "",
		`{"a":1}`: "", "data: [1]\n\n": "", `{"type":"text.unknown"}`: "", "\x00\x01": "",
	} {
		if got, ok := Recognise([]byte(head)); got != want || ok != (want != "") {
			t.Errorf("%q: %q", head, got)
		}
	}
}

// FuzzDecode: no input harms, whatever the format, and what comes out is fit for the log.
func FuzzDecode(f *testing.F) {
	for i, format := range Formats() {
		for _, name := range []string{"plain.claude-code.jsonl", "partial.claude-code.jsonl",
			"children.claude-code.jsonl", "finished.openhands.jsonl", "thoughts.swe-agent.json"} {
			if strings.Contains(name, format) {
				f.Add(uint8(i), sample(f, name))
			}
		}
	}
	f.Add(uint8(2), []byte(chunk))
	f.Add(uint8(0), []byte(`{"trajectory":[{"response":"a","action":"b"}]`))
	f.Add(uint8(3), []byte(agent+"\n"+won))
	f.Fuzz(func(t *testing.T, format uint8, body []byte) {
		name := Formats()[int(format)%len(Formats())]
		events := decodeAll(t, name, body, whole)
		checkEvents(t, events, true)
		var pieces []schema.Event
		for e, err := range Decode(name, iotest.OneByteReader(bytes.NewReader(body)), whole) {
			if err != nil {
				t.Fatal(err)
			}
			pieces = append(pieces, e)
		}
		if providertest.Lines(pieces) != providertest.Lines(events) {
			t.Fatalf("byte by byte\n%s\nwhole\n%s", told(pieces), told(events))
		}
		Recognise(body)
	})
}
