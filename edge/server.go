package edge

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/body"
	"agentstream/edge/dialect"
	"agentstream/edge/ends"
	"agentstream/edge/gate"
	"agentstream/edge/limits"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/rest"
	"agentstream/edge/runs"
	"agentstream/edge/state"
	"agentstream/edge/transport"
	"agentstream/edge/transport/grpc"
	"agentstream/edge/transport/poll"
	"agentstream/edge/transport/sse"
	"agentstream/edge/transport/ws"
	"agentstream/producers"
	"agentstream/schema"
)

// Server serves runs. Make it with New; use Run, or Handler in a server of your own.
type Server struct {
	cfg    Config
	gate   *gate.Gate
	sse    *sse.Transport
	ws     *ws.Transport
	grpc   *grpc.Transport
	poll   *poll.Poller
	node   *protocol.Node
	live   *live.Live
	peers  *limits.Peers // nil: there are none
	bodies *body.Bodies
	runs   *runs.Runs
	state  *state.Cache
	rest   *rest.API
	large  sync.Pool         // of *[largeSize]byte
	lines  transport.Buffers // made of messages
	checks *Checker
	routes []*route
	allow  string // headers that pages of other origins may send
	expose string // and read

	made    time.Time   // calls count their time from here
	leaving atomic.Bool // the node goes away
}

// New checks the configuration and compiles the catalogue's JSON Schemas. It starts nothing.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	poller, err := poll.New()
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	out, err := sse.New(sse.Config{WriteTimeout: cfg.WriteTimeout, Retry: cfg.Retry, Poll: poller})
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	sockets, err := ws.New(ws.Config{WriteTimeout: cfg.WriteTimeout, MessageTimeout: cfg.BodyTimeout, Poll: poller})
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	calls, err := grpc.New(grpc.Config{WriteTimeout: cfg.WriteTimeout, RequestTimeout: cfg.HeaderTimeout})
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	s := &Server{cfg: cfg, checks: NewChecker(cfg.Checks), poll: poller, sse: out, ws: sockets, grpc: calls,
		made: time.Now()}
	s.large.New = func() any { return new([largeSize]byte) }
	s.allow, s.expose = corsLists(cfg.Protocols)
	if err := s.makeComponents(); err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	if s.gate, err = gate.New(cfg.gate(s.bodies)); err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	if err := s.bind(); err != nil {
		return nil, err
	}
	return s, nil
}

// Forget drops what this node holds of a run whose stored events have another content now. Open streams of the run end as
// when the log is away, and clients come back. It is safe for concurrent use.
func (s *Server) Forget(key schema.RunKey) {
	s.cfg.Hub.Forget(key)
	s.state.Forget(key)
}

