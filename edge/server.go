package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/edge/transport/grpc"
	"agentstream/edge/transport/jsonl"
	"agentstream/edge/transport/poll"
	"agentstream/edge/transport/sse"
	"agentstream/edge/transport/ws"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// Server serves runs. Make it with New; use Run, or Handler in a server of your own.
type Server struct {
	cfg         Config
	hub         *fanout.Hub
	append      *producers.Appender
	sse         *sse.Transport
	ws          *ws.Transport
	grpc        *grpc.Transport
	jsonl       *jsonl.Transport
	poll        *poll.Poller
	routes      []*route
	checks      *payloadChecks
	ids         *schema.IDs
	views       views
	folds       *foldCache
	checkpoints *checkpoints
	held        holds
	batches     batches
	pieces      *pieces
	inflate     *inflater
	room        *room
	limits      *limiter
	blobs       blobsUsed

	mu       sync.Mutex
	streams  map[*life]struct{}
	draining bool
	cut      bool          // connections that were taken over are closed at once
	empty    chan struct{} // closed when draining and no stream is left
	closing  chan struct{} // closed when draining begins
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
	sockets, err := ws.New(ws.Config{WriteTimeout: cfg.WriteTimeout, Poll: poller})
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	calls, err := grpc.New(grpc.Config{WriteTimeout: cfg.WriteTimeout, RequestTimeout: cfg.HeaderTimeout})
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	files, err := jsonl.New(jsonl.Config{WriteTimeout: cfg.WriteTimeout})
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	checks, err := compilePayloadChecks(schema.Types())
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	bodies := &pieces{places: make(chan struct{}, runtime.GOMAXPROCS(0))}
	inflate, err := newInflater(cfg.MaxBodyBytes, bodies)
	if err != nil {
		return nil, fmt.Errorf("edge: %w", err)
	}
	s := &Server{
		pieces: bodies, inflate: inflate, room: newRoom(cfg), limits: newLimiter(cfg),
		poll: poller, cfg: cfg, hub: cfg.Hub, append: cfg.Appender, sse: out, ws: sockets, grpc: calls, jsonl: files, checks: checks, folds: newFoldCache(cfg), checkpoints: newCheckpoints(cfg),
		views: views{hub: cfg.Hub, keepAlive: cfg.KeepAlive, hooks: cfg.Hooks},
		ids:   schema.NewIDs(), streams: make(map[*life]struct{}), empty: make(chan struct{}), closing: make(chan struct{}),
	}
	if err := s.bind(); err != nil {
		return nil, err
	}
	return s, nil
}

// bind makes the table of routes: the server's own and those of the dialects.
func (s *Server) bind() error {
	for _, o := range []struct {
		pattern string
		serve   func(*call) error
		needs   auth.Scope // 0: open to everybody
	}{
		{"GET /healthz", s.health, 0},
		{"GET /readyz", s.ready, 0},
		{"GET /v1/agent/runs", s.listRuns, auth.ScopeRead},
		{"POST /v1/agent/runs", s.metered(s.createRun), auth.ScopeWrite},
		{"GET /v1/agent/runs/{run}", s.summary, auth.ScopeRead},
		{"PUT /v1/agent/runs/{run}", s.metered(s.putRun), auth.ScopeWrite},
		{"POST /v1/agent/runs/{run}/events", s.metered(s.ingest), auth.ScopeWrite},
		{"GET /v1/agent/runs/{run}/events", s.page, auth.ScopeRead},
		{"GET /v1/agent/runs/{run}/steps", s.listSteps, auth.ScopeRead},
		{"GET /v1/agent/runs/{run}/snapshot", s.snapshot, auth.ScopeRead},
		{"GET /v1/agent/runs/{run}/replay.jsonl", s.export, auth.ScopeRead},
		{"POST /v1/agent/runs/{run}/tickets", s.createTicket, auth.ScopeRead},
	} {
		if err := s.add(o.pattern, o.serve, o.needs, nil); err != nil {
			return err
		}
	}
	for _, name := range commandNames {
		if err := s.add("POST /v1/agent/runs/{run}/"+name, s.command, auth.ScopeCommand, nil); err != nil {
			return err
		}
	}
	if s.cfg.Blobs != nil {
		if err := errors.Join(s.add("PUT /v1/agent/runs/{run}/blobs", s.metered(s.putBlob), auth.ScopeWrite, nil),
			s.add("GET /v1/agent/runs/{run}/blobs/{ref}", s.getBlob, auth.ScopeRead, nil)); err != nil {
			return err
		}
	}
	if err := s.bindServices(); err != nil {
		return err
	}
	if err := s.bindAPIs(); err != nil {
		return err
	}
	for _, d := range s.cfg.Dialects {
		info := d.Info()
		for _, st := range info.Streams {
			serve := map[dialect.Transport]func(*call) error{dialect.SSE: s.stream, dialect.WebSocket: s.socket, dialect.GRPC: s.rpc}[st.Transport]
			if serve == nil {
				return fmt.Errorf("edge: dialect %s: stream %s: no transport %s", info.Name, st.Name, st.Transport)
			}
			if err := s.add(st.Pattern, serve, auth.ScopeRead, &boundStream{Stream: st, dialect: d, name: info.Name}); err != nil {
				return err
			}
			if s.speaks(info.Name) {
				s.routes[len(s.routes)-1].words = d
			}
		}
	}
	return nil
}

