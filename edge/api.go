package edge

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"agentstream/edge/auth"
	"agentstream/edge/dialect"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// API is what a dialect answers beside its streams. It is handed in by cmd, as dialects are.
type API struct {
	Dialect dialect.Dialect // in whose words refusals are written
	Routes  []APIRoute
	// Below are the beginnings of paths ("/v1/sessions") where also what is no route is refused in the
	// dialect's words.
	Below []string
}

// APIRoute is one path of an API.
type APIRoute struct {
	Pattern string     // "POST /v1/sessions/{run}/events"; {run} is a run's id wherever one stands
	Needs   auth.Scope // of the caller; not 0
	Writes  bool       // counts against the tenant's limits
	// Serve answers by Exchange.Reply, or gives an error that the server's table of ends knows: its sentinels and
	// those of dialect, schema, fanout and producers.
	Serve func(context.Context, *Exchange) error
}

// Exchange is one request of an API with what a route may do: read and write runs of the caller's tenant. One
// goroutine uses it until Serve returns. Reads and writes of a run that the caller's credential does not cover
// answer like those of a run that is not there.
type Exchange struct {
	s *Server
	c *call
	d dialect.Dialect
}

// Request is the request; its body is read by Body.
func (x *Exchange) Request() *http.Request { return x.c.r }

// Path returns the value of a {name} of the pattern, unescaped and unchecked.
func (x *Exchange) Path(name string) string { return x.c.path[name] }

// Query returns the parameters. The error wraps dialect.ErrBadRequest.
func (x *Exchange) Query() (url.Values, error) {
	q, err := readQuery(x.c.r)
	return url.Values(q), err
}

// RequestID is the request's id, as the answer's header has it.
func (x *Exchange) RequestID() string { return x.c.id }

// Caller says who asks.
func (x *Exchange) Caller() auth.Caller { return x.c.caller }

// Body reads the whole body, inflated; at most Config.MaxBodyBytes. Media types that are not named are refused.
func (x *Exchange) Body(types ...string) ([]byte, error) {
	body, err := x.s.body(x.c, types...)
	if errors.Is(err, errMediaType) {
		err = dialect.Refuse(errMediaType, "send %s, in UTF-8, and say so in Content-Type", strings.Join(types, " or "))
	}
	return body, err
}

// NewRun returns a new id with a prefix.
func (x *Exchange) NewRun(prefix string) string { return prefix + newHex() }

func (x *Exchange) key(run string) (schema.RunKey, error) {
	if err := schema.ValidRunID(run); err != nil {
		return schema.RunKey{}, fmt.Errorf("%w: %s", fanout.ErrNotFound, err) // no run has such an id
	}
	if only := x.c.caller.Run; only != "" && only != run {
		return schema.RunKey{}, fmt.Errorf("credential is for run %s alone: %w", only, fanout.ErrNotFound)
	}
	x.c.run = run
	return schema.RunKey{Tenant: x.c.caller.Tenant, Run: run}, nil
}

// Head returns the head of a run. The error wraps fanout.ErrNotFound for one that is not there.
func (x *Exchange) Head(ctx context.Context, run string) (schema.Head, error) {
	key, err := x.key(run)
	if err != nil {
		return schema.Head{}, err
	}
	return x.s.existing(ctx, key)
}

// At returns a copy of the API's Stateful projector that was fed a run up to through, which must exist, for a
// request; the caller owns it.
func (x *Exchange) At(ctx context.Context, run string, through schema.Seq, req dialect.Request) (dialect.Stateful, error) {
	key, err := x.key(run)
	if err != nil {
		return nil, err
	}
	return x.s.checkpoints.at(ctx, key, x.d, through, req)
}

// Find looks for the frame with a token (dialect.Cursor.Token): the seq of its record, and how many frames of that
// record come before it in the form of req. The error wraps schema.ErrBadCursor when it is not there.
func (x *Exchange) Find(ctx context.Context, run string, c dialect.Cursor, req dialect.Request) (seq schema.Seq, before int, err error) {
	key, err := x.key(run)
	if err != nil {
		return 0, 0, err
	}
	f, err := x.s.find(ctx, key, x.d, c, req)
	if err != nil {
		return 0, 0, err
	}
	return f.seq, f.index - 1, nil
}

