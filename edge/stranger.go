package edge

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentstream/edge/body"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/gate"
	"agentstream/edge/transport/grpc"
)

// leastConnections is the least bound of connections that the HTTP server has.
const leastConnections = 1024

// gate is how many may be here at a time. What they send and nobody has read is of their tenant's part of the memory
// for bodies.
func (c Config) gate(bodies *body.Bodies) gate.Config {
	g := gate.Config{Streams: c.MaxStreams, Strangers: c.MaxStrangers,
		Share: func(tenant string) gate.Share { return bodies.Share(tenant) }}
	if c.MaxStreams > 0 {
		g.Connections = max(c.MaxStreams, leastConnections)
	}
	return g
}

// checkTarget refuses a request whose target is not a path (RFC 9112 §3.2). One in absolute form is what its path is:
// the host that it names is the client's word for this server, and nothing here depends on it.
func checkTarget(r *http.Request) error {
	target := r.RequestURI
	if strings.HasPrefix(target, "/") || r.Method == http.MethodOptions && target == "*" {
		return nil
	}
	u := r.URL
	if r.ProtoMajor > 1 || r.Method == http.MethodConnect || u.Opaque != "" || u.Host == "" || u.User != nil ||
		u.Scheme != "http" && u.Scheme != "https" {
		return dialect.Refuse(dialect.ErrBadRequest, "the request target is neither a path nor a URL of HTTP")
	}
	if u.Path == "" { // which is the same (RFC 9110 §4.2.3)
		r.URL = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/", RawQuery: u.RawQuery}
	}
	return nil
}

// welcome lets somebody in to what is open to everybody. Who brings a credential has time.
func (s *Server) welcome(c *call) error {
	if len(c.Request.Header["Authorization"]) > 0 {
		caller, err := s.cfg.Authenticate(c.Request)
		if err == nil {
			c.pass.Know(caller.Tenant)
			return nil
		}
	}
	if err := c.pass.Open(); err != nil {
		return err
	}
	c.limit()
	if grpc.IsCall(c.Request) {
		most := s.cfg.StrangerTimeout / 5 * 4 // less than for the request, so that the end is said
		c.Request = c.Request.WithContext(grpc.Brief(c.Request.Context(), most))
	}
	return nil
}

// hurry ends a request that takes too long.
type hurry struct {
	mu    sync.Mutex
	left  bool // the request is over
	until time.Time
	timer *time.Timer
	conn  *gate.Conn // of a request of HTTP/1; nil: its stream ends alone
	rc    *http.ResponseController
}

// limit bounds the time of a request whose caller is not known.
func (c *call) limit() {
	most := c.of.cfg.StrangerTimeout
	h := &hurry{rc: http.NewResponseController(c.Writer.ResponseWriter), until: time.Now().Add(most)}
	if c.Request.ProtoMajor == 1 {
		h.conn = c.pass.Conn()
	}
	h.timer = time.AfterFunc(most, h.cut)
	c.hurry = h
}

// cut breaks off what the request waits for.
func (h *hurry) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		return
	}
	h.conn.Cut()
	past := time.Unix(1, 0)
	_ = h.rc.SetReadDeadline(past) // both fail where the client is gone
	_ = h.rc.SetWriteDeadline(past)
}

// over is for a request that was answered. A stream of HTTP/2 keeps its place until the client has taken the answer. A
// nil hurry is none.
func (h *hurry) over(c *call) {
	if h == nil {
		return
	}
	if c.Request.ProtoMajor > 1 && c.Writer.Bytes > 0 && h.rc.SetWriteDeadline(h.until) == nil {
		_ = h.rc.Flush() // it fails where the client takes nothing
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = true
	h.timer.Stop()
}

// mayRefuse reports whether there is a place for a refusal in words, which may have to wait for the client.
func (c *call) mayRefuse() bool {
	if c.pass.IsRefused() || c.pass.Open() != nil {
		return false
	}
	if c.Request.ProtoMajor > 1 && c.pass.Stranger() && c.hurry == nil {
		c.limit()
	}
	return true
}

// turnAway answers a request for which there is no place, in headers alone: they wait for no window of the client.
func (c *call) turnAway(reason dialect.Reason) {
	if grpc.IsCall(c.Request) {
		_ = c.of.grpc.Refuse(c.Writer, c.Request, c.lastWord(c.err)) // a client that is gone has no use for the error
		return
	}
	if after := ends.RetryAfter(reason, c.err); after > 0 {
		c.Writer.Header().Set("Retry-After", strconv.Itoa(after))
	}
	c.Length(0)
	c.Writer.WriteHeader(ends.OutcomeOf(reason).Status)
}
