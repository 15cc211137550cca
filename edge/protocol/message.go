package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"agentstream/edge/dialect"
	"agentstream/edge/ends"
)

// over is what carries a call's message and its answer where that is no HTTP body.
type over struct {
	ctx       context.Context
	transport dialect.Transport
	message   []byte
	reply     func(body []byte)
}

// Carry makes the call one whose message came over a transport other than plain HTTP, and whose answer goes to reply.
func (c *Call) Carry(ctx context.Context, t dialect.Transport, message []byte, reply func(body []byte)) {
	c.over = &over{ctx: ctx, transport: t, message: message, reply: reply}
}

// Transport is what carries the message and the answer: dialect.GRPC, dialect.WebSocket, or "" for plain HTTP.
func (c *Call) Transport() dialect.Transport {
	if c.over == nil {
		return ""
	}
	return c.over.transport
}

// ReplyJSON answers with a value, encoded, and status 200.
func (c *Call) ReplyJSON(v any) error {
	body, err := json.Marshal(v)
	if err == nil {
		c.Reply(http.StatusOK, body)
	}
	return err
}

// Context ends when the client leaves or the call is ended.
func (c *Call) Context() context.Context {
	if c.over != nil {
		return c.over.ctx
	}
	return c.Request.Context()
}

// Message returns the request's message, whatever carried it: an encoded message over gRPC, the text of a message in a
// conversation, the body of an HTTP request, which is one of types; none: application/json.
func (c *Call) Message(types ...string) ([]byte, error) {
	if len(types) == 0 {
		types = []string{"application/json"}
	}
	body, err := c.Body(types...)
	if most := c.MaxMessage; err == nil && most > 0 && len(body) > most {
		return nil, fmt.Errorf("%w: %d bytes, %d allowed", ends.ErrBodyTooBig, len(body), most)
	}
	return body, err
}

// Problem describes an error for the client. told is false for what is no fault of the request: it ends a conversation.
func (c *Call) Problem(err error) (p dialect.Problem, told bool) {
	reason := ends.ReasonOf(err)
	p = ends.Problem(reason, err)
	p.RequestID = c.ID
	switch reason {
	case dialect.ReasonInternal, dialect.ReasonClientGone, dialect.ReasonSlowClient, dialect.ReasonOverflow, dialect.ReasonShutdown:
		return p, false
	}
	return p, true
}
