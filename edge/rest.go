package edge

import (
	"log/slog"
	"time"

	"agentstream/edge/auth"
	"agentstream/edge/transport/jsonl"
	"agentstream/producers"
	"agentstream/schema"
)

// APIConfig sets an API up.
type APIConfig struct {
	Node     *Node
	Runs     *Runs
	Folds    *foldCache
	Live     *Live
	Bodies   *Bodies
	Limits   *limiter
	Appender *producers.Appender
	Tickets  *auth.Tickets // nil: there are none
	Blobs    Blobs         // nil: none are kept

	MaxBodyBytes       int64
	BodyMemory         int64
	MaxBlobBytes       int64
	MaxRunBlobBytes    int64
	MaxTenantBlobBytes int64
	BodyTimeout        time.Duration
	WriteTimeout       time.Duration
	LogTimeout         time.Duration
	Logger             *slog.Logger
	Hooks              Hooks
}

// API serves the native protocol's requests over HTTP. It is safe for concurrent use.
type API struct {
	cfg   APIConfig
	ids   *schema.IDs
	jsonl *jsonl.Transport
	blobs blobsUsed
}

// NewAPI starts nothing.
func NewAPI(cfg APIConfig) (*API, error) {
	files, err := jsonl.New(jsonl.Config{WriteTimeout: cfg.WriteTimeout})
	return &API{cfg: cfg, ids: schema.NewIDs(), jsonl: files}, err
}

// Routes returns the paths.
func (a *API) Routes() []APIRoute {
	read := func(pattern string, serve func(*Call) error) APIRoute {
		return APIRoute{Pattern: pattern, Needs: auth.ScopeRead, Serve: serve}
	}
	write := func(pattern string, serve func(*Call) error) APIRoute {
		return APIRoute{Pattern: pattern, Needs: auth.ScopeWrite, Writes: true, Serve: serve}
	}
	list := []APIRoute{
		read("GET /v1/agent/runs", a.listRuns),
		write("POST /v1/agent/runs", a.createRun),
		read("GET /v1/agent/runs/{run}", a.summary),
		write("PUT /v1/agent/runs/{run}", a.putRun),
		write("POST /v1/agent/runs/{run}/events", a.ingest),
		read("GET /v1/agent/runs/{run}/events", a.page),
		read("GET /v1/agent/runs/{run}/steps", a.listSteps),
		read("GET /v1/agent/runs/{run}/snapshot", a.snapshot),
		read("GET /v1/agent/runs/{run}/replay.jsonl", a.export),
		read("POST /v1/agent/runs/{run}/tickets", a.createTicket),
	}
	for _, name := range commandNames {
		list = append(list, APIRoute{Pattern: "POST /v1/agent/runs/{run}/" + name, Needs: auth.ScopeCommand,
			Serve: func(c *Call) error { return a.command(c, name) }})
	}
	if a.cfg.Blobs != nil {
		list = append(list, write("PUT /v1/agent/runs/{run}/blobs", a.putBlob), read("GET /v1/agent/runs/{run}/blobs/{ref}", a.getBlob))
	}
	return list
}
