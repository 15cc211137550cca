package grpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"

	"agentstream/edge/dialect"
	"agentstream/edge/transport"
)

// chunk is what is collected before it is written, in bytes.
const chunk = transport.Chunk

// Config sets a Transport up. The zero value works.
type Config struct {
	WriteTimeout   time.Duration // for each write of at most 64 KiB; default 30 s
	Slow           time.Duration // a write that took longer is told by Flush (transport.ErrLate); 0: none is
	RequestTimeout time.Duration // for the request message, all of it; default 10 s
	MaxRequest     int           // largest request message, bytes, decompressed; default 64 KiB
}

func (c Config) withDefaults() Config {
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	c.MaxRequest = cmp.Or(c.MaxRequest, 64<<10)
	return c
}

func (c Config) validate() error {
	if c.WriteTimeout < 0 || c.Slow < 0 || c.RequestTimeout < 0 || c.MaxRequest < 0 {
		return fmt.Errorf("grpc: write time-out %v, slow %v, request time-out %v, largest request %d: not positive",
			c.WriteTimeout, c.Slow, c.RequestTimeout, c.MaxRequest)
	}
	return nil
}

// Transport is what all calls share.
type Transport struct {
	cfg     Config
	handler *connect.Handler
	errors  *connect.ErrorWriter
	buffers transport.Buffers // held by a sink only between its first Write and Flush
}

// New checks the configuration.
func New(cfg Config) (*Transport, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t := &Transport{cfg: cfg, errors: connect.NewErrorWriter()}
	opts := append(t.options(), connect.WithCodec(rawCodec{}), connect.WithInterceptors(interceptor{}))
	// One handler for all procedures: nothing in it but errors' texts depends on the name.
	t.handler = connect.NewServerStreamHandler("/agentstream.Stream/Stream",
		func(context.Context, *connect.Request[encodedMessage], *connect.ServerStream[encodedMessage]) error {
			return errors.New("the interceptor serves every call")
		}, opts...)
	return t, nil
}

// For returns a Transport for methods whose largest request message has n bytes, 0: as many as t's, and whose clients
// are slow as Config.Slow says.
func (t *Transport) For(n int, slow time.Duration) (*Transport, error) {
	cfg := t.cfg
	cfg.Slow = slow
	if n != 0 {
		cfg.MaxRequest = n
	}
	return New(cfg)
}

// options hold for every handler.
func (t *Transport) options() []connect.HandlerOption {
	return []connect.HandlerOption{
		connect.WithReadMaxBytes(t.cfg.MaxRequest),
		connect.WithCompression("gzip", func() connect.Decompressor { return &bounded{most: t.cfg.MaxRequest} },
			newGzipWriter),
		connect.WithCompressMinBytes(1 << 30),
	}
}

// IsCall reports whether a request is a gRPC or gRPC-Web call in a form that is served here. A POST to a
// procedure that is not is answered 415.
func IsCall(r *http.Request) bool {
	if r.Method != http.MethodPost {
		return false
	}
	ctype, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return false
	}
	switch ctype {
	case "application/grpc", "application/grpc+proto":
		return r.ProtoMajor >= 2
	case "application/grpc-web", "application/grpc-web+proto":
		return true
	}
	return false
}

// Serve serves a call that Speaks has approved: it reads the request message, calls fn with its bytes, which are fn's,
// and sends the client the end that fn returns. The context ends with the call and at the deadline that the client has
// set. An end given to the sink goes before the one that fn returns. Headers go out with the sink's first Write, Flush
// or KeepAlive: those that are set on w until then are the call's leading metadata. The metadata that the client sends
// are r's headers. The error, for logs, says why fn was not called, or why the end did not get through: it wraps
// dialect.ErrBadRequest, ErrTimeout, ErrTooLarge, dialect.ErrSlowClient or dialect.ErrClientGone. The client has been
// answered in every case: where fn was not called, with the end that refuse makes of the error.
func (t *Transport) Serve(w http.ResponseWriter, r *http.Request, refuse func(error) transport.End,
	fn func(ctx context.Context, request []byte, sink transport.Sink) transport.End) error {
	return t.serve(w, r, &call{fn: fn, refuse: refuse})
}

