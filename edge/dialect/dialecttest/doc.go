// Package dialecttest holds dialects to their contract, and has a sample protocol, written against it alone, as an example.
//
// # What it is
//
// [Suite] is what every dialect must pass, whatever its words: it reads logs by the parts that an edge reads them with, and
// compares what clients are shown.
//
// [Protocol] registers [Sample], which has one of everything that a protocol may have: it is what to copy when a protocol is
// added. sample.go has the registration and reads requests, projector.go makes frames, talk.go is a conversation on a
// WebSocket, routes.go has HTTP routes and a unary RPC.
//
// # Contract
//
// The sample uses what package protocol and package dialect export and nothing else. The tests of package edge serve it over real
// connections, over every transport.
//
// # Concurrency
//
// All values are immutable. A Suite starts goroutines that end with its test. A Suite starts goroutines that end with its test.
//
// # What it does not do
//
// No product speaks it.
//
// # Where to look next
//
// docs/contributing.md, which builds them step by step; edge/protocol for the contract.
package dialecttest
