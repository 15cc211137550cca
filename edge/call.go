package edge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/transport"
	"agentstream/edge/transport/grpc"
	"agentstream/schema"
)

// call is one request on its way, and what its log line says.
type call struct {
	Call
	route  *route // nil until found
	begun  time.Time
	log    *slog.Logger
	hooks  Hooks
	rpcs   *grpc.Transport
	err    error // why it did not end well; nil when it did
	direct bool  // the connection was taken over from the HTTP server
}

// named puts the request's id where the clients of APIs look for it.
func (c *call) named() { c.Writer.Header()["Request-Id"] = []string{c.ID} }

// taken says that the connection is not the HTTP server's any more.
func (c *call) taken(status int) {
	c.direct, c.Writer.status = true, status
}

// left reports whether the client has gone, as far as the request can know.
func (c *call) left() bool { return c.Request != nil && c.Request.Context().Err() != nil }

// finish answers an error, logs the request once and passes on a panic that asks for a cut. v is what the
// caller has recovered.
func (c *call) finish(v any) {
	abort := false
	if c.release != nil {
		defer c.release()
	}
	if v != nil {
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			abort = true
		} else {
			c.err = fmt.Errorf("%w: %v\n%s", errPanic, v, debug.Stack())
		}
	}
	reason := ReasonOf(c.err)
	if OutcomeOf(reason).Status >= 500 && reason != dialect.ReasonSlowClient && c.left() {
		reason = dialect.ReasonClientGone // what failed is what was done for a client that had left
	}
	if c.err != nil && !abort {
		switch {
		case c.Writer.status == 0 && (c.route == nil || c.route.transport() == dialect.GRPC):
			c.refuseCall() // a call of a method that is not there is one, too
		case c.Writer.status == 0:
			drains := c.in.Entered() && (reason == dialect.ReasonLimited || reason == dialect.ReasonBusy)
			c.in.unread = c.in.unread && !drains
			if c.refuse(reason); drains {
				c.drain()
			}
		default:
			// The other transports have said their last word.
			abort = OutcomeOf(reason).End == EndBroken && c.route.transport() != dialect.GRPC && !c.direct
		}
	}
	c.writeLog(reason)
	if abort {
		panic(http.ErrAbortHandler) // net/http cuts the connection, or resets the stream, and logs nothing
	}
}

// refuseCall answers a gRPC call that was refused before it was read.
func (c *call) refuseCall() {
	if !grpc.Speaks(c.Request) {
		c.refuse(ReasonOf(c.err))
		return
	}
	_ = c.rpcs.Refuse(c.Writer, c.Request, c.lastWord(c.err)) // a client that is gone has no use for the error
}

// refuse writes the error in the words of the route's dialect.
func (c *call) refuse(reason dialect.Reason) {
	p := problem(reason, c.err)
	p.RequestID = c.ID
	h := c.Writer.Header()
	if after := retryAfter(reason, c.err); after > 0 {
		h.Set("Retry-After", strconv.Itoa(after))
	}
	if errors.Is(c.err, errCoding) {
		h.Set("Accept-Encoding", bodyCodings)
	}
	if errors.Is(c.err, dialect.ErrGone) {
		h.Set("X-Should-Retry", "false") // clients of sessions repeat a 409 as they do a 503
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	// The connection is no longer worth keeping: a client that sent its next request on it would be cut off. On HTTP/2
	// this header would end it for all streams.
	if c.Request.ProtoMajor == 1 && (reason == dialect.ReasonShutdown || reason == dialect.ReasonTimeout || c.in.unread) {
		h.Set("Connection", "close")
	}
	if p.Status == http.StatusNoContent {
		c.Writer.WriteHeader(p.Status)
		return
	}
	var body []byte
	switch {
	case c.words != nil:
		body = c.words.AppendError(nil, p)
	case c.route != nil && c.route.stream != nil:
		body = c.route.stream.dialect.AppendError(nil, p)
	default:
		body = p.AppendJSON(nil)
	}
	c.Reply(p.Status, body)
}

// drain reads what is left of a body that was refused for want of room, within the time that it has: a client that is
// sending would be cut off with a reset, and might never see the answer, which says when to come again.
func (c *call) drain() {
	if http.NewResponseController(c.Writer).Flush() == nil {
		c.in.Drain(c.Request.Body)
	}
}

// writeLog says once what became of the request. Payloads, credentials and the raw target are never in
// it.
func (c *call) writeLog(reason dialect.Reason) {
	name := "none"
	if c.route != nil {
		name = c.route.pattern
	}
	took := time.Since(c.begun)
	if c.hooks.RequestDone != nil {
		c.hooks.RequestDone(name, c.Writer.status, took)
	}
	level := slog.LevelInfo
	if c.err != nil && OutcomeOf(reason).Status >= 500 && reason != dialect.ReasonShutdown && reason != dialect.ReasonSlowClient {
		level = slog.LevelError
	}
	if !c.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("request_id", c.ID), slog.String("route", name),
		slog.Int("status", c.Writer.status), slog.Duration("took", took))
	if c.Caller.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.Caller.Tenant))
	}
	if c.run != "" {
		attrs = append(attrs, slog.String("run", c.run))
	}
	if c.seq != 0 {
		attrs = append(attrs, slog.Int64("seq", int64(c.seq)), slog.Int("events", c.events))
	}
	message := "request"
	if c.stream != nil {
		message = "stream"
		attrs = append(attrs, slog.String("dialect", c.stream.name),
			slog.String("transport", string(c.stream.Transport)), slog.Int64("bytes", max(c.sent, c.Writer.bytes)))
		if reason == dialect.ReasonNone {
			reason = dialect.ReasonEnded
		}
		if c.dropped > 0 {
			attrs = append(attrs, slog.Int("dropped", c.dropped))
		}
	}
	var refusal *auth.Refusal
	if errors.As(c.err, &refusal) {
		attrs = append(attrs, slog.String("check", refusal.Check))
	}
	if reason != dialect.ReasonNone {
		attrs = append(attrs, slog.String("reason", reason.String()))
	}
	if level == slog.LevelError {
		attrs = append(attrs, slog.Any("error", c.err))
	}
	c.log.LogAttrs(context.Background(), level, message, attrs...)
}

// requestID takes the caller's id where it is in the allow-list, else makes one.
func requestID(h http.Header) string {
	if v := h.Get("X-Request-Id"); v != "" && schema.ValidEventID(v) == nil {
		return v
	}
	return "req_" + rand.Text()
}

// lastWord says the last word about an error in every transport's terms.
func (c *call) lastWord(err error) transport.End {
	if err == nil {
		return transport.End{Clean: true, Close: OutcomeOf(dialect.ReasonEnded).Close}
	}
	reason := ReasonOf(err)
	out := OutcomeOf(reason)
	p := problem(reason, err)
	p.RequestID = c.ID
	e := transport.End{Close: out.Close, GRPC: out.GRPC, Code: p.Code, Message: p.Message, FirstSeq: p.First, LastSeq: p.Last}
	if out.Say {
		e.Last = &dialect.Frame{Event: []byte("stream.error"), Data: c.route.stream.dialect.AppendError(nil, p)}
	}
	return e
}

// over finishes the request of a stream that went on without the goroutine which began it.
func (c *call) over(recovered any, err error) {
	c.err = err
	c.finish(recovered)
}

// forget lets go of the request's memory, for a stream that outlives it.
func (c *call) forget() { c.Request, c.path, c.Writer.ResponseWriter = nil, nil, nil }
