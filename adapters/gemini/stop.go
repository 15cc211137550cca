package gemini

import (
	"slices"
	"strings"

	"agentstream/adapters/provider"
)

// The API's reasons to finish, as common values. What is not here keeps its own value.
var (
	refusals = []string{"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR",
		"IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"}
	failures = []string{"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MISSING_THOUGHT_SIGNATURE", "MALFORMED_RESPONSE"}
)

// finish takes the reason why the model stopped.
func (a *answer) finish(reason, message string) {
	a.settle(true)
	a.finished = true
	a.m.Rest = a.m.Rest.Set("finish_reason", provider.Quote(reason))
	a.m.Stop = provider.Quote(a.stopWord(reason))
	a.failure = nil
	if slices.Contains(failures, reason) {
		e := provider.Fields{{Name: "type", Value: provider.Quote(reason)}}
		if message != "" {
			e = append(e, provider.Field{Name: "message", Value: provider.Quote(message)})
		}
		a.failure = e.Encode()
	}
}

func (a *answer) stopWord(reason string) string {
	switch {
	case reason == "STOP" && a.calls:
		return "tool_use"
	case reason == "STOP":
		return "end_turn"
	case reason == "MAX_TOKENS":
		return "max_tokens"
	case slices.Contains(refusals, reason):
		return "refusal"
	case slices.Contains(failures, reason):
		return "error"
	}
	return strings.ToLower(provider.Bounded(reason))
}

// refused ends a message whose prompt was blocked: the model never answered.
func (a *answer) refused() {
	if a.finished || len(a.m.Blocks) > 0 {
		return
	}
	a.finished = true
	a.m.Stop = provider.Quote("refusal")
}
