package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/ends"
	"agentstream/edge/limits"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/rest"
	"agentstream/edge/runs"
	"agentstream/edge/workers"
	"agentstream/fanout"
	"agentstream/producers"
	"agentstream/schema"
)

// Page is what a handler of its own answers.
type Page struct {
	Patterns []string // "GET /console/{file}"
	Handler  http.Handler
}

// RequestSpan is the span of a request, whatever keeps it.
type RequestSpan interface {
	TraceID() string // in hex
	Close(end RequestEnd)
}

// Config sets a Server up. Hub and Appender are needed; everything else has a default.
type Config struct {
	Hub       *fanout.Hub
	Appender  *producers.Appender
	Protocols []protocol.Protocol // what is served beside the native requests

	// Authenticate returns the caller of a request. Its error wraps auth.ErrUnauthorized or
	// auth.ErrForbidden; any other is answered 500. It must not take a tenant from the URL. nil:
	// everyone is DefaultTenant and may do everything, for a server that only its owner can reach.
	Authenticate  func(*http.Request) (auth.Caller, error)
	DefaultTenant string // with a nil Authenticate; default "default"

	// Tickets opens streams by `?ticket=`, and makes tickets. nil: there are none.
	Tickets *auth.Tickets
	Shares  *auth.Shares // makes shares, which Authenticate accepts. nil: there are none
	// Still checks the callers of open streams again, every Recheck; a stream whose caller it refuses is
	// ended as expired. It must not block. nil: only expiry ends a caller.
	Still   func(auth.Caller) error
	Recheck time.Duration // default 10 s
	// Origins are the exact origins ("https://app.example") of pages that may read answers and open
	// WebSockets, besides those of this host. There are no patterns.
	Origins []string

	// Workers are the agents that ask for work over HTTP. nil: none can.
	Workers *workers.Workers

	// Blobs keeps large content with runs. nil: it is not taken, and an event that is too large is refused.
	Blobs Blobs
	// Redact hides in an output, which is to be kept as a blob, what is not to be stored, and returns the field by which
	// its event says so, nil where nothing was hidden. nil hides nothing. In events the Appender does it.
	Redact          func(tenant string, output []byte) (kept, field []byte)
	MaxBlobBytes    int64 // one blob; default 64 MiB
	MaxRunBlobBytes int64 // all blobs of a run; default 1 GiB
	// MaxTenantBlobBytes bounds all blobs of a tenant, about: nodes do not see each other for some seconds. 0 is no bound.
	MaxTenantBlobBytes int64

	// Catalog knows the tenants' runs beyond what the log says of one. nil: there is no list of runs,
	// and no stream of a child by its own id.
	Catalog Catalog
	// Costs knows what models have cost. nil: that is not known here.
	Costs Costs

	// Taps follows all runs of a tenant. nil: that is not served.
	Taps Taps

	// Operator knows of lag and dead letters. nil: they are not known here.
	Operator Operator
	Version  string // of the program, for operators

	// Pages are answered without a credential: the console, the contracts.
	Pages []Page

	// Trace opens the span of a request that came with a traceparent, "" for none. It returns nil for a request that is not
	// sampled, and must not block. nil: there are no spans.
	Trace func(parent string) RequestSpan

	Checks     []Check // what /readyz asks
	Durability string  // what an acknowledgement promises here, as /readyz reports (docs/guarantees.md)

	// IngestLimit bounds what each tenant may write here, over HTTP and by Take; TenantLimits are in its place for
	// some of them. The zero IngestLimit is no bound. Commands are not counted: a run can be cancelled whatever
	// its agent does. Of both, Streams bounds what a tenant may have open of MaxStreams.
	IngestLimit  IngestLimit
	TenantLimits map[string]IngestLimit // by tenant; must not be changed

	// LimitBus makes rates of tenants those of all nodes that it connects. nil: they are those of this node.
	LimitBus LimitBus

	// Audit records who opened, decided, shared, exported and deleted what, and who was refused. nil: nothing is recorded.
	Audit *audit.Trail

	MaxBodyBytes int64 // request body, as it came and inflated; default 8 MiB
	// BodyMemory is what the bodies of requests may take at once, in bytes: as they arrive, inflated and decoded.
	// A tenant may hold as much of it as it leaves for others. Default 128 MiB; at least two of MaxBodyBytes.
	BodyMemory     int64
	BodyWait       time.Duration // for a place in BodyMemory, before a request is refused; default 2 s
	MaxHeaderBytes int           // default 32 KiB
	MaxFoldBytes   int           // fold of one run, which snapshots and commands need; default 16 MiB
	StateBytes     int           // folds and projectors of runs that are kept for the next request; default 128 MiB
	SendBuffer     int           // the kernel's, per connection: how far a client may be behind unnoticed; default 256 KiB
	// MaxStreams bounds the open streams of this node, and its requests over HTTP/2, whatever they ask for; 0 is no
	// limit (cmd derives one from descriptors and memory).
	MaxStreams    int
	MaxStrangers  int           // of the requests over HTTP/2, those whose caller is not known; default 256
	KeepAlive     time.Duration // silence after which a stream gets a comment; default 15 s (native §5)
	WriteTimeout  time.Duration // for each 64 KiB written to a client; default 30 s
	BodyTimeout   time.Duration // for a request body to arrive; default 60 s
	LogTimeout    time.Duration // for the log to take or to give what a request is about; default 15 s
	HeaderTimeout time.Duration // for a request's headers; default 5 s
	// StrangerTimeout is for a request that is open to everybody, and for the refusal of others; default 5 s.
	StrangerTimeout time.Duration
	IdleTimeout     time.Duration // for the next request on a connection; default 120 s
	// after the end of Run's context, in which the node serves as before but is not ready: so long may a balancer take
	// to notice
	DrainDelay  time.Duration
	DrainWindow time.Duration // over which streams are ended at shutdown; default 5 s
	DrainLimit  time.Duration // after which Run gives up on requests; default DrainWindow + 10 s
	Retry       time.Duration // reconnection hint; each client gets 1 to 2 times it; default 1 s

	Logger *slog.Logger // nil discards
	// Requests is the level of the line for each request that is answered as it should be.
	Requests slog.Level
	Hooks    Hooks
}

