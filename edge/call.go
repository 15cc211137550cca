package edge

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/body"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/gate"
	"agentstream/edge/protocol"
	"agentstream/edge/runs"
	"agentstream/edge/transport"
	"agentstream/edge/transport/grpc"
	"agentstream/schema"
	"agentstream/schema/trace"
)

// call is one request on its way, and what its log line says.
type call struct {
	protocol.Call
	of     *Server
	answer protocol.Response // Call.Writer
	pass   gate.Pass         // of the server's goroutine
	hurry  *hurry            // of callers who are not known; nil: there is time
	route  *route            // nil until found
	begun  time.Duration     // since the server was made: parked streams keep their calls, so these are small
	short  runs.Short        // begun where the route is known to be short
	err    error             // why it did not end well; nil when it did
	late   error             // why the caller may not, of a route that says so late
	clean  bool              // the stream's client received a clean end
	direct bool              // the connection was taken over from the HTTP server
	parked bool              // somebody else ends it

	lasting protocol.Upload // nil: nothing is listened to
	span    RequestSpan     // nil: it has none
}

// setProtocol makes p the protocol in which the request is answered; nil is the server itself. Its clients find
// the request's id where they look for it.
func (c *call) setProtocol(p *protocol.Protocol) {
	c.Protocol = p
	if p == nil {
		return
	}
	if p.RequestID != "" {
		c.Writer.Header()[p.RequestID] = []string{c.ID}
	}
	for name, values := range p.Header {
		c.Writer.Header()[name] = values
	}
}

// markHijacked records that the connection is not the HTTP server's any more.
func (c *call) markHijacked(status int) {
	c.direct, c.Writer.Status = true, status
}

// isClientGone reports whether the client has gone, as far as the request can know.
func (c *call) isClientGone() bool { return c.Request != nil && c.Request.Context().Err() != nil }

// finish answers an error, logs the request once and passes on a panic that asks for a cut. v is what the
// caller has recovered.
func (c *call) finish(v any) {
	abort := false
	if c.Release != nil {
		defer c.Release()
	}
	if v != nil {
		if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
			abort = true
		} else {
			c.err = fmt.Errorf("%w: %v\n%s", ends.ErrPanic, v, debug.Stack())
		}
	}
	reason := ends.ReasonOf(c.err)
	if ends.OutcomeOf(reason).Status >= 500 && reason != dialect.ReasonSlowClient && c.isClientGone() {
		reason = dialect.ReasonClientGone // what failed is what was done for a client that had left
	}
	if c.err != nil && !abort {
		switch {
		case c.Writer.Status == 0 && !c.mayRefuse():
			c.turnAway(reason)
		case c.Writer.Status == 0 && (c.route == nil || c.route.transport() == dialect.GRPC):
			c.refuseCall() // a call of a method that is not there is one, too
		case c.Writer.Status == 0:
			drains := c.In.HasShare() && (reason == dialect.ReasonLimited || reason == dialect.ReasonBusy)
			c.In.Unread = c.In.Unread && !drains
			c.refuse(reason)
			if drains {
				c.drain()
			}
		default:
			// The other transports have sent their end.
			abort = ends.OutcomeOf(reason).End == ends.EndBroken && c.route.transport() != dialect.GRPC && !c.direct && !c.clean
		}
	}
	c.note(reason)
	c.writeLog(reason)
	if c.OnLeave != nil && reason == dialect.ReasonClientGone && !c.of.live.Draining() {
		c.OnLeave()
	}
	if abort {
		panic(http.ErrAbortHandler) // net/http cuts the connection, or resets the stream, and logs nothing
	}
}

// note has the audit feed say what the caller opened, or that it may not. Streams have said so when they began.
func (c *call) note(reason dialect.Reason) {
	switch {
	case c.route == nil:
	case reason == dialect.ReasonForbidden:
		c.NoteRefusal(c.route.pattern, "forbidden")
	case errors.Is(c.err, auth.ErrOtherRun):
		c.NoteRefusal(c.route.pattern, "other_run")
	case c.Stream == nil && (c.route.needs == auth.ScopeRead || c.route.needs == auth.ScopeAudit) &&
		c.route.transport() != dialect.WebSocket:
		c.NoteRead(c.err)
	}
}

