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

// finish takes the reason why the model stopped. alone: nothing came with it. Services send one with every chunk, so that
// nothing ends with it but what nothing follows.
func (a *answer) finish(reason, message string, alone bool) {
	if alone {
		a.Stop()
	}
	a.finished, a.reason, a.message = true, reason, message
	a.Msg.Rest = a.Msg.Rest.Set("finish_reason", provider.Quote(reason))
}

// stop ends the message for the reason that the API has given.
func (a *answer) stop() {
	if a.reason != "" {
		a.Msg.Stop = provider.Quote(a.stopWord(a.reason))
	}
	if !slices.Contains(failures, a.reason) {
		a.Msg.End(nil)
		return
	}
	e := provider.Fields{{Name: "type", Value: provider.Quote(a.reason)}}
	if a.message != "" {
		e = append(e, provider.Field{Name: "message", Value: provider.Quote(a.message)})
	}
	a.Msg.Fail(e.Encode())
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
	if a.finished || len(a.Msg.Blocks) > 0 {
		return
	}
	a.finished = true
	a.Msg.Stop = provider.Quote("refusal")
}
