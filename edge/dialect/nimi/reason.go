package nimi

import (
	"fmt"
	"strings"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/schema/contracts/nimi/runtime/v1"
)

// Status codes of gRPC (google.rpc.Code) that the protocol uses.
const (
	Cancelled          = 1
	InvalidArgument    = 3
	NotFound           = 5
	PermissionDenied   = 7
	ResourceExhausted  = 8
	FailedPrecondition = 9
	Unavailable        = 14
	Unauthenticated    = 16
)

// statuses are those of the reasons with which calls are refused. All others are InvalidArgument.
var statuses = map[string]int{
	"APP_SCOPE_FORBIDDEN": PermissionDenied, "AI_REQUEST_CREDENTIAL_SCOPE_FORBIDDEN": PermissionDenied,
	"AI_CONNECTOR_NOT_FOUND": NotFound, "AI_MODEL_NOT_FOUND": NotFound, "AI_MEDIA_JOB_NOT_FOUND": NotFound, "WF_TASK_NOT_FOUND": NotFound,
	"AI_REALTIME_SESSION_NOT_FOUND": NotFound, "AI_MEDIA_JOB_NOT_CANCELLABLE": FailedPrecondition, "AI_MEDIA_IDEMPOTENCY_CONFLICT": FailedPrecondition,
	"AI_REALTIME_SESSION_CLOSED": FailedPrecondition, "PRINCIPAL_UNAUTHORIZED": Unauthenticated, "AUTH_TOKEN_INVALID": Unauthenticated,
	"AI_PROVIDER_UNAVAILABLE": Unavailable, "AI_PROVIDER_RATE_LIMITED": ResourceExhausted,
}

// StatusOf returns the status of a reason with which a call is refused.
func StatusOf(reason string) int {
	if n, ok := statuses[reason]; ok {
		return n
	}
	return InvalidArgument
}

// Error is a refusal with its reason. It wraps dialect.ErrNotFound, dialect.ErrGone or dialect.ErrBadRequest.
type Error struct {
	Reason runtimev1.ReasonCode
	text   string
}

// Refuse makes an Error. Its text is for the client.
func Refuse(reason runtimev1.ReasonCode, format string, args ...any) error {
	return &Error{Reason: reason, text: fmt.Sprintf(format, args...)}
}

// Error begins with the reason.
func (e *Error) Error() string { return e.Reason.String() + ": " + e.text }

// Words are for the client.
func (e *Error) Words() string { return e.text }

// Named is the reason, for dialect.Problem.Named.
func (e *Error) Named() string { return e.Reason.String() }

// Unwrap returns the sentinel that decides what the log says of the call.
func (e *Error) Unwrap() error {
	switch StatusOf(e.Reason.String()) {
	case NotFound:
		return dialect.ErrNotFound
	case FailedPrecondition:
		return dialect.ErrGone
	}
	return dialect.ErrBadRequest
}

// ReasonOf returns the code that the reason of a run's end begins with; any other is AI_STREAM_BROKEN.
func ReasonOf(reason string) runtimev1.ReasonCode {
	name, _, _ := strings.Cut(reason, ":")
	if n, ok := runtimev1.ReasonCode_value[strings.TrimSpace(name)]; ok && n != 0 {
		return runtimev1.ReasonCode(n)
	}
	return runtimev1.ReasonCode_AI_STREAM_BROKEN
}
