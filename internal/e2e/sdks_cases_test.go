package e2e_test

import (
	"net/http"
	"testing"

	"agentstream/schema"
)

// streams are cases of one kind that each play one recording to its end.
func streams(t testing.TB, kind, folder string, names ...string) (list []sdkCase) {
	t.Helper()
	for _, name := range names {
		list = append(list, sdkCase{Name: name, Kind: kind, Run: "named", End: true, state: schema.StateDone,
			answers: []answer{recording(t, folder+"/"+name+".sse")}})
	}
	return list
}

// turn is a case of two requests, the second with the results of the first one's tools.
func turn(t testing.TB, kind, name, file string) sdkCase {
	t.Helper()
	return sdkCase{Name: name, Kind: kind, Run: "named", state: schema.StateDone,
		answers: []answer{recording(t, file+"-step1.sse"), recording(t, file+"-step2.sse")}}
}

// troubles are the cases of an API's errors: the library gives up, or comes again by itself.
func troubles(t testing.TB, kind, abort, long string, overloaded int, busy, limited, key string) []sdkCase {
	t.Helper()
	good, packed := recording(t, long), recording(t, long)
	packed.packed = true
	return []sdkCase{
		{Name: kind + "-anonymous", Kind: kind, state: schema.StateDone, answers: []answer{good}},
		{Name: kind + "-packed", Kind: kind, Run: "named", End: true, state: schema.StateDone, answers: []answer{packed}},
		{Name: kind + "-key", Kind: kind, Run: "named", End: true, state: schema.StateError,
			answers: []answer{refused(401, key)}},
		// Each attempt is a call of the same run.
		{Name: kind + "-limited", Kind: kind, Run: "named", Retry: true, state: schema.StateRunning,
			answers: []answer{refused(429, limited), good}},
		{Name: kind + "-busy", Kind: kind, Run: "named", Retry: true, state: schema.StateRunning,
			answers: []answer{refused(overloaded, busy), refused(overloaded, busy), good}},
		{Name: kind + "-too-busy", Kind: kind, Run: "named", Retry: true, End: true, state: schema.StateError,
			answers: []answer{refused(overloaded, busy), refused(overloaded, busy), refused(overloaded, busy)}},
		{Name: kind + "-header", Kind: kind, Run: "no run", wrong: true},
		// The library has waited long enough, leaves, and comes again.
		{Name: kind + "-late", Kind: kind, Run: "named", Retry: true, Timeout: 1500, state: schema.StateRunning,
			answers: []answer{{after: silent, fails: true}, good}},
		{Name: kind + "-cut", Kind: kind, Run: "named", End: true, state: schema.StateError,
			answers: []answer{part(t, long, 5, broken)}},
		{Name: kind + "-abort", Kind: abort, Run: "named", End: true, state: schema.StateAborted,
			answers: []answer{part(t, long, 5, held)}},
	}
}

func anthropicCases(t testing.TB) []sdkCase {
	t.Helper()
	list := streams(t, "stream", "anthropic", "text-short", "text-long", "thinking-signature-text", "thinking-redacted",
		"tool-large-json",
		"text-then-two-tools", "stop-sequence", "web-search-citations", "pause-turn-step1", "pause-turn-step2")
	list = append(list, streams(t, "beta", "anthropic", "mcp-tool", "refusal-after-tools")...)
	cut := streams(t, "stream", "anthropic", "truncated-tool-json-max-tokens")
	cut[0].refuses = true
	list = append(list, cut...)
	list = append(list, turn(t, "tools", "thinking-tool", "anthropic/thinking-tool"),
		turn(t, "tools", "parallel-tools", "anthropic/parallel-tools"))
	list = append(list, troubles(t, "stream", "abort", "anthropic/text-long.sse", 529,
		`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}`,
		`{"type":"error","error":{"type":"rate_limit_error","message":"Number of requests has exceeded your limit"}}`,
		`{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key `+sdkKey+`"}}`)...)
	list = append(list, sdkCase{Name: "overloaded", Kind: "stream", Run: "named", End: true, state: schema.StateError,
		answers: []answer{overloaded(t, "anthropic/text-long.sse")}})
	return append(list, sdkCase{Name: "abort-anonymous", Kind: "abort", state: schema.StateAborted,
		answers: []answer{part(t, "anthropic/text-long.sse", 5, held)}})
}

func openaiCases(t testing.TB) []sdkCase {
	t.Helper()
	failing := func(list []sdkCase) []sdkCase {
		for i := range list {
			list[i].state, list[i].answers[0].fails = schema.StateError, true
		}
		return list
	}
	list := streams(t, "chat", "openai-chat", "tool-run-step2", "parallel-tools", "openrouter-kimi-multi-tool",
		"reasoning-content-deepseek",
		"refusal", "three-choices", "length-stop", "azure-content-filter", "groq-error-mid-stream-step2",
		"groq-error-mid-stream-step3")
	list = append(list, failing(streams(t, "chat", "openai-chat", "groq-error-mid-stream-step1",
		"openrouter-error-in-chunk"))...)
	list = append(list, streams(t, "responses", "openai-responses", "multi-agent-run-step1", "multi-agent-run-step3",
		"multi-agent-run-step4", "multi-agent-run-step7")...)
	list = append(list,
		turn(t, "chatTools", "tool-run", "openai-chat/tool-run"),
		turn(t, "responsesTools", "parallel-functions", "openai-responses/parallel-functions"),
		turn(t, "responsesTools", "reasoning-summary-tool", "openai-responses/reasoning-summary-tool"),
		sdkCase{Name: "background", Kind: "background", Run: "named", once: true, state: schema.StateDone, answers: []answer{
			recording(t, "openai-responses/background-create.sse"),
			recording(t, "openai-responses/background-resume-starting-after-0.sse")}})
	busy, limited := `{"error":{"message":"Overloaded","type":"server_error","param":null,"code":null}}`, `{"error":{"message":"Rate limit reached","type":"requests","param":null,"code":"rate_limit_exceeded"}}`
	key := `{"error":{"message":"Incorrect API key provided: ` + sdkKey +
		`.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`
	chat := troubles(t, "chat", "chatAbort", "openai-chat/tool-run-step2.sse", 529, busy, limited, key)
	chat[0].Kind = "chatAnonymous"
	list = append(list, chat...)
	list = append(list, sdkCase{Name: "abort-anonymous", Kind: "chatAbort", state: schema.StateAborted,
		answers: []answer{part(t, "openai-chat/tool-run-step2.sse", 5, held)}})
	return append(list, troubles(t, "responses", "responsesAbort", "openai-responses/multi-agent-run-step4.sse", 529,
		busy, limited, key)[1:]...)
}

func geminiCases(t testing.TB) []sdkCase {
	t.Helper()
	list := streams(t, "stream", "gemini", "text", "thinking", "code-execution", "search-grounding",
		"parallel-tools-step2")
	list = append(list, turn(t, "tools", "parallel-tools", "gemini/parallel-tools"))
	// its library does not come again for a 529
	list = append(list, troubles(t, "stream", "abort", "gemini/thinking.sse", http.StatusServiceUnavailable,
		`{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`,
		`{"error":{"code":429,"message":"You exceeded your current quota.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"0s"}]}}`,
		`{"error":{"code":401,"message":"API key not valid: `+sdkKey+`","status":"UNAUTHENTICATED"}}`)...)
	return append(list, sdkCase{Name: "abort-anonymous", Kind: "abort", state: schema.StateAborted,
		answers: []answer{part(t, "gemini/thinking.sse", 5, held)}})
}