// makeComponents makes what the routes and streams are built on.
func (s *Server) makeComponents() error {
	cfg := s.cfg
	rs := &runs.Runs{Hub: cfg.Hub, Catalog: cfg.Catalog, Costs: cfg.Costs, Slots: runs.NewSlots()}
	s.runs = rs
	cache := state.New(rs, cfg.MaxFoldBytes, cfg.StateBytes)
	s.state = cache
	bodies, err := body.New(body.Config{MaxBytes: cfg.MaxBodyBytes, Memory: cfg.BodyMemory, Wait: cfg.BodyWait,
		Timeout: cfg.BodyTimeout, Held: cfg.Hooks.BodyBytes})
	if err != nil {
		return err
	}
	s.bodies = bodies
	counted := limits.New(cfg.IngestLimit, cfg.TenantLimits)
	if cfg.LimitBus != nil {
		s.peers = limits.NewPeers(counted, cfg.LimitBus, rand.Text())
	}
	s.live = live.New(live.Config{Runs: rs, State: cache, MaxStreams: cfg.MaxStreams, Streams: cfg.streams,
		KeepAlive:  cfg.KeepAlive,
		LogTimeout: cfg.LogTimeout, DrainWindow: cfg.DrainWindow, Recheck: cfg.Recheck, Still: cfg.Still, Hooks: s.hooks()})
	shared := protocol.NodeConfig{Runs: rs, State: cache, Appender: cfg.Appender, Bodies: bodies, Limits: counted,
		Tickets: cfg.Tickets, Audit: cfg.Audit,
		LogTimeout: cfg.LogTimeout, Hooks: cfg.Hooks, Failing: s.failing, Closing: s.live.Closing()}
	if s.node, err = protocol.NewNode(shared); err != nil {
		return err
	}
	s.rest, err = rest.New(rest.Config{NodeConfig: shared, Node: s.node, Live: s.live,
		Operator: cfg.Operator, Facts: cfg.facts(), Shares: cfg.Shares, Workers: cfg.Workers,
		Blobs: cfg.Blobs, Redact: cfg.Redact,
		MaxBodyBytes: cfg.MaxBodyBytes, BodyMemory: cfg.BodyMemory, MaxBlobBytes: cfg.MaxBlobBytes,
		MaxRunBlobBytes: cfg.MaxRunBlobBytes, MaxTenantBlobBytes: cfg.MaxTenantBlobBytes, BodyTimeout: cfg.BodyTimeout,
		WriteTimeout: cfg.WriteTimeout,
		KeepAlive:    cfg.KeepAlive, Retry: cfg.Retry, Taps: cfg.Taps, Logger: cfg.Logger})
	return err
}

// hooks are those of streams, with that of the audit feed.
func (s *Server) hooks() live.Hooks {
	h := s.cfg.Hooks
	if s.cfg.Audit != nil {
		h.RunOpened = s.cfg.Audit.Open
	}
	return h
}

