package edge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/transport/grpc"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// call is one request on its way, and what its log line says.
type call struct {
	w      *response
	r      *http.Request
	route  *route            // nil until found
	path   map[string]string // values of the route's {names}, unchecked
	words  dialect.Dialect   // in which it is refused; nil: the stream's, or the server's own
	caller auth.Caller
	id     string // of the request
	begun  time.Time
	log    *slog.Logger
	hooks  Hooks
	rpcs   *grpc.Transport

	run     string // valid id, once known
	err     error  // why it did not end well; nil when it did
	events  int
	seq     schema.Seq   // last delivered or stored
	sent    int64        // bytes of a stream
	dropped int          // events that a slow client was spared
	stream  *boundStream // once it is open
	direct  bool         // the connection was taken over from the HTTP server
	hold    *hold

	release func() // of the watch over the caller's credential; nil when there is none
	meter   *meter // of the tenant's limits; nil when there are none
	room    share  // what its body takes of the memory for them
	most    int64  // bytes of a body whose size is said, where they may be more than Config.MaxBodyBytes
	unread  bool   // the body may be answered before its end, which has not been read

	values [3]string // of headers, in place of a slice for each
}

// Places in call.values.
const (
	valueID = iota
	valueLength
	valueETag
)

// set puts a header into the answer. name is in its canonical form.
func (c *call) set(name string, place int, value string) {
	c.values[place] = value
	c.w.Header()[name] = c.values[place : place+1 : place+1]
}

// named puts the request's id where the clients of APIs look for it.
func (c *call) named() { c.w.Header()["Request-Id"] = []string{c.id} }

// taken says that the connection is not the HTTP server's any more.
func (c *call) taken(status int) {
	c.direct, c.w.status = true, status
}

// left reports whether the client has gone, as far as the request can know.
func (c *call) left() bool { return c.r != nil && c.r.Context().Err() != nil }

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
		case c.w.status == 0 && (c.route == nil || c.route.transport() == dialect.GRPC):
			c.refuseCall() // a call of a method that is not there is one, too
		case c.w.status == 0:
			drains := c.room.room != nil && (reason == dialect.ReasonLimited || reason == dialect.ReasonBusy)
			c.unread = c.unread && !drains
			if c.refuse(reason); drains {
				c.drain()
			}
		default:
			// The other transports have said their last word.
			abort = OutcomeOf(reason).End == EndBroken && c.route.transport() != dialect.GRPC && !c.direct
		}
	}
	c.report(reason)
	if abort {
		panic(http.ErrAbortHandler) // net/http cuts the connection, or resets the stream, and logs nothing
	}
}

// refuseCall answers a gRPC call that was refused before it was read.
func (c *call) refuseCall() {
	if !grpc.Speaks(c.r) {
		c.refuse(ReasonOf(c.err))
		return
	}
	_ = c.rpcs.Refuse(c.w, c.r, c.endOf(c.err)) // a client that is gone has no use for the error
}

// refuse writes the error in the words of the route's dialect.
func (c *call) refuse(reason dialect.Reason) {
	p := problem(reason, c.err)
	p.RequestID = c.id
	h := c.w.Header()
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
	if c.r.ProtoMajor == 1 && (reason == dialect.ReasonShutdown || reason == dialect.ReasonTimeout || c.unread) {
		h.Set("Connection", "close")
	}
	if p.Status == http.StatusNoContent {
		c.w.WriteHeader(p.Status)
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
	c.reply(p.Status, body)
}

// drain reads what is left of a body that was refused for want of room, within the time that it has: a client that is
// sending would be cut off with a reset, and might never see the answer, which says when to come again.
func (c *call) drain() {
	if http.NewResponseController(c.w).Flush() == nil {
		_, _ = io.CopyN(io.Discard, c.r.Body, c.room.room.total)
	}
}

// reply writes a JSON body.
func (c *call) reply(status int, body []byte) {
	h := c.w.Header()
	h["Content-Type"] = headerJSON
	h["Cache-Control"] = headerNoStore
	c.set("Content-Length", valueLength, strconv.Itoa(len(body)+1))
	c.w.WriteHeader(status)
	_, _ = c.w.Write(append(body, '\n')) // a client that is gone has no use for the error
}

// report says once what became of the request. Payloads, credentials and the raw target are never in
// it.
func (c *call) report(reason dialect.Reason) {
	name := "none"
	if c.route != nil {
		name = c.route.pattern
	}
	took := time.Since(c.begun)
	if c.hooks.RequestDone != nil {
		c.hooks.RequestDone(name, c.w.status, took)
	}
	level := slog.LevelInfo
	if c.err != nil && OutcomeOf(reason).Status >= 500 && reason != dialect.ReasonShutdown && reason != dialect.ReasonSlowClient {
		level = slog.LevelError
	}
	if !c.log.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs, slog.String("request_id", c.id), slog.String("route", name),
		slog.Int("status", c.w.status), slog.Duration("took", took))
	if c.caller.Tenant != "" {
		attrs = append(attrs, slog.String("tenant", c.caller.Tenant))
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
			slog.String("transport", string(c.stream.Transport)), slog.Int64("bytes", max(c.sent, c.w.bytes)))
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

// problem describes a refusal for the client. Only reasons that are about the request itself show
// the error's text; the rest stays in the log.
func problem(reason dialect.Reason, err error) dialect.Problem {
	out := OutcomeOf(reason)
	p := dialect.Problem{Reason: reason, Status: out.Status, Code: out.Code, Message: out.Message}
	var part *producers.PartialError
	if errors.As(err, &part) {
		p.Stored = part.Stored
	}
	var batch *schema.BatchError
	if errors.As(err, &batch) {
		p.Line = batch.Line
		err = batch.Err
	}
	var at *fieldError
	if errors.As(err, &at) {
		p.Field = at.field
	}
	var named interface {
		error
		Field() string
	}
	if errors.As(err, &named) { // a parameter, in the dialect's words
		p.Field = named.Field()
	}
	var pos *positionError
	if errors.As(err, &pos) {
		p.Last = pos.last
	}
	var gone *fanout.ExpiredError
	if errors.As(err, &gone) {
		p.First = gone.First
	}
	if out.Detail && err != nil {
		p.Message = clip(err.Error())
	}
	var said interface {
		error
		Words() string
	}
	if errors.As(err, &said) && out.Status < 500 {
		p.Message = clip(said.Words())
	}
	if part != nil {
		p.Message = fmt.Sprintf("the first %d of %d events are stored: %s", part.Stored, part.Of, p.Message)
	}
	return p
}

// retryAfter is after how many seconds the same request may be answered otherwise; 0: it will not be.
func retryAfter(reason dialect.Reason, err error) int {
	if over := new(limitError); errors.As(err, &over) {
		return over.seconds()
	}
	return OutcomeOf(reason).RetryAfter
}

// positionError adds to a refused cursor or condition where the log is.
type positionError struct {
	last schema.Seq
	err  error
}

func (e *positionError) Error() string { return e.err.Error() }
func (e *positionError) Unwrap() error { return e.err }

// maxMessage bounds what an error tells of a request, in bytes.
const maxMessage = 500

func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return s[:maxMessage] + "…"
}

// requestID takes the caller's id where it is in the allow-list, else makes one.
func requestID(h http.Header) string {
	if v := h.Get("X-Request-Id"); v != "" && schema.ValidEventID(v) == nil {
		return v
	}
	return "req_" + rand.Text()
}

// response remembers what was sent.
type response struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach deadlines and flushing.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