// refuseCall answers a gRPC call that was refused before it was read.
func (c *call) refuseCall() {
	if !grpc.IsCall(c.Request) {
		c.refuse(ends.ReasonOf(c.err))
		return
	}
	_ = c.of.grpc.Refuse(c.Writer, c.Request, c.lastWord(c.err)) // a client that is gone has no use for the error
}

// refuse writes the error in the words of the route's dialect.
func (c *call) refuse(reason dialect.Reason) {
	if c.Request.ProtoMajor == 1 && c.Request.ContentLength < 0 && !c.In.HasShare() {
		// whose body may stay open: the answer does not wait for it
		c.In.Unread = http.NewResponseController(c.Writer).EnableFullDuplex() == nil
	}
	if c.Request.ProtoMajor == 1 && c.Request.ContentLength != 0 { // the HTTP server reads what is left of it
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(c.of.cfg.StrangerTimeout))
	}
	p := ends.Problem(reason, c.err)
	p.RequestID = c.ID
	h := c.Writer.Header()
	if after := ends.RetryAfter(reason, c.err); after > 0 {
		h.Set("Retry-After", strconv.Itoa(after))
	}
	if errors.Is(c.err, ends.ErrCoding) {
		h.Set("Accept-Encoding", body.BodyCodings)
	}
	if c.Protocol != nil && c.Protocol.Refused != nil {
		c.Protocol.Refused(h, c.err)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	// The connection is no longer worth keeping: a client that sent its next request on it would be cut off. On HTTP/2
	// this header would end it for all streams.
	if c.Request.ProtoMajor == 1 && (reason == dialect.ReasonShutdown || reason == dialect.ReasonTimeout || c.In.Unread) {
		h.Set("Connection", "close")
	}
	if p.Status == http.StatusNoContent {
		c.Writer.WriteHeader(p.Status)
		return
	}
	switch {
	case c.Protocol == nil:
		c.Reply(p.Status, p.AppendJSON(nil))
	case c.Protocol.Words != nil:
		mediaType, body := c.Protocol.Words(c.Request, p)
		c.ReplyAs(p.Status, mediaType, body)
	default:
		c.Reply(p.Status, c.Protocol.Dialect.AppendError(nil, p))
	}
}

// drain reads what is left of a body that was refused for want of room, within the time that it has: a client that is
// sending would be cut off with a reset, and might never see the answer, which says when to come again.
func (c *call) drain() {
	if http.NewResponseController(c.Writer).Flush() == nil {
		c.In.Drain(c.Request.Body)
	}
}

