package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"time"

	"agentstream/producers"
	"agentstream/schema"
)

// Upstream is one API that calls are handed on to.
type Upstream struct {
	Name string   // [A-Za-z0-9_-]; with several upstreams the first element of the path
	URL  *url.URL // http or https, with or without a path, without user and query
}

// Requests selects what is kept of requests.
type Requests string

// What is kept of requests: their last user message and the results of tools, or nothing.
const (
	RequestsAll  Requests = "all"
	RequestsNone Requests = "none"
)

// Config of a Proxy. Upstreams, Tenants and Open are required.
type Config struct {
	Upstreams []Upstream
	// Tenants that callers may name; the first is that of callers who name none.
	Tenants []string
	// Open returns the way to a run's log. It must not wait for the log: Standing and Send do. It is called
	// once for as long as the proxy remembers the run, which closes what it was given.
	Open func(ctx context.Context, key schema.RunKey) (Sink, error)

	// Trace opens the span of a request that came with a traceparent, "" for none. It returns nil for a request that is not
	// sampled, and must not block. nil: there are no spans, and upstreams get the traceparents of callers.
	Trace func(parent string) RequestSpan

	Requests Requests // default RequestsAll
	// RetryHold is how long at least a call that failed in a way that clients repeat waits for its repeat before it is
	// recorded as failed. 0: not at all.
	RetryHold time.Duration
	// ToolHold is how long a run with a generated id waits, after an answer that calls the caller's tools, for the call
	// that brings their results. 0: not at all.
	ToolHold time.Duration
	// IdleEnd ends a run that callers have named when nothing was written to it for so long. 0: never.
	IdleEnd time.Duration

	CallBytes   int // most bytes of one call that wait for the log, of request and answer together; default 4 MiB
	TotalBytes  int // the same of all calls; default 64 MiB
	AnswerBytes int // most of one answer that is recorded, in bytes after decompression; default 64 MiB
	MaxCalls    int // most calls that are being recorded; default 4,096
	MaxRuns     int // most runs without a call that are remembered; default 4,096
	// Grace is how long Run waits at its end for what is not stored yet. Default 10 s.
	Grace time.Duration

	Transport http.RoundTripper // nil: NewTransport
	IDs       *schema.IDs
	Logger    *slog.Logger
	Hooks     Hooks
}

// Sink takes the events of one run. Implementations are safe for concurrent use.
type Sink interface {
	// Send stores events in order. It returns when they are stored, or when it is certain or given up that they are
	// not; it waits while the log is away, until ctx ends. ErrEnded: the run is over, and none was stored.
	// An event that brings a seq is stored with that or not at all (ErrSeqMismatch). Nothing of the events is kept.
	Send(ctx context.Context, events ...schema.Event) (producers.Receipt, error)
	// Standing reads how far the run is. It waits while the log is away, until ctx ends.
	Standing(ctx context.Context) (Standing, error)
	// Events calls take for the events with after < seq ≤ through that are still there, in order; deltas may be
	// left out, and what take keeps of an event it copies. It waits while the log is away, until ctx ends.
	Events(ctx context.Context, after, through schema.Seq, take func(*schema.Event)) error
	// Close lets go of what the sink holds.
	Close(ctx context.Context) error
}

// Standing is how far a run is: the zero value is a run without events.
type Standing struct {
	Last  schema.Seq
	State schema.RunState
}

// Hooks are called as things happen; nil ones are off. They must not block.
type Hooks struct {
	Opened func(upstream string) // a request is handed on
	Closed func(Done)            // its client's side is over
	Lost   func(Loss)
	Kept   func(provider string, events int) // an answer's events under custom.*, when it is stored
}

// Outcome is how a call went for its client.
type Outcome string

// The outcomes.
const (
	OutcomeOK          Outcome = "ok"          // the upstream's answer, whole
	OutcomeRefused     Outcome = "refused"     // an answer with a status of 400 or more
	OutcomeUnreachable Outcome = "unreachable" // the upstream did not answer
	OutcomeBroken      Outcome = "broken"      // the upstream's answer broke off
	OutcomeCancelled   Outcome = "cancelled"   // the client left
)

// RequestSpan is the span of a request, whatever keeps it.
type RequestSpan interface {
	Traceparent() string // that the upstream gets
	Close(Done)
}

// Done is a request whose client's side is over.
type Done struct {
	Upstream string
	Outcome  Outcome
	Recorded bool
	Sent     int64 // bytes of the request's body
	Received int64 // bytes of the answer's body
	Took     time.Duration
}

// Loss is something that the run lacks.
type Loss struct {
	Key      schema.RunKey
	Reason   string // from a fixed set
	Bytes    int64  // as they came over the wire
	Recorded bool   // the run records it; otherwise only the process's log does
}

func (c Config) withDefaults() Config {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.CallBytes, 4<<20)
	def(&c.TotalBytes, 64<<20)
	def(&c.AnswerBytes, 64<<20)
	def(&c.MaxCalls, 4096)
	def(&c.MaxRuns, 4096)
	c.Requests = cmp.Or(c.Requests, RequestsAll)
	c.Grace = cmp.Or(c.Grace, 10*time.Second)
	if c.Transport == nil {
		c.Transport = NewTransport()
	}
	if c.IDs == nil {
		c.IDs = schema.NewIDs()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var names []string
	for _, u := range c.Upstreams {
		if err := schema.ValidTenant(u.Name); err != nil || slices.Contains(names, u.Name) {
			return fmt.Errorf("proxy: upstream %.40q: want a name of letters, digits, - and _, and each once", u.Name)
		}
		names = append(names, u.Name)
		if runPrefix == "/"+u.Name+"/" {
			return fmt.Errorf("proxy: upstream %s: paths that begin with it name a run; give it another name", u.Name)
		}
		if u.URL == nil || u.URL.Scheme != "http" && u.URL.Scheme != "https" || u.URL.Host == "" {
			return fmt.Errorf("proxy: upstream %s: want http://HOST[:PORT] or https://…", u.Name)
		}
		if u.URL.User != nil || u.URL.RawQuery != "" || u.URL.Fragment != "" {
			return fmt.Errorf("proxy: upstream %s: want an address without user, query and fragment; callers bring their credentials", u.Name)
		}
	}
	for _, t := range c.Tenants {
		if err := schema.ValidTenant(t); err != nil {
			return fmt.Errorf("proxy: %w", err)
		}
	}
	switch {
	case len(names) == 0:
		return errors.New("proxy: no upstream")
	case len(c.Tenants) == 0:
		return errors.New("proxy: no tenant")
	case c.Open == nil:
		return errors.New("proxy: no way to open a run")
	case c.Requests != RequestsAll && c.Requests != RequestsNone:
		return fmt.Errorf("proxy: requests %.20q are neither all nor none", c.Requests)
	case c.CallBytes < 0 || c.TotalBytes < 0 || c.AnswerBytes < 0 || c.MaxCalls < 0 || c.MaxRuns < 0 || c.IdleEnd < 0 ||
		c.RetryHold < 0 || c.ToolHold < 0 || c.Grace < 0:
		return errors.New("proxy: a bound is negative")
	}
	return nil
}

// NewTransport returns the way to upstreams: without bounds on an answer's time, which is the caller's to
// bound, and without compression of its own, so that bodies pass as they are.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		ForceAttemptHTTP2:     true,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   256,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		ReadBufferSize:        16 << 10,
		WriteBufferSize:       16 << 10,
	}
}
