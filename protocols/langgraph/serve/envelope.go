package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/protocol"
	"agentstream/protocols/langgraph"
)

// serve answers a request within the time that the log has.
type serve = func(context.Context, *protocol.Call) error

// envelope is a command of a client, whatever carries it.
type envelope struct {
	ID     json.RawMessage `json:"id"` // a number, echoed as it came; nil: none
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// readEnvelope reads a command. The error wraps dialect.ErrBadRequest; then the envelope has the id, if there is one.
func readEnvelope(message []byte) (e envelope, err error) {
	bad := refuse(langgraph.CodeInvalidArgument, "a command is a JSON object with a number as its id, and a method")
	if !bytes.HasPrefix(bytes.TrimSpace(message), []byte("{")) || !json.Valid(message) {
		return e, bad
	}
	err = json.Unmarshal(message, &e)
	var n int64
	if json.Unmarshal(e.ID, &n) != nil || n < 0 || n > langgraph.MaxNumber || string(e.ID) == "null" {
		e.ID = nil
	}
	if err != nil || e.ID == nil || e.Method == "" {
		return e, bad
	}
	return e, nil
}

// answer is what a command that was carried out says.
type answer struct {
	result  []byte // a JSON object; nil: {}
	through int64  // meta.applied_through_seq, the number of an event; -1: absent
}

// appendAnswer writes the answer to a command.
func appendAnswer(dst []byte, id json.RawMessage, thread string, a answer) []byte {
	if a.result == nil {
		a.result = []byte("{}")
	}
	dst = fmt.Appendf(dst, `{"type":"success","id":%s,"result":%s,"meta":{"thread_id":%q`, id, a.result, thread)
	if a.through >= 0 {
		dst = fmt.Appendf(dst, `,"applied_through_seq":%d`, a.through)
	}
	return append(dst, "}}"...)
}

// within does something if the caller has a scope: protocol.Talk.With, or scoped.
type within func(needs auth.Scope, do func() error) error

// scopeCheck checks the scope of an HTTP request.
func scopeCheck(c *protocol.Call) within {
	return func(needs auth.Scope, do func() error) error {
		if err := c.Allow(needs); err != nil {
			return err
		}
		return do()
	}
}

// errorOf returns the answer to a command that was refused; ok is false for what is no matter of the command.
func errorOf(c *protocol.Call, id json.RawMessage, err error) (text []byte, p dialect.Problem, ok bool) {
	p, ok = c.Problem(err)
	if id == nil {
		id = json.RawMessage("null")
	}
	return langgraph.AppendCommandError(nil, id, p), p, ok
}
