package metis

import (
	"encoding/json"

	"agentstream/schema/jsonscan"
)

// What clients send becomes the commands that agents obey, whatever protocol they come in. These are their payloads;
// the projector reads the same fields.

// SessionPayload is that of session.created. model is "" for none.
func SessionPayload(workspacePath, model string) json.RawMessage {
	return json.RawMessage(jsonscan.Object{'{'}.Str("workspace_path", workspacePath).NullStr("initial_active_model",
		model).End())
}

// MessagePayload is that of the command.message which begins a turn. content is a list of blocks, and override, where
// it is not "", the model for this turn.
func MessagePayload(content json.RawMessage, override string) json.RawMessage {
	o := jsonscan.Object{'{'}.Raw("content", content)
	if override != "" {
		o = o.Str("per_message_override", override)
	}
	return json.RawMessage(o.End())
}

// CancelPayload is that of command.cancel. reason is the client's, "" for none.
func CancelPayload(reason string) json.RawMessage {
	return json.RawMessage(jsonscan.Object{'{'}.NullStr("reason", reason).End())
}

// AnswerPayload is that of the command.answer to a confirmation, as agents know it from the session protocol. decision
// is allow or deny; scope is once, session or "".
func AnswerPayload(request, decision, scope string) json.RawMessage {
	o := append(jsonscan.Object{'{'}.Str("request_id", request).Name("answer"), '{').Str("type",
		"user.tool_confirmation").Str("result", decision)
	if scope != "" {
		o = o.Str("scope", scope)
	}
	return json.RawMessage(o.End().End())
}
