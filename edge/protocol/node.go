package protocol

import (
	"context"
	"time"

	"agentstream/edge/audit"
	"agentstream/edge/auth"
	"agentstream/edge/body"
	"agentstream/edge/ends"
	"agentstream/edge/limits"
	"agentstream/edge/live"
	"agentstream/edge/runs"
	"agentstream/edge/state"
	"agentstream/producers"
	"agentstream/schema"
)

// NodeConfig sets a Node up.
type NodeConfig struct {
	Runs       *runs.Runs
	State      *state.Cache
	Appender   *producers.Appender
	Bodies     *body.Bodies
	Limits     *limits.Limiter // nil: there are none
	Tickets    *auth.Tickets   // nil: there are none
	LogTimeout time.Duration
	Hooks      live.Hooks
	Audit      *audit.Trail                   // nil: nothing is recorded
	Failing    func(context.Context) []string // names of what the node needs and has not now
	Closing    <-chan struct{}                // is closed when the node begins to go away
}

// Node is what the routes of an edge node share. It is safe for concurrent use.
type Node struct {
	cfg    NodeConfig
	checks *payloadChecks
}

// NewNode compiles the catalogue's JSON Schemas. It starts nothing.
func NewNode(cfg NodeConfig) (*Node, error) {
	checks, err := compilePayloadChecks(schema.Types())
	return &Node{cfg: cfg, checks: checks}, err
}

// Check holds an event's payload to its type's schema. The error wraps schema.ErrMalformed and says which field. plain
// is false when schema.UnknownFields may find something.
func (n *Node) Check(e *schema.Event) (plain bool, err error) { return n.checks.check(e) }

// Meter serves what writes events within the limits of the caller's tenant.
func (n *Node) Meter(serve func(*Call) error) func(*Call) error {
	return func(c *Call) error {
		var err error
		if c.meter, err = n.cfg.Limits.Enter(c.Caller.Tenant, true); err == nil {
			err = n.serveMetered(c, serve)
		}
		if h := n.cfg.Hooks.IngestRefused; h != nil && err != nil {
			h(ends.ReasonOf(err))
		}
		return err
	}
}

func (n *Node) serveMetered(c *Call, serve func(*Call) error) error {
	defer func() { n.cfg.Limits.Leave(c.meter, true); c.meter = nil }()
	return serve(c)
}
