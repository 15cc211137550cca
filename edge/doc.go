// Package edge serves runs to clients and takes events and commands over HTTP. It holds no state that
// matters: any node answers any request, and a client that loses one goes on at another.
//
// # What it is
//
// A [Server] with these routes beside those of its dialects, which are streams and, in an [API], all else that a
// dialect answers (sessions, say):
//
//	GET  /v1/agent/runs                     the tenant's runs, newest first
//	POST /v1/agent/runs                     begin a run
//	GET  /v1/agent/runs/{run}               what is known of a run
//	POST /v1/agent/runs/{run}/events        append events: NDJSON, a JSON array or one object
//	GET  /v1/agent/runs/{run}/events        a page of events, upwards or downwards, filtered
//	PUT  /v1/agent/runs/{run}/blobs         keep large content with a run
//	GET  /v1/agent/runs/{run}/blobs/{ref}   give it back
//	GET  /v1/agent/runs/{run}/replay.jsonl  a run or a range of it as a file
//	GET  /v1/agent/runs/{run}/snapshot      a run summed up, now or at ?at=N
//	POST /v1/agent/runs/{run}/tickets       a ticket for one stream
//	POST /v1/agent/runs/{run}/pause         a command; also approve_plan, reject_plan, resume, redirect,
//	                                        cancel, answer, messages
//	POST /grpc.health.v1.Health/Check       with Watch and reflection, where a dialect is served over gRPC
//	GET  /healthz, /readyz                  is the process alive; can it serve, and what it promises
//
// The server finds the route, authenticates and answers refusals. The work is done by the packages below: rest
// answers the native requests, live serves streams, dialect translates, transport carries.
//
// # Contract
//
// Events are acknowledged when they are durable, all of a request or none. Every refusal is JSON
// with a code; package ends has the one table that turns an error into a status, a body, a last frame, a
// close code and a gRPC status. Ids are checked before anything is looked up, and tenant and scopes come
// from the credential alone: what belongs to another tenant does not exist, to any route or transport.
//
// A stream ends cleanly only when the run has ended and the client has its last event. In all other
// cases it is broken off in its transport's terms, so that no client takes a cut for the end. What a
// view shows is made of what the log holds and of nothing else; the one frame that is not, the word
// about a credential that has ended, moves no cursor.
//
// A command is stored only behind the very head whose state allows it.
//
// # Concurrency
//
// A Server is safe for concurrent use. Each request is served by its own goroutine (a WebSocket has a second one, which
// reads, and in a conversation calls the protocol); a slow client holds that goroutine, one buffer and one batch
// (fanout: at most 256 KiB and a pack). Each live view has one goroutine while there is something to show. One request
// at a time uses a run's fold.
//
// # What it does not do
//
// It knows no dialect (cmd hands them in), no database and no metrics library ([Hooks]). It does not
// order or number events: producers and the log do.
//
// # Where to look next
//
// router.go and call.go for the way of a request; rest for the native requests, live for streams, protocol for
// how a protocol is mounted; docs/walk.md for one event on its way through all of them.
package edge
