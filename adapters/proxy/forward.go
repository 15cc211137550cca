package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/schema"
	"agentstream/schema/trace"
)

// passage is one request on its way through.
type passage struct {
	p             *Proxy
	up            *Upstream
	path, rawPath string
	client        context.Context
	began         time.Time
	key           schema.RunKey // zero: the request is no model call
	call          *call         // nil: it is not recorded
	why           string        // a model call is not
	watch         *watch        // nil: the request asks for no response again
	packed        http.Header   // Content-Encoding of what is watched
	switched      bool          // the connection is another protocol's now
	span          RequestSpan   // nil: it has none

	sent, received atomic.Int64
	mu             sync.Mutex
	outcome        Outcome // "" until the answer is over
}

type passageKey struct{}

func passageOf(ctx context.Context) *passage { return ctx.Value(passageKey{}).(*passage) }

// forwarder returns the proxy's HTTP side, the same for all requests.
func (p *Proxy) forwarder() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		ModifyResponse: receiveAnswer,
		ErrorHandler:   reportNoAnswer,
		Transport:      p.cfg.Transport,
		FlushInterval:  -1, // at once
		BufferPool:     &pool{},
		ErrorLog:       slog.NewLogLogger(p.cfg.Logger.Handler(), slog.LevelDebug), // the outcome has it as well
	}
}

// run returns the run of the request's call; "": it is none.
func (g *passage) run() string {
	if g.call == nil {
		return g.key.Run
	}
	return g.call.runOf(g.sent.Load())
}

func rewrite(r *httputil.ProxyRequest) {
	g := passageOf(r.Out.Context())
	r.Out.URL.Path, r.Out.URL.RawPath = g.path, g.rawPath
	r.SetURL(g.up.URL)
	r.Out.URL.RawQuery = r.In.URL.RawQuery // also what Go would not parse
	for name := range r.Out.Header {
		if strings.HasPrefix(name, headerPrefix) {
			delete(r.Out.Header, name)
		}
	}
	if g.call != nil || g.watch != nil {
		acceptable(r.Out.Header)
	}
	passTrace(r.Out.Header)
	if g.span != nil { // the upstream works for it
		r.Out.Header.Set(trace.Header, g.span.Traceparent())
	}
	if r.Out.Body != nil {
		r.Out.Body = &upload{ReadCloser: r.Out.Body, g: g, from: r.In.Trailer, to: r.Out.Trailer}
	} else if g.call != nil {
		g.call.request.finish(nil)
	}
}

// passTrace drops what is no trace context by the rules of the W3C: it may not go on.
func passTrace(h http.Header) {
	bad := trace.Of(h) == ""
	if bad {
		h.Del(trace.Header)
	}
	if size := len(strings.Join(h[trace.StateHeader], ",")); bad || size > trace.MaxState {
		h.Del(trace.StateHeader)
	}
}

// upload is a request's body on its way to the upstream.
type upload struct {
	io.ReadCloser
	g        *passage
	from, to http.Header // trailers: there once the body is read
}

// Read passes the client's bytes on.
func (u *upload) Read(b []byte) (int, error) {
	n, err := u.ReadCloser.Read(b)
	u.g.sent.Add(int64(n))
	if u.g.call != nil {
		u.g.call.request.write(b[:n])
	}
	if err != nil {
		if err == io.EOF && u.to != nil {
			maps.Copy(u.to, u.from)
		}
		u.finish(err)
	}
	return n, err
}

// Close is called by the transport when it has what it needs.
func (u *upload) Close() error {
	u.finish(errNotSent)
	return u.ReadCloser.Close()
}

var errNotSent = errors.New("the request was not sent whole")

func (u *upload) finish(err error) {
	if u.g.call == nil {
		return
	}
	if err == io.EOF || err == errNotSent && u.g.call.length >= 0 && u.g.sent.Load() == u.g.call.length {
		err = nil
	}
	u.g.call.request.finish(err)
}

// receiveAnswer takes the header of the upstream's answer.
func receiveAnswer(resp *http.Response) error {
	g := passageOf(resp.Request.Context())
	if run := g.run(); run != "" {
		resp.Header.Set(HeaderRun, run)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		g.switched = true
		g.finish(OutcomeOK)
		return nil
	}
	if g.call != nil {
		g.call.readHeader(resp)
	}
	if g.watch != nil {
		g.packed = http.Header{"Content-Encoding": resp.Header.Values("Content-Encoding")}
	}
	resp.Body = &download{ReadCloser: resp.Body, g: g, refused: resp.StatusCode >= 400}
	return nil
}

// reportNoAnswer reports that there is no answer, to the client if it is there.
func reportNoAnswer(w http.ResponseWriter, r *http.Request, err error) {
	g := passageOf(r.Context())
	if run := g.run(); run != "" {
		w.Header().Set(HeaderRun, run)
	}
	if g.client.Err() != nil {
		g.finish(OutcomeCancelled)
		return
	}
	g.p.cfg.Logger.Warn("proxy: upstream", "upstream", g.up.Name, "err", err)
	g.finish(OutcomeUnreachable)
	(&refusal{http.StatusBadGateway, "upstream_unreachable",
		fmt.Sprintf("upstream %s did not answer", g.up.Name)}).write(w)
}

// download is an answer's body on its way to the client.
type download struct {
	io.ReadCloser
	g       *passage
	refused bool
}

// Read passes the upstream's bytes on.
func (d *download) Read(b []byte) (int, error) {
	n, err := d.ReadCloser.Read(b)
	d.g.received.Add(int64(n))
	if d.g.call != nil {
		d.g.call.answer.write(b[:n])
	}
	if d.g.watch != nil {
		d.g.watch.body.write(b[:n])
	}
	switch {
	case err == nil:
	case err == io.EOF && d.refused:
		d.g.finish(OutcomeRefused)
	case err == io.EOF:
		d.g.finish(OutcomeOK)
	case d.g.client.Err() != nil:
		d.g.finish(OutcomeCancelled)
	default:
		d.g.finish(OutcomeBroken)
	}
	return n, err
}

// Close without an end before it means that the client takes no more.
func (d *download) Close() error {
	d.g.finish(OutcomeCancelled)
	return d.ReadCloser.Close()
}

// finish notes how the client's side went. Only the first call counts.
func (g *passage) finish(o Outcome) {
	g.mu.Lock()
	first := g.outcome == ""
	if first {
		g.outcome = o
	}
	g.mu.Unlock()
	if !first {
		return
	}
	if g.call != nil {
		g.call.finishClient(o)
	}
	if g.why != "" {
		g.p.reportUnrecorded(g.key, g.why, g.received.Load())
	}
	d := Done{Upstream: g.up.Name, Outcome: o, Recorded: g.call != nil,
		Sent: g.sent.Load(), Received: g.received.Load(), Took: time.Since(g.began)}
	if h := g.p.cfg.Hooks.Closed; h != nil {
		h(d)
	}
	if g.span != nil {
		g.span.Close(d)
	}
}

// pool keeps the buffers that bodies are copied with.
type pool struct{ buffers sync.Pool }

const copyBuffer = 32 << 10

// Get returns a buffer.
func (p *pool) Get() []byte {
	if b, ok := p.buffers.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, copyBuffer)
}

// Put takes it back.
func (p *pool) Put(b []byte) { p.buffers.Put(&b) }
