package threads

import (
	"fmt"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/dialect/langchain"
)

// refusal is an error with a code of the protocol, in words for the client.
type refusal struct{ code, text string }

// refuse makes one. code is one of langchain's.
func refuse(code, format string, args ...any) error {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

func (e *refusal) Error() string { return e.code + ": " + e.text }
func (e *refusal) Words() string { return e.text }
func (e *refusal) Named() string { return e.code }

// Unwrap returns the sentinel that decides the HTTP status where there is one: not on a socket, nor for commands.
func (e *refusal) Unwrap() error {
	switch {
	case e.code == langchain.CodePermissionDenied:
		return auth.ErrForbidden
	case strings.HasPrefix(e.code, "no_such_"):
		return dialect.ErrNotFound
	}
	return dialect.ErrBadRequest
}
