// Package agentstream is the Go client of an agentstream server: it creates runs, writes events, sends
// commands and watches runs, over as many connections as that takes.
//
// # What it is
//
// A [Client] speaks the native protocol over HTTP/1.1 and HTTP/2. [Client.Run] returns a handle of one [Run],
// without asking the server. [Run.Watch] returns a [Stream]: the events of the run after a cursor, in order, each
// once, across broken connections, restarts of the server and expired credentials. [Run.Append] and the commands
// are repeated under one idempotency key until they are answered, so that they take effect once. [Run.Sink] is for
// agents: it takes events as they happen and sends them in batches, and package producers builds typed events
// for it. [Run.Snapshot] returns the state of a run, and [Fold] adds later events to it.
//
// # Contract
//
// Loss is never silent. The first seq of every event is the last one's seq + 1. (Deltas that came together share
// both; [Stream.Cursor] moves with the last of them.) Where it is not, the Stream returns a [GapError] before it
// continues, or with [Options].Refetch first asks the server again for the missing events. A cursor moves only
// when a whole frame has arrived. Errors that a repeat cannot change are an [*Error]; the sentinels tell them
// apart ([ErrNotFound], [ErrExpired] …). Other failures are retried with growing pauses, until the context ends
// or [Config].GiveUp is over. io.EOF is the end of the run, confirmed by the server.
//
// # Concurrency
//
// A Client, a Run, a Publisher and a Sink are safe for concurrent use. A Stream belongs to one goroutine, except
// Close. A Sink runs a goroutine while it has events that are not stored, and Close waits for it. A Publisher runs
// one for each request. An open Stream holds one connection until Close or the end of its context.
//
// # What it does not do
//
// It does not store cursors: [Stream.Cursor] is the caller's to keep. It does not decode payloads. It speaks
// neither WebSocket nor gRPC.
//
// # Where to look next
//
// docs/clients.md shows its use; docs/dialects/native.md describes the protocol. runs.go has the handle, watch.go
// the Stream, sink.go the Sink, request.go the repeats.
package agentstream
