package protocol

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"agentstream/edge/dialect"
	"agentstream/producers"
)

// maxIdempotencyKey is the longest key, in bytes.
const maxIdempotencyKey = 255

// ParseKey reads the values of the header in which an idempotency key comes.
func ParseKey(header string, values []string) (producers.AppendOptions, error) {
	if len(values) == 0 {
		return producers.AppendOptions{}, nil
	}
	key := values[0]
	bad := len(values) > 1 || key == "" || len(key) > maxIdempotencyKey
	for i := 0; i < len(key) && !bad; i++ {
		bad = key[i] < ' ' || key[i] > '~'
	}
	if bad {
		return producers.AppendOptions{}, dialect.BadValue(dialect.ErrBadRequest, header, strings.Join(values, ", "),
			"one value of 1 to %d printable ASCII characters", maxIdempotencyKey)
	}
	return producers.AppendOptions{IdempotencyKey: key}, nil
}

// BodyWithKey reads the body of a request that may be repeated, of one of types, and how its events are to be
// stored.
func (c *Call) BodyWithKey(types ...string) (opt producers.AppendOptions, body []byte, err error) {
	if opt, err = c.AppendOptions(); err != nil {
		return opt, nil, err
	}
	body, err = c.Body(types...)
	return opt, body, err
}

// ObjectWithKey is BodyWithKey that decodes a JSON object, if there is a body. What is not known of it is
// passed over; the error of one that does not fit wraps dialect.ErrBadRequest.
func (c *Call) ObjectWithKey(into any, types ...string) (producers.AppendOptions, error) {
	opt, body, err := c.BodyWithKey(types...)
	if err != nil || len(body) == 0 {
		return opt, err
	}
	wrong := new(json.UnmarshalTypeError)
	switch err := json.Unmarshal(body, into); {
	case !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")):
		return opt, dialect.Refuse(dialect.ErrBadRequest, "the body is not a JSON object")
	case errors.As(err, &wrong):
		return opt, dialect.Refuse(dialect.ErrBadRequest, "%s is no %s", wrong.Field, wrong.Type.Kind())
	case err != nil:
		return opt, dialect.Refuse(dialect.ErrBadRequest, "the body is not JSON")
	}
	return opt, nil
}

// NewKeyedRun returns a new id with a prefix. With an idempotency key it is made of that and of what kind of thing the
// run is, so that a repeat, also one that another node takes, is about the same run.
func (c *Call) NewKeyedRun(prefix, kind string, opt producers.AppendOptions) string {
	if opt.IdempotencyKey == "" {
		return c.NewRun(prefix)
	}
	sum := sha256.Sum256([]byte(kind + "\x00" + c.Caller.Tenant + "\x00" + opt.IdempotencyKey))
	return prefix + hex.EncodeToString(sum[:16])
}

// By adds to a command's payload, a JSON object, who sent it, as the credential says: agents go by that, so no client
// says it.
func (c *Call) By(payload json.RawMessage) json.RawMessage {
	subject := c.Caller.Subject
	if subject == "" {
		return payload
	}
	name, _ := json.Marshal(subject) // a string always encodes
	comma := ","
	if len(payload) == len(`{}`) {
		comma = ""
	}
	return fmt.Appendf(nil, `%s%s"by":%s}`, payload[:len(payload)-1], comma, name)
}

// WithLogTimeout returns a route whose context ends with the time that the log has.
func WithLogTimeout(serve func(context.Context, *Call) error) func(*Call) error {
	return func(c *Call) error {
		ctx, cancel := c.LogContext()
		defer cancel()
		return serve(ctx, c)
	}
}
