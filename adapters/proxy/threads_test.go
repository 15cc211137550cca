package proxy_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"agentstream/adapters/proxy"
	"agentstream/schema"
)

// mirror answers with what the request's header says; "tool" calls one.
func mirror(w http.ResponseWriter, req *http.Request) {
	_, _ = io.Copy(io.Discard, req.Body)
	w.Header().Set("Content-Type", sse)
	say := req.Header.Get("Test-Say")
	if say == "529" {
		w.WriteHeader(529)
		_, _ = io.WriteString(w, `{"type":"error","error":{"type":"overloaded_error","message":"not now"}}`)
		return
	}
	if say != "tool" {
		_, _ = io.WriteString(w, answer("msg_"+say, say))
		return
	}
	for _, data := range []string{
		`{"type":"message_start","message":{"id":"msg_t","type":"message","role":"assistant","model":"claude","content":[],"usage":{"input_tokens":5}}}`,
		`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"look","input":{}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
		`{"type":"content_block_stop","index":0}`,
		`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":3}}`,
		`{"type":"message_stop"}`,
	} {
		_, _ = io.WriteString(w, "data: "+data+"\n\n")
	}
}

// chatOf makes a request of messages: of the user, and with a colon before it of the assistant.
func chatOf(messages ...string) string {
	var list []string
	for _, m := range messages {
		role, text := "user", m
		if rest, ok := strings.CutPrefix(m, ":"); ok {
			role, text = "assistant", rest
		}
		content, _ := json.Marshal(text)
		switch m {
		case ":tool":
			content = []byte(`[{"type":"tool_use","id":"toolu_1","name":"look","input":{}}]`)
		case "result":
			content = []byte(`[{"type":"tool_result","tool_use_id":"toolu_1","content":"seen"}]`)
		}
		list = append(list, fmt.Sprintf(`{"role":%q,"content":%s}`, role, content))
	}
	return `{"messages":[` + strings.Join(list, ",") + `]}`
}

// TestConversationGoesOn: a call that names no run goes on in the run of the conversation that its messages begin with,
// of the same caller and tenant; a question that is asked anew begins a run.
func TestConversationGoesOn(t *testing.T) {
	r := start(t, http.HandlerFunc(mirror))
	runs := map[string]string{} // by a letter
	for i, c := range []struct {
		say      string
		messages []string
		headers  []string
		run      string // "" is a new one, called by its number
	}{
		0: {say: "x", messages: []string{"hi"}},
		1: {say: "z", messages: []string{"hi", ":x", "more"}, run: "0"},
		2: {say: "w", messages: []string{"hi", ":x", "more", ":z", "and more"}, run: "0"},
		3: {say: "x", messages: []string{"hi"}},                         // asked anew
		4: {say: "y", messages: []string{"hi"}},                         // again
		5: {say: "v", messages: []string{"hi", ":y", "more"}, run: "4"}, // by the answer
		// the one that nobody has gone on from
		6:  {say: "v", messages: []string{"hi", ":x", "other"}, run: "3"},
		7:  {say: "v", messages: []string{"hi", ":x", "more"}, headers: []string{"X-Api-Key", "another"}}, // another caller
		8:  {say: "v", messages: []string{"hi", ":x", "more"}, headers: []string{proxy.HeaderTenant, "other"}},
		9:  {say: "v", messages: []string{"hello", ":x", "more"}},
		10: {say: "tool", messages: []string{"look"}},
		11: {say: "fine", messages: []string{"look", ":tool", "result"}, run: "10"},
		12: {say: "n", messages: []string{"named"}, headers: []string{proxy.HeaderRun, "mine"}},
		13: {say: "n", messages: []string{"named", ":n", "more"}},
	} {
		if i == 13 {
			runs["12"] = "mine"
			c.run = "12"
		}
		headers := append([]string{"Test-Say", c.say, "X-Api-Key", "one"}, c.headers...)
		if len(c.headers) > 0 && c.headers[0] == "X-Api-Key" {
			headers = append([]string{"Test-Say", c.say}, c.headers...)
		}
		resp, _ := r.post("/v1/messages", chatOf(c.messages...), headers...)
		got := resp.Header.Get(proxy.HeaderRun)
		if c.run != "" && got != runs[c.run] {
			t.Errorf("%d %q: run %s, want that of %s, %s", i, c.messages, got, c.run, runs[c.run])
		}
		for of, run := range runs {
			if c.run == "" && run == got {
				t.Errorf("%d %q: goes on in the run of %s", i, c.messages, of)
			}
		}
		if c.run == "" {
			runs[fmt.Sprint(i)] = got
		}
		switch {
		case i == 12:
			r.calls(got, 1)
		case i != 8 && i != 13:
			r.ended(got) // what is known of the answer does not depend on the log's pace
		}
	}
	r.calls(runs["0"], 3)
	// the next call may be there before the end
	got := strings.ReplaceAll(summary(t, r.ended(runs["0"])), ", done, running", "")
	one := ", user, call, assistant, end true 0"
	if want := "running" + one + one + one + ", done"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	events := r.events(runs["10"])
	framed(t, events)
	mustContain(t, story(events), schema.TypeToolEnd, "seen")
}

