// Package edge serves runs to clients and takes events from producers over HTTP. It holds no state
// that matters: any node answers any request, and a client that loses one goes on at another.
//
// # What it is
//
// A [Server] with these routes beside those of its dialects:
//
//	POST /v1/agent/runs                begin a run
//	POST /v1/agent/runs/{run}/events   append events: NDJSON, a JSON array or one object
//	GET  /v1/agent/runs/{run}          what is known of a run
//	GET  /v1/agent/runs                the tenant's runs, newest first: ?state=&since=&until=&limit=&cursor=
//	GET  /v1/agent/runs/{run}/events   a page of events: ?after=&before=&order=&limit=&types=&child=&nested=
//	GET  /v1/agent/runs/{run}/replay.jsonl  a run as a file: ?after=&through=&types=&child=&nested=
//	GET  /healthz, /readyz             is the process alive; can it serve, and what it promises
//
// # Contract
//
// Events are acknowledged when they are durable, all of a request or none. Every refusal is JSON
// with a code; reason.go is the one table that turns an error into a status, a body, a last frame and
// a close code. Ids are checked before anything is looked up, and the tenant comes from the
// credential alone: what belongs to another tenant does not exist.
//
// A stream ends cleanly only when the run has ended and the client has its last event. In all other
// cases its body is broken off, so that no client takes a cut for the end, and nothing is ever sent
// that the log does not hold.
//
// # Concurrency
//
// A Server is safe for concurrent use. Each request is served by its own goroutine alone; a slow
// client holds that goroutine, one buffer and one batch (fanout: at most 256 KiB and a pack).
//
// # What it does not do
//
// It knows no dialect (cmd hands them in), no database and no metrics library ([Hooks]). It does not
// order or number events: producers and the log do.
//
// # Where to look next
//
// fanout.Hub, which this package reads from; producers.Appender, which it writes through; dialect and
// transport below.
package edge
