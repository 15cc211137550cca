package serve

import (
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/protocols/langgraph"
)

// refuse makes an error with a code of the protocol, one of langchain's, in words for the client. It wraps the sentinel
// that decides the HTTP status where there is one: not on a socket, nor for commands.
func refuse(code, format string, args ...any) error {
	kind := dialect.ErrBadRequest
	switch {
	case code == langgraph.CodePermissionDenied:
		kind = auth.ErrForbidden
	case strings.HasPrefix(code, "no_such_"):
		kind = dialect.ErrNotFound
	}
	return dialect.RefuseAs(code, kind, format, args...)
}
