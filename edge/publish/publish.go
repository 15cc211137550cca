package publish

import (
	"context"
	"strconv"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/limits"
	"agentstream/producers"
	"agentstream/schema"
)

// Config is what streams have in common. Store, Has and Refuse are required.
type Config struct {
	// Store appends posts of one run, which from sends, in their order and adds an answer for each. It must not keep
	// posts. patient: others of the client are under way, and these may be stored together with them.
	Store func(ctx context.Context, from *Client, key schema.RunKey, posts []producers.Post, patient bool, answers []producers.Answer) []producers.Answer
	// Has reports whether event seq of a run has this id: then a line that brings both is a repeat.
	Has func(ctx context.Context, key schema.RunKey, seq schema.Seq, id string) bool
	// Refuse puts an error into words.
	Refuse func(error) *producers.Refusal
	// Limits are those of tenants; nil: there are none.
	Limits *limits.Limiter

	Workers  int // runs of a stream that are appended to at a time; default 64
	MaxLines int // of a stream that are not answered; default 8,192
	MaxBytes int // of the same; default 4 MiB
	MaxLine  int // bytes of one line; default schema.MaxEventBytes

	pool *pool // of all streams
}

// WithDefaults returns a configuration for New, complete with its defaults.
func (c Config) WithDefaults() *Config {
	set := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	set(&c.Workers, 64)
	set(&c.MaxLines, 8<<10)
	set(&c.MaxBytes, 4<<20)
	set(&c.MaxLine, schema.MaxEventBytes)
	c.pool = new(pool)
	return &c
}

// Memory is what the lines of a stream take of the memory for bodies.
type Memory interface {
	// Reserve waits a little for n bytes more.
	Reserve(ctx context.Context, n int64) error
	Try(n int64) error // is Take without waiting
	Give(n int64)
}

// Client is who publishes.
type Client struct {
	Caller auth.Caller // who sends the lines
	Trace  string      // traceparent of the request, which is kept with its events (producers.AppendOptions); "": none
	Memory Memory      // nil: what is fed is counted already
	// Patient clients wait while the limits of their tenant are used up; the lines of others are refused.
	Patient bool
	// Deliver writes answers, each in the form of Form. One goroutine calls it at a time. nil: they are kept for Answers.
	Deliver func([]byte) error
	// Form appends an answer; nil: AppendJSON.
	Form func(dst []byte, r *dialect.Receipt) []byte
	// KeepAlive is the silence after which Sign is delivered; 0: never.
	KeepAlive time.Duration
	Sign      []byte
}

// refusalReceipt returns the receipt of a line that was refused.
func refusalReceipt(line int, run string, no *producers.Refusal) *dialect.Receipt {
	return &dialect.Receipt{Line: line, Run: run, Status: no.Status, Code: no.Code, Message: no.Message,
		Field: no.Field, Retry: no.Retry}
}

// AppendJSON appends the receipt as one line of NDJSON, with its line feed.
func AppendJSON(dst []byte, r *dialect.Receipt) []byte {
	dst = append(dst, '{')
	if r.Line > 0 {
		dst = append(strconv.AppendInt(append(dst, `"line":`...), int64(r.Line), 10), ',')
	}
	if r.Run != "" { // ids need no escaping
		dst = append(append(append(dst, `"run_id":"`...), r.Run...), `",`...)
	}
	if r.Code != "" {
		return append(appendRefusal(dst, r), '}', '\n')
	}
	dst = strconv.AppendInt(append(dst, `"first_seq":`...), int64(r.First), 10)
	dst = strconv.AppendInt(append(dst, `,"last_seq":`...), int64(r.Last), 10)
	if r.Root != "" {
		dst = append(append(append(dst, `,"root_run_id":"`...), r.Root...), '"')
	}
	if r.Replayed {
		dst = append(dst, `,"replayed":true`...)
	}
	return append(dst, '}', '\n')
}

func appendRefusal(dst []byte, r *dialect.Receipt) []byte {
	dst = appendText(append(dst, `"error":{"code":`...), r.Code)
	dst = appendText(append(dst, `,"message":`...), r.Message)
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(r.Status), 10)
	if r.Field != "" {
		dst = appendText(append(dst, `,"field":`...), r.Field)
	}
	if r.Retry > 0 {
		dst = strconv.AppendInt(append(dst, `,"retry_after":`...), int64(r.Retry), 10)
	}
	return append(dst, '}')
}