// writeLog logs once what became of the request. Payloads, credentials and the raw target are never in
// it.
func (c *call) writeLog(reason dialect.Reason) {
	name := "none"
	if c.route != nil {
		name = c.route.pattern
	}
	took := time.Since(c.of.made) - c.begun
	end := RequestEnd{Route: name, Status: c.Writer.Status, Took: took, Stream: c.Stream != nil, ID: c.ID, Run: c.Run,
		Tenant: c.Caller.Tenant, Events: c.Events, Sent: max(c.Sent, c.Writer.Bytes)}
	if done := c.of.cfg.Hooks.RequestDone; done != nil {
		done(end)
	}
	if c.span != nil {
		c.span.Close(end)
	}
	level := c.of.cfg.Requests
	if c.err != nil && ends.OutcomeOf(reason).Status >= 500 && reason != dialect.ReasonShutdown &&
		reason != dialect.ReasonSlowClient {
		level = slog.LevelError
	}
	if !c.of.cfg.Logger.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 14)
	attrs = append(attrs, slog.String("request_id", c.ID), slog.String("route", name),
		slog.Int("status", c.Writer.Status), slog.Float64("took_ms", float64(took.Microseconds())/1000))
	if c.Request != nil {
		attrs = append(attrs, slog.String("remote", c.Request.RemoteAddr))
	}
	if id := c.traceID(); id != "" {
		attrs = append(attrs, slog.String("trace_id", id))
	}
	if c.Caller.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.Caller.Tenant),
			slog.String("caller", cmp.Or(c.Caller.Subject, c.Caller.Credential)))
	}
	if c.Run != "" {
		attrs = append(attrs, slog.String("run", c.Run))
	}
	if c.Seq != 0 {
		attrs = append(attrs, slog.Int64("seq", int64(c.Seq)), slog.Int("events", c.Events))
	}
	message := "request"
	if c.Stream != nil {
		message = "stream"
		attrs = append(attrs, slog.String("dialect", c.Stream.DialectName),
			slog.String("transport", string(c.Stream.Transport)), slog.Int64("bytes", max(c.Sent, c.Writer.Bytes)))
		if reason == dialect.ReasonNone {
			reason = dialect.ReasonEnded
		}
		if c.Dropped > 0 {
			attrs = append(attrs, slog.Int("dropped", c.Dropped))
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
	c.of.cfg.Logger.LogAttrs(context.Background(), level, message, attrs...)
}

// traceID returns the id of the trace that the request is a part of; "" when there is none, or it is not known any more.
func (c *call) traceID() string {
	if c.span != nil {
		return c.span.TraceID()
	}
	if p, ok := trace.Parse(c.Trace()); ok {
		return hex.EncodeToString(p.Trace[:])
	}
	return ""
}

// requestID takes the caller's id where it is in the allow-list, else makes one. That is a name and no secret.
func requestID(h http.Header) string {
	if v := h.Get("X-Request-Id"); v != "" && schema.ValidEventID(v) == nil {
		return v
	}
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	id := append(make([]byte, 0, 32), "req_"...)
	for i, n := 0, uint64(0); i < 26; i, n = i+1, n>>5 {
		if i%12 == 0 {
			n = rand.Uint64() // enough for twelve letters
		}
		id = append(id, letters[n%32])
	}
	return string(id)
}

// lastWord returns what a client is sent at the end: what the table of ends has, changed by the protocol.
func (c *call) lastWord(err error) transport.End {
	reason := ends.ReasonOf(err)
	if err == nil {
		reason = dialect.ReasonEnded
	}
	p := ends.Problem(reason, err)
	p.RequestID = c.ID
	e := transport.End{Clean: true, Close: ends.OutcomeOf(reason).Close}
	if err != nil {
		e = c.problemEnd(p)
	}
	if rt := c.route; rt != nil && rt.stream != nil && rt.protocol.LastWords != nil {
		rt.protocol.LastWords(rt.stream.Stream, p, c.Stream != nil, &e)
	}
	c.clean = e.Clean
	return e
}

// problemEnd returns the row of the table of ends for a problem.
func (c *call) problemEnd(p dialect.Problem) transport.End {
	out := ends.OutcomeOf(p.Reason)
	e := transport.End{Close: out.Close, GRPC: out.GRPC, Code: p.Code, Message: p.Message, Trailer: http.Header{}}
	for name, n := range map[string]schema.Seq{"Agentstream-First-Seq": p.First, "Agentstream-Last-Seq": p.Last} {
		if n > 0 {
			e.Trailer.Set(name, strconv.FormatInt(int64(n), 10))
		}
	}
	if out.Say && c.route.transport() == dialect.SSE { // the others have a code and a text for it
		e.Last = []dialect.Frame{{Event: []byte("stream.error"), Data: c.route.stream.Dialect.AppendError(nil, p)}}
	}
	return e
}

// ending is how a stream ends.
type ending call

func (c *ending) EndOf(err error) transport.End { return (*call)(c).lastWord(err) }

// Finish ends the request of a stream that was parked.
func (c *ending) Finish(recovered any, err error) { (*call)(c).finishStream(recovered, err) }

// finishStream finishes the request of a stream that went on without the goroutine which began it.
func (c *call) finishStream(recovered any, err error) {
	c.err = err
	c.finish(recovered)
}