func (t *Transport) serve(w http.ResponseWriter, r *http.Request, c *call) error {
	c.setUp(t, w, r)
	return t.run(r, c)
}

// setUp sets what the call is of.
func (c *call) setUp(t *Transport, w http.ResponseWriter, r *http.Request) {
	c.t, c.rc, c.proto = t, http.NewResponseController(w), r.ProtoMajor
	c.w = &heldResponse{ResponseWriter: w}
}

// run hands a call to connect.
func (t *Transport) run(r *http.Request, c *call) error {
	t.handler.ServeHTTP(c.w, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
	if !c.w.begun {
		// A status alone is sent when the handler returns. Saying so now lets nobody above take the call
		// for one that was not answered.
		c.w.WriteHeader(http.StatusOK)
	}
	headersAlone(c.w.ResponseWriter)
	if c.err == nil && !c.served {
		return dialect.Refuse(dialect.ErrBadRequest, "the call was refused before it was read")
	}
	return c.err
}

// ServeUnary serves a call of a method that has one response, as Serve serves others: fn returns the encoded
// response, which goes out when the end is clean.
func (t *Transport) ServeUnary(w http.ResponseWriter, r *http.Request, refuse func(error) transport.End,
	fn func(ctx context.Context, request []byte) (response []byte, e transport.End)) error {
	return t.Serve(w, r, refuse, func(ctx context.Context, request []byte, _ transport.Sink) transport.End {
		response, e := fn(ctx, request)
		if e.Clean {
			e.Last = []dialect.Frame{{Data: response}}
		}
		return e
	})
}

// What Serve reports of a request message; see also dialect.ErrBadRequest.
var (
	ErrTimeout  = errors.New("request message did not arrive in time")
	ErrTooLarge = errors.New("request message is too large")
)

// Refuse answers a call with a status before, or instead of, Serve. A request that is no gRPC call gets
// JSON in the form of the Connect protocol; callers ask Speaks first.
func (t *Transport) Refuse(w http.ResponseWriter, r *http.Request, e transport.End) error {
	err := statusOf(e)
	if err == nil {
		err = connect.NewError(connect.CodeInternal, errors.New("a refusal without a status"))
	}
	if werr := t.errors.Write(w, r, err); werr != nil {
		return fmt.Errorf("grpc: refuse: %w: %w", dialect.ErrClientGone, werr)
	}
	headersAlone(w)
	return nil
}

// headersAlone pushes the headers of an answer without messages. Left to net/http they would carry
// content-length: 0, and nginx leaves out the trailers, which hold the status, of what has no body.
func headersAlone(w http.ResponseWriter) {
	_ = http.NewResponseController(w).Flush() // a client that is gone has no use for the error
}

// statusOf returns the status of an end; nil is OK.
func statusOf(e transport.End) error {
	if e.Clean {
		return nil
	}
	code := connect.Code(e.GRPC)
	if e.GRPC < int(connect.CodeCanceled) || e.GRPC > int(connect.CodeUnauthenticated) {
		code = connect.CodeUnknown
	}
	err := connect.NewError(code, errors.New(strings.ToValidUTF8(e.Text(), "\uFFFD")))
	for _, d := range e.Details {
		if detail, derr := connect.NewErrorDetail(d); derr == nil { // an Any is taken as it is
			err.AddDetail(detail)
		}
	}
	merge(err.Meta(), e.Trailer)
	return err
}

// merge adds metadata.
func merge(into, more http.Header) {
	for name, values := range more {
		for _, v := range values {
			into.Add(name, v)
		}
	}
}

// call is one call on its way through connect.
type call struct {
	t      *Transport
	fn     func(context.Context, []byte, transport.Sink) transport.End
	refuse func(error) transport.End
	both   *Both                 // in place of fn: what is left of it is its end
	begun  func(context.Context) // in place of fn: connect is asked only
	w      *heldResponse
	rc     *http.ResponseController
	proto  int
	served bool // the interceptor was reached
	err    error
}

type callKey struct{}

// interceptor replaces connect's typed handler: it owns the reading of the request, so that each way in
// which it can fail gets a status of its own.
type interceptor struct{}

func (interceptor) WrapUnary(f connect.UnaryFunc) connect.UnaryFunc { return f }
func (interceptor) WrapStreamingClient(f connect.StreamingClientFunc) connect.StreamingClientFunc {
	return f
}
func (interceptor) WrapStreamingHandler(connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		return ctx.Value(callKey{}).(*call).serve(ctx, conn)
	}
}

