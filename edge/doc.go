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
// A stream is a session, whatever carries it: it reads a source (a run, or one of its children under
// its own numbers), as it is stored or through a shared view, and feeds a transport's sink.
//
// # Contract
//
// Events are acknowledged when they are durable, all of a request or none. Every refusal is JSON
// with a code; reason.go is the one table that turns an error into a status, a body, a last frame, a
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
// A Server is safe for concurrent use. Each request is served by its own goroutine (a WebSocket has a
// second one, which reads); a slow client holds that goroutine, one buffer and one batch (fanout: at
// most 256 KiB and a pack). Each live view has one goroutine, shared by its watchers. One request at a
// time uses a run's fold.
//
// # What it does not do
//
// It knows no dialect (cmd hands them in), no database and no metrics library ([Hooks]). It does not
// order or number events: producers and the log do.
//
// # Where to look next
//
// fanout.Hub, which this package reads from; producers.Appender, which it writes through; session.go
// for a stream's life; dialect, transport, shape and auth below.
package edge
