package ends

import (
	"context"
	"errors"
	"net/http"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/transport/grpc"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// What handlers report beyond the sentinels of the packages that they call.
var (
	ErrNoRoute     = errors.New("no such path")
	ErrMethod      = errors.New("method not allowed")
	ErrURITooLong  = errors.New("request target is too long")
	ErrMediaType   = errors.New("media type is not supported")
	ErrCoding      = errors.New("content coding is not supported")
	ErrCondition   = errors.New("the request's condition is not met")
	ErrLimited     = errors.New("over the tenant's limit")
	ErrBodyTimeout = errors.New("body did not arrive in time")
	ErrBodyTooBig  = errors.New("body is too large")
	ErrBusy        = errors.New("too many streams")
	ErrNoRoom      = errors.New("no memory is left for bodies")
	ErrOrigin      = errors.New("page of an origin that is not allowed")
	ErrDraining    = errors.New("this node is shutting down")
	ErrState       = errors.New("the run's state forbids it")
	ErrUpgrade     = errors.New("version of WebSocket is not 13")
	ErrPanic       = errors.New("panic")
)

// End is how an HTTP body is finished.
type End byte

// The ends.
const (
	// EndClean: the body is complete.
	EndClean End = iota
	// EndBroken: the body is cut (a missing last chunk, RST_STREAM), which no client takes for
	// success. Nothing is written before it: a last frame would be an event that the log does not
	// hold.
	EndBroken
)

// Outcome is one row of the table of ends: what a reason means on each transport.
type Outcome struct {
	Status     int    // HTTP, when nothing has been sent yet
	Code       string // KAI-STREAM-… of native §8 where there is one
	Message    string // for people
	Detail     bool   // the error's own text says what is wrong with the request and is added
	RetryAfter int    // seconds; 0: trying again as it is does not help
	End        End    // SSE, when the stream has begun
	Say        bool   // SSE: a last frame without id explains the end
	Close      int    // WebSocket close code (RFC 6455 §7.4.1)
	GRPC       int    // status code (google.rpc.Code)
}

// OutcomeOf returns the row of a reason; the row of ReasonInternal for one that has none.
func OutcomeOf(r dialect.Reason) Outcome {
	if o, ok := outcomes[r]; ok {
		return o
	}
	return outcomes[dialect.ReasonInternal]
}

const (
	codeCursorExpired = schema.CodeCursorExpired
	codeMalformed     = schema.CodeMalformed
)

// outcomes is the close-reason table (docs/dialects/native.md). gRPC numbers: 0 OK, 1 CANCELLED, 3
// INVALID_ARGUMENT, 4 DEADLINE_EXCEEDED, 5 NOT_FOUND, 6 ALREADY_EXISTS, 7 PERMISSION_DENIED, 8
// RESOURCE_EXHAUSTED, 9 FAILED_PRECONDITION, 10 ABORTED, 11 OUT_OF_RANGE, 12 UNIMPLEMENTED, 13
// INTERNAL, 14 UNAVAILABLE, 16 UNAUTHENTICATED.
//
// A cursor from the future is 409 and not 410: nothing has expired, the client and the log disagree
// about what happened, and starting over by itself would hide that. EventSource gives up on either.
var outcomes = map[dialect.Reason]Outcome{
	dialect.ReasonEnded: {Status: http.StatusNoContent, Code: "ENDED",
		Message: "the run has ended and the client has its last event", Close: 1000},
	dialect.ReasonShutdown: {Status: http.StatusServiceUnavailable, Code: "SHUTTING-DOWN",
		Message: "this node is shutting down", RetryAfter: 1, End: EndBroken, Close: 1001, GRPC: 1},
	dialect.ReasonClientGone: {Status: 499, Code: schema.CodeClientGone, Message: "the client is gone", End: EndBroken,
		Close: 1001, GRPC: 1},
	dialect.ReasonSlowClient: {Status: http.StatusServiceUnavailable, Code: schema.CodeDropped,
		Message: "the client does not read", RetryAfter: 1, End: EndBroken, Close: 1008, GRPC: 8},
	dialect.ReasonOverflow: {Status: http.StatusServiceUnavailable, Code: "OVERFLOW",
		Message: "the client is too far behind; come back with the cursor", RetryAfter: 1, End: EndBroken, Close: 1013,
		GRPC: 8},

	dialect.ReasonExpired: {Status: http.StatusGone, Code: codeCursorExpired,
		Message: "events behind the cursor are no longer kept; first_seq, where it is given, is the first that is",
		End:     EndBroken, Close: 1008, GRPC: 11},
	dialect.ReasonFuture: {Status: http.StatusConflict, Code: "CURSOR-AHEAD",
		Message: "the cursor is beyond the newest event", End: EndBroken, Close: 1008, GRPC: 11},
	dialect.ReasonBadCursor: {Status: http.StatusBadRequest, Code: "BAD-CURSOR", Message: "bad cursor", Detail: true,
		End: EndBroken, Close: 1008, GRPC: 3},

	dialect.ReasonBadID: {Status: http.StatusBadRequest, Code: "BAD-ID", Message: "bad id", Detail: true,
		End: EndBroken, Close: 1008, GRPC: 3},
	dialect.ReasonBadRequest: {Status: http.StatusBadRequest, Code: "BAD-REQUEST", Message: "bad request",
		Detail: true, End: EndBroken, Close: 1008, GRPC: 3},
	dialect.ReasonUnprocessable: {Status: http.StatusUnprocessableEntity, Code: "UNPROCESSABLE",
		Message: "the request asks for what there is not", Detail: true, End: EndBroken, Close: 1008, GRPC: 3},
	dialect.ReasonMalformed: {Status: http.StatusBadRequest, Code: codeMalformed, Message: "malformed event",
		Detail: true, End: EndBroken, Close: 1007, GRPC: 3},
	dialect.ReasonUnknownType: {Status: http.StatusBadRequest, Code: schema.CodeUnknownType,
		Message: "unknown event type", Detail: true, End: EndBroken, Close: 1008, GRPC: 3},
	dialect.ReasonForeignRun: {Status: http.StatusBadRequest, Code: codeMalformed,
		Message: "event names another run", Detail: true, End: EndBroken, Close: 1008, GRPC: 3},
	dialect.ReasonTooLarge: {Status: http.StatusRequestEntityTooLarge, Code: codeMalformed,
		Message: "too large; put the content into a blob and send its blob_ref", Detail: true, End: EndBroken,
		Close: 1009, GRPC: 8},
	dialect.ReasonUnsupportedMedia: {Status: http.StatusUnsupportedMediaType, Code: "UNSUPPORTED-MEDIA-TYPE",
		Message: "send what the route takes (application/x-ndjson or application/json; application/grpc to a gRPC method), in UTF-8, as it is or with one coding, gzip or zstd", End: EndBroken, Close: 1003, GRPC: 3},
	dialect.ReasonUpgrade: {Status: http.StatusUpgradeRequired, Code: "UPGRADE-REQUIRED",
		Message: "send Sec-WebSocket-Version: 13", End: EndBroken, Close: 1002, GRPC: 3},
	dialect.ReasonURITooLong: {Status: http.StatusRequestURITooLong, Code: "URI-TOO-LONG",
		Message: "the request target is too long", End: EndBroken, Close: 1009, GRPC: 3},
	dialect.ReasonTimeout: {Status: http.StatusRequestTimeout, Code: "REQUEST-TIMEOUT",
		Message: "the body did not arrive in time", RetryAfter: 1, End: EndBroken, Close: 1008, GRPC: 4},
	dialect.ReasonMethod: {Status: http.StatusMethodNotAllowed, Code: "METHOD-NOT-ALLOWED",
		Message: "this path does not take this method", End: EndBroken, Close: 1008, GRPC: 12},

	dialect.ReasonCredentialExpired: {Status: http.StatusUnauthorized, Code: "CREDENTIAL-EXPIRED",
		Message: "the credential of this stream has ended; come back with a new one and the cursor", End: EndBroken,
		Say: true, Close: 1008, GRPC: 16},

	dialect.ReasonAuthUnavailable: {Status: http.StatusServiceUnavailable, Code: "AUTH-UNAVAILABLE",
		Message: "credentials cannot be checked now", RetryAfter: 2, End: EndBroken, Close: 1013, GRPC: 14},

	dialect.ReasonUnauthorized: {Status: http.StatusUnauthorized, Code: "UNAUTHORIZED",
		Message: "a valid credential is needed", End: EndBroken, Close: 1008, GRPC: 16},
	dialect.ReasonForbidden: {Status: http.StatusForbidden, Code: "FORBIDDEN",
		Message: "the credential does not allow this", End: EndBroken, Close: 1008, GRPC: 7},
	dialect.ReasonNotFound: {Status: http.StatusNotFound, Code: "NOT-FOUND", Message: "there is nothing here",
		End: EndBroken, Close: 1008, GRPC: 5},
	dialect.ReasonNoRoute: {Status: http.StatusNotFound, Code: "NOT-FOUND", Message: "there is nothing here",
		End: EndBroken, Close: 1008, GRPC: 12},

	dialect.ReasonExists: {Status: http.StatusConflict, Code: "RUN-EXISTS", Message: "the run exists already",
		End: EndBroken, Close: 1008, GRPC: 6},
	dialect.ReasonSeqMismatch: {Status: http.StatusConflict, Code: "SEQ-MISMATCH",
		Message: "an event brings a seq that is not the one it would get", Detail: true, End: EndBroken, Close: 1008,
		GRPC: 9},
	dialect.ReasonRunEnded: {Status: http.StatusConflict, Code: "RUN-ENDED",
		Message: "the run has ended and takes only a follow-up", Detail: true, End: EndBroken, Close: 1008, GRPC: 9},
	dialect.ReasonState: {Status: http.StatusConflict, Code: "STATE-FORBIDS",
		Message: "the run's state forbids this command", Detail: true, End: EndBroken, Close: 1008, GRPC: 9},
	dialect.ReasonKeyReused: {Status: http.StatusUnprocessableEntity, Code: "KEY-REUSED",
		Message: "the idempotency key was used for another content", End: EndBroken, Close: 1008, GRPC: 9},

	dialect.ReasonKeyGone: {Status: http.StatusGone, Code: "KEY-GONE",
		Message: "the key that encrypts what this tenant stores is gone, or was never made: nothing can be read or stored",
		End:     EndBroken, Close: 1008, GRPC: 9},
	dialect.ReasonCondition: {Status: http.StatusPreconditionFailed, Code: "PRECONDITION-FAILED",
		Message: "the run is not where the request says", Detail: true, End: EndBroken, Close: 1008, GRPC: 9},
	dialect.ReasonLimited: {Status: http.StatusTooManyRequests, Code: "RATE-LIMITED",
		Message: "over the tenant's limit", Detail: true, RetryAfter: 1, End: EndBroken, Close: 1013, GRPC: 8},

	dialect.ReasonConflict: {Status: http.StatusServiceUnavailable, Code: "CONFLICT",
		Message: "other writers of the run were faster; nothing was stored", RetryAfter: 1, End: EndBroken, Close: 1013,
		GRPC: 10},
	dialect.ReasonUnanswered: {Status: http.StatusServiceUnavailable, Code: "UNANSWERED",
		Message:    "the log did not answer, and what was sent may be stored; try again with the same Idempotency-Key",
		RetryAfter: 1, End: EndBroken, Close: 1013, GRPC: 14},
	dialect.ReasonBusy: {Status: http.StatusServiceUnavailable, Code: "BUSY",
		Message: "this node serves as much as it can", RetryAfter: 2, End: EndBroken, Close: 1013, GRPC: 8},
	dialect.ReasonUnavailable: {Status: http.StatusServiceUnavailable, Code: "UNAVAILABLE",
		Message: "the log is unavailable", RetryAfter: 2, End: EndBroken, Close: 1013, GRPC: 14},
	dialect.ReasonFull: {Status: http.StatusServiceUnavailable, Code: "STORAGE-FULL",
		Message: "there is no room to store events; nothing was stored", RetryAfter: 5, End: EndBroken, Close: 1013, GRPC: 8},
	dialect.ReasonUnsupported: {Status: http.StatusNotImplemented, Code: "NO-CATALOG",
		Message: "this node has no archive, and so no list of runs", End: EndBroken, Close: 1008, GRPC: 12},
	dialect.ReasonInternal: {Status: http.StatusInternalServerError, Code: "INTERNAL", Message: "internal error",
		End: EndBroken, Close: 1011, GRPC: 13},
}

// reasons maps errors to reasons. The first row that matches wins: an error may wrap several
// sentinels, the one that decides stands higher.
var reasons = []struct {
	err    error
	reason dialect.Reason
}{
	{ErrDraining, dialect.ReasonShutdown},
	{dialect.ErrComplete, dialect.ReasonEnded},
	{fanout.ErrClosed, dialect.ReasonShutdown},
	{producers.ErrClosed, dialect.ReasonShutdown},
	{dialect.ErrSlowClient, dialect.ReasonSlowClient},
	{dialect.ErrOverflow, dialect.ReasonOverflow},
	{dialect.ErrClientGone, dialect.ReasonClientGone},

	{ErrNoRoute, dialect.ReasonNoRoute},
	{ErrMethod, dialect.ReasonMethod},
	{ErrURITooLong, dialect.ReasonURITooLong},
	{ErrMediaType, dialect.ReasonUnsupportedMedia},
	{ErrCoding, dialect.ReasonUnsupportedMedia},
	{ErrCondition, dialect.ReasonCondition},
	{ErrLimited, dialect.ReasonLimited},
	{auth.ErrTickets, dialect.ReasonLimited},
	{producers.ErrKeys, dialect.ReasonLimited},
	{ErrUpgrade, dialect.ReasonUpgrade},
	{grpc.ErrTimeout, dialect.ReasonTimeout},
	{grpc.ErrTooLarge, dialect.ReasonTooLarge},
	{ErrBodyTimeout, dialect.ReasonTimeout},
	{ErrBodyTooBig, dialect.ReasonTooLarge},
	{ErrRunBlobs, dialect.ReasonTooLarge},
	{ErrDamaged, dialect.ReasonInternal},
	{ErrBusy, dialect.ReasonBusy},
	{ErrNoRoom, dialect.ReasonBusy},
	{ErrState, dialect.ReasonState},
	{ErrNoRuns, dialect.ReasonUnsupported},
	{auth.ErrUnavailable, dialect.ReasonAuthUnavailable},
	{auth.ErrUnauthorized, dialect.ReasonUnauthorized},
	{auth.ErrForbidden, dialect.ReasonForbidden},
	{auth.ErrExpired, dialect.ReasonCredentialExpired},
	{auth.ErrNoTicket, dialect.ReasonUnauthorized},
	{ErrOrigin, dialect.ReasonForbidden},

	{schema.ErrKeyGone, dialect.ReasonKeyGone},

	// Trouble on this side, whatever it wraps: a stored line that is malformed is not the client's.
	{schema.ErrBadPack, dialect.ReasonInternal},
	{fanout.ErrUnavailable, dialect.ReasonUnavailable},
	{schema.ErrUnavailable, dialect.ReasonUnavailable},
	{schema.ErrSetup, dialect.ReasonUnavailable},
	{schema.ErrUnanswered, dialect.ReasonUnanswered},
	{schema.ErrFull, dialect.ReasonFull},
	{schema.ErrConflict, dialect.ReasonConflict},

	{schema.ErrUnknownType, dialect.ReasonUnknownType},
	{schema.ErrTooLarge, dialect.ReasonTooLarge},
	{schema.ErrForeignRun, dialect.ReasonForeignRun},
	{schema.ErrSeqMismatch, dialect.ReasonSeqMismatch},
	{schema.ErrEnded, dialect.ReasonRunEnded},
	{schema.ErrMalformed, dialect.ReasonMalformed},
	{schema.ErrBadCursor, dialect.ReasonBadCursor},
	{schema.ErrBadID, dialect.ReasonBadID},
	{dialect.ErrUnprocessable, dialect.ReasonUnprocessable},
	{dialect.ErrBadRequest, dialect.ReasonBadRequest},
	{dialect.ErrNotFound, dialect.ReasonNotFound},
	{dialect.ErrGone, dialect.ReasonState},

	{fanout.ErrNotFound, dialect.ReasonNotFound},
	{schema.ErrNoBlob, dialect.ReasonNotFound},
	{fanout.ErrExpired, dialect.ReasonExpired},
	{fanout.ErrFuture, dialect.ReasonFuture},
	{producers.ErrExists, dialect.ReasonExists},
	{producers.ErrKeyReused, dialect.ReasonKeyReused},
	{producers.ErrNotOwner, dialect.ReasonCondition},
	{producers.ErrFenced, dialect.ReasonConflict},
	{producers.ErrBackpressure, dialect.ReasonBusy},
	{context.DeadlineExceeded, dialect.ReasonUnavailable},
	{context.Canceled, dialect.ReasonClientGone},
}

// ReasonOf returns why err ended a request or a stream. Errors that no row knows are internal.
func ReasonOf(err error) dialect.Reason {
	if err == nil {
		return dialect.ReasonNone
	}
	for _, row := range reasons {
		if !errors.Is(err, row.err) {
			continue
		}
		if batch := new(schema.BatchError); row.reason == dialect.ReasonBadID && errors.As(err, &batch) {
			return dialect.ReasonMalformed // an id inside an event, not the one in the path (native §8)
		}
		return row.reason
	}
	return dialect.ReasonInternal
}
