package nimi

import (
	"strings"

	"agentstream/edge/dialect"
	runtimev1 "agentstream/protocols/nimi/contract/runtime/v1"
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
	"AI_CONNECTOR_NOT_FOUND": NotFound, "AI_MODEL_NOT_FOUND": NotFound, "AI_MEDIA_JOB_NOT_FOUND": NotFound,
	"WF_TASK_NOT_FOUND":             NotFound,
	"AI_REALTIME_SESSION_NOT_FOUND": NotFound, "AI_MEDIA_JOB_NOT_CANCELLABLE": FailedPrecondition,
	"AI_MEDIA_IDEMPOTENCY_CONFLICT": FailedPrecondition,
	"AI_REALTIME_SESSION_CLOSED":    FailedPrecondition, "PRINCIPAL_UNAUTHORIZED": Unauthenticated,
	"AUTH_TOKEN_INVALID":      Unauthenticated,
	"AI_PROVIDER_UNAVAILABLE": Unavailable, "AI_PROVIDER_RATE_LIMITED": ResourceExhausted,
}

// StatusOf returns the status of a reason with which a call is refused.
func StatusOf(reason string) int {
	if n, ok := statuses[reason]; ok {
		return n
	}
	return InvalidArgument
}

// Refuse makes an error with a reason. Its text is for the client. It wraps dialect.ErrNotFound, dialect.ErrGone or
// dialect.ErrBadRequest, which decides what the log has of the call.
func Refuse(reason runtimev1.ReasonCode, format string, args ...any) error {
	kind := dialect.ErrBadRequest
	switch StatusOf(reason.String()) {
	case NotFound:
		kind = dialect.ErrNotFound
	case FailedPrecondition:
		kind = dialect.ErrGone
	}
	return dialect.RefuseAs(reason.String(), kind, format, args...)
}

// appendFailed appends the fields of a message that says why a run failed: the code, and the words behind a code that
// is known.
func appendFailed(b []byte, reason string) []byte {
	code := ReasonOf(reason)
	b = appendNumber(b, 1, uint64(code))
	if name, words, _ := strings.Cut(reason, ":"); strings.TrimSpace(name) == code.String() {
		b = appendBytes(b, 2, []byte(strings.ToValidUTF8(strings.TrimSpace(words), "")))
	}
	return b
}

// ReasonOf returns the code that the reason of a run's end begins with; any other is AI_STREAM_BROKEN.
func ReasonOf(reason string) runtimev1.ReasonCode {
	name, _, _ := strings.Cut(reason, ":")
	if n, ok := runtimev1.ReasonCode_value[strings.TrimSpace(name)]; ok && n != 0 {
		return runtimev1.ReasonCode(n)
	}
	return runtimev1.ReasonCode_AI_STREAM_BROKEN
}