func (s *Server) add(pattern string, serve func(*call) error, needs auth.Scope, st *boundStream) error {
	rt, ok := newRoute(pattern, serve)
	if !ok {
		return fmt.Errorf("edge: pattern %q is not a method and a path", pattern)
	}
	for _, other := range s.routes {
		if other.method != rt.method || (other.transport() == dialect.WebSocket) != (st != nil && st.Transport == dialect.WebSocket) || !slices.EqualFunc(other.segments, rt.segments, sameSegment) {
			continue
		}
		if st == nil || !st.Asked || other.asked() {
			return fmt.Errorf("edge: patterns %q and %q are the same", pattern, other.pattern)
		}
		other.hasStream = true
	}
	rt.needs, rt.stream = needs, st
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

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := &call{r: r, id: requestID(r.Header), begun: time.Now(), log: s.cfg.Logger, hooks: s.cfg.Hooks, rpcs: s.grpc}
	c.w = &response{ResponseWriter: w}
	h := w.Header()
	c.set("X-Request-Id", valueID, c.id)
	h["X-Content-Type-Options"] = headerNoSniff
	s.cors(c)
	parked := false
	defer func() {
		c.room.give(c.room.bytes)
		if v := recover(); !parked {
			c.finish(v)
		}
	}()
	err := s.dispatch(c)
	if parked = err == errParked; !parked { //nolint:errorlint // it is handed over, never wrapped
		c.err = err
	}
}

func (s *Server) dispatch(c *call) (err error) {
	if len(c.r.RequestURI) > maxURI {
		return errURITooLong
	}
	if s.preflight(c) {
		return nil
	}
	var allow []string
	if c.route, c.path, allow, err = find(s.routes, c.r); err != nil {
		if len(allow) > 0 {
			c.w.Header().Set("Allow", strings.Join(allow, ", "))
		}
		if c.words = s.wordsFor(c.r.URL.Path); c.words != nil {
			c.named()
		}
		return err
	}
	if c.words = c.route.words; c.words != nil {
		c.named()
	}
	if c.route.needs != 0 {
		if err := s.authorize(c); err != nil {
			return err
		}
	}
	return c.route.serve(c)
}

// key names the run of the path within the caller's tenant. The error wraps schema.ErrBadID.
func (c *call) key() (schema.RunKey, error) {
	run := c.path["run"]
	if err := schema.ValidRunID(run); err != nil {
		return schema.RunKey{}, err
	}
	c.run = run
	return schema.RunKey{Tenant: c.caller.Tenant, Run: run}, nil
}

// existing returns the head of a run that exists; the error wraps fanout.ErrNotFound for one that does
// not or is another tenant's.
func (s *Server) existing(ctx context.Context, key schema.RunKey) (schema.Head, error) {
	head, err := s.hub.Head(ctx, key)
	if err == nil && !head.Exists() {
		err = fanout.ErrNotFound
	}
	return head, err
}
