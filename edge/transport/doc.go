// Package transport is the contract between the edge and what carries frames to a client.
//
// # What it is
//
// A [Sink] is one open connection to one client. sse, ws and grpc below implement it; jsonl writes whole runs as files,
// by lines and not by frames. An [End] is what a client is sent last: whether the stream is complete, last frames, and
// a code with a reason, in the words of its protocol. A [Response] is how those that answer over HTTP write under
// deadlines.
//
// # Contract
//
// A sink writes frames in the order in which it gets them, whole, and nothing that it was not given
// but what its protocol needs. Every write is bounded in time: a client that does not take what is
// written makes it fail with dialect.ErrSlowClient; one that is gone, with dialect.ErrClientGone.
// Memory per connection is bounded whatever is written.
//
// # Concurrency
//
// One goroutine at a time uses a Sink. Whatever else a transport runs for a connection has ended when
// End returns.
//
// # What it does not do
//
// It does not know runs, the log, or why something ends; it does not build frames.
//
// # Where to look next
//
// edge/live, which feeds sinks; edge/ends for the table of ends.
package transport
