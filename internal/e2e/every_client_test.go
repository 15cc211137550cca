package e2e_test

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
)

// outcome is what a client has of a run in the end.
type outcome struct {
	Name  string `json:"name"`
	Text  string `json:"text"`
	Calls []struct {
		Name   string `json:"name"`
		Input  any    `json:"input"`
		Output any    `json:"output"`
	} `json:"calls"`
	End string `json:"end"`
}

// watchers are a script's clients.
type watchers struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startWatchers(t *testing.T, node string, env ...string) *watchers {
	t.Helper()
	w := &watchers{cmd: exec.CommandContext(t.Context(), node, "every-client.mjs")}
	w.cmd.Dir, w.cmd.Env, w.cmd.Stderr, w.cmd.WaitDelay = jsDir, append(os.Environ(), env...), os.Stderr, time.Second
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.out = bufio.NewScanner(out)
	w.out.Buffer(nil, 1<<20)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return w
}

// await returns when all have received something.
func (w *watchers) await(t *testing.T) {
	t.Helper()
	if !w.out.Scan() || w.out.Text() != "WATCHING" {
		t.Fatalf("the clients do not watch: %q, %v", w.out.Text(), w.cmd.Wait())
	}
}

// outcomes waits for what they have in the end.
func (w *watchers) outcomes(t *testing.T) (list []outcome) {
	t.Helper()
	for w.out.Scan() {
		var o outcome
		if err := json.Unmarshal(w.out.Bytes(), &o); err != nil {
			t.Fatalf("%v: %s", err, w.out.Text())
		}
		list = append(list, o)
	}
	if err := w.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestEveryClientAtOnce: one run, begun by a client of the runtime protocol and published once, is watched live by
// clients of every protocol at once. All have the same text, the same calls, and the same end.
func TestEveryClientAtOnce(t *testing.T) {
	beside(t)
	node, _ := needNode(t)
	dev := newProc(t, "dev", "--no-demo", "--data", t.TempDir())
	dev.start()

	begun, nimi := make(chan string, 1), make(chan heardScenario, 1)
	conn := runtimeConn(t, dev.addr)
	go func() {
		h, err := hearScenario(t.Context(), conn, "every client", textScenario("any", "tell me"),
			func(e *runtimev1.StreamScenarioEvent) {
				if e.GetStarted() != nil {
					begun <- e.GetTraceId()
				}
			})
		if err != nil {
			h.err = err
		}
		nimi <- h
	}()
	var run string
	select {
	case run = <-begun:
	case h := <-nimi:
		t.Fatalf("the scenario did not begin: %v", h.err)
	}
	socket := metisAt(t, dev).watch(run, metisAll, "", true)
	a := &story{url: dev.url("/v1/agent/runs/" + run + "/events")}
	tell := func(lines ...string) {
		if err := a.tell(t.Context(), lines...); err != nil {
			t.Fatal(err)
		}
	}
	says := func(text string) string { return `{"type":"text.delta","payload":{"text":` + quote(text) + `}}` }
	const first, rest, last = "First words. ", "Grüße 🌍, \"quoted\"\n and <tagged>. ", "Last words."
	tell(`{"type":"turn.start","payload":{"turn_id":"t"}}`,
		`{"type":"message.start","payload":{"message_id":"a1","role":"assistant","model":"m"}}`, says(first))
	js := startWatchers(t, node, "BASE="+dev.url(""), "TOKEN="+edgeToken, "RUN="+run)
	js.await(t)
	for _, piece := range strings.SplitAfter(rest, " ") {
		tell(says(piece))
	}
	tell(`{"type":"block.start","payload":{"kind":"tool_use","index":1,"call_id":"c1","tool":"weather"}}`,
		`{"type":"tool.input.delta","payload":{"call_id":"c1","index":1,"text":"{\"city\":"}}`,
		`{"type":"tool.input.delta","payload":{"call_id":"c1","index":1,"text":"\"Grüße 🌍\"}"}}`,
		`{"type":"block.end","payload":{"index":1}}`,
		`{"type":"message.end","payload":{"message_id":"a1","stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}}`,
		`{"type":"tool.start","payload":{"call_id":"c1","tool":"weather","input":{"city":"Grüße 🌍"}}}`,
		`{"type":"tool.end","payload":{"call_id":"c1","ok":true,"output":{"degrees":21}}}`)
	tell(`{"type":"message.start","payload":{"message_id":"a2","role":"assistant","model":"m"}}`, says(last),
		`{"type":"message.end","payload":{"message_id":"a2","stop_reason":"end_turn","usage":{"input_tokens":3,"output_tokens":4}}}`)
	tell(`{"type":"turn.end","payload":{"turn_id":"t","stop_reason":"end_turn"}}`,
		`{"type":"commands.taken","payload":{"through":2}}`,
		`{"type":"run.lifecycle","payload":{"state":"done"}}`)

	want := outcome{Text: first + rest + last, End: "done"}
	if err := json.Unmarshal([]byte(`[{"name":"weather","input":{"city":"Grüße 🌍"},"output":{"degrees":21}}]`),
		&want.Calls); err != nil {
		t.Fatal(err)
	}
	list := js.outcomes(t)
	list = append(list, metisOutcome(t, dev, socket))
	for _, o := range list {
		want.Name = o.Name
		if !reflect.DeepEqual(o, want) {
			t.Errorf("got  %+v\nwant %+v", o, want)
		}
	}
	if len(list) != 8 {
		t.Errorf("%d clients", len(list))
	}
	// This protocol's streams are of an answer's text: they have no calls.
	if h := <-nimi; h.err != nil || h.text != want.Text ||
		h.completed.GetFinishReason() != runtimev1.FinishReason_FINISH_REASON_STOP {
		t.Errorf("nimi: %+v", h)
	}
}

// quote encodes a value that can be.
func quote(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// metisOutcome reads a socket up to the end of the session. What tools have answered is not on it, but among the
// messages.
func metisOutcome(t *testing.T, p *proc, c *metisConn) (o outcome) {
	t.Helper()
	o = outcome{Name: "metis", End: c.until("session.ended").p.Disposition}
	if o.End == "completed" {
		o.End = "done"
	}
	calls := []any{}
	for _, m := range c.fold.Messages {
		for _, b := range m.Blocks {
			switch {
			case m.Role == "assistant" && b["type"] == "text":
				o.Text += b["text"].(string)
			case b["type"] == "tool_use":
				calls = append(calls, map[string]any{"name": b["name"], "input": b["input"],
					"output": metisOutput(t, p, c.fold.Session, b["id"])})
			}
		}
	}
	if err := json.Unmarshal([]byte(quote(calls)), &o.Calls); err != nil {
		t.Fatal(err)
	}
	return o
}

// metisOutput returns what a tool has answered.
func metisOutput(t *testing.T, p *proc, session string, call any) (v any) {
	t.Helper()
	var all struct {
		Messages []struct {
			Content []struct {
				ToolUseID any `json:"tool_use_id"`
				Content   []struct{ Text string }
			}
		}
	}
	_, text := getText(p.url("/metis/sessions/" + session + "/messages"))
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, m := range all.Messages {
		for _, b := range m.Content {
			if b.ToolUseID == call && len(b.Content) == 1 && json.Unmarshal([]byte(b.Content[0].Text), &v) == nil {
				return v
			}
		}
	}
	return text
}
