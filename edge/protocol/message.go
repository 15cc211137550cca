package protocol

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

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

// Coding is how the messages of a protocol's gRPC methods hold the JSON texts that its handlers read and write, and the data of
// its frames. The zero value: these are the messages themselves.
type Coding struct {
	// Decode returns the text in a message. The error wraps dialect.ErrBadRequest.
	Decode func(message []byte) ([]byte, error)
	// Encode appends a message that holds a text to dst.
	Encode func(dst, text []byte) []byte
}

// StringValues is the Coding of methods whose messages are google.protobuf.StringValue.
func StringValues() Coding {
	const field = 1
	decode := func(message []byte) ([]byte, error) {
		var m wrapperspb.StringValue
		if proto.Unmarshal(message, &m) != nil {
			return nil, dialect.Refuse(dialect.ErrBadRequest, "not a StringValue")
		}
		return []byte(m.GetValue()), nil
	}
	return Coding{decode, func(dst, text []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(dst, field, protowire.BytesType), text)
	}}
}

// Text returns what a message of gRPC holds for the protocol's handlers.
func (p *Protocol) Text(message []byte) ([]byte, error) {
	if p == nil || p.Coding.Decode == nil {
		return message, nil
	}
	return p.Coding.Decode(message)
}

// Answer returns a route that decodes its request into an A (dialect.Input.Decode) and answers with what serve returns, encoded
// as JSON, with status 200. Its context ends with the time that the log has.
func Answer[A any](serve func(context.Context, *Call, A) (any, error)) func(*Call) error {
	return Bounded(func(ctx context.Context, c *Call) error {
		in := dialect.Input{Path: c.Params.Map()}
		query, err := c.Query()
		if err != nil {
			return err
		}
		in.Query = url.Values(query)
		if c.over != nil || c.Request.Method != http.MethodGet && c.Request.Method != http.MethodHead {
			if in.Body, err = c.Message(); err != nil {
				return err
			}
		}
		var a A
		if err := in.Decode(&a); err != nil {
			return err
		}
		v, err := serve(ctx, c, a)
		if err != nil {
			return err
		}
		return c.ReplyJSON(v)
	})
}

// ReplyJSON answers with a value, encoded, and status 200.
func (c *Call) ReplyJSON(v any) error {
	body, err := json.Marshal(v)
	if err == nil {
		c.Reply(http.StatusOK, body)
	}
	return err
}

// Exchange returns a Conversation.Received that decodes each message into an A (dialect.Input.Decode) and sends what serve
// returns, encoded; nil sends nothing. Behind a message that cannot be decoded the client's Patience begins anew.
func Exchange[A any](serve func(*Talk, A) (any, error)) func(*Talk, []byte) error {
	return func(t *Talk, message []byte) error {
		var a A
		if err := (dialect.Input{Body: message}).Decode(&a); err != nil {
			if t.silent != nil {
				t.Await(t.of.Patience)
			}
			return err
		}
		answer, err := serve(t, a)
		if err != nil || answer == nil {
			return err
		}
		return t.SendJSON(answer)
	}
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
		return nil, fmt.Errorf("%d bytes, %d allowed: %w", len(body), most, ends.ErrBodyTooBig)
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
