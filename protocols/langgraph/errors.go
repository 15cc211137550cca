package langgraph

import (
	"cmp"

	"agentstream/edge/dialect"
)

// The codes of the protocol's errors.
const (
	CodeInvalidArgument    = "invalid_argument"
	CodeUnknownCommand     = "unknown_command"
	CodeUnknownError       = "unknown_error"
	CodeNoSuchRun          = "no_such_run"
	CodeNoSuchSubscription = "no_such_subscription"
	CodeNoSuchNamespace    = "no_such_namespace"
	CodeNoSuchInterrupt    = "no_such_interrupt"
	CodeNoSuchCheckpoint   = "no_such_checkpoint"
	CodePermissionDenied   = "permission_denied"
	CodeNotSupported       = "not_supported"
)

// CodeOf returns the code for a problem: its own, or that of its reason.
func CodeOf(p dialect.Problem) string { return cmp.Or(p.Named, codeOf(p.Reason)) }

func codeOf(r dialect.Reason) string {
	switch r {
	case dialect.ReasonUnauthorized, dialect.ReasonForbidden, dialect.ReasonCredentialExpired:
		return CodePermissionDenied
	case dialect.ReasonNotFound:
		return CodeNoSuchRun
	case dialect.ReasonNoRoute, dialect.ReasonMethod, dialect.ReasonUnsupported, dialect.ReasonUnsupportedMedia, dialect.ReasonUpgrade:
		return CodeNotSupported
	case dialect.ReasonExpired, dialect.ReasonFuture, dialect.ReasonBadCursor, dialect.ReasonBadID, dialect.ReasonBadRequest, dialect.ReasonUnprocessable,
		dialect.ReasonMalformed, dialect.ReasonUnknownType, dialect.ReasonForeignRun, dialect.ReasonTooLarge, dialect.ReasonURITooLong,
		dialect.ReasonExists, dialect.ReasonSeqMismatch, dialect.ReasonRunEnded, dialect.ReasonState, dialect.ReasonKeyReused,
		dialect.ReasonCondition:
		return CodeInvalidArgument
	}
	return CodeUnknownError
}

// AppendError writes {"error":CODE,"message":TEXT}, with the oldest and the newest number where a cursor is wrong, and
// the id of the request.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte {
	return appendProblem(append(object(dst), '{'), p).End()
}

// AppendCommandError writes an error as the answer to a command on a socket or over HTTP. id is the command's as it was
// sent, nil when there was none.
func AppendCommandError(dst, id []byte, p dialect.Problem) []byte {
	return appendProblem(append(object(dst), '{').Str("type", "error").Raw("id", id), p).End()
}

func appendProblem(o object, p dialect.Problem) object {
	o = o.Str("error", CodeOf(p)).Str("message", cmp.Or(p.Message, "the request was refused"))
	if p.First > 0 {
		o = o.Int("first_seq", Number(dialect.Place{Seq: p.First}))
	}
	if p.Last > 0 {
		o = o.Int("last_seq", Number(dialect.Place{Seq: p.Last, Slot: dialect.MaxSlot}))
	}
	return o.OptStr("request_id", p.RequestID)
}
