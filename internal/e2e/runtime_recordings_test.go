package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"

	"agentstream/adapters/provider/providertest"
	"agentstream/internal/testkit"
	"agentstream/schema"
)

// answered is one answer of a model: the body that a provider sent, and what a client of the runtime protocol is to
// hear of it.
type answered struct {
	api    string // of the provider
	body   string // server-sent events
	text   providertest.Digest
	reason providertest.Digest
	in     int64 // tokens; -1: the provider gives no count
	out    int64
	finish runtimev1.FinishReason
	failed bool
}

// expectedAnswer is what is expected of one answer, of whatever provider.
type expectedAnswer struct {
	Text, Reasoning, RawReasoning, Refusal providertest.Digest
	StopReason, IncompleteReason           string
	ToolCalls                              []struct{ Kind string }
	Responses                              int
	Usage                                  map[string]any
	Error                                  any
}

// answer returns what a client is to hear.
func (w expectedAnswer) answer(api string, body []byte) answered {
	count := func(names ...string) int64 {
		for _, name := range names {
			if n, ok := w.Usage[name].(float64); ok {
				return int64(n)
			}
		}
		return -1
	}
	a := answered{
		api: api, body: asEvents(body), text: w.Text, reason: w.Reasoning, failed: w.Error != nil,
		finish: runtimev1.FinishReason_FINISH_REASON_STOP,
		in:     count("input_tokens", "prompt_tokens", "promptTokenCount"),
		out:    count("output_tokens", "completion_tokens", "candidatesTokenCount"),
	}
	if w.RawReasoning.Bytes > 0 {
		a.reason = w.RawReasoning
	}
	switch asks := len(w.ToolCalls) > 0 && (w.StopReason == "response.completed" || w.StopReason == "STOP"); {
	case w.StopReason == "length", w.StopReason == "max_tokens", w.IncompleteReason != "":
		a.finish = runtimev1.FinishReason_FINISH_REASON_LENGTH
	case w.StopReason == "tool_use", w.StopReason == "tool_calls", asks:
		a.finish = runtimev1.FinishReason_FINISH_REASON_TOOL_CALL
	case w.StopReason == "refusal", w.Refusal.Bytes > 0:
		a.finish = runtimev1.FinishReason_FINISH_REASON_CONTENT_FILTER
	}
	if w.Responses > 1 {
		a.in, a.out, a.finish = joined(body)
	}
	return a
}

// joined returns what a body of several responses adds up to: the tokens of all, and how the last one ends.
func joined(body []byte) (in, out int64, finish runtimev1.FinishReason) {
	for line := range strings.Lines(string(body)) {
		var f struct {
			Type     string
			Response struct {
				Usage  map[string]any
				Output []struct{ Type string }
			}
		}
		if json.Unmarshal([]byte(line), &f) != nil || f.Type != "response.completed" {
			continue
		}
		in, out = in+int64(f.Response.Usage["input_tokens"].(float64)), out+int64(f.Response.Usage["output_tokens"].(float64))
		finish = runtimev1.FinishReason_FINISH_REASON_STOP
		for _, item := range f.Response.Output {
			if item.Type == "function_call" {
				finish = runtimev1.FinishReason_FINISH_REASON_TOOL_CALL
			}
		}
	}
	return in, out, finish
}

// asEvents returns a body as it is sent: recordings of one chunk a line have lost their frames.
func asEvents(body []byte) string {
	text := string(body)
	if !strings.HasPrefix(text, "{") {
		return text
	}
	var b strings.Builder
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			fmt.Fprintf(&b, "data: %s\n\n", line)
		}
	}
	return b.String()
}

// recordedAnswers returns the answers of models in all recordings: one each, of a transcript one for each step of its
// agent.
func recordedAnswers(t *testing.T) map[string][]answered {
	t.Helper()
	all, read := providertest.Recordings[expectedAnswer](t, 63, "anthropic", "gemini", "openai-chat",
		"openai-responses", "transcripts")
	out := map[string][]answered{}
	for name, w := range all {
		folder, _, _ := strings.Cut(name, "/")
		if folder == "transcripts" {
			out[name] = transcribed(t, name, read(name), w)
			continue
		}
		out[name] = []answered{w.answer(strings.TrimSuffix(folder, "-chat"), read(name))}
	}
	return out
}

