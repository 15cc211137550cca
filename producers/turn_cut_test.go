package producers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"agentstream/adapters/anthropic"
	"agentstream/adapters/gemini"
	"agentstream/adapters/openai"
	"agentstream/adapters/provider"
	"agentstream/schema"
)

// cutRecordings are cut at every byte: tools, thoughts, errors, built-in tools, of every adapter.
var cutRecordings = map[string]func(provider.Config) *provider.Decoder{
	"anthropic/truncated-tool-json-max-tokens.sse": anthropic.NewDecoder,
	"anthropic/parallel-tools-step1.sse":           anthropic.NewDecoder,
	"anthropic/thinking-redacted.sse":              anthropic.NewDecoder,
	"anthropic/refusal-after-tools.sse":            anthropic.NewDecoder,
	"openai-chat/openrouter-error-in-chunk.sse":    openai.NewChatDecoder,
	"openai-chat/tool-run-step1.sse":               openai.NewChatDecoder,
	"openai-chat/refusal.sse":                      openai.NewChatDecoder,
	"openai-responses/failed-quota.jsonl":          openai.NewResponsesDecoder,
	"openai-responses/custom-tool.jsonl":           openai.NewResponsesDecoder,
	"openai-responses/background-create.sse":       openai.NewResponsesDecoder,
	"gemini/code-execution.sse":                    gemini.NewDecoder,
	"gemini/parallel-tools-step1.sse":              gemini.NewDecoder,
}

// answerOf is a whole run around one answer: the agent runs no tools, and ends as the answer went.
func answerOf(t *testing.T, decoder func(provider.Config) *provider.Decoder, body string) []schema.Event {
	t.Helper()
	var s told
	ctx := t.Context()
	r := newRun(t, &s)
	must(t, r.State(ctx, schema.StateRunning, ""))
	turn, err := r.Turn(ctx)
	must(t, err)
	if err := turn.Model("", "", decoder(provider.Config{}), strings.NewReader(body)); err != nil {
		must(t, r.Fail(ctx, err))
		return s.events
	}
	for _, c := range turn.Calls() {
		must(t, c.Fail(errors.New("not run")))
	}
	must(t, turn.End("end_turn"), r.Finish(ctx))
	return s.events
}

// said joins what was said, by kind.
func said(events []schema.Event) map[string]string {
	out := map[string]string{}
	for _, e := range events {
		if _, text, _, ok := schema.SplitText(e.Payload); ok && strings.HasSuffix(e.Type, ".delta") {
			out[e.Type] += string(text)
		}
	}
	return out
}

// unbalanced returns what does not have exactly one end, or comes after the end of the run; "" when nothing does. A
// call that was never announced may end: it is a tool of the provider's own.
func unbalanced(events []schema.Event) string {
	open := map[string]bool{}
	ended := false
	names := map[string]string{"turn": "turn_id", "model": "call_id", "message": "message_id", "block": "index",
		"tool": "call_id"}
	for i, e := range events {
		if ended {
			return fmt.Sprintf("event %d, %s, comes behind the end", i+1, e.Type)
		}
		p := map[string]any{}
		if provider.Problem(e.Payload) != "" || json.Unmarshal(e.Payload, &p) != nil {
			return fmt.Sprintf("event %d, %s: payload %.100s", i+1, e.Type, e.Payload)
		}
		if e.Type == schema.TypeRunLifecycle {
			ended = schema.RunState(p["state"].(string)).Final()
			continue
		}
		what, way, _ := strings.Cut(e.Type, ".")
		id := names[what]
		if id == "" || way != "start" && way != "end" {
			continue
		}
		key := fmt.Sprint(what, " ", p[id])
		if open[key] == (way == "start") && (what != "tool" || way == "start") {
			return fmt.Sprintf("event %d: %s of %s", i+1, e.Type, key)
		}
		if delete(open, key); way == "start" {
			open[key] = true
		}
	}
	if len(open) > 0 || !ended {
		return fmt.Sprintf("open are %v, the run has ended: %v", open, ended)
	}
	return ""
}

// TestUnbalanced: the check can fail.
func TestUnbalanced(t *testing.T) {
	events := answerOf(t, anthropic.NewDecoder, answer)
	if complaint := unbalanced(events); complaint != "" {
		t.Fatal(complaint)
	}
	seen := 0
	for i := range events {
		dropped := append(append([]schema.Event{}, events[:i]...), events[i+1:]...)
		twice := append(append([]schema.Event{}, events[:i+1]...), events[i:]...)
		way := strings.HasSuffix(events[i].Type, ".start") || strings.HasSuffix(events[i].Type, ".end") || i == len(events)-1
		for _, list := range [][]schema.Event{dropped, twice} {
			if broken := unbalanced(list) != ""; broken {
				seen++
			} else if way && !strings.HasPrefix(events[i].Type, "tool.") {
				t.Errorf("%s at %d missing or doubled is not seen", events[i].Type, i+1)
			}
		}
	}
	if seen < 10 {
		t.Errorf("only %d faults seen", seen)
	}
}