// bind makes the table of routes: the server's own and those of the dialects.
func (s *Server) bind() error {
	if err := errors.Join(s.add("GET /healthz", s.health, 0, nil, nil), s.add("GET /readyz", s.ready, 0, nil, nil),
		s.mountRoutes(nil, s.rest.Routes())); err != nil {
		return err
	}
	for _, page := range s.cfg.Pages {
		serve := func(c *call) error {
			page.Handler.ServeHTTP(c.Writer, c.Request)
			return nil
		}
		for _, pattern := range page.Patterns {
			if err := s.add(pattern, serve, 0, nil, nil); err != nil {
				return err
			}
		}
	}
	if err := s.bindServices(); err != nil {
		return err
	}
	for i := range s.cfg.Protocols {
		if err := s.mount(&s.cfg.Protocols[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) add(pattern string, serve func(*call) error, needs auth.Scope, st *live.Bound,
	p *protocol.Protocol) error {
	rt, ok := newRoute(pattern, serve)
	if !ok {
		return fmt.Errorf("edge: pattern %q is not a method and a path", pattern)
	}
	for _, other := range s.routes {
		if other.method != rt.method || (other.transport() == dialect.WebSocket) != (st != nil &&
			st.Transport == dialect.WebSocket) || !slices.EqualFunc(other.segments, rt.segments, sameSegment) {
			continue
		}
		return fmt.Errorf("edge: patterns %q and %q are the same", pattern, other.pattern)
	}
	rt.needs, rt.stream, rt.protocol = needs, st, p
	rt.late = rt.transport() == dialect.GRPC && p.Envelope != nil
	rt.rpcs = s.grpc
	if rt.transport() == dialect.GRPC && (st.MaxMessage > 0 || p.Slow > 0) {
		var err error
		if rt.rpcs, err = s.grpc.For(st.MaxMessage, p.Slow); err != nil {
			return fmt.Errorf("edge: %s: %w", rt.pattern, err)
		}
	}
	s.routes = append(s.routes, rt)
	return nil
}

func sameSegment(a, b string) bool {
	return a == b || strings.HasPrefix(a, "{") && strings.HasPrefix(b, "{")
}

// Handler serves all routes. Shutting down is Run's.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// maxURI bounds the request target, in bytes. What the header limit lets through above it is 414.
const maxURI = 8 << 10

// serve has little on its stack while it listens: see there.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := &call{of: s, begun: time.Since(s.made)}
	if opened := s.cfg.Hooks.RequestOpened; opened != nil {
		opened()
	}
	defer c.leave()
	if in := s.openRequest(c, w, r); in != nil {
		c.err = in.listen(r.Body)
	}
}

// openRequest does what a request asks for, and returns what is left to be listened to.
func (s *Server) openRequest(c *call, w http.ResponseWriter, r *http.Request) *reading {
	c.Request, c.ID = r, requestID(r.Header)
	if open := s.cfg.Trace; open != nil {
		c.span = open(c.Trace())
	}
	c.answer.ResponseWriter, c.Writer = w, &c.answer
	h := w.Header()
	c.Set("X-Request-Id", protocol.ValueID, c.ID)
	h["X-Content-Type-Options"] = protocol.HeaderNoSniff
	if s.leaving.Load() && r.ProtoMajor == 1 {
		h["Connection"] = []string{"close"}
	}
	c.Node = s.node
	err := s.gate.Enter(&c.pass, gate.Of(r.Context()), r.ProtoMajor > 1)
	if err == nil {
		s.cors(c)
		err = s.dispatch(c)
	}
	p, parting := err.(*protocol.Detached) // it is handed over, never wrapped
	if parting && p.Here != nil {
		c.lasting = p.Here
		return s.reading(p.Here, p.Life, c.Writer.StopReading)
	}
	if parting {
		err = s.part(c, p)
	}
	c.parked = err == live.ErrParked // it is handed over, never wrapped
	if !c.parked {
		c.err = err
	}
	return nil
}

// leave ends what the server's goroutine does for a call.
func (c *call) leave() {
	v := recover()
	defer c.pass.Leave()
	defer c.answer.Leave()
	defer func() { c.hurry.over(c) }() // of the refusal, too
	c.In.Leave()
	if c.parked {
		return
	}
	if c.lasting != nil {
		c.lasting.Leave()
	}
	c.finish(v)
}

func (s *Server) dispatch(c *call) (err error) {
	if len(c.Request.RequestURI) > maxURI {
		return ends.ErrURITooLong
	}
	if err := checkTarget(c.Request); err != nil {
		return err
	}
	if s.preflight(c) {
		return nil
	}
	var allow []string
	if c.route, c.Params, allow, err = find(s.routes, c.Request); err != nil {
		if len(allow) > 0 {
			c.Writer.Header().Set("Allow", strings.Join(allow, ", "))
		}
		c.setProtocol(s.protocolOf(c.Request.URL.Path))
		return err
	}
	c.setProtocol(c.route.protocol)
	pick(c)
	c.Commands = c.route.needs&(auth.ScopeWrite|auth.ScopeCommand) != 0
	if err := s.admit(c); err != nil {
		return err
	}
	return c.route.serve(c)
}

// admit lets a caller in who may have what the route serves, or who is told late.
func (s *Server) admit(c *call) error {
	if c.route.needs == 0 {
		return s.welcome(c)
	}
	err := s.authorize(c)
	if err == nil {
		c.pass.Know(c.Caller.Tenant)
		return nil
	}
	if !c.route.late || errors.Is(err, ends.ErrOrigin) {
		return err
	}
	c.late = err
	if err := c.pass.Open(); err != nil {
		return err
	}
	c.limit()
	return nil
}

// StorePosts is rest's: it stores posts as ingest does requests.
func (s *Server) StorePosts(ctx context.Context, key schema.RunKey, posts []producers.Post,
	answers []producers.Answer) []producers.Answer {
	return s.rest.StorePosts(ctx, key, posts, answers)
}

// Refusal puts an error into words, those of HTTP.
func (s *Server) Refusal(err error) *producers.Refusal { return s.rest.Refusal(err) }