func (c *call) serve(ctx context.Context, conn connect.StreamingHandlerConn) error {
	c.served = true
	switch {
	case c.begun != nil:
		c.begun(ctx)
		return nil
	case c.both != nil:
		s := &c.both.CallSink
		if s.conn = conn; s.opened {
			_ = conn.Send(nil) // so it knows
		}
		return c.over(c.both.Ctx, s, *c.both.last)
	}
	request, err := c.receive(conn)
	if err != nil {
		c.err = err
		return statusOf(c.refuse(err))
	}
	s := &CallSink{c: c, conn: conn, out: transport.NewResponse("grpc", c.w, c.rc, c.t.cfg.WriteTimeout)}
	return c.over(ctx, s, c.fn(ctx, request, s))
}

// over ends a call.
func (c *call) over(ctx context.Context, s *CallSink, e transport.End) error {
	if s.end != nil {
		e = *s.end
	} else if err := s.finish(e); err != nil {
		c.err = err
	}
	s.release()
	// What connect still has to write has a deadline too. It stays: nothing comes after it.
	_ = s.out.ArmDeadline()
	if !e.Clean && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return connect.NewError(connect.CodeDeadlineExceeded, errors.New("the deadline that the client set has passed"))
	}
	if e.Clean {
		merge(s.conn.ResponseTrailer(), e.Trailer)
	}
	return statusOf(e)
}

// receive reads the request: one message, and the end of the client's side behind it.
func (c *call) receive(conn connect.StreamingHandlerConn) ([]byte, error) {
	if err := c.rc.SetReadDeadline(time.Now().Add(c.t.cfg.RequestTimeout)); err != nil {
		return nil, fmt.Errorf("grpc: read deadline: %w", err)
	}
	var m, more encodedMessage
	if err := conn.Receive(&m); err != nil {
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, dialect.Refuse(dialect.ErrBadRequest, "the call brings no message")
		}
		return nil, readError(err)
	}
	switch err := conn.Receive(&more); {
	case err == nil:
		return nil, dialect.Refuse(dialect.ErrBadRequest, "the call brings more than one message")
	case !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, readError(err)
	}
	if err := c.rc.SetReadDeadline(time.Time{}); err != nil {
		return nil, readError(err)
	}
	return m.data, nil
}

// unreadable refuses a message for an error of reading it, which is for logs.
func unreadable(err error) error {
	return fmt.Errorf("grpc: %w: %w", dialect.Refuse(dialect.ErrBadRequest, "the message cannot be read"), err)
}

func readError(err error) error {
	switch connect.CodeOf(err) {
	case connect.CodeResourceExhausted:
		return fmt.Errorf("grpc: %w", ErrTooLarge)
	case connect.CodeInvalidArgument, connect.CodeInternal, connect.CodeUnimplemented:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return unreadable(err)
		}
	case connect.CodeCanceled:
		return fmt.Errorf("grpc: read request: %w: %w", dialect.ErrClientGone, err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || connect.CodeOf(err) == connect.CodeDeadlineExceeded {
		return fmt.Errorf("grpc: %w", ErrTimeout)
	}
	return fmt.Errorf("grpc: read request: %w: %w", dialect.ErrClientGone, err)
}
