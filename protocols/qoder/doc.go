// Package qoder speaks the session protocol of Qoder Cloud Agents: sessions, threads, events, increments.
//
// # What it is
//
// A [Dialect] over server-sent events, and the words of the sessions API (package protocols/qoder/serve serves it). A
// run of the log is a session, its root lane the coordinator's thread, each child a thread. A [Projector] reads
// all records of a run and makes the frames that one request is shown: of the session, or of one thread.
//
// # Contract
//
// Every frame has an id of its own, made of the session, the seq of its record and its place among the frames of
// that record, so it is the same on every node, for every client, in the stream and in the history. Resuming
// behind any of them gives exactly the rest. What is an increment is decided by the session's own setting, as it
// stands in the log at that place, never by the request (seed 001).
//
// Appending the text_delta (thinking_delta) of a block gives the text of the same block of the agent.message
// that follows; what the producer did not stream of it is emitted before the block stops, where that is still known.
//
// # Concurrency
//
// A Dialect is immutable. A Projector belongs to one goroutine; copies share nothing that changes.
//
// # What it does not do
//
// No I/O and no clock. It does not know who calls. It runs no agents and keeps none: agent and environment ids
// are what the client sent.
//
// # Where to look next
//
// schema/assemble for what begins and ends in a run. projector.go reads records, message.go, increments.go and
// ending.go show messages, tools.go and input.go have calls and what waits, status.go who runs, session.go and
// objects.go what a session is, send.go what clients say; docs/dialects/qoder.md for users.
package qoder
