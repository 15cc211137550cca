package protocol

import (
	"agentstream/edge/auth"
	"agentstream/edge/dialect"
)

// Mount is what a dialect answers beside its streams. It is handed in by cmd, as dialects are.
type Protocol struct {
	Dialect dialect.Dialect // in whose words refusals are written
	Routes  []Route
	// Below are the beginnings of paths ("/v1/sessions") where also what is no route is refused in the
	// dialect's words.
	Below []string
}

// APIRoute is one path of an API.
type Route struct {
	Pattern string     // "POST /v1/sessions/{run}/events"; {run} is a run's id wherever one stands
	Needs   auth.Scope // of the caller; not 0
	Writes  bool       // counts against the tenant's limits
	// Serve answers by Call.Reply, or returns an error that the table of ends knows.
	Serve func(*Call) error
}