// transcribed returns the answers in a transcript: as its model sent them, or as chat completions of what it said.
func transcribed(t *testing.T, name string, body []byte, w expectedAnswer) (out []answered) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	whole := ""
	chat := func(text string) {
		chunk, err := json.Marshal(map[string]any{"id": "c",
			"choices": []any{map[string]any{"index": 0, "delta": map[string]string{"role": "assistant", "content": text}}}})
		must(err)
		body := string(chunk) + "\n" + `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
		out = append(out, expectedAnswer{Text: providertest.DigestOf(text), Reasoning: providertest.DigestOf(""),
			StopReason: "stop"}.answer("openai", []byte(body)))
		whole += text
	}
	if strings.HasSuffix(name, ".swe-agent.json") {
		var f struct{ Trajectory []struct{ Response string } }
		must(json.Unmarshal(body, &f))
		for _, s := range f.Trajectory {
			chat(s.Response)
		}
	} else {
		streams, _ := providertest.Recordings[struct{ Streams []expectedAnswer }](t, 1, "transcripts")
		for i, line := range strings.Split(strings.TrimSpace(string(body)), "\n") {
			var f struct {
				Kind     string
				Thought  []struct{ Text string }
				Response []json.RawMessage
			}
			must(json.Unmarshal([]byte(line), &f))
			if f.Kind == "ActionEvent" {
				chat(f.Thought[0].Text)
			} else if f.Kind == "" {
				lines := ""
				for _, chunk := range f.Response {
					lines += string(chunk) + "\n"
				}
				out = append(out, streams[name].Streams[i].answer("gemini", []byte(lines)))
			}
		}
	}
	if whole != "" && providertest.DigestOf(whole) != w.Text {
		t.Fatalf("%s: its model says %d bytes, want %d", name, len(whole), w.Text.Bytes)
	}
	return out
}

// TestRuntimeRecordings sends every recording through an upstream into a worker, and hears it as a client of the
// runtime protocol does: text, reasoning, counts of tokens and finish reason are those that the provider's own
// libraries make of it.
func TestRuntimeRecordings(t *testing.T) {
	beside(t)
	all := recordedAnswers(t)
	bodies := map[string]string{}
	var models []string
	for name, list := range all {
		for i, a := range list {
			m := fmt.Sprintf("%s/%d", name, i)
			bodies[m], models = a.body, append(models, "--models", a.api+"="+m)
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var f struct{ Model string }
		if err := json.NewDecoder(r.Body).Decode(&f); err != nil {
			t.Error(err)
		}
		if name, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v1beta/models/"); ok {
			name, _, _ = strings.Cut(name, ":")
			f.Model, _ = url.PathUnescape(name)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for rest := bodies[f.Model]; rest != ""; { // in pieces, as a network has them
			n := min(len(rest), 700)
			_, _ = io.WriteString(w, rest[:n])
			w.(http.Flusher).Flush()
			rest = rest[n:]
		}
	}))
	defer srv.Close()
	nats := testkit.FreeAddr(t)
	dev := newProc(t, "dev", "--no-demo", "--data", t.TempDir(), "--nats-listen", nats)
	dev.start()
	for _, api := range []string{"anthropic", "gemini", "openai", "openai-responses"} {
		models = append(models, "--upstream", api+"="+srv.URL)
	}
	newProc(t, "worker", append([]string{"--nats", "nats://" + nats}, models...)...).start()
	conn := runtimeConn(t, dev.addr)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			for i, want := range all[name] {
				h, err := hearScenario(t.Context(), conn, "", textScenario(fmt.Sprintf("%s/%d", name, i), "hello"),
					func(*runtimev1.StreamScenarioEvent) {})
				if err != nil || h.err != nil {
					t.Fatal(err, h.err)
				}
				want.check(t, h, dev.url("/v1/agent/runs/"+h.run))
			}
		})
	}
}

// check holds what a client heard to what is expected. What was held back when the answer failed is in the log alone.
func (want answered) check(t *testing.T, h heardScenario, run string) {
	t.Helper()
	text, reason := h.text, h.thought
	if want.failed {
		events, whole := readBack(t, run)
		f := new(schema.Fold)
		for i := range events {
			if events[i].Type != schema.TypeCommandMessage {
				f.Add(&events[i])
			}
		}
		text, reason = f.Text("", "text"), f.Text("", "reasoning")
		for _, p := range [][2]string{{text, h.text}, {reason, h.thought}} {
			if !strings.HasPrefix(p[0], p[1]) || len(p[0])-len(p[1]) > 31 {
				t.Errorf("%d bytes were said, and %d heard before it failed", len(p[0]), len(p[1]))
			}
		}
		if h.failed.GetReasonCode() != runtimev1.ReasonCode_AI_PROVIDER_INTERNAL || whole.State != schema.StateError {
			t.Errorf("it ended with %v, the run with %s %s", h.failed, whole.State, whole.Reason)
		}
	} else if u := h.completed.GetUsage(); h.completed == nil || h.completed.GetFinishReason() != want.finish ||
		u.GetInputTokens() != want.in || u.GetOutputTokens() != want.out {
		t.Errorf("it ended with %v %v, want %v with %d and %d tokens", h.completed, h.failed, want.finish, want.in, want.out)
	}
	if providertest.DigestOf(text) != want.text || providertest.DigestOf(reason) != want.reason {
		t.Errorf("%d bytes of text and %d of reasoning, want %d and %d", len(text), len(reason), want.text.Bytes,
			want.reason.Bytes)
	}
}
