// Command agent is an agent in Go that writes over HTTP and can be cancelled.
//
// # What it is
//
// Start a server, then the agent, and watch it:
//
//	bin/agentstream dev --no-demo
//	AGENTSTREAM_SERVER=http://127.0.0.1:8080 go run ./examples/agent
//	bin/agentstream tail tutorial
//
// # Contract
//
// Every event that the agent writes is stored once and in order, also when the server restarts meanwhile. The run
// ends as done, or as aborted after agentstream cancel tutorial.
//
// # Concurrency
//
// One goroutine writes, and one watches for a cancellation.
//
// # What it does not do
//
// It calls no model: turn.Model does that, see the examples of package producers.
//
// # Where to look next
//
// docs/tutorial.md explains it; docs/producers.md is the guide.
package main