// TestToolsAreAwaited: a run whose agent is to bring the results of tools has not ended; it ends when they do not come.
func TestToolsAreAwaited(t *testing.T) {
	r := start(t, http.HandlerFunc(mirror), func(c *proxy.Config) { c.ToolHold = 400 * time.Millisecond })
	resp, _ := r.post("/v1/messages", chatOf("look"), "Test-Say", "tool")
	run := resp.Header.Get(proxy.HeaderRun)
	r.calls(run, 1)
	r.post("/v1/messages", chatOf("look", ":tool", "result"), "Test-Say", "fine")
	want := "running, user, call, assistant, end true 0, call, assistant, end true 0, done"
	if got := summary(t, r.ended(run)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	resp, _ = r.post("/v1/messages", chatOf("look again"), "Test-Say", "tool")
	left := resp.Header.Get(proxy.HeaderRun)
	events := r.ended(left)
	if got, want := summary(t, events), "running, user, call, assistant, end true 0, done"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	mustContain(t, story(events), "no call for 400ms")
	resp, _ = r.post("/v1/messages", chatOf("look once more"), "Test-Say", "tool")
	last := resp.Header.Get(proxy.HeaderRun)
	r.calls(last, 1)
	r.stop()
	if got, want := summary(t, r.events(last)), "running, user, call, assistant, end true 0, done"; got != want {
		t.Errorf("at the end: %s\nwant %s", got, want)
	}
}

// TestRepeatWithoutRun: a repeat goes into the run of the call that it repeats, which does not end before.
func TestRepeatWithoutRun(t *testing.T) {
	r := start(t, http.HandlerFunc(mirror), holding)
	first, _ := r.post("/v1/messages", chatOf("hi"), "Test-Say", "529")
	run := first.Header.Get(proxy.HeaderRun)
	r.until(run, func(e []schema.Event) bool { return count(e, proxy.TypeAttempt) == 1 })
	second, _ := r.post("/v1/messages", chatOf("hi"), "Test-Say", "fine", "X-Stainless-Retry-Count", "1")
	if got := second.Header.Get(proxy.HeaderRun); got != run {
		t.Fatalf("runs %s and %s", run, got)
	}
	if got, want := summary(t, r.ended(run)), "running, user, call, failed 1, assistant, end true 2, done"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	alone, _ := r.post("/v1/messages", chatOf("ho"), "Test-Say", "529")
	if got, want := summary(t, r.ended(alone.Header.Get(proxy.HeaderRun))), "running, user, call, failed 1, assistant, end false 0, error"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
