// Package protocol is how a wire protocol is mounted on an edge: what it answers, and what it may do for that.
//
// # What it is
//
// A [Protocol] is the registration. A [Route] is one path of it; its function gets a [Call], which is one request with
// what a route may do: read the caller's runs, append to them, answer. A [Node] is what all routes of a node share.
//
// # Contract
//
// The tenant comes from the credential alone. What belongs to another tenant, or is not covered by the credential, answers
// like what is not there. Events are checked as those of any producer are, and acknowledged when they are durable.
//
// # Concurrency
//
// A Node is safe for concurrent use. A Call belongs to the goroutine that serves it.
//
// # What it does not do
//
// It finds no routes and writes no refusals: package edge does, in the words of the protocol's dialect.
//
// # Where to look next
//
// edge/dialect for the translation that a protocol brings, docs/contributing.md for how one is added.
package protocol
