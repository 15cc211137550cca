package metis

import "encoding/json"

// What clients send becomes the commands that agents obey, whatever protocol they come in. These are their payloads; the
// projector reads the same fields.

// CreatedPayload is that of session.created. model is "" for none.
func CreatedPayload(workspacePath, model string) json.RawMessage {
	return json.RawMessage(object{'{'}.str("workspace_path", workspacePath).opt("initial_active_model", model).end())
}

// MessagePayload is that of the command.message which begins a turn. content is a list of blocks, and override, where it
// is not "", the model for this turn.
func MessagePayload(content json.RawMessage, override string) json.RawMessage {
	o := object{'{'}.raw("content", content)
	if override != "" {
		o = o.str("per_message_override", override)
	}
	return json.RawMessage(o.end())
}

// CancelPayload is that of command.cancel. reason is the client's, "" for none.
func CancelPayload(reason string) json.RawMessage {
	return json.RawMessage(object{'{'}.opt("reason", reason).end())
}

// AnswerPayload is that of the command.answer to a confirmation, as agents know it from the session protocol. decision is
// allow or deny; scope is once, session or "".
func AnswerPayload(request, decision, scope string) json.RawMessage {
	o := append(object{'{'}.str("request_id", request).name("answer"), '{').str("type", "user.tool_confirmation").str("result", decision)
	if scope != "" {
		o = o.str("scope", scope)
	}
	return json.RawMessage(o.end().end())
}
