// Package aisdk is the UI message stream of Vercel's AI SDK, version 1 (npm ai from 5 on): useChat and its transports
// talk to it.
//
// # What it is
//
// protocol.go registers the protocol, request.go reads what a POST says and writes what is new of it, projector.go
// follows the responses of a run, chunk.go makes chunks of what the run records, message.go makes the messages of a
// page out of chunks.
//
// # Contract
//
// A UI message is a response: what the root does from a person's message to the end of the turn. Its id is made of
// the run and the record with which it began, so it is the same on every node. Chunks depend on the log alone, and on
// how many questions of the response were answered when the stream was opened: a client that counts them goes on
// after any of them.
//
// A body ends cleanly when the response is over or waits for an approval, and is broken off in all other cases: the
// clients take a clean end for success. Of a body of the client the last message from the user and the approvals
// count, nothing else.
//
// # Concurrency
//
// All values but projectors are immutable.
//
// # What it does not do
//
// Children have no messages of their own, tools of the page are not called, and deltas are not joined.
//
// # Where to look next
//
// docs/dialects/ai-sdk.md has the routes and the departures.
package aisdk
