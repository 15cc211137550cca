// Package serve answers the calls of the runtime protocol and mounts its streams on an edge.
//
// # What it is
//
// [Protocol] returns what an edge mounts: streams that begin with a write, unary calls, and how they end: a status, the
// name of a reason as its message, and google.rpc.ErrorInfo.
//
// # Contract
//
// A scenario is one append, all or none: a refused one has stored nothing. With the same key the same run is shown, and
// nothing is generated twice. A run of another app is refused, one of another tenant is not there.
//
// # Concurrency
//
// What is mounted is safe for concurrent use.
//
// # What it does not do
//
// It generates nothing: workers do. It translates no records: package nimi does.
//
// # Where to look next
//
// docs/dialects/runtime.md, and protocol.go for the table of calls.
package serve
