package rest

import (
	"log/slog"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/live"
	"agentstream/edge/protocol"
	"agentstream/edge/publish"
	"agentstream/edge/transport/jsonl"
	"agentstream/edge/transport/sse"
	"agentstream/edge/workers"
	"agentstream/schema"
)

// Config sets an API up.
type Config struct {
	protocol.NodeConfig // of Node
	Node                *protocol.Node
	Live                *live.Live
	Blobs               Blobs // nil: none are kept
	// Redact hides in an output what is not to be stored; see edge.Config.
	Redact   func(tenant string, output []byte) (kept, field []byte)
	Taps     Taps     // nil: all runs of a tenant cannot be followed
	Operator Operator // nil: lag and dead letters are not known here
	Facts    Facts
	Shares   *auth.Shares     // nil: none are made
	Workers  *workers.Workers // nil: agents cannot ask for work

	MaxBodyBytes       int64
	BodyMemory         int64
	MaxBlobBytes       int64
	MaxRunBlobBytes    int64
	MaxTenantBlobBytes int64
	BodyTimeout        time.Duration
	WriteTimeout       time.Duration
	KeepAlive          time.Duration
	Retry              time.Duration // reconnection hint of taps
	Logger             *slog.Logger
}

// API serves the native protocol's requests over HTTP. It is safe for concurrent use.
type API struct {
	cfg   Config
	ids   *schema.IDs
	jsonl *jsonl.LineTransport
	blobs blobsUsed
	sse   *sse.Transport
	taps  openTaps

	publishing *publish.Config // what all streams have in common
	warned     once            // of fields that are not known
}

// New starts nothing.
func New(cfg Config) (*API, error) {
	files, err := jsonl.New(jsonl.Config{WriteTimeout: cfg.WriteTimeout})
	if err != nil {
		return nil, err
	}
	events, err := sse.New(sse.Config{WriteTimeout: cfg.WriteTimeout, Retry: cfg.Retry})
	a := &API{cfg: cfg, ids: schema.NewIDs(), jsonl: files, sse: events}
	a.publishing = publish.Config{Store: a.Lines, Has: a.has, Refuse: a.Refusal, Limits: cfg.Limits}.WithDefaults()
	return a, err
}

// Routes returns the paths.
func (a *API) Routes() []protocol.Route {
	read := func(pattern string, serve func(*protocol.Call) error) protocol.Route {
		return protocol.Route{Pattern: pattern, Needs: auth.ScopeRead, Serve: serve}
	}
	write := func(pattern string, serve func(*protocol.Call) error) protocol.Route {
		return protocol.Route{Pattern: pattern, Needs: auth.ScopeWrite, Writes: true, Serve: serve}
	}
	list := []protocol.Route{
		{Pattern: "GET /v1/agent/whoami", Needs: auth.ScopeRead, Anywhere: true, Serve: whoami},
		read("GET /v1/agent/runs", a.listRuns),
		write("POST /v1/agent/runs", a.createRun),
		read("GET /v1/agent/runs/{run}", a.summary),
		write("PUT /v1/agent/runs/{run}", a.putRun),
		write("POST /v1/agent/runs/{run}/events", a.ingest),
		{Pattern: "POST /v1/agent/events", Needs: auth.ScopeWrite, Serve: a.publish}, // a stream is no request at a time
		read("GET /v1/agent/runs/{run}/events", a.page),
		read("GET /v1/agent/runs/{run}/steps", a.listSteps),
		read("GET /v1/agent/runs/{run}/costs", a.runCosts),
		read("GET /v1/agent/costs", a.dailyCosts),
		read("GET /v1/agent/runs/{run}/snapshot", a.snapshot),
		read("GET /v1/agent/runs/{run}/replay.jsonl", a.export),
		read("POST /v1/agent/runs/{run}/tickets", a.createTicket),
		read("POST /v1/agent/runs/{run}/shares", a.createShare),
	}
	for _, o := range orders() {
		list = append(list, protocol.Route{Pattern: "POST /v1/agent/runs/{run}/" + o.name, Needs: auth.ScopeCommand,
			Serve: func(c *protocol.Call) error { return a.command(c, o) }})
	}
	list = append(list, a.tapRoutes()...)
	list = append(list, a.operationRoutes()...)
	if a.cfg.Workers != nil {
		list = append(list, a.workRoute())
	}
	if a.cfg.Blobs != nil {
		list = append(list, write("PUT /v1/agent/runs/{run}/blobs", a.putBlob),
			read("GET /v1/agent/runs/{run}/blobs/{ref}", a.getBlob))
	}
	return list
}