// Records walks a run's records with after < seq ≤ through. They are valid until the next one; the walk ends with
// an error when something of it cannot be had.
func (x *Exchange) Records(ctx context.Context, run string, after, through schema.Seq) iter.Seq2[schema.Record, error] {
	key, err := x.key(run)
	if err != nil {
		return func(yield func(schema.Record, error) bool) { yield(schema.Record{}, err) }
	}
	return source{key: key}.walk(ctx, x.s.hub, after, through)
}

// Append stores events, checked as those of any producer are, all of them or none where they fit one pack. The
// error is that of producers.Appender.
func (x *Exchange) Append(ctx context.Context, run string, events []schema.Event, opt producers.AppendOptions) (producers.Receipt, error) {
	key, err := x.key(run)
	if err != nil {
		return producers.Receipt{}, err
	}
	bytes := int64(0)
	for i := range events {
		if err := events[i].Prepare(run); err != nil {
			return producers.Receipt{}, &schema.BatchError{Line: i + 1, Err: err}
		}
		if err := x.s.checks.check(&events[i]); err != nil {
			return producers.Receipt{}, &schema.BatchError{Line: i + 1, Err: err}
		}
		bytes += int64(events[i].Size())
	}
	if err := x.s.limits.spend(x.c.meter, len(events), bytes); err != nil {
		return producers.Receipt{}, err
	}
	receipt, err := x.s.append.Append(ctx, key, events, opt)
	if err != nil {
		return receipt, err
	}
	x.c.seq, x.c.events = receipt.Last, len(events)
	if receipt.Replayed {
		x.c.w.Header().Set("Idempotency-Replayed", "true")
	} else if h := x.s.cfg.Hooks.Ingested; h != nil {
		h(len(events))
	}
	return receipt, nil
}

// Keyed returns the append options that the request's Idempotency-Key asks for. The error wraps
// dialect.ErrBadRequest.
func (x *Exchange) Keyed() (producers.AppendOptions, error) {
	return keyed("Idempotency-Key", x.c.r.Header["Idempotency-Key"])
}

// Runs lists runs of the caller's tenant as far as they have been persisted. The error wraps ErrNoRuns or
// fanout.ErrUnavailable.
func (x *Exchange) Runs(ctx context.Context, q schema.RunsQuery) ([]schema.RunInfo, error) {
	if x.s.cfg.Catalog == nil {
		return nil, ErrNoRuns
	}
	runs, err := x.s.cfg.Catalog.Runs(ctx, x.c.caller.Tenant, q)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w: %w", fanout.ErrUnavailable, err)
	}
	return runs, nil
}

// Reply answers with a JSON body.
func (x *Exchange) Reply(status int, body []byte) { x.c.reply(status, body) }

// api serves one route of an API.
func (s *Server) api(a *API, rt *APIRoute) func(*call) error {
	serve := func(c *call) error {
		ctx, cancel := context.WithTimeout(c.r.Context(), s.cfg.LogTimeout)
		defer cancel()
		return rt.Serve(ctx, &Exchange{s: s, c: c, d: a.Dialect})
	}
	if rt.Writes {
		return s.metered(serve)
	}
	return serve
}

// bindAPIs adds the routes of the APIs. They come before the streams, whose paths some of them share.
func (s *Server) bindAPIs() error {
	for i := range s.cfg.APIs {
		a := &s.cfg.APIs[i]
		for j := range a.Routes {
			rt := &a.Routes[j]
			if rt.Needs == 0 {
				return fmt.Errorf("edge: %s says not what its callers need", rt.Pattern)
			}
			if err := s.add(rt.Pattern, s.api(a, rt), rt.Needs, nil); err != nil {
				return err
			}
			s.routes[len(s.routes)-1].words = a.Dialect
		}
	}
	return nil
}

// speaks reports whether a dialect has an API here.
func (s *Server) speaks(name string) bool {
	for i := range s.cfg.APIs {
		if s.cfg.APIs[i].Dialect.Info().Name == name {
			return true
		}
	}
	return false
}

// wordsFor returns the dialect in which a request is refused that has no route: nil is the server's own.
func (s *Server) wordsFor(path string) dialect.Dialect {
	for i := range s.cfg.APIs {
		for _, below := range s.cfg.APIs[i].Below {
			if rest, ok := strings.CutPrefix(path, below); ok && (rest == "" || rest[0] == '/') {
				return s.cfg.APIs[i].Dialect
			}
		}
	}
	return nil
}
