package metis

import (
	"cmp"
	"errors"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/schema"
	"agentstream/schema/jsonscan"
)

// Code names what was refused, in the words of the protocol.
type Code string

// The codes. The first four are those of a subscribe_error (4.2).
const (
	CodeSessionNotFound Code = "session_not_found"
	CodeCursorExpired   Code = "cursor_expired"
	CodeReplayTooLarge  Code = "replay_too_large"
	CodeInvalidFilter   Code = "invalid_filter"

	CodeTurnNotFound         Code = "turn_not_found"
	CodeConfirmationNotFound Code = "confirmation_not_found"
	CodeTurnInFlight         Code = "turn_in_flight"
	CodeTurnCompleted        Code = "turn_already_completed"
	CodeSessionEnded         Code = "session_already_ended"
	CodeConfirmationResolved Code = "confirmation_already_resolved"
	CodeInvalidContent       Code = "invalid_content"
	CodeInvalidRequest       Code = "invalid_request"
)

// kinds are the sentinels that package edge has an outcome for.
var kinds = map[Code]error{
	CodeSessionNotFound: dialect.ErrNotFound, CodeTurnNotFound: dialect.ErrNotFound,
	CodeConfirmationNotFound: dialect.ErrNotFound,
	CodeTurnInFlight:         dialect.ErrGone, CodeTurnCompleted: dialect.ErrGone, CodeSessionEnded: dialect.ErrGone,
	CodeConfirmationResolved: dialect.ErrGone,
	CodeCursorExpired:        schema.ErrBadCursor,
}

// Refuse makes an error with a code. It wraps dialect.ErrNotFound (404), dialect.ErrGone (409), schema.ErrBadCursor or
// dialect.ErrBadRequest (400). Its text is for the client.
func Refuse(code Code, format string, args ...any) error {
	return dialect.RefuseAs(string(code), cmp.Or(kinds[code], dialect.ErrBadRequest), format, args...)
}

// CodeOf returns the code of an error that Refuse made; "" for another one.
func CodeOf(err error) Code {
	var named interface {
		error
		ProblemCode() string
	}
	if errors.As(err, &named) {
		return Code(named.ProblemCode())
	}
	return ""
}

// codes are those of reasons that have one in this protocol.
var codes = map[dialect.Reason]Code{
	dialect.ReasonNotFound: CodeSessionNotFound, dialect.ReasonBadID: CodeSessionNotFound,
	dialect.ReasonExpired: CodeCursorExpired, dialect.ReasonFuture: CodeCursorExpired,
	dialect.ReasonBadCursor: CodeCursorExpired,
	dialect.ReasonRunEnded:  CodeSessionEnded, dialect.ReasonBadRequest: CodeInvalidRequest,
	dialect.ReasonMalformed: CodeInvalidRequest,
}

// AppendError writes {"error":{"code","message","details"}} (server API). Where the protocol has no code it is the name
// of the reason.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte {
	code := cmp.Or(p.Named, string(codes[p.Reason]), strings.ReplaceAll(p.Reason.String(), " ", "_"))
	o := append(append(jsonscan.Object(dst), '{').Name("error"), '{').Str("code", code)
	o = append(o.Str("message", cmp.Or(p.Message, "the request was refused")).Name("details"), '{')
	if p.RequestID != "" {
		o = o.Str("request_id", p.RequestID)
	}
	return o.End().End().End()
}

// AppendSubscribeError writes {"type":"subscribe_error","code","message"}.
func AppendSubscribeError(dst []byte, code Code, message string) []byte {
	return append(jsonscan.Object(dst), '{').Str("type", "subscribe_error").Str("code", string(code)).Str("message",
		message).End()
}
