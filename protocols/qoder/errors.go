package qoder

import (
	"fmt"
	"strings"

	"agentstream/edge/dialect"
)

// AppendError writes {"type":"error","request_id":…,"error":{"type","message",…}} (qoder §1.3), with param and code
// where they are known.
func (Dialect) AppendError(dst []byte, p dialect.Problem) []byte {
	b := appendOptional(append(dst, `{"type":"error","request_id":`...), p.RequestID)
	b = append(append(append(b, `,"error":{"type":"`...), errorType(p)...), '"')
	message := p.Message
	if message == "" {
		message = "the request was refused"
	}
	b = appendString(append(b, `,"message":`...), message)
	if p.Field != "" {
		b = appendString(append(b, `,"param":`...), paramOf(p.Field))
	}
	return append(appendString(append(b, `,"code":`...), errorCode(p)), `}}`...)
}

// errorType is the class of an error. Clients' libraries decide by the status; the type is for those who read it.
func errorType(p dialect.Problem) string {
	switch {
	case p.Reason == dialect.ReasonBusy:
		return "overloaded_error"
	case p.Status == 401:
		return "authentication_error"
	case p.Status == 402:
		return "billing_error"
	case p.Status == 403:
		return "permission_error"
	case p.Status == 404:
		return "not_found_error"
	case p.Status == 408 || p.Status == 504:
		return "timeout_error"
	case p.Status == 409:
		return "conflict_error"
	case p.Status == 429:
		return "rate_limit_error"
	case p.Status == 529:
		return "overloaded_error"
	case p.Status >= 400 && p.Status < 499: // 410, 412, 413 too: the same request will not do
		return "invalid_request_error"
	}
	return "api_error"
}

// errorCode names the cause, in the words of the protocol where it has some (qoder §1.3).
func errorCode(p dialect.Problem) string {
	switch p.Reason {
	case dialect.ReasonNotFound, dialect.ReasonNoRoute:
		return "not_found"
	case dialect.ReasonState:
		return "session_archived"
	case dialect.ReasonUnavailable, dialect.ReasonFull, dialect.ReasonBusy, dialect.ReasonShutdown, dialect.ReasonUnanswered, dialect.ReasonConflict:
		return "runtime_unavailable"
	}
	return strings.ReplaceAll(p.Reason.String(), " ", "_")
}

// paramOf writes a JSON pointer as this protocol names parameters: /events/0/type is events[0].type.
func paramOf(pointer string) string {
	if !strings.HasPrefix(pointer, "/") {
		return pointer
	}
	var b strings.Builder
	for i, part := range strings.Split(pointer[1:], "/") {
		switch {
		case part != "" && strings.Trim(part, "0123456789") == "":
			b.WriteString("[" + part + "]")
			continue
		case i > 0:
			b.WriteByte('.')
		}
		b.WriteString(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	return b.String()
}

// ParamError is what is wrong with one parameter of a request; it wraps dialect.ErrBadRequest.
type ParamError struct {
	Param  string // events[0].content
	Reason string // for people
}

// Error begins with the parameter.
func (e *ParamError) Error() string { return e.Param + " " + e.Reason }

// Unwrap returns dialect.ErrBadRequest.
func (e *ParamError) Unwrap() error { return dialect.ErrBadRequest }

// Words are for the client.
func (e *ParamError) Words() string { return e.Error() }

// Field is the parameter as AppendError takes it in Problem.Field.
func (e *ParamError) Field() string { return e.Param }

func refuse(param, format string, args ...any) error {
	return &ParamError{Param: param, Reason: fmt.Sprintf(format, args...)}
}