// What a Config is made of is described where it is used.
type (
	Hooks       = live.Hooks
	RequestEnd  = live.RequestEnd
	Catalog     = runs.Catalog
	Costs       = runs.Costs
	Blobs       = rest.Blobs
	IngestLimit = limits.Limit
	LimitBus    = limits.Bus
	Operator    = rest.Operator
	Taps        = rest.Taps
	Partition   = rest.Partition
	Storage     = rest.Storage
	Loss        = rest.Loss
	DeadLetter  = rest.DeadLetter
)

// ErrNoRuns reports that a node keeps no list of runs.
var ErrNoRuns = ends.ErrNoRuns

// Check is one thing that this node needs. When it fails, the node is not ready, unless it is
// Optional: then the node serves less, says so, and stays in the balancer.
type Check struct {
	Name     string
	Run      func(context.Context) error
	Optional bool
}

func (c Config) withDefaults() Config {
	c.DefaultTenant = cmp.Or(c.DefaultTenant, "default")
	if c.Authenticate == nil {
		tenant := c.DefaultTenant
		everyone := auth.Caller{Tenant: tenant, Scopes: auth.ScopeAll}
		c.Authenticate = func(*http.Request) (auth.Caller, error) { return everyone, nil }
	}
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, 8<<20)
	c.BodyMemory = cmp.Or(c.BodyMemory, 128<<20)
	c.MaxBlobBytes = cmp.Or(c.MaxBlobBytes, 64<<20)
	c.MaxRunBlobBytes = cmp.Or(c.MaxRunBlobBytes, 1<<30)
	c.BodyMemory = max(c.BodyMemory, 2*(c.MaxBodyBytes+1))
	c.MaxHeaderBytes = cmp.Or(c.MaxHeaderBytes, 32<<10)
	c.MaxFoldBytes = cmp.Or(c.MaxFoldBytes, 16<<20)
	c.StateBytes = cmp.Or(c.StateBytes, 128<<20)
	c.SendBuffer = cmp.Or(c.SendBuffer, 256<<10)
	c.KeepAlive = cmp.Or(c.KeepAlive, 15*time.Second)
	c.Recheck = cmp.Or(c.Recheck, 10*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 30*time.Second)
	c.BodyTimeout = cmp.Or(c.BodyTimeout, time.Minute)
	c.BodyWait = cmp.Or(c.BodyWait, 2*time.Second)
	c.LogTimeout = cmp.Or(c.LogTimeout, 15*time.Second)
	c.HeaderTimeout = cmp.Or(c.HeaderTimeout, 5*time.Second)
	c.StrangerTimeout = cmp.Or(c.StrangerTimeout, 5*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 2*time.Minute)
	c.DrainWindow = cmp.Or(c.DrainWindow, 5*time.Second)
	c.DrainLimit = cmp.Or(c.DrainLimit, c.DrainWindow+10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.Hub == nil || c.Appender == nil {
		return errors.New("edge: hub and appender are needed")
	}
	if err := schema.ValidTenant(c.DefaultTenant); err != nil {
		return fmt.Errorf("edge: default tenant: %w", err)
	}
	if err := validOrigins(c.Origins); err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	if c.MaxBodyBytes < 0 || c.BodyMemory < 0 || c.MaxHeaderBytes < 0 || c.MaxStreams < 0 || c.MaxFoldBytes < 0 ||
		c.StateBytes < 0 {
		return fmt.Errorf("edge: limits: body %d, headers %d, streams %d, folds %d and %d: negative",
			c.MaxBodyBytes, c.MaxHeaderBytes, c.MaxStreams, c.MaxFoldBytes, c.StateBytes)
	}
	if c.MaxBlobBytes < 0 || c.MaxRunBlobBytes < 0 || c.MaxTenantBlobBytes < 0 {
		return fmt.Errorf("edge: blobs of %d bytes, %d a run, %d a tenant: negative", c.MaxBlobBytes, c.MaxRunBlobBytes,
			c.MaxTenantBlobBytes)
	}
	if err := c.IngestLimit.Validate(); err != nil {
		return fmt.Errorf("edge: %w", err)
	}
	for tenant, l := range c.TenantLimits {
		if err := errors.Join(schema.ValidTenant(tenant), l.Validate()); err != nil {
			return fmt.Errorf("edge: limit of tenant %q: %w", tenant, err)
		}
	}
	for _, d := range []time.Duration{c.KeepAlive, c.WriteTimeout, c.BodyTimeout, c.BodyWait, c.LogTimeout,
		c.HeaderTimeout, c.StrangerTimeout, c.IdleTimeout, c.DrainDelay, c.DrainWindow, c.Recheck} {
		if d < 0 {
			return fmt.Errorf("edge: %v is not a time-out", d)
		}
	}
	if c.DrainLimit < c.DrainWindow {
		return fmt.Errorf("edge: drain limit %v is under the drain window %v", c.DrainLimit, c.DrainWindow)
	}
	for _, k := range c.Checks {
		if k.Name == "" || k.Run == nil {
			return fmt.Errorf("edge: check %q has no name or nothing to run", k.Name)
		}
	}
	return nil
}

// streams returns how many streams a tenant may have open; 0 is no limit.
func (c Config) streams(tenant string) int {
	if own, ok := c.TenantLimits[tenant]; ok {
		return own.Streams
	}
	return c.IngestLimit.Streams
}

// facts are what operators are told of the configuration.
func (c Config) facts() rest.Facts {
	return rest.Facts{Version: c.Version, Durability: c.Durability, Limits: map[string]int64{
		"tenant_events_per_second": int64(c.IngestLimit.Events), "tenant_bytes_per_second": c.IngestLimit.Bytes,
		"tenant_requests_at_once": int64(c.IngestLimit.Requests),
		"streams":                 int64(c.MaxStreams), "tenant_streams": int64(c.IngestLimit.Streams),
		"body_bytes":        c.MaxBodyBytes,
		"body_memory_bytes": c.BodyMemory, "event_bytes": schema.MaxEventBytes,
		"blob_bytes": c.MaxBlobBytes, "run_blob_bytes": c.MaxRunBlobBytes, "tenant_blob_bytes": c.MaxTenantBlobBytes,
	}}
}
