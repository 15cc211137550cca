// Package protocol is how a wire protocol is mounted on an edge: what it answers, and what it may do for that.
//
// # What it is
//
// A [Protocol] is the registration. A [Route] is one HTTP path of it, one unary RPC, or both; its function gets a
// [Call], which is one request with what a route may do: read the caller's runs, append to them, answer. A
// [Conversation] is a WebSocket on which clients send messages and hold subscriptions; its functions get a [Talk]. A
// [Node] is what all routes of a node share.
//
// # Contract
//
// The tenant comes from the credential alone. What belongs to another tenant, or is not covered by the credential,
// answers like what is not there. Events are checked as those of any producer are, and acknowledged when they are
// durable.
//
// # Concurrency
//
// A Node is safe for concurrent use. A Call belongs to the goroutine that serves it. The functions of one conversation
// are called one after another; a Talk belongs to the one that runs.
//
// # What it does not do
//
// It finds no routes and writes no refusals: package edge does, in the words of the protocol's dialect.
//
// # Where to look next
//
// edge/dialect for the translation that a protocol brings, docs/contributing.md for how one is added.
package protocol
